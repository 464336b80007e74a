"""Suites: which tasks a model is measured on, and the run over them.

What this file is: a fixed set of tasks from domains, and the function that runs a policy over it.
Everything is drawn greedily unless asked otherwise, so that two runs of the same weights agree.
What it is not: it computes no statistics (`summary`, `statistics`) and draws no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from burnish.interfaces import Domain, Policy
from burnish.rollout.group import Roller
from burnish.types import Split, Task, Trajectory


@dataclass(frozen=True, slots=True)
class Suite:
    """`per_domain` tasks of each domain, drawn from `split` with `seed`; held-out tasks come from templates
    that training never draws from."""

    per_domain: int = 20
    split: Split = "heldout"
    seed: int = 7

    def tasks(self, domains: Mapping[str, Domain]) -> list[Task]:
        return [
            t for name in sorted(domains) for t in domains[name].tasks(self.split, self.seed, self.per_domain)
        ]


async def run_suite(
    suite: Suite, roller: Roller, policy: Policy, lineage: Mapping[str, object]
) -> list[Trajectory]:
    """One graded trajectory for each task, in the suite's order."""
    groups = await roller.groups(policy, suite.tasks(roller.domains), 1, suite.seed, lineage)
    return [trajectory for group in groups for trajectory in group.trajectories]
