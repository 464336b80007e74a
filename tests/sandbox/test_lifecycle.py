"""Opening, closing, cancelling and dying: no way out leaves a process or a directory behind."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from burnish.sandbox import LocalSandbox, LocalSandboxes
from burnish.sandbox.image import closed_directory, prepare
from burnish.sandbox.lease import Lease, state_directory
from burnish.types import BurnishError, InfrastructureError, Limits, Result, UsageError
from tests.sandbox.conftest import descendants, spawner_of

ROOT = Path(__file__).parents[2]
LOOPS = ("-o", "asyncio_default_fixture_loop_scope=function")
FOREVER = Limits(wall_s=900)


async def begin_sleeping(sandbox: LocalSandbox) -> asyncio.Task[Result]:
    """A command that never ends, once it has begun: what it writes to a FIFO is what we wait for."""
    await sandbox.run(["mkfifo", "begun"])
    text = "setsid sleep 999 & echo > begun; exec sleep 999"
    task = asyncio.create_task(sandbox.run(["sh", "-c", text], limits=FOREVER))
    assert (await sandbox.run(["cat", "begun"])).stdout == b"\n"
    return task


async def test_cancelling_ends_the_command(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as sandbox:
        task = await begin_sleeping(sandbox)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert descendants(spawner_of(sandboxes)) == []
        assert (await sandbox.run(["echo", "still"])).stdout == b"still\n"


async def test_cancelling_before_the_command_started(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as sandbox:
        task = asyncio.create_task(sandbox.run(["sleep", "999"], limits=FOREVER))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert descendants(spawner_of(sandboxes)) == []


async def test_closing_ends_the_command_and_is_not_the_agents_fault(sandboxes: LocalSandboxes) -> None:
    sandbox = await sandboxes.open()
    task = await begin_sleeping(sandbox)
    await asyncio.gather(sandbox.close(), sandbox.close())
    with pytest.raises(InfrastructureError, match="closed while"):
        await task
    assert descendants(spawner_of(sandboxes)) == []
    assert not sandbox.path.exists()


async def test_commands_run_side_by_side_in_one_workspace(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as sandbox:
        await sandbox.run(["mkfifo", "pipe"])
        reader, writer = await asyncio.gather(
            sandbox.run(["cat", "pipe"]), sandbox.run(["sh", "-c", "echo through > pipe"])
        )
    assert (reader.stdout, writer.exit) == (b"through\n", 0)


async def test_no_more_are_open_than_allowed(tmp_path: Path) -> None:
    async with LocalSandboxes(max_open=2) as sandboxes:
        first, second = await sandboxes.open(), await sandboxes.open()
        third, fourth = asyncio.create_task(sandboxes.open()), asyncio.create_task(sandboxes.open())
        await asyncio.wait([third, fourth], timeout=0)
        assert not third.done() and not fourth.done()
        third.cancel()
        await first.close()
        assert (await (await fourth).run(["true"])).exit == 0
        await second.close()


async def test_closing_the_provider_closes_what_is_open() -> None:
    sandboxes = LocalSandboxes()
    sandbox = await sandboxes.open()
    await sandbox.write("x", b"")
    directory = sandbox.path.parent
    await sandboxes.close()
    await sandboxes.close()
    assert not directory.exists()
    with pytest.raises(UsageError, match="closed"):
        await sandbox.run(["true"])


def test_serves_one_event_loop_after_another() -> None:
    sandboxes = LocalSandboxes()

    async def episode() -> bytes:
        sandbox = await sandboxes.open()
        return (await sandbox.run(["echo", "hi"])).stdout

    assert asyncio.run(episode()) == b"hi\n"
    assert asyncio.run(episode()) == b"hi\n"
    asyncio.run(sandboxes.close())


async def test_death_of_the_spawner_is_our_failure(sandboxes: LocalSandboxes) -> None:
    sandbox = await sandboxes.open()
    task = await begin_sleeping(sandbox)
    below = [os.pidfd_open(pid) for pid in descendants(spawner_of(sandboxes))]
    os.kill(spawner_of(sandboxes), signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="was ended"):
        await task
    with pytest.raises(InfrastructureError, match="was ended"):
        await sandboxes.open()
    for handle in below:
        assert select.select([handle], [], [], 60)[0], "a sandboxed process outlived its spawner"
        os.close(handle)
    await sandboxes.close()
    async with await sandboxes.open() as fresh:
        assert (await fresh.run(["echo", "again"])).stdout == b"again\n"


VICTIM = """
import asyncio
from burnish.sandbox import LocalSandboxes
from burnish.types import Limits

async def main():
    sandboxes = LocalSandboxes()
    sandbox = await sandboxes.open()
    await sandbox.write("left/behind", b"x")
    await sandbox.run(["mkfifo", "begun"])
    text = "setsid sleep 999 & echo > begun; exec sleep 999"
    task = asyncio.create_task(sandbox.run(["sh", "-c", text], limits=Limits(wall_s=900)))
    await sandbox.run(["cat", "begun"])
    print(sandboxes.spawner, sandbox.path, flush=True)
    await task

asyncio.run(main())
"""


def test_33_death_of_the_supervisor_ends_everything_and_the_next_one_clears_up() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, env=environment) as victim:
        assert victim.stdout is not None
        spawner, path = victim.stdout.readline().decode().split()
        below = descendants(int(spawner))
        assert len(below) >= 4  # bubblewrap, its init, and two that sleep
        handles = [os.pidfd_open(pid) for pid in (int(spawner), *below)]
        victim.kill()
    for handle in handles:
        assert select.select([handle], [], [], 60)[0], "a process outlived its supervisor"
        os.close(handle)
    assert Path(path, "left/behind").exists()

    async def next_one() -> None:
        async with LocalSandboxes() as sandboxes:
            await sandboxes.open()
            assert not Path(path, "left").exists()

    asyncio.run(next_one())


def test_a_lease_is_held_by_one_and_refuses_a_directory_that_is_not_its_own(tmp_path: Path) -> None:
    first, second = Lease(None), Lease(None)
    assert first.directory != second.directory
    assert (first.first_uid is None) or first.first_uid != second.first_uid
    first.release()
    first.release()
    second.release()
    tmp_path.chmod(0o755)
    probe = Lease(tmp_path)
    probe.release()
    probe.directory.mkdir()
    with pytest.raises(BurnishError, match="not ours"):
        Lease(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user reaches its own directories")
async def test_a_root_that_sandboxes_cannot_reach_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(UsageError, match="chmod"):
        await LocalSandboxes(root=tmp_path).open()


@pytest.mark.parametrize("count", [0, 257])
def test_refuses_an_impossible_number(count: int) -> None:
    with pytest.raises(UsageError, match="max_open"):
        LocalSandboxes(max_open=count)


@pytest.mark.skipif(os.geteuid() != 0, reason="these tests then run as an ordinary user already")
def test_all_of_it_holds_for_an_ordinary_user() -> None:
    if closed_directory(ROOT):
        pytest.skip(f"{ROOT} cannot be read by an ordinary user")
    python = prepare(state_directory()).python or Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *packages]),
        "LD_LIBRARY_PATH": str(python / "lib"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    names = (
        "test_abuse.py",
        "test_contract.py",
        "test_lifecycle.py",
        "test_snapshot.py",
        "test_proxy.py",
        "test_shell.py",
    )
    answer = subprocess.run(
        [python / "bin" / version, "-m", "pytest", "-p", "no:cacheprovider", *LOOPS]
        + [str(Path(__file__).with_name(name)) for name in names],
        user=65534,
        group=65534,
        extra_groups=[],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr[-2000:]
    assert "passed" in answer.stdout


def test_what_an_interrupted_clearing_up_left_is_removed() -> None:
    lease = Lease(None)
    lease.release()
    (lease.directory / "left").mkdir(parents=True)
    again = Lease(None)
    try:
        assert again.directory == lease.directory and list(again.directory.iterdir()) == []
    finally:
        again.release()
