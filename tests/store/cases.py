"""Strategies for the nouns, and small examples of them."""

from __future__ import annotations

from hypothesis import strategies as st

from burnish.types import (
    Budget,
    Event,
    Message,
    Score,
    Stamp,
    Status,
    Stream,
    Task,
    Tool,
    ToolCall,
    Trajectory,
    Turn,
)
from burnish.types import Sampling as SamplingParameters

text = st.text(max_size=12)
number = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**62), 2**62)
json_values = st.recursive(
    st.none() | st.booleans() | whole | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
free_form = st.dictionaries(text, json_values, max_size=3)
ids = st.lists(st.integers(0, 50_000), max_size=5).map(tuple)


def some(element: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(element, max_size=2).map(tuple)


calls = st.builds(ToolCall, name=text, arguments=free_form, id=text)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=text,
    tool_calls=some(calls),
    tool_call_id=st.none() | text,
)
limit = st.none() | st.integers(0, 10**6)
tasks = st.builds(
    Task,
    id=text,
    domain=text,
    prompt=some(messages),
    tools=some(st.builds(Tool, name=text, description=text, parameters=free_form)),
    budget=st.builds(Budget, turns=limit, tokens=limit, wall_s=st.none() | number),
    setup=free_form,
    secret=free_form,
    mode=text,
    tags=st.dictionaries(text, text, max_size=2),
)
turns = st.builds(
    Turn,
    parent=st.none() | st.integers(0, 5),
    after=st.none() | st.integers(0, 5),
    agent=text,
    prompt_ids=ids,
    output_ids=ids,
    logprobs=st.lists(number, max_size=4).map(tuple),
    trainable=st.lists(st.booleans(), max_size=4).map(tuple),
    message=messages,
    stop=st.sampled_from(["stop", "length", "cancelled"]),
    sampling=st.builds(
        SamplingParameters, temperature=number, max_tokens=limit.map(lambda x: x or 0), seed=whole
    ),
    stamps=some(st.builds(Stamp, start=st.just(0), stop=st.integers(0, 9), version=st.integers(0, 9))),
)
streams = st.builds(
    Stream,
    value=st.none() | number,
    turns=st.none() | st.lists(st.none() | number, max_size=3).map(tuple),
)
trajectories = st.builds(
    Trajectory,
    id=text,
    task=tasks,
    turns=st.lists(turns, max_size=2),
    tail_ids=ids,
    events=st.lists(
        st.builds(Event, kind=text, turn=st.integers(0, 5), data=free_form, clock=number), max_size=2
    ),
    status=st.none()
    | st.builds(Status, kind=st.sampled_from(["completed", "truncated", "invalid", "tampered"]), reason=text),
    score=st.none()
    | st.builds(Score, value=st.none() | number, parts=st.dictionaries(text, streams, max_size=2)),
    costs=st.dictionaries(text, number, max_size=2),
    lineage=free_form,
)


def task(name: str = "t1", secret: str = "the-answer") -> Task:
    return Task(name, "files", (Message("user", "count"),), (), Budget(turns=4), {"n": 1}, {"answer": secret})


def trajectory(name: str = "a") -> Trajectory:
    return Trajectory(name, task(), status=Status("completed"), score=Score(1.0, {"outcome": Stream(1.0)}))
