"""Drives a session with a script instead of a model.

What this file is: the way to run an oracle, or any scripted player, through a task, with the same budget, the
same events and the same endings as the agent loop.
What it is not: no tokens are made; the turns of the trajectory hold messages only.
"""

from __future__ import annotations

from collections.abc import Sequence

from burnish.interfaces import Domain, OracleScript
from burnish.types import (
    Event,
    Evidence,
    Message,
    Observation,
    Sampling,
    Status,
    Task,
    ToolCall,
    Trajectory,
    Turn,
)


async def play(domain: Domain, task: Task, script: OracleScript) -> tuple[Trajectory, Evidence]:
    """Runs `script` in a fresh session of `task` until it answers or the task's budget ends it; a script that
    stops without an answer gives the empty answer. InfrastructureError passes through."""
    session = await domain.open(task)
    trajectory = Trajectory(f"{task.id}#script", task, lineage={"player": "script"})
    clock, calls = 0.0, 0
    try:
        move = _next(script, None)
        while True:
            trajectory.status = _over(task, len(trajectory.turns), calls, clock, move)
            if trajectory.status is not None and trajectory.status.kind == "truncated":
                break
            trajectory.turns.append(_turn(len(trajectory.turns), move))
            if isinstance(move, str):
                break
            calls += 1
            seen = await session.act(move)
            clock += seen.costs.get("wall_s", 0.0)
            trajectory.events.append(_event(len(trajectory.turns) - 1, move, seen, clock))
            move = _next(script, seen)
        trajectory.costs = {
            "turns": len(trajectory.turns),
            "tool_calls": calls,
            "tool_errors": sum(e.data["error"] is not None for e in trajectory.events),
            "timeouts": sum(e.data["error"] == "timeout" for e in trajectory.events),
            "wall_s": clock,
        }
        return trajectory, await session.evidence()
    finally:
        script.close()
        await session.close()


def say(moves: Sequence[ToolCall | str]) -> OracleScript:
    """A script that plays fixed moves whatever it sees."""
    for move in moves:
        # Not `yield from`: observations are sent in, which a plain iterator does not take.
        _ = yield move


def _next(script: OracleScript, seen: Observation | None) -> ToolCall | str:
    try:
        return next(script) if seen is None else script.send(seen)
    except StopIteration:
        return ""


def _over(task: Task, turns: int, calls: int, clock: float, move: ToolCall | str) -> Status | None:
    """How the episode ends before or with this move; None if it goes on."""
    budget = task.budget
    if budget.wall_s is not None and clock > budget.wall_s:
        return Status("truncated", "wall_s")
    if budget.turns is not None and turns >= budget.turns:
        return Status("truncated", "turns")
    if isinstance(move, str):
        return Status("completed")
    if budget.tool_calls is not None and calls >= budget.tool_calls:
        return Status("truncated", "tool_calls")
    return None


def _turn(index: int, move: ToolCall | str) -> Turn:
    message = Message("assistant", move) if isinstance(move, str) else Message("assistant", "", (move,))
    before = index - 1 if index else None
    return Turn(before, before, "script", (), (), (), (), message, "stop", Sampling())


def _event(turn: int, call: ToolCall, seen: Observation, clock: float) -> Event:
    data = {
        "name": call.name, "arguments": dict(call.arguments), "content": seen.content, "error": seen.error,
        "costs": dict(seen.costs), "call_id": call.id,
    }  # fmt: skip
    return Event("tool", turn, data, clock)
