"""The run directory: refusals, repair after kills, checkpoints that are whole or not there."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from burnish.observe.audit import read_events
from burnish.store.lineage import check_files, read_lineage, weights_digest
from burnish.store.run import RunDirectory
from burnish.types import BurnishError, UsageError
from tests.store import cases

RECIPE = {"name": "tiny", "seed": 3, "rate": 1e-5}


def weights(content: bytes = b"w") -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / "model.safetensors").write_bytes(content)
        (directory / "state").mkdir()
        (directory / "state" / "optimizer.bin").write_bytes(b"o" * 10)

    return write


@pytest.fixture
def run(tmp_path: Path):
    with RunDirectory.create(tmp_path / "runs" / "r", RECIPE) as made:
        yield made


def test_a_run_keeps_what_it_was_given(run: RunDirectory) -> None:
    run.record(1, {"success": np.float32(0.5), "kl": float("nan"), "phase": "train"})
    run.write_trajectories(1, [cases.trajectory()])
    run.write_evaluation("trained", [cases.trajectory("t")])
    run.write_evaluation("base", [cases.trajectory("b")])
    run.write_json("summary.json", {"p_value": 0.001})
    read = RunDirectory.open(run.path)
    assert read.recipe == RECIPE and read.recipe_digest == run.recipe_digest
    (row,) = read.metrics()
    assert row["step"] == 1 and row["success"] == 0.5 and row["kl"] != row["kl"]
    assert [t.id for t in read.trajectories(1)] == ["a"]
    assert list(read.evaluations()) == ["base", "trained"]
    assert read.read_json("summary.json") == {"p_value": 0.001} and read.read_json("none.json") is None
    json.loads((run.path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)


def test_secrets_do_not_lie_in_a_run(run: RunDirectory) -> None:
    run.write_trajectories(1, [cases.trajectory()])
    run.write_evaluation("base", [cases.trajectory()])
    run.audit.append("run", {"task": cases.task()})
    assert not any(b"the-answer" in p.read_bytes() for p in run.path.rglob("*") if p.is_file())


def test_a_second_run_into_the_same_directory_is_refused(run: RunDirectory) -> None:
    with pytest.raises(UsageError, match="burnish resume"):
        RunDirectory.create(run.path, RECIPE)
    with pytest.raises(UsageError, match="Another process"):
        RunDirectory.resume(run.path)


def test_a_directory_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        RunDirectory.create(tmp_path, RECIPE)


def test_a_run_killed_at_its_birth_can_be_made_again(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    RunDirectory.create(tmp_path, RECIPE).close()
    assert RunDirectory.open(tmp_path).recipe == RECIPE


def test_where_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No run at"):
        RunDirectory.open(tmp_path / "none")
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        RunDirectory.open(tmp_path)
    (tmp_path / "recipe.json").write_text("[]")
    with pytest.raises(UsageError, match="holds no fields"):
        RunDirectory.resume(tmp_path)


def test_a_run_that_is_read_records_nothing(run: RunDirectory) -> None:
    with pytest.raises(BurnishError, match="opened to read"):
        _ = RunDirectory.open(run.path).audit
    with pytest.raises(UsageError, match="No trajectories"):
        run.trajectories(9)
    with pytest.raises(UsageError, match="cannot name a stage"):
        run.write_evaluation("../base", [])


def test_a_checkpoint_has_its_lineage(run: RunDirectory) -> None:
    assert run.latest() is None
    first = run.save_checkpoint(2, weights(), parent="SmolLM2-135M-Instruct", notes={"phase": "warmup"})
    second = run.save_checkpoint(5, weights(b"w2"))
    assert [c.step for c in run.checkpoints()] == [2, 5] and run.latest() == second
    lineage = read_lineage(second.path)
    assert (first.lineage.parent, lineage.parent) == ("SmolLM2-135M-Instruct", "step-000002")
    assert lineage.recipe == run.recipe_digest and lineage.weights == weights_digest(second.path)
    assert lineage.files == {"model.safetensors": 2, "state/optimizer.bin": 10}
    event = read_events(run.events_path)[lineage.audit["seq"]]
    assert event["kind"] == "checkpoint" and event["data"]["weights"] == lineage.weights
    assert event["hash"] == lineage.audit["hash"]
    assert run.note_evaluation(second, {"success": 0.7}).lineage == run.checkpoints()[-1].lineage
    assert run.checkpoints()[-1].lineage.evaluation == {"success": 0.7}
    with pytest.raises(UsageError, match="never written over"):
        run.save_checkpoint(5, weights())


def test_the_digest_of_one_file_is_that_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    assert weights_digest(tmp_path).startswith("ba7816bf")
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001-of-00002.safetensors")
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"")
    listing = subprocess.run("sha256sum model*", shell=True, cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "sums").write_bytes(listing.stdout)
    whole = subprocess.run(["sha256sum", "sums"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert weights_digest(tmp_path) == whole.stdout.split()[0]


def test_a_checkpoint_without_weights_is_refused(run: RunDirectory) -> None:
    with pytest.raises(UsageError, match=r"no model\.safetensors"):
        run.save_checkpoint(1, lambda directory: None)
    assert list((run.path / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_a_damaged_checkpoint_is_named(run: RunDirectory, damage: str) -> None:
    checkpoint = run.save_checkpoint(1, weights())
    state = checkpoint.path / "state" / "optimizer.bin"
    state.write_bytes(b"o") if damage == "truncate" else state.unlink()
    with pytest.raises(UsageError, match=r"damaged: state/optimizer\.bin .*checkpoint before it"):
        run.latest()


@pytest.mark.parametrize(
    ("text", "message"), [(None, "no complete"), ("{", "cannot be read"), ('{"step": 1}', "parent")]
)
def test_an_unreadable_lineage_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "burnish.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_lineage(tmp_path)


def test_a_lineage_of_another_format_is_refused(run: RunDirectory) -> None:
    path = run.save_checkpoint(1, weights()).path
    (path / "burnish.json").write_text(
        (path / "burnish.json").read_text().replace('"format":1', '"format":9')
    )
    with pytest.raises(UsageError, match="format 9"):
        read_lineage(path)


def test_a_removed_checkpoint_is_gone(run: RunDirectory) -> None:
    for step in range(4):
        run.save_checkpoint(step, weights())
    for checkpoint in run.checkpoints()[:2]:
        run.remove_checkpoint(checkpoint)
    assert sorted(p.name for p in (run.path / "checkpoints").iterdir()) == ["step-000002", "step-000003"]
    assert run.verify_log().ok


def test_resume_drops_what_came_after_the_checkpoint(run: RunDirectory) -> None:
    for step in (1, 2, 3):
        run.record(step, {"reward": step})
        run.write_trajectories(step, [cases.trajectory(str(step))])
        if step == 2:
            run.save_checkpoint(step, weights())
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step":4,"rew')
    run.close()
    with RunDirectory.resume(run.path) as again:
        checkpoint = again.latest()
        assert checkpoint is not None
        again.truncate_after(checkpoint.step)
        again.audit.resume(checkpoint.name, checkpoint.lineage.audit)
        assert [row["step"] for row in again.metrics()] == [1, 2]
        assert sorted(p.name for p in again.path.glob("trajectories/*")) == [
            "step-000001.jsonl",
            "step-000002.jsonl",
        ]
        again.record(3, {"reward": 3})
        assert [row["step"] for row in again.metrics()] == [1, 2, 3]
        again.truncate_after(-1)
        assert again.metrics() == [] and again.checkpoints() == []
        assert again.verify_log().ok


def test_a_row_after_a_torn_one_stands_alone(run: RunDirectory) -> None:
    run.record(1, {})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step":2,"rew')
    assert [row["step"] for row in run.metrics()] == [1]
    run.close()
    with RunDirectory.resume(run.path) as again:
        again.record(2, {})
        assert [row["step"] for row in again.metrics()] == [1, 2]


def test_a_cut_log_shows_against_the_checkpoint(run: RunDirectory) -> None:
    run.audit.append("run", {})
    run.save_checkpoint(1, weights())
    lines = run.events_path.read_bytes().splitlines(keepends=True)
    run.events_path.write_bytes(b"".join(lines[:-1]))
    found = run.verify_log()
    assert [p.change for p in found.problems] == ["cut"] and "step-000001" in found.problems[0].why


KILLED = """
import os, signal, sys
from pathlib import Path
from burnish.store import files, run as runs
path, where = Path(sys.argv[1]), sys.argv[2]
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
def write(directory):
    (directory / "model.safetensors").write_bytes(b"w")
    if armed and where == "writing": die()
armed = False
run = runs.RunDirectory.create(path, {"name": "killed"})
run.record(1, {}); run.save_checkpoint(1, write)
armed = True
run.record(2, {})
if where == "before the name": runs.sync_tree = die
if where == "row":
    os.write(os.open(path / "metrics.jsonl", os.O_WRONLY | os.O_APPEND), b'{"step"')
    os.write(run.audit._file, b'{"data"')
    die()
if where == "replacing":
    runs.write_atomically.__globals__["sync"] = die
    run.write_json("summary.json", {"whole": True})
run.save_checkpoint(2, write)
"""


@pytest.mark.parametrize("where", ["writing", "before the name", "row", "replacing"])
def test_a_kill_leaves_nothing_that_a_resume_would_trust(tmp_path: Path, where: str) -> None:
    path = tmp_path / "r"
    done = subprocess.run([sys.executable, "-c", KILLED, path, where], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with RunDirectory.resume(path) as again:
        checkpoint = again.latest()
        assert checkpoint is not None and checkpoint.step == 1
        check_files(checkpoint.path, checkpoint.lineage)
        again.truncate_after(1)
        again.audit.resume(checkpoint.name, checkpoint.lineage.audit)
        assert [row["step"] for row in again.metrics()] == [1]
        assert [p.name for p in again.path.glob("checkpoints/*")] == ["step-000001"]
        assert again.read_json("summary.json") in (None, {"whole": True})
        assert again.save_checkpoint(2, weights()).lineage.parent == "step-000001"
        assert again.verify_log().ok


@contextmanager
def small_files() -> Iterator[None]:
    """The kernel refuses any file over 4 KiB, as a full disk refuses more blocks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_and_leaves_the_old(run: RunDirectory) -> None:
    run.write_json("summary.json", {"old": True})
    with (
        pytest.raises(BurnishError, match=r"Cannot write .*summary\.json.*MiB free.*burnish resume"),
        small_files(),
    ):
        run.write_json("summary.json", {"new": "x" * 10_000})
    assert run.read_json("summary.json") == {"old": True}
    with pytest.raises(BurnishError, match="step-000001"), small_files():
        run.save_checkpoint(1, weights(b"x" * 10_000))
    assert run.checkpoints() == [] and not any((run.path / "checkpoints").iterdir())
    run.record(1, {})
    with pytest.raises(BurnishError, match=r"metrics\.jsonl"), small_files():
        run.record(2, {"long": "x" * 10_000})
    assert [row["step"] for row in run.metrics()] == [1]


def test_a_library_that_says_it_otherwise(run: RunDirectory) -> None:
    def write(directory: Path) -> None:
        raise RuntimeError("IoError: No space left on device (os error 28)")

    with pytest.raises(BurnishError, match=r"No space left.*burnish resume"):
        run.save_checkpoint(1, write)

    def fail(directory: Path) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        run.save_checkpoint(1, fail)


def test_a_place_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BurnishError, match="Cannot write"):
        RunDirectory.create(tmp_path / "file" / "run", RECIPE)
