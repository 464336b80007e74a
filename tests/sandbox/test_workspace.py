"""A directory that hostile code wrote to, handled from outside."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.sandbox import beneath, seccomp
from burnish.sandbox.workspace import MAX_DEPTH, MAX_FILES, Workspace, remove_tree
from burnish.types import BurnishError


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path / "work", None)
    yield made
    made.remove()
    made.remove()
    assert not made.path.exists()


@pytest.fixture(params=["openat2", "walk"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of opening: kernels before 5.6 lack the first."""
    if request.param == "walk":

        class Old:
            def syscall(self, *_: object) -> int:
                ctypes.set_errno(errno.ENOSYS)
                return -1

        monkeypatch.setattr(beneath, "_libc", Old())


@pytest.mark.usefixtures("opener")
def test_nothing_leads_out(workspace: Workspace) -> None:
    (workspace.path / "d").mkdir()
    (workspace.path / "d/file").write_text("inside")
    (workspace.path / "to_file").symlink_to("d/file")
    (workspace.path / "to_dir").symlink_to("d")
    (workspace.path / "away").symlink_to("/etc")
    os.mkfifo(workspace.path / "fifo")
    assert workspace.read("d/file", 100) == b"inside"
    assert workspace.read("./d//file", 100) == b"inside"
    for path in ("to_file", "to_dir/file", "away/passwd", "fifo", "d", "d/../d/file", "/etc/passwd"):
        with pytest.raises(PermissionError):
            workspace.read(path, 100)
        with pytest.raises(PermissionError):
            workspace.write(path, b"x", 1 << 20)
    for path in ("none", "d/none", "none/none", "d/file/none", "n" * 300):
        with pytest.raises(FileNotFoundError):
            workspace.read(path, 100)
    assert workspace.files(1 << 20) == {"d/file": b"inside"}


@pytest.mark.usefixtures("opener")
def test_writes_make_directories_and_keep_modes(workspace: Workspace) -> None:
    workspace.write("a/b/run.sh", b"long text", 1 << 20)
    (workspace.path / "a/b/run.sh").chmod(0o755)
    workspace.write("a/b/run.sh", b"short", 1 << 20)
    assert (workspace.path / "a/b/run.sh").read_bytes() == b"short"
    assert (workspace.path / "a/b/run.sh").stat().st_mode & 0o777 == 0o755


def test_all_files_together_are_bounded(workspace: Workspace) -> None:
    with (workspace.path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="longer than"):
        workspace.files(1 << 20)


def test_names_that_are_not_text_are_kept(workspace: Workspace) -> None:
    Path(os.fsdecode(bytes(workspace.path) + b"/\xff")).write_bytes(b"x")
    assert workspace.files(100) == {os.fsdecode(b"\xff"): b"x"}


def test_depth_and_number_are_seen_without_looking_far(workspace: Workspace) -> None:
    deep = workspace.path
    for _ in range(MAX_DEPTH):
        deep = deep / "d"
    deep.mkdir(parents=True)
    assert not workspace.measure().hidden
    (deep / "d").mkdir()
    assert workspace.measure().hidden
    assert workspace.measure().exceeds(1 << 60)
    assert workspace.measure(most=3).entries == 4
    assert MAX_FILES > 1000


def test_links_do_not_count_twice(workspace: Workspace) -> None:
    (workspace.path / "a").write_bytes(b"x" * (1 << 20))
    once = workspace.measure().size
    os.link(workspace.path / "a", workspace.path / "b")
    assert workspace.measure().size == once


def test_removal_cannot_be_made_to_recurse_or_to_follow(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    top = tmp_path / "top"
    top.mkdir()
    here = Path.cwd()
    try:
        os.chdir(top)
        for _ in range(1100):  # deeper than Python recurses and than a path is long
            Path("d" * 9).mkdir()
            os.chdir("d" * 9)
        Path("link").symlink_to(kept)
    finally:
        os.chdir(here)
    (top / ".removed-1").mkdir()
    (top / ".removed-1/x").mkdir()
    (top / ".removed-2").write_text("a name that removal itself would take")
    (top / "away").symlink_to(kept)
    (top / "closed/inner").mkdir(parents=True)
    (top / "closed/inner").chmod(0)
    (top / "closed").chmod(0)
    remove_tree(top)
    remove_tree(top)
    assert not top.exists()
    assert (kept / "file").read_text() == "x"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_program_whose_jumps_stay_inside(machine: str) -> None:
    code = seccomp.program(machine)
    steps = list(struct.iter_unpack("<HBBI", code))
    assert len(code) == 8 * len(steps) and len(steps) < 4096
    for place, (operation, if_true, if_false, value) in enumerate(steps):
        if operation & 0x07 == 0x05:
            assert place + 1 + max(if_true, if_false) < len(steps)
        if operation == 0x20:
            assert value in (0, 4, 16, 24)
    assert steps[-1][0] == 0x06
    numbers = [value for operation, _, _, value in steps[3:] if operation == 0x15]
    assert len(numbers) > 40


def test_the_filter_refuses_an_unknown_architecture() -> None:
    with pytest.raises(BurnishError, match="riscv64"):
        seccomp.program("riscv64")
