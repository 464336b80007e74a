"""Policies: what a model is asked, how it is sampled, and demonstrations that are the same tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from burnish.agent.loop import run_episode
from burnish.agent.policy import ContextFull, ModelPolicy, OraclePolicy, conversation, turn_seed
from burnish.interfaces import Policy
from burnish.model.renderer import Renderer
from burnish.types import Budget, Completion, Sampling, Stamp, Status, StopReason, Trajectory
from tests.model.tiny import tiny_directory

from .scripted import Counting, World, task


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.from_directory(tiny_directory(tmp_path_factory.mktemp("policy") / "model"))


@dataclass(eq=False)
class Replay:
    """An engine that samples the outputs it is given, one token at a time, and remembers what it was asked."""

    outputs: Sequence[Sequence[int]]
    versions: Sequence[int] = ()
    stop: StopReason = "stop"
    asked: list[tuple[list[int], Sampling]] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, n: int = 1
    ) -> AsyncIterator[Completion]:
        output = self.outputs[len(self.asked)]
        self.asked.append((list(prompt_ids), sampling))
        for place, token in enumerate(output):
            last = self.stop if place == len(output) - 1 else None
            version = self.versions[place] if self.versions else 1
            yield Completion(0, (token,), (-0.25 * place,), version, last)

    async def load(self, handle: Any, version: int) -> None:
        self.loaded.append(version)

    async def close(self) -> None:
        return None


def policy(renderer: Renderer, engine: Replay, **options: Any) -> ModelPolicy:
    settings = {"sampling": Sampling(0.8, 30), "context": 2000} | options
    return ModelPolicy(engine, renderer, **settings)


async def demonstrated(renderer: Renderer) -> Trajectory:
    domain = Counting()
    made = task(5)
    return await run_episode(
        OraclePolicy(domain, renderer), await domain.open(made), made, id="d", lineage={}
    )


def test_both_are_policies(renderer: Renderer) -> None:
    assert isinstance(policy(renderer, Replay([])), Policy)
    assert isinstance(OraclePolicy(Counting(), renderer), Policy)


async def test_a_demonstration_is_what_a_model_would_have_been_given_and_said(renderer: Renderer) -> None:
    """A model that samples the oracle's tokens sees the same prompts and makes the same episode."""
    oracle = await demonstrated(renderer)
    assert oracle.status == Status("completed") and len(oracle.turns) == 3
    engine, made = Replay([turn.output_ids for turn in oracle.turns]), task(5)
    model = await run_episode(
        policy(renderer, engine), await Counting().open(made), made, id="m", lineage={"seed": 1}
    )
    assert model.status == oracle.status
    for mine, theirs in zip(model.turns, oracle.turns, strict=True):
        assert (mine.parent, mine.after) == (theirs.parent, theirs.after)
        assert mine.prompt_ids == theirs.prompt_ids and mine.output_ids == theirs.output_ids
        assert mine.message == theirs.message
        assert mine.trainable == theirs.trainable
    assert [e.data for e in model.events] == [e.data for e in oracle.events]
    for index, (asked, _) in enumerate(engine.asked):
        turn = oracle.turns[index]
        assert asked == [*oracle.path_ids(turn.parent), *turn.prompt_ids]


async def test_a_demonstration_ends_its_turns_as_the_model_is_to(renderer: Renderer) -> None:
    for turn in (await demonstrated(renderer)).turns:
        assert turn.output_ids[-1] in renderer.stop_ids
        assert not set(turn.output_ids[:-1]) & set(renderer.stop_ids)
        assert turn.stop == "stop" and all(turn.trainable)


async def test_two_oracles_at_once_do_not_mix(renderer: Renderer) -> None:
    domain = Counting()
    oracle, made = OraclePolicy(domain, renderer), [task(1), task(2)]
    both = [Trajectory(f"e{i}", t) for i, t in enumerate(made)]
    for trajectory in both:
        trajectory.turns.append(await oracle.respond(trajectory, trajectory.task.prompt))
    assert [t.turns[0].message.tool_calls[0].arguments["at"] for t in both] == ["door", "door"]


async def test_a_turn_records_what_was_sampled_and_by_which_weights(renderer: Renderer) -> None:
    output = (await demonstrated(renderer)).turns[0].output_ids
    versions = [1] * 3 + [2] * (len(output) - 3)
    engine, trajectory = Replay([output], versions), Trajectory("e", task(5), lineage={"seed": 9})
    seen: list[int] = []
    turn = await policy(renderer, engine, watch=seen.append).respond(trajectory, trajectory.task.prompt)
    assert tuple(seen) == turn.output_ids == output
    assert turn.logprobs == tuple(-0.25 * i for i in range(len(output)))
    assert turn.stamps == (Stamp(0, 3, 1), Stamp(3, len(output), 2))
    (_, sampling), *_ = engine.asked
    assert turn.sampling == sampling
    assert (sampling.temperature, sampling.stop_ids) == (0.8, renderer.stop_ids)
    assert sampling.seed == turn_seed(trajectory)


async def test_an_engine_that_ends_without_saying_so_was_cancelled(renderer: Renderer) -> None:
    trajectory = Trajectory("e", task(5))
    turn = await policy(renderer, Replay([()])).respond(trajectory, trajectory.task.prompt)
    assert turn.stop == "cancelled" and turn.output_ids == ()


def test_seeds_differ_by_turn_and_by_episode_and_repeat() -> None:
    oracle = Trajectory("e", task(5), lineage={"seed": 1})
    first = turn_seed(oracle)
    oracle.turns.append(None)  # type: ignore[arg-type]
    second = turn_seed(oracle)
    other = turn_seed(Trajectory("e", task(5), lineage={"seed": 2}))
    assert len({first, second, other}) == 3
    assert first == turn_seed(Trajectory("another id", task(6), lineage={"seed": 1}))


async def test_an_answer_has_the_room_that_turn_budget_and_context_leave(renderer: Renderer) -> None:
    oracle = await demonstrated(renderer)
    output = oracle.turns[0].output_ids
    prompt = len(oracle.turns[0].prompt_ids)

    async def asked(budget: Budget, context: int = 2000) -> int:
        engine, trajectory = Replay([output]), Trajectory("e", task(5, budget=budget))
        await policy(renderer, engine, context=context).respond(trajectory, trajectory.task.prompt)
        return engine.asked[0][1].max_tokens

    assert await asked(Budget()) == 30
    assert await asked(Budget(tokens=12)) == 12
    assert await asked(Budget(), context=prompt + 7) == 7
    with pytest.raises(ContextFull):
        await asked(Budget(), context=prompt)


async def test_tokens_of_earlier_turns_count_against_the_budget(renderer: Renderer) -> None:
    oracle = await demonstrated(renderer)
    outputs = [turn.output_ids for turn in oracle.turns]
    limit = len(outputs[0]) + 4
    engine, made = Replay(outputs), task(5, budget=Budget(tokens=limit))
    await run_episode(policy(renderer, engine), await Counting().open(made), made, id="m", lineage={})
    assert engine.asked[1][1].max_tokens == 4


async def test_the_conversation_is_what_was_said_and_seen_up_to_the_last_turn(renderer: Renderer) -> None:
    oracle = await demonstrated(renderer)
    said = conversation(oracle)
    assert [m.role for m in said] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert said[0] == oracle.task.prompt[0] and said[-1].content == "it is 5"
    assert said[2].tool_call_id == said[1].tool_calls[0].id
    unanswered = replace(oracle, turns=oracle.turns[:2])
    assert [m.role for m in conversation(unanswered)] == ["user", "assistant", "tool", "assistant"]


async def test_a_truncated_episode_keeps_its_last_observation_as_tokens(renderer: Renderer) -> None:
    oracle = await demonstrated(renderer)
    made = task(5, budget=Budget(turns=1))
    engine = Replay([oracle.turns[0].output_ids])
    cut = await run_episode(policy(renderer, engine), await Counting().open(made), made, id="m", lineage={})
    assert cut.status == Status("truncated", "turns")
    assert cut.tail_ids == oracle.turns[1].prompt_ids


async def test_half_a_call_is_no_call(renderer: Renderer) -> None:
    oracle = await demonstrated(renderer)
    engine, made, world = Replay([oracle.turns[0].output_ids[:6]], stop="length"), task(5), World()
    cut = await run_episode(policy(renderer, engine), world, made, id="m", lineage={})
    assert cut.status == Status("truncated", "turn_tokens") and world.acted == []


async def test_a_policy_loads_its_engine(renderer: Renderer) -> None:
    engine = Replay([])
    await policy(renderer, engine).load({}, version=7)
    assert engine.loaded == [7]
