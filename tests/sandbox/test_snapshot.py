"""Snapshots and forks of the local sandbox, by overlays and, where there are none, by copies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from burnish.sandbox import LocalSandbox, LocalSandboxes, probe
from burnish.sandbox.host import Host
from burnish.sandbox.local import _DEEP as DEEP
from burnish.types import Limits, UsageError
from tests.sandbox.conftest import descendants, spawner_of
from tests.sandbox.contract import SandboxContract

OVERLAYS = {check.name: check for check in probe()}["forks"]
MESS = """
mkdir -p d/e gone; echo 1 > d/e/f; echo 2 > gone/x; echo 3 > file; ln -s file link; ln d/e/f hard
mkfifo fifo; chmod 700 d/e/f; touch -d 2001-01-01 file
"""
LOOK = "ls -lAR --time-style=+%s . | grep -v '^total'; cat d/e/f file gone/x hard"


def without_overlays(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Host.__init__

    def old(self: Host, root: Path | None) -> None:
        made(self, root)
        self.overlays = False

    monkeypatch.setattr(Host, "__init__", old)


@pytest.fixture(params=["overlays", "copies"])
async def sandboxes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalSandboxes]:
    if request.param == "copies":
        without_overlays(monkeypatch)
    elif not OVERLAYS.ok:
        pytest.skip(f"no overlays here: {OVERLAYS.detail}")
    async with LocalSandboxes() as opened:
        yield opened
        assert descendants(spawner_of(opened)) == []
        await opened.close()


class TestForkingSandbox(SandboxContract):
    @pytest.fixture
    async def sandbox(self, sandboxes: LocalSandboxes) -> LocalSandbox:
        """A fork passes the whole contract, too."""
        snapshot = await (await sandboxes.open()).snapshot()
        return await snapshot.fork()


async def shell(sandbox: LocalSandbox, text: str) -> str:
    result = await sandbox.run(["sh", "-c", text], limits=Limits(wall_s=60, cpu_s=60))
    assert (result.exit, result.stderr) == (0, b""), result
    return result.stdout.decode()


async def test_a_fork_looks_the_same_from_inside_and_outside(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as origin:
        await shell(origin, MESS)
        before = await shell(origin, LOOK)
        assert " 978307200 file" in before
        async with await origin.snapshot() as snapshot, await snapshot.fork() as fork:
            assert await shell(fork, LOOK) == before
            assert await shell(origin, LOOK) == before
            expected = {"d/e/f": b"1\n", "gone/x": b"2\n", "file": b"3\n", "hard": b"1\n"}
            assert await fork.files() == expected
            for path in ("link", "fifo"):
                with pytest.raises(PermissionError):
                    await fork.read(path)
                with pytest.raises(PermissionError):
                    await fork.write(path, b"")


async def test_what_is_closed_to_its_owner_is_forked_too(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as origin:
        await shell(origin, "mkdir d; echo 1 > d/x; echo 2 > y; chmod 0 d y")
        async with await origin.snapshot() as snapshot, await snapshot.fork() as fork:
            assert await shell(fork, "chmod 700 d y; cat d/x y") == "1\n2\n"


async def test_what_a_fork_removes_or_replaces_is_gone_for_it_alone(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as origin:
        for path in ("a", "d/x", "d/y", "e/z", "f/g/h"):
            await origin.write(path, path.encode())
        async with await origin.snapshot() as snapshot, await snapshot.fork() as fork:
            await shell(
                fork, "rm a d/x; rm -r e; echo file > e; rm -r f; mkdir f; echo new > f/i; mv d/y d/w"
            )
            assert await fork.files() == {"d/w": b"d/y", "e": b"file\n", "f/i": b"new\n"}
            with pytest.raises(FileNotFoundError):
                await fork.read("f/g/h")
            await fork.write("a", b"again")
            await fork.write("d/x", b"again")
            with pytest.raises(PermissionError):
                await fork.write("e/z", b"a file stands there")
            await fork.write("f/g/j", b"beside nothing old")
            assert await shell(fork, "find . -type f | sort | xargs grep -H .") == (
                "./a:again\n./d/w:d/y\n./d/x:again\n./e:file\n./f/g/j:beside nothing old\n./f/i:new\n"
            )
            async with await fork.snapshot() as second, await second.fork() as later:
                assert await later.files() == await fork.files()
            assert set(await origin.files()) == {"a", "d/x", "d/y", "e/z", "f/g/h"}


async def test_writing_from_outside_keeps_permissions_and_owners(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as origin:
        await shell(origin, "mkdir -m 750 d; echo old > d/script; chmod 755 d/script")
        async with await origin.snapshot() as snapshot, await snapshot.fork() as fork:
            await fork.write("d/script", b"echo new\n")
            assert await shell(fork, "d/script; stat -c '%a %u' d d/script") == "new\n750 1000\n755 1000\n"


async def test_a_crafted_layer_hides_nothing_of_others_and_leads_nowhere(sandboxes: LocalSandboxes) -> None:
    """A program may set overlayfs's own attributes in a workspace that later lies frozen under a fork."""
    text = (
        "import os\nos.mkdir('d')\nopen('d/x', 'w').write('x')\nos.symlink('/etc', 'd/away')\n"
        "for name, value in (('opaque', b'y'), ('redirect', b'/../../etc'), ('metacopy', b'')):\n"
        "    for path in ('d', 'd/x', '.'):\n"
        "        try: os.setxattr(path, 'user.overlay.' + name, value)\n"
        "        except OSError: pass\n"
    )
    async with await sandboxes.open() as origin:
        assert (await origin.run(["python3", "-c", text])).exit == 0
        async with await origin.snapshot() as snapshot, await snapshot.fork() as fork:
            result = await fork.run(["sh", "-c", "cat d/passwd d/shadow; ls d"])
            assert b"root:" not in result.stdout
            assert await fork.files() == {"d/x": b"x"}
            with pytest.raises((PermissionError, FileNotFoundError)):
                await fork.read("d/away/passwd")


async def test_many_snapshots_on_one_another(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as sandbox:
        kept = []
        for step in range(DEEP + 5):
            await sandbox.write(f"step/{step}", str(step).encode())
            if step % 3 == 2:
                await shell(sandbox, f"rm step/{step - 1}")
            kept.append((await sandbox.snapshot(), await sandbox.files()))
        for snapshot, files in (kept[0], kept[DEEP // 2], kept[-1]):
            async with await snapshot.fork() as fork:
                assert await fork.files() == files
                assert await shell(fork, "ls step | sort -n | tr '\\n' ' '") == "".join(
                    f"{n} " for n in sorted(int(path.split("/")[1]) for path in files)
                )


async def test_a_running_command_is_waited_for(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as sandbox:
        await shell(sandbox, "mkfifo begun end")
        task = asyncio.create_task(shell(sandbox, "echo > begun; read x < end"))
        await shell(sandbox, "read x < begun")
        with pytest.raises(UsageError, match="still runs"):
            await sandbox.snapshot()
        await shell(sandbox, "echo > end")
        await task
        await (await sandbox.snapshot()).close()


async def test_quotas_of_a_fork_are_its_own(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as origin:
        await shell(origin, "head -c 3M /dev/zero > big")
        async with await origin.snapshot() as snapshot, await snapshot.fork() as fork:
            result = await fork.run(
                ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do head -c 1M /dev/zero > $i; done; sleep 99"],
                limits=Limits(wall_s=60, disk=6 << 20),
            )
            assert (result.exit, result.reason) == (None, "disk")


async def test_nothing_is_left_on_disk(sandboxes: LocalSandboxes) -> None:
    sandbox = await sandboxes.open()
    directory = sandbox.path.parent
    await sandbox.write("a", b"")
    snapshot = await sandbox.snapshot()
    forks = [await snapshot.fork() for _ in range(3)]
    for fork in forks:
        await shell(fork, "rm a; mkdir a")
    await sandbox.close()
    await snapshot.close()
    assert list(directory.iterdir()) != []
    for fork in forks:
        await fork.close()
    assert list(directory.iterdir()) == []


async def test_closing_everything_closes_snapshots() -> None:
    sandboxes = LocalSandboxes(max_open=2)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    sandbox = await sandboxes.open()
    snapshot = await sandbox.snapshot()
    await snapshot.fork()
    waiting = asyncio.create_task(snapshot.fork())
    await asyncio.wait([waiting], timeout=0)
    assert not waiting.done(), "forks count as open"
    waiting.cancel()
    await sandboxes.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
    with pytest.raises(UsageError, match="closed"):
        await snapshot.fork()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives sandboxes uids of their own")
async def test_a_family_shares_a_uid_and_others_do_not() -> None:
    async with LocalSandboxes() as sandboxes:
        one, other = await sandboxes.open(), await sandboxes.open()
        fork = await (await one.snapshot()).fork()
        assert fork.path.stat().st_uid == one.path.stat().st_uid != other.path.stat().st_uid
