"""Reading untrusted bodies: a wrong one is refused with the field that is wrong, and nothing else escapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.serve.errors import Refusal
from burnish.serve.protocol import IGNORED, NEUTRAL, read_request

USER = {"role": "user", "content": "x"}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()


def call(arguments: str = "{}", name: str = "f", identity: str = "c1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "tool_calls": [{"id": identity, "type": "function", "function": function}],
    }


def tool(**function: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **function}}]


RESULT = {"role": "tool", "tool_call_id": "c1", "content": "r"}
WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"model": 5}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": [5]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [USER, {"role": "function", "content": ""}]}, "messages[1].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    ({"messages": [USER, {**RESULT, "tool_call_id": None}]}, "messages[1]"),
    ({"messages": [USER, RESULT]}, "messages[1].tool_call_id"),
    ({"messages": [USER, call(), RESULT, RESULT]}, "messages[3].tool_call_id"),
    ({"messages": [USER, {**call(), "role": "user", "content": ""}]}, "messages[1]"),
    ({"messages": [USER, call("{")]}, "messages[1].tool_calls[0].function.arguments"),
    ({"messages": [USER, call("[]")]}, "messages[1].tool_calls[0].function.arguments"),
    ({"messages": [USER, call('{"a": NaN}')]}, "messages[1].tool_calls[0].function.arguments"),
    ({"messages": [USER, call(name="")]}, "messages[1].tool_calls[0].function.name"),
    ({"tools": tool(name="no spaces")}, "tools[0].function.name"),
    ({"tools": tool(strict=True)}, "tools[0].function.strict"),
    ({"tools": tool(parameters={"type": "array"})}, "tools[0].function.parameters"),
    ({"tools": tool(parameters={"properties": []})}, "tools[0].function.parameters"),
    ({"tools": tool(parameters={"required": "path"})}, "tools[0].function.parameters"),
    ({"tools": tool(parameters={"properties": {"a": 5}})}, "tools[0].function.parameters"),
    ({"tools": tool(parameters={"properties": {"a": {"type": [{}]}}})}, "tools[0].function.parameters"),
    ({"tools": tool(parameters={"properties": {"a": {"enum": 5}}})}, "tools[0].function.parameters"),
    ({"tools": tool() + tool()}, "tools[1].function.name"),
    ({"tools": tool() * 129}, "tools"),
    ({"tool_choice": "required", "tools": tool()}, "tool_choice"),
    ({"tool_choice": {"type": "function"}, "tools": tool()}, "tool_choice"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"seed": 2**63}, "seed"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": "x" * 257}, "stop"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"top_p": 0.9}, "top_p"),
    ({"top_p": True}, "top_p"),
    ({"frequency_penalty": 0.5}, "frequency_penalty"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"parallel_tool_calls": False}, "parallel_tool_calls"),
    ({"top_k": 5}, "top_k"),
    ({"reasoning_effort": "low"}, "reasoning_effort"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG_FIELDS, ids=lambda v: str(v)[:50])
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_request(body(**fields))
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param.partition("[")[0] in str(caught.value)


@pytest.mark.parametrize("field", ["model", "messages"])
def test_what_is_missing_is_named(field: str) -> None:
    fields = json.loads(body())
    del fields[field]
    with pytest.raises(Refusal, match="Missing") as caught:
        read_request(json.dumps(fields).encode())
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"\xff{}", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b'{"temperature": NaN}', "NaN is not a JSON value"),
        (b'{"temperature": -Infinity}', "-Infinity is not a JSON value"),
        (b'{"temperature": 1e999}', "too large"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "limit"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "nested deeper"),
        (b'{"model": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_what_is_no_body_at_all(raw: bytes, why: str) -> None:
    with pytest.raises(Refusal, match=why) as caught:
        read_request(raw)
    assert caught.value.status == 400
    assert len(str(caught.value)) < 200


def test_what_cannot_change_the_answer_is_ignored() -> None:
    plain = read_request(body())
    assert read_request(body(**dict.fromkeys(IGNORED, "anything"))) == plain
    for name, values in NEUTRAL.items():
        for value in (*values, None):
            assert read_request(body(**{name: value})) == plain


def test_null_means_not_given() -> None:
    optional = [
        "tools",
        "tool_choice",
        "temperature",
        "max_tokens",
        "seed",
        "stop",
        "n",
        "stream",
        "logprobs",
    ]
    assert read_request(body(**dict.fromkeys(optional))) == read_request(body())


def test_a_name_that_the_model_made_up_may_be_sent_back() -> None:
    echoed = call(name="read the file!", arguments="")
    assert read_request(body(messages=[USER, echoed, RESULT])).messages[1].tool_calls is not None


def test_parallel_calls_may_be_answered_in_any_order() -> None:
    both = call()
    both["tool_calls"] += call(identity="c2")["tool_calls"]
    answers = [{**RESULT, "tool_call_id": "c2"}, RESULT]
    assert len(read_request(body(messages=[USER, both, *answers])).messages) == 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
FIELDS = st.sampled_from(["model", "messages", "tools", "stop", "n", "seed", "stream", "temperature"])


@given(st.dictionaries(FIELDS, JSON, max_size=5), st.lists(JSON, max_size=3))
def test_any_json_is_read_or_refused(fields: dict[str, Any], messages: list[Any]) -> None:
    raw = json.dumps({"model": "m", "messages": [USER, *messages], **fields}).encode()
    try:
        request = read_request(raw)
    except Refusal as refusal:
        assert refusal.status == 400
    else:
        assert request.messages


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(Refusal):
        read_request(raw)
