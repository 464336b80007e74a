"""A whole run on a tiny model: what it leaves, and that a kill at any moment changes none of its numbers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.further_sft import measure, reinforcement_seconds

from burnish.observe.audit import read_events
from burnish.observe.progress import LiveView
from burnish.store.run import RunDirectory
from burnish.types import UsageError
from tests.model.tiny import tiny_directory
from tests.recipes.small import run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny"
    tiny_directory(path)
    return path


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The run that nothing interrupted."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    run(model, path)
    return RunDirectory.open(path)


def numbers(kept: RunDirectory) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in kept.metrics()]


def test_a_run_leaves_everything_that_the_design_names(whole: RunDirectory) -> None:
    assert [row["step"] for row in whole.metrics()] == list(range(7))
    assert [row["stage"] for row in whole.metrics()] == ["warmup"] * 3 + ["rl"] * 4
    assert list(whole.evaluations()) == ["base", "warmup", "trained"]
    assert [c.step for c in whole.checkpoints()] == [2, 6]
    summary = whole.read_json("summary.json")
    assert summary is not None
    assert {"base", "warmup", "trained", "p_value", "minutes", "domains"} <= set(summary)
    assert "<html" in whole.report_path.read_text()
    kinds = {event["kind"] for event in read_events(whole.events_path)}
    assert {"run", "model_call", "tool_call", "verdict", "weight_update", "checkpoint", "evaluation"} <= kinds
    assert whole.verify_log().ok


def test_the_kl_weight_moves_within_the_run(whole: RunDirectory) -> None:
    weights = [row["beta"] for row in whole.metrics() if row["stage"] == "rl"]
    assert weights[0] != 0.1 and len(set(weights)) > 1


@pytest.mark.parametrize("share", [0.15, 0.5, 0.62, 0.8, 0.97])
def test_a_killed_run_resumes_to_the_same_numbers(
    model: Path, whole: RunDirectory, tmp_path: Path, share: float
) -> None:
    events = len(read_events(whole.events_path))
    command = [sys.executable, "-m", "tests.recipes.small", str(model), str(tmp_path / "run")]
    killed = subprocess.run([*command, str(int(events * share))], check=False)
    assert killed.returncode == -signal.SIGKILL
    run(model, tmp_path / "run")
    kept = RunDirectory.open(tmp_path / "run")
    assert numbers(kept) == numbers(whole)
    assert [c.lineage.weights for c in kept.checkpoints()] == [c.lineage.weights for c in whole.checkpoints()]
    for stage, episodes in whole.evaluations().items():
        outputs = [[t.output_ids for t in e.turns] for e in episodes]
        assert [[t.output_ids for t in e.turns] for e in kept.evaluations()[stage]] == outputs
    assert kept.verify_log().ok


def test_the_control_takes_reinforcements_time_and_leaves_the_run_alone(whole: RunDirectory) -> None:
    before = {p: p.read_bytes() for p in whole.path.rglob("*") if p.is_file()}
    with LiveView("silent") as view:
        found = asyncio.run(measure(whole, 2, view))
    assert {p: p.read_bytes() for p in whole.path.rglob("*") if p.is_file()} == before
    first, last = found["further"]
    assert last["minutes"] >= found["minutes"] == reinforcement_seconds(whole) / 60
    assert 0 < first["minutes"] < last["minutes"] and 0 < first["steps"] < last["steps"]
    assert first["tasks"] == found["trained"]["tasks"] == 4
    difference = found["trained"]["success"] - max(look["success"] for look in found["further"])
    assert found["gain_over_further"]["difference"] == pytest.approx(difference)


def test_the_control_needs_a_finished_run(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.recipes.small", str(model), str(tmp_path / "run"), "40"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    with pytest.raises(UsageError, match="burnish resume"):
        reinforcement_seconds(RunDirectory.open(tmp_path / "run"))
