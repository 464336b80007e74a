"""The outcome: was the task solved, as its domain's verifier sees it.

What this file is: the one reward that every domain has, first in its list.
What it is not: it knows no domain, and it gives nothing for effort.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable

from burnish.types import Evidence, InfrastructureError, Stream, Task, Trajectory

Verify = Callable[[Task, str, Evidence, Trajectory], float | Awaitable[float]]
"""(task, final answer, evidence, trajectory) to a value in [0, 1]; sync or async."""


def final_answer(trajectory: Trajectory) -> str:
    """The text of the last message of a completed episode, else the empty string."""
    if trajectory.status is None or trajectory.status.kind != "completed" or not trajectory.turns:
        return ""
    return trajectory.turns[-1].message.content.strip()


class Outcome:
    """A domain's `verify` as a stream. An episode that was not completed solved nothing (0), whatever it left
    behind: ending in time is part of the work."""

    name = "outcome"

    def __init__(self, verify: Verify) -> None:
        self.verify = verify

    async def __call__(self, trajectory: Trajectory, evidence: Evidence) -> Stream:
        if trajectory.status is None or trajectory.status.kind != "completed":
            return Stream(0.0)
        result = self.verify(trajectory.task, final_answer(trajectory), evidence, trajectory)
        value = float(await result if inspect.isawaitable(result) else result)
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise InfrastructureError(f"the verifier of {trajectory.task.id} gave {value}, not in [0, 1]")
        return Stream(value)
