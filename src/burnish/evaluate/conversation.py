"""A trajectory as a conversation that can be read.

What this file is: turns with what was said, the tools that were called, what came back, the faults that the
world threw in, and the rewards, laid out in the order in which they happened.
What it is not: it chooses no trajectory (`report.py` does), and it never shows a task's secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from burnish.evaluate.markup import Html, h
from burnish.evaluate.summary import solved
from burnish.types import Event, Message, Trajectory, Turn

LONGEST = 3000
"""Characters of one text that are shown; the rest is counted."""

_CALL = re.compile(r"<tool_call>.*?(</tool_call>|\Z)", re.DOTALL)
_ENDINGS = {
    "completed": "answered",
    "truncated": "cut off",
    "invalid": "invalid",
    "tampered": "tampered with its grading",
}


def prompt(messages: Sequence[Message]) -> Html:
    """What the agent was asked. A system message is folded away."""
    return h("div", (_asked(m) for m in messages), class_="prompt")


def _asked(message: Message) -> Html:
    if message.role == "system":
        return h("details", h("summary", "System message"), _text(message.content))
    return h("div", _text(message.content), class_="asked")


def conversation(trajectory: Trajectory) -> Html:
    """The episode from its first turn to its rewards, without the prompt."""
    turns = [_turn(i, turn, trajectory) for i, turn in enumerate(trajectory.turns)]
    empty = None if turns else h("p", "No turn was taken.", class_="quiet")
    return h("div", h("ol", turns, class_="turns") if turns else empty, _end(trajectory), class_="talk")


def _turn(index: int, turn: Turn, trajectory: Trajectory) -> Html:
    message = turn.message
    said = message.content
    if message.tool_calls:
        said = _CALL.sub("", said)
    events = [_event(event) for event in trajectory.events if event.turn == index]
    calls = [_call(c.name, c.arguments) for c in message.tool_calls]
    cut = h("span", "cut off at its token limit", class_="flag warn") if turn.stop == "length" else None
    return h(
        "li",
        h(
            "div",
            h("b", f"Turn {index + 1}"),
            _agent(turn),
            cut,
            _turn_rewards(index, trajectory),
            class_="who",
        ),
        _text(said.strip()) if said.strip() or not calls else None,
        calls,
        events,
    )


def _agent(turn: Turn) -> Html | None:
    return None if turn.agent in ("", "main", "agent") else h("span", turn.agent, class_="flag")


def _turn_rewards(index: int, trajectory: Trajectory) -> list[Html]:
    if trajectory.score is None:
        return []
    rewards = [
        (name, stream.turns[index])
        for name, stream in trajectory.score.parts.items()
        if stream.turns is not None and index < len(stream.turns)
    ]
    return [
        h("span", f"{name} {value:+.2f}", class_=f"flag {'good' if value >= 0 else 'bad'}")
        for name, value in rewards
        if value is not None
    ]


def _call(name: str, arguments: Mapping[str, Any]) -> Html:
    shown = [h("div", h("span", key), _value(value), class_="argument") for key, value in arguments.items()]
    return h("div", h("div", h("code", name), class_="tool"), shown, class_="call")


def _value(value: Any) -> Html:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return h("pre", _shortened(text)) if "\n" in text or len(text) > 60 else h("code", text)


def _event(event: Event) -> Html:
    if event.kind == "tool":
        return _observation(event)
    shown = ", ".join(f"{key} {_plain(value)}" for key, value in event.data.items())
    tone = "warn" if event.kind in ("fault", "budget") else ""
    return h("div", h("span", event.kind, class_=f"flag {tone}"), " ", _shortened(shown), class_="note")


def _observation(event: Event) -> Html:
    error = event.data.get("error")
    content = str(event.data.get("content", ""))
    flag = h("div", h("span", str(error).replace("_", " "), class_="flag bad")) if error else None
    body = h("pre", _shortened(content)) if content else h("p", "(nothing)", class_="quiet")
    return h("div", flag, body, class_="result failed" if error else "result")


def _end(trajectory: Trajectory) -> Html:
    status, won = trajectory.status, solved(trajectory)
    kind = "unfinished" if status is None else _ENDINGS[status.kind]
    reason = f" ({status.reason.replace('_', ' ')})" if status is not None and status.reason else ""
    verdict = {True: ("solved", "good"), False: ("not solved", "bad"), None: ("not scored", "warn")}[won]
    parts = [] if trajectory.score is None else list(trajectory.score.parts.items())
    rows = [h("tr", h("th", name), h("td", _reward(stream.value))) for name, stream in parts]
    total = h("tr", h("th", "reward"), h("td", _reward(trajectory.reward)), class_="total")
    return h(
        "div",
        h("div", h("span", verdict[0], class_=f"flag {verdict[1]}"), h("span", kind + reason), class_="who"),
        h("table", rows, total, class_="rewards"),
        class_="end",
    )


def _reward(value: float | None) -> str:
    return "not scored" if value is None else f"{value:+.2f}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _text(text: str) -> Html:
    return h("div", _shortened(text) or "(said nothing)", class_="text" if text else "text quiet")


def _shortened(text: str) -> str:
    left = len(text) - LONGEST
    return text if left <= 0 else f"{text[:LONGEST]}\n… {left:,} more characters"
