"""Tool calls in text: one parser, whatever the cutting of the stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from burnish.model.calls import CLOSE, OPEN, CallParser, call_text, listing, parse_calls
from burnish.types import Tool, ToolCall

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.text()
    | st.sampled_from([CLOSE, OPEN, '"', "\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(
    ToolCall,
    name=st.text(min_size=1, max_size=12),
    arguments=st.dictionaries(st.text(max_size=6), JSON, max_size=3),
)
# text that has much of a tag in it, but no whole one
PROSE = (
    st.lists(st.sampled_from(["<", "<tool", "_call>", "</tool_call>", "{", '"', "é😀", " a\n"]), max_size=5)
    .map("".join)
    .filter(lambda text: OPEN not in text)
)
BROKEN = [
    '{"name": }',
    '{"a": 1',
    "[1]",
    '{"name": "x"}',
    "text",
    '{"name": "x", "arguments": {}} x',
    "{]",
    "",
]


@st.composite
def answers(draw: st.DrawFn) -> str:
    """An answer of prose, calls, and now and then something malformed; sometimes cut off."""
    pieces = []
    for _ in range(draw(st.integers(0, 4))):
        space = draw(st.sampled_from(["", " ", "\n", "\t\r\n "]))
        pieces.append(draw(PROSE))
        body = draw(
            st.one_of(
                CALLS.map(call_text),
                CALLS.map(call_text),
                st.sampled_from(BROKEN).map(lambda b: OPEN + b + CLOSE),
            )
        )
        inner = body.removeprefix(OPEN).removesuffix(CLOSE)
        pieces.append(OPEN + space + inner + space + CLOSE)
    pieces.append(draw(PROSE))
    whole = "".join(pieces)
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


def stream(pieces: list[str]) -> tuple[list[str | ToolCall], str | None]:
    """What a parser gives out, neighbouring content joined."""
    parser, out = CallParser(), []
    for piece in [*(delta for text in pieces for delta in parser.feed(text)), *parser.finish()]:
        if isinstance(piece, str) and out and isinstance(out[-1], str):
            out[-1] += piece
        else:
            out.append(piece)
    return out, parser.error


@settings(max_examples=400, deadline=None)
@given(answers(), st.lists(st.integers(0, 400), max_size=12))
@example('<tool_call>{"name": "a", "arguments": {"id": 42}}</tool_call>', [59])
@example('<tool_call>{"name": "a", "arguments": {"x": "</tool_call>"}}</tool_call> b', [45, 50])
@example("a < b <tool_call", [3, 8])
def test_every_cutting_gives_the_same(answer: str, cuts: list[int]) -> None:
    at = sorted({min(cut, len(answer)) for cut in cuts})
    pieces = [answer[a:b] for a, b in zip([0, *at], [*at, len(answer)], strict=True)]
    assert stream(pieces) == stream([answer]) == stream(list(answer))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(PROSE, CALLS), max_size=4), PROSE)
def test_calls_come_back_as_they_were_written(turns: list[tuple[str, ToolCall]], last: str) -> None:
    text = "".join(prose + call_text(call) for prose, call in turns) + last
    parsed = parse_calls(text, first_call=3)
    assert parsed.error is None
    assert [(c.name, c.arguments) for c in parsed.calls] == [(c.name, c.arguments) for _, c in turns]
    assert [c.id for c in parsed.calls] == [f"call_{n + 3}" for n in range(len(turns))]
    assert parsed.text == "".join(prose for prose, _ in turns) + last


@settings(max_examples=60, deadline=None)
@given(answers(), st.data())
def test_nothing_is_shown_that_may_still_become_a_tag(answer: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(answer)))
    parser = CallParser()
    shown = "".join(delta for delta in parser.feed(answer[:cut]) if isinstance(delta, str))
    for n in range(1, len(OPEN)):
        if answer[:cut].endswith(OPEN[:n]):
            continued = parse_calls(answer[:cut] + OPEN[n:] + '{"name": "z", "arguments": {}}' + CLOSE)
            assert continued.error is not None or continued.text.startswith(shown)


@settings(max_examples=200, deadline=None)
@given(answers())
def test_no_text_is_lost(answer: str) -> None:
    out, error = stream(list(answer))
    if error is None:
        positions = [p for p in out if isinstance(p, str)]
        assert all(p in answer for p in positions)
        assert parse_calls(answer).text == "".join(positions)
    else:
        last = out[-1]
        assert isinstance(last, str)
        assert answer.endswith(last[last.index(OPEN) :]), "the malformed call and all after it is content"
        assert parse_calls(answer) == type(parse_calls(""))(answer, (), error)


def test_whitespace_is_tolerated_and_a_call_is_canonical() -> None:
    call = ToolCall("read_file", {"path": "é.txt"})
    assert call_text(call) == '<tool_call>{"name": "read_file", "arguments": {"path": "é.txt"}}</tool_call>'
    spaced = 'I look.\n<tool_call>\n {"arguments":{"path":"é.txt"},\n"name":"read_file"} \r\n</tool_call>\n'
    parsed = parse_calls(spaced)
    assert parsed.calls == (ToolCall("read_file", {"path": "é.txt"}, "call_0"),)
    assert (parsed.text, parsed.error) == ("I look.\n\n", None)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('{"name": "a", "arguments": {}}', "The tool call is not closed with </tool_call>."),
        ('{"name": "a", "arguments": {"x": "1', "The tool call is not closed with </tool_call>."),
        ("", "The tool call is not closed with </tool_call>."),
        ('{"name": "a", "arguments": {}</tool_call>', "not valid JSON: Expecting ',' delimiter"),
        ('{"name": "a" "arguments": {}}</tool_call>', "not valid JSON: Expecting ',' delimiter"),
        ("{'name': 'a'}</tool_call>", "The tool call is not valid JSON: Expecting property name"),
        ("read_file(a)</tool_call>", "The tool call is not a JSON object."),
        ('["a"]</tool_call>', "The tool call is not a JSON object."),
        ('{"arguments": {}}</tool_call>', 'The tool call has no "name".'),
        ('{"name": "", "arguments": {}}</tool_call>', 'The tool call has no "name".'),
        ('{"name": 3, "arguments": {}}</tool_call>', 'The tool call has no "name".'),
        ('{"name": "a"}</tool_call>', 'The tool call needs "arguments", a JSON object.'),
        ('{"name": "a", "arguments": "x"}</tool_call>', 'The tool call needs "arguments", a JSON object.'),
        ('{"name": "a", "arguments": {}, "id": 1}</tool_call>', 'The tool call has an unknown key "id"'),
        ('{"name": "a", "arguments": {}} {}</tool_call>', "is not closed with </tool_call> after"),
        ('{"name": "a", "arguments": {"x": NaN}}</tool_call>', "NaN is not a JSON value"),
        ('{"name": "a", "arguments": {"x": "\\ud800"}}</tool_call>', "half a surrogate pair"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}</tool_call>", "not valid JSON"),
        ('{"name": "a", "arguments": {"x": ' + "[" * 9**5 + "]" * 9**5 + "}}</tool_call>", "too deeply"),
    ],
)  # fmt: skip
def test_a_malformed_call_is_explained_and_nothing_is_called(body: str, error: str) -> None:
    good = '<tool_call>{"name": "ok", "arguments": {}}</tool_call>'
    parsed = parse_calls(good + OPEN + body)
    assert parsed.error is not None
    assert error in parsed.error
    assert len(parsed.error) < 120
    assert parsed.calls == ()
    assert parsed.text == good + OPEN + body


def tool(name: str, description: str, required: list[str], **properties: Any) -> Tool:
    return Tool(name, description, {"type": "object", "properties": properties, "required": required})


def test_tools_are_listed_in_one_line_each() -> None:
    tools = [
        tool("read_file", "Read a text file.", ["path"], path={"type": "string"}),
        tool(
            "search", "Find\n rows.", ["q"],
            q={"type": "string"}, n={"type": "integer"}, x={"type": "number"},
            deep={"type": "boolean"}, by={"enum": ["name", "date"]}, to={"type": ["string", "null"]}, any={},
        ),
        tool("stop", "Stop.", []),
    ]  # fmt: skip
    assert listing(tools).splitlines()[1:] == [
        "read_file(path): Read a text file.",
        'search(q, n?: int, x?: float, deep?: bool, by?: "name"|"date", to?: str|null, any?): Find rows.',
        "stop(): Stop.",
    ]
    example_call = listing(tools).splitlines()[0].partition(" and wait")[0].partition("write ")[2]
    assert parse_calls(example_call).error is None
    assert json.loads(example_call.removeprefix(OPEN).removesuffix(CLOSE))["name"] == "tool"
