"""Scripted fakes for the agent loop: a policy that says what it is told to, and a world that answers as told.

What this file is: `Scripted`, `World` and `Counting`, a domain of one kind of task with an oracle.
What it is not: it tests nothing, and it knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.interfaces import OracleScript
from burnish.types import (
    Budget,
    Event,
    Evidence,
    InfrastructureError,
    Message,
    Observation,
    Sampling,
    Stamp,
    StopReason,
    Stream,
    Task,
    Tool,
    ToolCall,
    Trajectory,
    Turn,
)  # fmt: skip

LOOK = Tool("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}})


def task(number: int = 0, domain: str = "counting", budget: Budget | None = None) -> Task:
    prompt = (Message("user", f"what is behind door {number}?"),)
    return Task(
        f"{domain}/{number}", domain, prompt, (LOOK,), budget or Budget(turns=9),
        {"number": number}, {"gold": f"it is {number}"},
    )  # fmt: skip


def call(at: str = "door") -> Message:
    made = ToolCall("look", {"at": at}, "call_0")
    return Message("assistant", f"<tool_call>{at}</tool_call>", (made,))


@dataclass(eq=False)
class Scripted:
    """A policy. `moves` are messages, errors to raise, or (message, stop); each takes `tokens` tokens."""

    moves: Sequence[Message | Exception | tuple[Message, StopReason]]
    tokens: int = 3
    heard: list[tuple[Message, ...]] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)

    def prompt(
        self, trajectory: Trajectory, messages: Sequence[Message]
    ) -> tuple[int | None, tuple[int, ...]]:
        last = len(trajectory.turns) - 1
        return (last if last >= 0 else None), tuple(len(m.content) for m in messages)

    async def respond(self, trajectory: Trajectory, messages: Sequence[Message]) -> Turn:
        self.heard.append(tuple(messages))
        number = len(trajectory.turns)
        move = self.moves[number]
        if isinstance(move, Exception):
            raise move
        message, stop = move if isinstance(move, tuple) else (move, "stop")
        parent, added = self.prompt(trajectory, messages)
        return Turn(
            parent, parent, "agent", added, (1,) * self.tokens, (-0.5,) * self.tokens, (True,) * self.tokens,
            message, stop, Sampling(), (Stamp(0, self.tokens, 4),),
        )  # fmt: skip

    async def load(self, handle: Any, version: int) -> None:
        self.loaded.append(version)


@dataclass(eq=False)
class World:
    """A session. `answers` are observations, or errors to raise."""

    answers: Sequence[Observation | Exception] = ()
    tools: tuple[Tool, ...] = (LOOK,)
    acted: list[ToolCall] = field(default_factory=list)
    closed: int = 0
    lost: bool = False

    async def act(self, made: ToolCall) -> Observation:
        self.acted.append(made)
        answer = self.answers[len(self.acted) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def evidence(self) -> Evidence:
        if self.lost:
            raise InfrastructureError("the evidence is gone")
        return Evidence(state={"calls": len(self.acted)})

    async def close(self) -> None:
        self.closed += 1


class Outcome:
    """1 for an answer that is the gold, 0 for any other, None for none."""

    name = "outcome"

    async def __call__(self, trajectory: Trajectory, evidence: Evidence) -> Stream:
        assert trajectory.status is not None
        if trajectory.status.kind == "invalid":
            return Stream()
        said = trajectory.turns[-1].message.content if trajectory.turns else ""
        return Stream(float(said == trajectory.task.secret["gold"]))


@dataclass(eq=False)
class Counting:
    """A domain. Its world says the number; its oracle looks twice and says it."""

    name: str = "counting"
    title: str = "Count"
    broken: Mapping[str, Exception] = field(default_factory=dict)
    lost: bool = False
    worlds: list[World] = field(default_factory=list)

    def tasks(self, split: str, seed: int, count: int) -> list[Task]:
        return [task(seed % 997 + i, self.name) for i in range(count)]

    async def open(self, made: Task) -> World:
        if made.id in self.broken:
            raise self.broken[made.id]
        seen = Observation(f"it is {made.setup['number']}")
        self.worlds.append(World([seen] * 20, lost=self.lost))
        return self.worlds[-1]

    @property
    def rewards(self) -> tuple[Outcome, ...]:
        return (Outcome(),)

    def oracle(self, made: Task) -> OracleScript:
        first = yield ToolCall("look", {"at": "door"})
        again = yield ToolCall("look", {"at": "again"})
        assert first.content == again.content
        yield again.content


def tool_events(trajectory: Trajectory) -> list[Event]:
    return [event for event in trajectory.events if event.kind == "tool"]
