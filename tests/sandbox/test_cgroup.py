"""Control groups: found by the kernel's own description, kept to, and gone afterwards.

Version 2 is tested on directories as the kernel's documentation (admin-guide/cgroup-v2.rst, Linux 6.12) lays them out;
what this machine has is tested for real.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from burnish.sandbox import LocalSandboxes, cgroup
from burnish.sandbox.cgroup import Place, find
from burnish.sandbox.lease import Lease
from burnish.types import Limits

HERE = cgroup.find()
real = pytest.mark.skipif(HERE is None, reason="no control group can be made here")

MIB = 1 << 20


def tree(root: Path, mounts: str, own: str, files: dict[str, str]) -> Path:
    for path, text in {"proc/self/mountinfo": mounts, "proc/self/cgroup": own, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


SECOND = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
SLICE = "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice"
OWN = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n"


def test_version_2_is_beside_us_where_controllers_are_handed_down(tmp_path: Path) -> None:
    root = tree(tmp_path, SECOND, OWN, {f"{SLICE}/cgroup.subtree_control": "cpu memory pids\n"})
    (root / SLICE / "run-1.scope").mkdir()
    place = find(root, tried=False)
    assert place == Place(2, {"memory": root / SLICE, "pids": root / SLICE})
    (root / SLICE / "cgroup.subtree_control").write_text("memory\n")
    assert find(root, tried=False) is None


def test_a_container_sees_a_part_of_the_hierarchy(tmp_path: Path) -> None:
    mounts = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
    own = "0::/docker/abc/job\n"
    root = tree(tmp_path, mounts, own, {"sys/fs/cgroup/job/cgroup.subtree_control": "memory pids"})
    assert find(root, tried=False) == Place(2, dict.fromkeys(("memory", "pids"), root / "sys/fs/cgroup/job"))


def test_version_1_has_a_directory_for_each_controller(tmp_path: Path) -> None:
    names = ("cpu,cpuacct", "memory", "pids")
    mounts = "".join(
        f"3{n} 31 0:3{n} / /cg/{name} rw - cgroup cgroup rw,{name}\n" for n, name in enumerate(names)
    )
    own = "5:memory:/job\n4:pids:/\n3:cpu,cpuacct:/job\n0::/\n"
    place = find(tree(tmp_path, mounts, own, {}), tried=False)
    cg = tmp_path / "cg"
    assert place == Place(
        1, {"memory": cg / "memory/job", "pids": cg / "pids", "cpuacct": cg / "cpu,cpuacct/job"}
    )


def test_what_version_2_is_told_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def populated(self: Path) -> None:  # as the kernel does
        mkdir(self)
        for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.procs"):
            (self / name).write_text("")

    monkeypatch.setattr(Path, "mkdir", populated)
    group = Place(2, {"memory": tmp_path, "pids": tmp_path}).make(
        "one", Limits(memory=256 * MIB, processes=32)
    )
    monkeypatch.undo()
    read = {path.name: path.read_text() for path in (tmp_path / "one").iterdir()}
    assert read == {
        "memory.max": str(256 * MIB), "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "41",
        "cgroup.procs": "",
    }  # fmt: skip
    cgroup.enter(group.doors, 4321)
    assert group.pids() == (4321,)
    (tmp_path / "one/cpu.stat").write_text("usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n")
    (tmp_path / "one/memory.events").write_text(
        "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 1\n"
    )
    (tmp_path / "one/pids.current").write_text("4\n")
    assert group.use() == cgroup.Use(cpu_s=1.5, tasks=3, out_of_memory=1)


def names() -> set[str]:
    assert HERE is not None
    return {path.name for directory in HERE.directories.values() for path in directory.glob("burnish-*")}


@real
async def test_the_kernel_ends_what_takes_too_much_memory_and_nothing_is_left() -> None:
    before = names()
    text = "import os, time\nfor _ in range(4):\n    if not os.fork():\n        x = b'x' * (60 << 20); time.sleep(99)\n"
    async with LocalSandboxes() as sandboxes, await sandboxes.open() as sandbox:
        argv = ["python3", "-c", text + "time.sleep(99)"]
        task = asyncio.create_task(sandbox.run(argv, limits=Limits(wall_s=60, memory=128 * MIB)))
        made = False
        while not task.done():
            made = made or bool(names() - before)
            await asyncio.wait([task], timeout=0.001)
        result = await task
        assert made
        assert (result.exit, result.reason) == (None, "memory")
        assert result.peak_memory == 128 * MIB
        assert names() == before


@real
async def test_memory_that_no_process_shows_counts_too() -> None:
    """Pages of a tmpfs belong to nobody that could be counted."""
    text = "for i in 1 2 3 4 5 6; do head -c 15M /dev/zero > /tmp/$i; done; echo written; sleep 99"
    async with LocalSandboxes() as sandboxes, await sandboxes.open() as sandbox:
        limits = Limits(wall_s=60, memory=64 * MIB, disk=128 * MIB)
        result = await sandbox.run(["sh", "-c", text], limits=limits)
        assert (result.reason, result.stdout) == ("memory", b"")


@real
async def test_cancelling_leaves_no_group() -> None:
    before = names()
    async with LocalSandboxes() as sandboxes, await sandboxes.open() as sandbox:
        for turns in (0, 1, 3, 200):
            task = asyncio.create_task(sandbox.run(["sleep", "99"]))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            task.cancel()
            await asyncio.wait([task])
            assert names() == before


VICTIM = """
import asyncio
from burnish.sandbox import LocalSandboxes

async def main():
    async with LocalSandboxes() as sandboxes, await sandboxes.open() as sandbox:
        task = asyncio.create_task(sandbox.run(["sh", "-c", "echo > begun; sleep 99"]))
        while "begun" not in await sandbox.files():
            await asyncio.sleep(0.01)
        print("begun", flush=True)
        await task

asyncio.run(main())
"""


@real
def test_a_killed_supervisors_groups_are_removed_by_the_next() -> None:
    before = names()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, env=environment) as victim:
        assert victim.stdout is not None and victim.stdout.readline() == b"begun\n"
        assert names() > before
        victim.send_signal(signal.SIGKILL)
    Lease(None).release()
    assert names() == before
