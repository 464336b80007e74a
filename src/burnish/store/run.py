"""The run directory: everything that one training run leaves, and what a resume starts from.

    recipe.json  metrics.jsonl  events.jsonl  trajectories/step-000012.jsonl  evaluations/base.jsonl
    checkpoints/step-000012/{config.json, model.safetensors, ..., burnish.json}  summary.json  report.html

What this file is: `RunDirectory`, which makes, opens, repairs and locks such a directory, and through which
all of it is written, atomically or by appending whole lines.
What it is not: it decides nothing about training, and it does not know what a checkpoint contains.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from burnish.observe.audit import AuditLog
from burnish.observe.chain import Verification, verify
from burnish.store.codec import decode_lines, encode_lines
from burnish.store.files import (
    append,
    cut_torn_line,
    from_json,
    naming_a_full_disk,
    sync,
    sync_tree,
    to_json,
    whole_lines,
    write_atomically,
    writing,
)
from burnish.store.lineage import FILE as LINEAGE_FILE
from burnish.store.lineage import (
    Lineage,
    check_files,
    file_sizes,
    read_lineage,
    weights_digest,
    write_lineage,
)
from burnish.types import BurnishError, Trajectory, UsageError

_STEP = re.compile(r"step-(\d{6,})")
_STAGE = re.compile(r"[a-z0-9][a-z0-9_-]*")
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: the state after step `lineage.step` was trained and recorded."""

    path: Path
    lineage: Lineage

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def step(self) -> int:
        return self.lineage.step


class RunDirectory:
    """One run on disk. `create` and `resume` give a run that this process alone may write, with its audit log
    open as `audit`; `open` gives one to read, also while another process writes it."""

    def __init__(self, path: Path, recipe: dict[str, Any], lock: int | None = None) -> None:
        """Use `create`, `resume` or `open`."""
        self.path = path
        self.recipe = recipe
        self.recipe_digest = hashlib.sha256(to_json(recipe)).hexdigest()
        self._lock = lock
        self._audit = AuditLog(self.events_path) if lock is not None else None

    @classmethod
    def create(cls, path: Path, recipe: Mapping[str, Any]) -> RunDirectory:
        """A new run. Raises UsageError when the directory already holds something."""
        if path.is_dir() and any(entry.name != _LOCK for entry in path.iterdir()):
            what = "already holds a run" if (path / "recipe.json").exists() else "is not empty"
            advice = f"continue it with `burnish resume {path}`, or " if "run" in what else ""
            raise UsageError(f"{path} {what}; {advice}choose another directory.")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        lock = _take_lock(path)
        try:
            write_atomically(path / "recipe.json", to_json(recipe) + b"\n")
            return cls(path, dict(recipe), lock)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run, to read. Raises UsageError when there is none."""
        return cls(path, _read_recipe(path))

    @classmethod
    def resume(cls, path: Path) -> RunDirectory:
        """An existing run, to go on with. What a kill left unfinished is cleared away; call `truncate_after`
        with the step of the checkpoint that training goes on from."""
        recipe = _read_recipe(path)
        lock = _take_lock(path)
        try:
            run = cls(path, recipe, lock)
        except BaseException:
            os.close(lock)
            raise
        with writing(path):
            for leftover in [*path.glob("checkpoints/.*"), *path.glob("**/.*.writing")]:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
            cut_torn_line(path / "metrics.jsonl")
        return run

    def close(self) -> None:
        """Closes the audit log and gives up the lock. Idempotent."""
        if self._audit is not None:
            self._audit.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def audit(self) -> AuditLog:
        if self._audit is None:
            raise BurnishError(f"{self.path} was opened to read; nothing is recorded in its audit log.")
        return self._audit

    @property
    def events_path(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    def record(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends one row to `metrics.jsonl`. `step` counts through the whole run, whatever its phases."""
        append(self.path / "metrics.jsonl", to_json({"step": step, **metrics}) + b"\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All rows in the order written; a torn last line is left out."""
        return [from_json(line) for line in whole_lines(self.path / "metrics.jsonl")]

    def write_trajectories(self, step: int, trajectories: Sequence[Trajectory]) -> Path:
        """Keeps what step `step` was trained on, without the tasks' secrets."""
        path = self.path / "trajectories" / f"{_step_name(step)}.jsonl"
        write_atomically(path, encode_lines(trajectories))
        return path

    def trajectories(self, step: int) -> list[Trajectory]:
        """Raises UsageError when none were kept for that step."""
        return _read_trajectories(self.path / "trajectories" / f"{_step_name(step)}.jsonl")

    def write_evaluation(self, stage: str, trajectories: Sequence[Trajectory]) -> Path:
        """Keeps a stage's scored episodes (`base`, `warmup`, `trained`), without the tasks' secrets."""
        if not _STAGE.fullmatch(stage):
            raise UsageError(f"{stage!r} cannot name a stage; use small letters, digits, - and _.")
        path = self.path / "evaluations" / f"{stage}.jsonl"
        write_atomically(path, encode_lines(trajectories))
        return path

    def evaluations(self) -> dict[str, list[Trajectory]]:
        """Every stage that was evaluated, by name: base, warmup and trained first, then others by name."""
        order = {"base": 0, "warmup": 1, "trained": 2}
        paths = sorted(self.path.glob("evaluations/*.jsonl"), key=lambda p: (order.get(p.stem, 3), p.stem))
        return {path.stem: _read_trajectories(path) for path in paths}

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """Writes a small document such as `summary.json` into the run."""
        write_atomically(self.path / name, to_json(value) + b"\n")
        return self.path / name

    def read_json(self, name: str) -> dict[str, Any] | None:
        """What `write_json` wrote, or None."""
        path = self.path / name
        return dict(from_json(path.read_bytes())) if path.exists() else None

    def save_checkpoint(
        self,
        step: int,
        write: Callable[[Path], None],
        parent: str | None = None,
        evaluation: Mapping[str, Any] | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Makes `checkpoints/step-<step>`: `write` fills a directory that nobody else sees yet, which then
        gets its `burnish.json` and its name. The audit log is on the disk before. Raises UsageError when
        that step has a checkpoint already."""
        final = self.path / "checkpoints" / _step_name(step)
        if final.exists():
            raise UsageError(f"{final} exists already; a checkpoint is never written over.")
        draft = final.with_name(f".{final.name}.writing")
        with writing(final):
            try:
                shutil.rmtree(draft, ignore_errors=True)
                draft.mkdir(parents=True)
                with naming_a_full_disk(draft):
                    write(draft)
                weights = weights_digest(draft)
                self.audit.append("checkpoint", {"name": final.name, "step": step, "weights": weights})
                lineage = Lineage(
                    step=step,
                    parent=parent or next((c.name for c in reversed(self.checkpoints())), None),
                    recipe=self.recipe_digest,
                    weights=weights,
                    audit=self.audit.head(sync=True),
                    files=file_sizes(draft),
                    evaluation=evaluation,
                    notes=notes or {},
                )
                write_lineage(draft, lineage)
                sync_tree(draft)
                draft.rename(final)
                sync(final.parent)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        return Checkpoint(final, lineage)

    def checkpoints(self) -> list[Checkpoint]:
        """The complete ones, by step."""
        found = [
            Checkpoint(path, read_lineage(path))
            for path in self.path.glob("checkpoints/step-*")
            if _STEP.fullmatch(path.name) and (path / LINEAGE_FILE).is_file()
        ]
        return sorted(found, key=lambda c: c.step)

    def latest(self) -> Checkpoint | None:
        """The last complete checkpoint, or None. Raises UsageError when files of it are missing or
        truncated."""
        checkpoints = self.checkpoints()
        if not checkpoints:
            return None
        check_files(checkpoints[-1].path, checkpoints[-1].lineage)
        return checkpoints[-1]

    def note_evaluation(self, checkpoint: Checkpoint, evaluation: Mapping[str, Any]) -> Checkpoint:
        """Adds an evaluation's figures to the checkpoint's lineage."""
        lineage = replace(checkpoint.lineage, evaluation=evaluation)
        write_lineage(checkpoint.path, lineage)
        return Checkpoint(checkpoint.path, lineage)

    def remove_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The name goes first, so that a kill leaves no checkpoint with half of its files."""
        gone = checkpoint.path.with_name(f".{checkpoint.name}.removed")
        checkpoint.path.rename(gone)
        shutil.rmtree(gone)

    def truncate_after(self, step: int) -> None:
        """Drops metrics, trajectories and checkpoints of steps after `step` (-1: all of them), and a torn
        last line. The audit log keeps everything: it happened."""
        rows = [line for line in whole_lines(self.path / "metrics.jsonl") if from_json(line)["step"] <= step]
        write_atomically(self.path / "metrics.jsonl", b"".join(row + b"\n" for row in rows))
        for path in self.path.glob("trajectories/step-*.jsonl"):
            name = _STEP.fullmatch(path.stem)
            if name is not None and int(name[1]) > step:
                path.unlink()
        for checkpoint in self.checkpoints():
            if checkpoint.step > step:
                self.remove_checkpoint(checkpoint)

    def verify_log(self) -> Verification:
        """Checks the audit log, also against the heads that the checkpoints keep."""
        return verify(self.events_path, {c.name: c.lineage.audit for c in self.checkpoints()})


def _step_name(step: int) -> str:
    return f"step-{step:06d}"


def _read_recipe(path: Path) -> dict[str, Any]:
    file = path / "recipe.json"
    try:
        recipe = from_json(file.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"No run at {path}: there is no recipe.json in it.") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    if not isinstance(recipe, dict):
        raise UsageError(f"{file} is not a recipe: it holds no fields.")
    return recipe


def _read_trajectories(path: Path) -> list[Trajectory]:
    if not path.exists():
        raise UsageError(f"No trajectories at {path}.")
    return decode_lines(whole_lines(path), str(path))


def _take_lock(path: Path) -> int:
    with writing(path / _LOCK):
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(
            f"Another process is training into {path}; wait for it to end, or stop it, or choose another "
            "directory."
        ) from None
    return lock
