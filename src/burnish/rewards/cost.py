"""What an episode used of its budget, as a stream; recorded always, weighted only where a recipe says so.

What this file is: the share of the allowed tool calls and turns that was left over.
What it is not: it does not count tokens, time or money; `Trajectory.costs` has those.
"""

from __future__ import annotations

from burnish.types import Evidence, Stream, Trajectory


class Cost:
    """1 when nothing was used, 0 when the whole budget was; the mean over tool calls and turns, of those that
    are limited. None when neither is."""

    name = "cost"

    async def __call__(self, trajectory: Trajectory, evidence: Evidence) -> Stream:
        limits = {"tool_calls": trajectory.task.budget.tool_calls, "turns": trajectory.task.budget.turns}
        left = [
            1.0 - min(1.0, trajectory.costs.get(name, 0.0) / limit) for name, limit in limits.items() if limit
        ]
        return Stream(sum(left) / len(left) if left else None)
