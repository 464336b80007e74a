"""A road on a tiny random model, for the tests of runs: `python -m tests.recipes.small MODEL RUN [KILL_AT]`.

What this file is: the recipe, and a process that runs or resumes it and kills itself with SIGKILL when `KILL_AT`
events are in the audit log.
What it is not: it teaches the model nothing worth knowing; it exercises the whole machinery in seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.evaluate.suite import Suite
from burnish.observe.audit import AuditLog
from burnish.observe.progress import LiveView
from burnish.recipes.road import Road, Rollouts, WarmUp, execute
from burnish.recipes.settings import from_json, to_json
from burnish.store.run import RunDirectory
from burnish.train.control import KL
from burnish.train.learner import Optimization
from burnish.train.ppo import PPO


def small_road(model: Path) -> Road:
    return Road(
        name="small",
        model=model,
        domains=("database", "faults"),
        warmup=WarmUp(demonstrations=4, steps=3, batch=2, optimization=Optimization(rate=1e-3)),
        algorithm=PPO(kl=KL(coefficient=0.1, target=0.5, horizon=20)),
        optimization=Optimization(rate=1e-3, minibatches=2),
        rollouts=Rollouts(steps=4, tasks=2, size=2, concurrency=8, turn_tokens=12, context=1024),
        suite=Suite(per_domain=2),
        checkpoint_every=2,
    )


def run(model: Path, directory: Path) -> dict[str, Any]:
    """Starts the road, or goes on with it."""
    if (directory / "recipe.json").exists():
        kept = RunDirectory.resume(directory)
    else:
        kept = RunDirectory.create(directory, to_json(small_road(model)))
    road = from_json(Road, kept.recipe, "recipe.json")
    with kept, LiveView("silent") as view:
        return asyncio.run(execute(road, kept, view))


def kill_at(count: int) -> None:
    """Makes this process die without any clean-up just before event number `count` is logged."""
    append, seen = AuditLog.append, 0

    def dying(self: AuditLog, kind: Any, data: Mapping[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, kind, data)

    AuditLog.append = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    if len(sys.argv) > 3:
        kill_at(int(sys.argv[3]))
    run(Path(sys.argv[1]), Path(sys.argv[2]))
