"""One episode: a policy acts in a session until it answers or a budget ends it.

What this file is: the agent loop. It attributes every ending at one boundary: the agent answered (`completed`), a
budget ran out (`truncated`), or our machinery failed (`invalid`).
What it is not: it grades nothing, and it decides nothing for the agent: a malformed call, an unknown tool or a
failing tool comes back to the model as an observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.agent.policy import ContextFull
from burnish.interfaces import Policy, Session
from burnish.observe.audit import Audit
from burnish.types import (
    Event,
    InfrastructureError,
    Message,
    Observation,
    Status,
    Task,
    ToolCall,
    Trajectory,
    Turn,
)


async def run_episode(
    policy: Policy,
    session: Session,
    task: Task,
    *,
    id: str,
    lineage: Mapping[str, Any],
    audit: Audit | None = None,
) -> Trajectory:
    """Runs `task` to its end and returns the trajectory, ungraded. `lineage["seed"]` fixes all sampling."""
    episode = _Episode(policy, session, Trajectory(id, task, lineage=dict(lineage)), audit)
    try:
        status = await episode.run()
    except ContextFull:
        status = Status("truncated", "context")
    except InfrastructureError as failure:
        status = Status("invalid", str(failure))
    return episode.finish(status)


class _Episode:
    """The state of one run of the loop."""

    def __init__(self, policy: Policy, session: Session, trajectory: Trajectory, audit: Audit | None) -> None:
        self.policy, self.session, self.trajectory, self.audit = policy, session, trajectory, audit
        self.clock = self.money = 0.0
        self.calls = 0
        self.pending: list[Message] = list(trajectory.task.prompt)

    async def run(self) -> Status:
        budget, turns = self.trajectory.task.budget, self.trajectory.turns
        while True:
            if budget.turns is not None and len(turns) >= budget.turns:
                return Status("truncated", "turns")
            if budget.tokens is not None and sum(len(t.output_ids) for t in turns) >= budget.tokens:
                return Status("truncated", "tokens")
            turn = await self.policy.respond(self.trajectory, self.pending)
            turns.append(turn)
            self.pending = []
            self._log_turn(turn)
            if turn.stop != "stop":
                # A turn that was cut off is not an action: no tool runs on half a call.
                return Status("truncated", "turn_tokens" if turn.stop == "length" else turn.stop)
            if turn.message.error is not None:
                self._observe(ToolCall("", {}), Observation(turn.message.error, "malformed"))
                continue
            if not turn.message.tool_calls:
                return Status("completed")
            for call in turn.message.tool_calls:
                if budget.tool_calls is not None and self.calls >= budget.tool_calls:
                    return Status("truncated", "tool_calls")
                self.calls += 1
                self._observe(call, await self.session.act(call))
                if budget.wall_s is not None and self.clock > budget.wall_s:
                    return Status("truncated", "wall_s")
                if budget.money is not None and self.money > budget.money:
                    return Status("truncated", "money")

    def _observe(self, call: ToolCall, observation: Observation) -> None:
        self.clock += observation.costs.get("wall_s", 0.0)
        self.money += observation.costs.get("money", 0.0)
        data = {
            "name": call.name, "arguments": dict(call.arguments), "content": observation.content,
            "error": observation.error, "costs": dict(observation.costs), "call_id": call.id,
        }  # fmt: skip
        self.trajectory.events.append(Event("tool", len(self.trajectory.turns) - 1, data, self.clock))
        self.pending.append(Message("tool", observation.content, tool_call_id=call.id or None))
        if self.audit is not None:
            self.audit.append("tool_call", {"episode": self.trajectory.id, **data})

    def _log_turn(self, turn: Turn) -> None:
        if self.audit is not None:
            version = turn.stamps[-1].version if turn.stamps else None
            self.audit.append("model_call", {
                "episode": self.trajectory.id, "turn": len(self.trajectory.turns) - 1, "stop": turn.stop,
                "tokens": len(turn.output_ids), "weights": version, "content": turn.message.content,
            })  # fmt: skip

    def finish(self, status: Status) -> Trajectory:
        trajectory, tools = self.trajectory, [e for e in self.trajectory.events if e.kind == "tool"]
        trajectory.status = status
        prompt = getattr(self.policy, "prompt", None)
        if status.kind == "truncated" and self.pending and trajectory.turns and prompt is not None:
            trajectory.tail_ids = prompt(trajectory, self.pending)[1]
        trajectory.costs = {
            "turns": len(trajectory.turns),
            "tokens": sum(len(t.output_ids) for t in trajectory.turns),
            "tool_calls": self.calls,
            "tool_errors": sum(e.data["error"] is not None for e in tools),
            "timeouts": sum(e.data["error"] == "timeout" for e in tools),
            "wall_s": self.clock,
            "money": self.money,
        }
        return trajectory
