"""A choice shows the same content and calls for every way in which an engine may cut its output."""

from __future__ import annotations

import random

import pytest

from burnish.model.calls import parse_calls
from burnish.model.renderer import Renderer
from burnish.serve.choice import AnswerReader, Choice
from burnish.types import Completion, InfrastructureError, Message, ToolCall

CALL = '<tool_call>{"name": "read_file", "arguments": {"path": "a </tool_call> b"}}</tool_call>'
ANSWERS = [
    "There are 42 lines: naïve façade, 日本語, 🎉.",
    CALL,
    f"I'll look.\n{CALL}",
    f"{CALL}\n{CALL} and then",
    f"before {CALL} between <tool_call>{{broken}}</tool_call> after",
    f"before {CALL} <tool_call>",
    "a < b and <tool and <tool_call",
    "",
]


def cut(text: str, seed: int) -> list[str]:
    draw = random.Random(seed)
    edges = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randrange(6)))
    return [text[a:b] for a, b in zip([0, *edges], [*edges, len(text)], strict=True)]


@pytest.mark.parametrize("text", ANSWERS)
def test_a_streamed_answer_reads_as_a_whole_one(text: str) -> None:
    whole = parse_calls(text)
    for seed in range(30):
        reader = AnswerReader()
        shown = "".join(reader.feed(piece) for piece in cut(text, seed))
        rest, calls = reader.finish()
        assert (shown + rest, calls) == (whole.text, whole.calls)


def pieces(ids: tuple[int, ...], size: int) -> list[Completion]:
    groups = [ids[at : at + size] for at in range(0, len(ids), size)]
    stops = [None] * (len(groups) - 1) + ["stop"]
    return [Completion(0, g, (-0.5,) * len(g), 1, s) for g, s in zip(groups, stops, strict=True)]  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ANSWERS)
@pytest.mark.parametrize("stops", [(), ("look", "façade"), ("</tool_call>",)])
def test_the_size_of_pieces_changes_nothing(renderer: Renderer, text: str, stops: tuple[str, ...]) -> None:
    ids = renderer.demonstrate(Message("assistant", text))
    outcomes = []
    for size in (1, 2, 3, len(ids)):
        choice = Choice(0, renderer, stops, reads_calls=True)
        deltas = []
        for piece in pieces(ids, size):
            if choice.finish is None:
                deltas.append(choice.push(piece))
        shown = "".join(delta.text for delta in deltas)
        sampled = sum(len(delta.tokens) for delta in deltas)
        assert shown == choice.text
        assert sampled == choice.tokens
        outcomes.append((shown, choice.calls, choice.tokens, choice.finish))
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_calls_come_with_the_end(renderer: Renderer) -> None:
    choice = Choice(0, renderer, (), reads_calls=True)
    deltas = [choice.push(p) for p in pieces(renderer.demonstrate(Message("assistant", CALL)), 1)]
    assert [delta.calls for delta in deltas[:-1]] == [()] * (len(deltas) - 1)
    assert deltas[-1].calls == (ToolCall("read_file", {"path": "a </tool_call> b"}, "call_0"),)
    assert deltas[-1].finish == "tool_calls"


def test_without_tools_a_call_is_text(renderer: Renderer) -> None:
    choice = Choice(0, renderer, (), reads_calls=False)
    for piece in pieces(renderer.demonstrate(Message("assistant", CALL)), 1):
        choice.push(piece)
    assert (choice.text, choice.calls, choice.finish) == (CALL, (), "stop")


def test_tokens_after_a_stop_string_are_not_counted(renderer: Renderer) -> None:
    ids = tuple(renderer.tokenizer.encode(c).ids[0] for c in "abXYcd")
    choice = Choice(0, renderer, ("XY",), reads_calls=False)
    choice.push(Completion(0, ids, (-1.0,) * 6, 1))
    assert (choice.text, choice.tokens, choice.finish) == ("ab", 4, "stop")


def test_half_a_character_at_the_end_becomes_a_replacement(renderer: Renderer) -> None:
    half = renderer.tokenizer.encode("é").ids[:1]
    choice = Choice(0, renderer, (), reads_calls=False)
    delta = choice.push(Completion(0, tuple(half), (-1.0,), 1, "length"))
    assert (delta.text, delta.finish) == ("\ufffd", "length")


def test_an_engine_that_gives_up_is_a_failure(renderer: Renderer) -> None:
    with pytest.raises(InfrastructureError):
        Choice(0, renderer, (), False).push(Completion(0, (), (), 1, "cancelled"))
