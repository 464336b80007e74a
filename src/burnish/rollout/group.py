"""Rolling out and grading.

What this file is: one task becomes a graded trajectory, and n of them a group; many run at once on one event
loop, bounded by `concurrency`.
What it is not: it chooses no tasks (`source` does) and learns nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.agent.loop import run_episode
from burnish.interfaces import Domain, Policy
from burnish.observe.audit import Audit
from burnish.rewards.compose import score
from burnish.types import Evidence, Group, InfrastructureError, Status, Task, Trajectory


def derive(seed: int, *purpose: object) -> int:
    """A seed in [0, 2^63) for one purpose, independent of every other purpose's."""
    text = "\x1f".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@dataclass(eq=False)
class Roller:
    """Runs episodes. `domains` by name; `finished` is told of every graded trajectory."""

    domains: Mapping[str, Domain]
    concurrency: int = 64
    audit: Audit | None = None
    finished: Callable[[Trajectory], None] | None = None
    _room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.concurrency)

    async def episode(self, policy: Policy, task: Task, id: str, lineage: Mapping[str, Any]) -> Trajectory:
        """One graded trajectory. A failure of our machinery gives an `invalid` one, unscored."""
        domain = self.domains[task.domain]
        async with self._room:
            try:
                session = await domain.open(task)
            except InfrastructureError as failure:
                trajectory = Trajectory(
                    id, task, lineage=dict(lineage), status=Status("invalid", str(failure))
                )
                trajectory.score = await score(trajectory, Evidence(), domain)
                return self._done(trajectory)
            try:
                trajectory = await run_episode(
                    policy, session, task, id=id, lineage=lineage, audit=self.audit
                )
                try:
                    evidence = await session.evidence()
                    trajectory.events.extend(evidence.faults)
                    trajectory.score = await score(trajectory, evidence, domain)
                except InfrastructureError as failure:
                    trajectory.status = Status("invalid", str(failure))
                    trajectory.score = await score(trajectory, Evidence(), domain)
            finally:
                await session.close()
        return self._done(trajectory)

    def _done(self, trajectory: Trajectory) -> Trajectory:
        if self.audit is not None:
            assert trajectory.status is not None
            self.audit.append("verdict", {
                "episode": trajectory.id, "task": trajectory.task, "status": trajectory.status.kind,
                "reason": trajectory.status.reason, "reward": trajectory.reward,
            })  # fmt: skip
        if self.finished is not None:
            self.finished(trajectory)
        return trajectory

    async def groups(
        self, policy: Policy, tasks: Sequence[Task], size: int, seed: int, lineage: Mapping[str, Any]
    ) -> list[Group]:
        """`size` trajectories of each task. Episode seeds derive from (seed, task, member)."""
        jobs = [
            self.episode(
                policy, task, f"{task.id}#{lineage.get('step', 0)}.{member}",
                {**lineage, "seed": derive(seed, "episode", task.id, member)},
            )
            for task in tasks
            for member in range(size)
        ]  # fmt: skip
        async with asyncio.TaskGroup() as running:
            done = [running.create_task(job) for job in jobs]
        members = [d.result() for d in done]
        return [Group(task, members[i * size : (i + 1) * size]) for i, task in enumerate(tasks)]
