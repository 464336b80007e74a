"""What supervised training would have made of reinforcement's time: `python -m benchmarks.further_sft RUN --json`.

What this file is: the control of a finished run. From its warm-up it trains on, on the same demonstrations and
with the same settings, for as long as its reinforcement took (the `seconds` of the run's own rows, so compare on
the same machine under the same load), and is measured on the same held-out tasks, on the way (`--looks` times)
and at the end. The last line of the output is one JSON object; `gain_over_further` is the paired comparison of
the trained model with the best of those looks, which favours the control.
What it is not: a part of the road. It leaves the run as it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from burnish.evaluate.headline import headline
from burnish.evaluate.suite import run_suite
from burnish.evaluate.summary import solved
from burnish.observe.progress import LiveView
from burnish.recipes.road import Execution, Road
from burnish.recipes.settings import from_json
from burnish.rollout.group import derive
from burnish.rollout.source import RecordedSource
from burnish.store.run import RunDirectory
from burnish.train.learner import LocalLearner
from burnish.train.sft import SFT
from burnish.types import UsageError

ENDLESS = 1_000_000


def reinforcement_seconds(run: RunDirectory) -> float:
    """How long the steps of reinforcement took. Raises UsageError for a run that has none, or no result."""
    seconds = [float(row["seconds"]) for row in run.metrics() if row["stage"] == "rl"]
    if not seconds or "trained" not in run.evaluations():
        raise UsageError(f"{run.path} is not finished: `burnish resume {run.path}` first")
    return sum(seconds)


async def train_on(execution: Execution, warm: Path, seconds: float, looks: int) -> list[dict[str, Any]]:
    """Trains for `seconds` (evaluations not counted); returns each look's minutes, steps and episodes."""
    road = execution.road
    source = RecordedSource(
        await execution.demonstrations(), ENDLESS, road.warmup.batch, derive(road.seed, "further")
    )
    learner, algorithm = LocalLearner(warm, road.warmup.optimization), SFT()
    policy = execution.policy(0.0)
    done: list[dict[str, Any]] = []
    trained = 0.0
    execution.view.phase(f"{seconds / 60:.1f} minutes of further supervised training, looks", looks)
    mark = time.monotonic()
    async for step, groups in source.batches(policy, 0):
        learner.annotate(groups, algorithm.needs)
        algorithm.credit(groups)
        learner.update(groups, algorithm)
        now = time.monotonic()
        trained, mark = trained + now - mark, now
        if trained >= seconds * (len(done) + 1) / looks:
            await execution.engine.load(learner.export(), step + 1)
            episodes = await run_suite(road.suite, execution.roller, policy, {"stage": "further"})
            done.append({"minutes": trained / 60, "steps": step + 1, "episodes": episodes})
            success = sum(bool(solved(t)) for t in episodes) / len(episodes)
            execution.view.advance(success=success)
            execution.view.note(f"after {trained / 60:.1f} minutes, {step + 1} steps: {success:.1%}")
            mark = time.monotonic()
        if len(done) == looks:
            break
    return done


async def measure(run: RunDirectory, looks: int, view: LiveView) -> dict[str, Any]:
    road = from_json(Road, run.recipe, "recipe.json")
    warm = next(c for c in run.checkpoints() if c.step == road.warmup.steps - 1)
    seconds = reinforcement_seconds(run)
    with (
        tempfile.TemporaryDirectory(prefix="burnish-further-") as scratch,
        RunDirectory.create(Path(scratch) / "run", run.recipe) as own,
    ):
        execution = Execution(road, own, view)
        try:
            taken = await train_on(execution, warm.path, seconds, looks)
        finally:
            await execution.close()
    trained = run.evaluations()["trained"]
    best = max(taken, key=lambda look: sum(bool(solved(t)) for t in look["episodes"]))
    found = headline({"base": best["episodes"], "trained": trained})
    return {
        "benchmark": "further_sft", "recipe": road.name, "seed": road.seed,
        "minutes": seconds / 60,
        "further": [
            {k: look[k] for k in ("minutes", "steps")} | headline({"further": look["episodes"]})["further"]
            for look in taken
        ],
        "trained": found["trained"],
        "gain_over_further": found["gain"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="the directory of a finished run")
    parser.add_argument("--looks", type=int, default=3, help="evaluations, evenly over the time")
    parser.add_argument("--json", action="store_true", help="print the result as JSON only")
    chosen = parser.parse_args()
    try:
        run = RunDirectory.open(chosen.run)
        reinforcement_seconds(run)
    except UsageError as error:
        parser.error(str(error))
    with LiveView("silent" if chosen.json else None) as view:
        found = asyncio.run(measure(run, max(1, chosen.looks), view))
    if not chosen.json:
        for look in found["further"]:
            print(f"{look['minutes']:.1f} min of further supervised training: {look['success']:.1%}")
        print(f"{found['minutes']:.1f} min of reinforcement: {found['trained']['success']:.1%}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
