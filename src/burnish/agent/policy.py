"""Policies: what answers in an episode.

What this file is: `ModelPolicy`, an engine with a renderer, and `OraclePolicy`, a domain's oracle whose turns are
demonstrations in the same tokens. Both are `interfaces.Policy`.
What it is not: it runs no tools and keeps no episode; the loop does.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from burnish.interfaces import Domain, Engine, OracleScript
from burnish.model.calls import call_text
from burnish.model.renderer import Renderer
from burnish.types import (
    Message,
    Observation,
    Sampling,
    Stamp,
    StopReason,
    ToolCall,
    Trajectory,
    Turn,
)


def conversation(trajectory: Trajectory) -> list[Message]:
    """The messages of an episode so far, up to the last turn and without the observations that followed it:
    `respond` is given those."""
    messages = list(trajectory.task.prompt)
    last = len(trajectory.turns) - 1
    answers: dict[int, list[Message]] = {}
    for event in trajectory.events:
        if event.kind == "tool":
            message = Message("tool", event.data["content"], tool_call_id=event.data["call_id"] or None)
            answers.setdefault(event.turn, []).append(message)
    for index, turn in enumerate(trajectory.turns):
        messages.append(turn.message)
        if index < last:
            messages += answers.get(index, [])
    return messages


def turn_seed(trajectory: Trajectory) -> int:
    """The seed of the next turn: a function of the episode's seed and the turn's index."""
    seed, index = int(trajectory.lineage.get("seed", 0)), len(trajectory.turns)
    digest = hashlib.blake2b(struct.pack("<qq", seed, index), digest_size=8, person=b"turn").digest()
    return int.from_bytes(digest, "little") >> 1


class ContextFull(Exception):
    """The conversation no longer fits the engine's context: the episode is truncated."""


@dataclass(eq=False)
class ModelPolicy:
    """Answers with a model. `context` is the longest conversation in tokens, the answer included. `watch` is
    called with each sampled token's id as it is drawn (for streaming to a terminal)."""

    engine: Engine
    renderer: Renderer
    sampling: Sampling
    context: int
    agent: str = "agent"
    watch: Callable[[int], None] | None = None

    async def load(self, handle: Any, version: int) -> None:
        await self.engine.load(handle, version)

    def prompt(
        self, trajectory: Trajectory, messages: Sequence[Message]
    ) -> tuple[int | None, tuple[int, ...]]:
        """Where the next turn attaches and the ids that it adds: to the last turn, or, when the template
        rewrites history, to a new root with everything rendered afresh."""
        history, tools = conversation(trajectory), trajectory.task.tools
        if not trajectory.turns:
            return None, self.renderer.start(messages, tools)
        last = len(trajectory.turns) - 1
        ended = trajectory.turns[last].stop == "stop"
        added = self.renderer.extend(history, messages, tools, ended)
        if added is None:
            return None, self.renderer.start([*history, *messages], tools)
        return last, added

    async def respond(self, trajectory: Trajectory, messages: Sequence[Message]) -> Turn:
        """Samples one turn. Raises ContextFull when no room for an answer is left."""
        parent, added = self.prompt(trajectory, messages)
        ids = [*trajectory.path_ids(parent), *added]
        spent = sum(len(t.output_ids) for t in trajectory.turns)
        allowed = trajectory.task.budget.tokens
        room = min(self.sampling.max_tokens, self.context - len(ids), (allowed or 1 << 30) - spent)
        if room < 1:
            raise ContextFull
        sampling = replace(
            self.sampling, max_tokens=room, seed=turn_seed(trajectory), stop_ids=self.renderer.stop_ids
        )
        output: list[int] = []
        logprobs: list[float] = []
        stamps: list[Stamp] = []
        stop: StopReason = "cancelled"
        async for piece in self.engine.generate(ids, sampling):
            stamps = _stamped(stamps, piece.version, piece.profile, len(output), len(piece.token_ids))
            output += piece.token_ids
            logprobs += piece.logprobs
            stop = piece.stop or stop
            if self.watch is not None:
                for token in piece.token_ids:
                    self.watch(token)
        calls = sum(len(t.message.tool_calls) for t in trajectory.turns)
        parsed = self.renderer.parse(output, first_call=calls)
        return Turn(
            parent=parent,
            after=len(trajectory.turns) - 1 if trajectory.turns else None,
            agent=self.agent,
            prompt_ids=tuple(added),
            output_ids=tuple(output),
            logprobs=tuple(logprobs),
            trainable=(True,) * len(output),
            message=replace(parsed.message, error=parsed.error),
            stop=stop,
            sampling=sampling,
            stamps=tuple(stamps),
        )


def _stamped(stamps: list[Stamp], version: int, profile: str, start: int, count: int) -> list[Stamp]:
    """Extends the last stamp, or begins another when the weights changed in the middle of a turn."""
    if stamps and (stamps[-1].version, stamps[-1].profile) == (version, profile):
        return [*stamps[:-1], replace(stamps[-1], stop=start + count)]
    return [*stamps, Stamp(start, start + count, version, profile)]


@dataclass(eq=False)
class OraclePolicy:
    """Answers with a domain's oracle, as a model that had sampled it: demonstrations for training."""

    domain: Domain
    renderer: Renderer

    def __post_init__(self) -> None:
        self._scripts: dict[str, OracleScript] = {}

    async def load(self, handle: Any, version: int) -> None:
        """An oracle has no weights."""

    async def respond(self, trajectory: Trajectory, messages: Sequence[Message]) -> Turn:
        first = not trajectory.turns
        if first:
            self._scripts[trajectory.id] = self.domain.oracle(trajectory.task)
        script = self._scripts[trajectory.id]
        move = next(script) if first else script.send(_observed(trajectory))
        number = len(trajectory.turns)
        if isinstance(move, ToolCall):
            calls = sum(len(t.message.tool_calls) for t in trajectory.turns)
            call = replace(move, id=f"call_{calls}")
            message = Message("assistant", call_text(call), (call,))
        else:
            message = Message("assistant", move)
            del self._scripts[trajectory.id]
        tools = trajectory.task.tools
        history = conversation(trajectory)
        added = (
            self.renderer.start(messages, tools)
            if first
            else self.renderer.extend(history, messages, tools, ended=True)
        )
        parent = None if first or added is None else number - 1
        if added is None:
            added = self.renderer.start([*history, *messages], tools)
        output = self.renderer.demonstrate(message)
        return Turn(
            parent=parent, after=None if first else number - 1, agent="oracle",
            prompt_ids=tuple(added), output_ids=output, logprobs=(0.0,) * len(output),
            trainable=(True,) * len(output), message=message, stop="stop", sampling=Sampling(),
        )  # fmt: skip


def _observed(trajectory: Trajectory) -> Observation:
    data = next(e.data for e in reversed(trajectory.events) if e.kind == "tool")
    return Observation(data["content"], data["error"], data["costs"], data["call_id"])
