"""Sources of training batches.

What this file is: `LiveSource`, synchronous rollouts of tasks drawn uniformly over the domains, and
`RecordedSource`, fixed trajectories in shuffled epochs (for supervised training).
What it is not: it scores nothing itself and holds no weights. Both are stateless in the step: the batch of step
k is a function of the seed and k, so a resumed run sees the same tasks.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.interfaces import Policy
from burnish.rollout.group import Roller, derive
from burnish.types import Group, Task, Trajectory, UsageError


@dataclass(eq=False)
class LiveSource:
    """`tasks` new tasks a step, `size` episodes of each, up to step `steps`. Domains are drawn without
    replacement until all were drawn once, so that none dominates any stretch of training."""

    roller: Roller
    steps: int
    tasks: int
    size: int
    seed: int

    async def batches(self, policy: Policy, start: int) -> AsyncIterator[tuple[int, list[Group]]]:
        for step in range(start, self.steps):
            lineage = {"step": step}
            yield (
                step,
                await self.roller.groups(
                    policy, self.draw(step), self.size, derive(self.seed, "rollout", step), lineage
                ),
            )

    def draw(self, step: int) -> list[Task]:
        """The tasks of a step."""
        names = sorted(self.roller.domains)
        chosen = []
        for number in range(step * self.tasks, (step + 1) * self.tasks):
            lap, place = divmod(number, len(names))
            order = random.Random(derive(self.seed, "domains", lap)).sample(names, len(names))
            chosen.append((order[place], number))
        return [
            self.roller.domains[name].tasks("train", derive(self.seed, "task", number), 1)[0]
            for name, number in chosen
        ]

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "tasks": self.tasks, "size": self.size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if dict(state) != self.state_dict():
            raise UsageError(
                f"the checkpoint's source was {dict(state)} and this recipe's is {self.state_dict()}: "
                "resume with the recipe that the run was started with"
            )


@dataclass(eq=False)
class RecordedSource:
    """`trajectories` in batches of `batch`, shuffled anew each epoch, up to step `steps`."""

    trajectories: Sequence[Trajectory]
    steps: int
    batch: int
    seed: int

    async def batches(self, policy: Policy, start: int) -> AsyncIterator[tuple[int, list[Group]]]:
        count = len(self.trajectories)
        for step in range(start, self.steps):
            groups = []
            for number in range(step * self.batch, (step + 1) * self.batch):
                epoch, place = divmod(number, count)
                order = random.Random(derive(self.seed, "epoch", epoch)).sample(range(count), count)
                trajectory = self.trajectories[order[place]]
                groups.append(Group(trajectory.task, [trajectory]))
            yield step, groups

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "batch": self.batch, "trajectories": len(self.trajectories)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if dict(state) != self.state_dict():
            raise UsageError(
                f"the checkpoint's source was {dict(state)} and this recipe's is {self.state_dict()}: "
                "resume with the recipe that the run was started with"
            )
