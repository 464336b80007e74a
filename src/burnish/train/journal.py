"""What a training stage writes into its run: rows, trajectories, events and checkpoints.

What this file is: the stage's view of the run directory. Steps of a stage count from 0; in the run they follow those
of the stages before (`offset`). A checkpoint holds the learner, the algorithm and the source, so that a resumed
stage goes on to the same numbers.
What it is not: it trains nothing and decides nothing but when a checkpoint is due.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.evaluate.summary import solved
from burnish.interfaces import Algorithm, Learner, Source
from burnish.observe.progress import LiveView
from burnish.store.files import from_json, to_json
from burnish.store.run import Checkpoint, RunDirectory
from burnish.types import Group, Trajectory, UsageError

STATE_FILE = "state.json"


@dataclass(eq=False)
class Journal:
    """One stage of `steps` steps, the first being step `offset` of the run. A resumable checkpoint is kept
    every `every` steps, and one without optimizer state, the stage's result, after the last. `own` says that the
    episodes are the model's own: only those are kept, and only their figures shown."""

    run: RunDirectory
    stage: str
    offset: int
    steps: int
    every: int
    view: LiveView
    own: bool = True
    _mark: float = field(default_factory=time.monotonic)

    def version(self, step: int) -> int:
        """The version of the weights that step `step` of this stage starts from."""
        return self.offset + step

    def record(self, step: int, metrics: dict[str, Any], groups: Sequence[Group]) -> None:
        """Writes the step's row, its trajectories and the event of the weight update."""
        now = time.monotonic()
        row = {"stage": self.stage, **rollout_figures(groups), **metrics, "seconds": now - self._mark}
        self._mark = now
        if self.own:
            self.run.write_trajectories(self.offset + step, [t for g in groups for t in g.trajectories])
        self.run.record(self.offset + step, row)
        self.run.audit.append("weight_update", {
            "stage": self.stage, "step": self.offset + step, "version": self.version(step + 1),
            "gradient_norm": metrics.get("gradient_norm"), "trajectories": sum(len(g.trajectories) for g in groups),
        })  # fmt: skip
        shown = (
            ("loss", "success", "reward", "kl", "beta", "tool_errors", "timeouts") if self.own else ("loss",)
        )
        self.view.advance(**{name: row[name] for name in shown if name in row})

    def due(self, step: int) -> bool:
        return step + 1 == self.steps or (step + 1) % self.every == 0

    def checkpoint(self, step: int, source: Source, learner: Learner, algorithm: Algorithm) -> None:
        final = step + 1 == self.steps
        state = {"stage": self.stage, "algorithm": algorithm.state_dict(), "source": source.state_dict()}

        def write(directory: Path) -> None:
            learner.save(directory, resumable=not final)
            (directory / STATE_FILE).write_bytes(to_json(state))

        kept = self.run.save_checkpoint(
            self.offset + step, write, notes={"stage": self.stage, "final": final}
        )
        self._discard_superseded(kept)

    def _discard_superseded(self, kept: Checkpoint) -> None:
        """Only the newest resumable checkpoint is worth its optimizer state; a stage's result is kept."""
        for checkpoint in self.run.checkpoints():
            if checkpoint.step < kept.step and not checkpoint.lineage.notes.get("final"):
                self.run.remove_checkpoint(checkpoint)

    def restore(self, checkpoint: Checkpoint, source: Source, learner: Learner, algorithm: Algorithm) -> int:
        """Loads a checkpoint of this stage; returns the step to go on with."""
        path = checkpoint.path / STATE_FILE
        try:
            state = from_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from None
        learner.load(checkpoint.path)
        algorithm.load_state_dict(state["algorithm"])
        source.load_state_dict(state["source"])
        return checkpoint.step + 1 - self.offset


def rollout_figures(groups: Sequence[Group]) -> dict[str, float]:
    """Means over the valid trajectories of a step: reward, success, costs an episode, and shares of endings."""
    everyone = [t for g in groups for t in g.trajectories]
    valid = [
        t for t in everyone if t.status is not None and t.status.kind != "invalid" and t.score is not None
    ]
    figures = {"trajectories": float(len(everyone)), "invalid": float(len(everyone) - len(valid))}
    if valid:
        figures["reward"] = _mean([t.reward or 0.0 for t in valid])
        figures["success"] = _mean([float(bool(solved(t))) for t in valid])
        figures["truncated"] = _mean([float(_ending(t) == "truncated") for t in valid])
        for name in ("turns", "tokens", "tool_calls", "tool_errors", "timeouts"):
            figures[name] = _mean([t.costs.get(name, 0.0) for t in valid])
        for domain in sorted({t.task.domain for t in valid}):
            rewards = [t.reward or 0.0 for t in valid if t.task.domain == domain]
            figures[f"reward/{domain}"] = _mean(rewards)
    return figures


def _ending(trajectory: Trajectory) -> str:
    return "" if trajectory.status is None else trajectory.status.kind


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
