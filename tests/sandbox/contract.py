"""The contract of a sandbox, as tests. To run an implementation of your own through it:

    from tests.sandbox.contract import SandboxContract

    class TestMine(SandboxContract):
        @pytest.fixture
        async def sandbox(self):
            async with MySandbox() as sandbox:
                yield sandbox

The commands that it runs are `echo`, `cat`, `false`, `flood` and `no-such-program`, and `echo hello` in a shell, in
the plain sense of `COMMANDS` below; an implementation that executes nothing scripts them.
"""

from __future__ import annotations

import pytest

from burnish.interfaces import Sandbox, Shell, Snapshot
from burnish.types import Limits, UsageError

COMMANDS = {
    "echo": ("echo", "hello"),
    "cat": ("cat",),
    "false": ("false",),
    "flood": ("head", "-c", "300000", "/dev/zero"),
    "missing": ("no-such-program",),
    "shell": ("bash", "-c", "echo hello"),
}


class SandboxContract:
    def test_is_a_sandbox(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, Sandbox)

    async def test_runs_a_command(self, sandbox: Sandbox) -> None:
        result = await sandbox.run(COMMANDS["echo"])
        assert (result.stdout, result.stderr, result.exit, result.reason) == (b"hello\n", b"", 0, None)

    async def test_gives_stdin_whole_and_as_bytes(self, sandbox: Sandbox) -> None:
        data = bytes(range(256)) * 1024
        result = await sandbox.run(COMMANDS["cat"], stdin=data, limits=Limits(output=1 << 20))
        assert result.stdout == data
        assert result.dropped == 0

    async def test_reports_failure_as_data(self, sandbox: Sandbox) -> None:
        assert (await sandbox.run(COMMANDS["false"])).exit == 1
        missing = await sandbox.run(COMMANDS["missing"])
        assert missing.exit == 127
        assert missing.stderr

    async def test_bounds_output_and_counts_what_it_drops(self, sandbox: Sandbox) -> None:
        result = await sandbox.run(COMMANDS["flood"], limits=Limits(output=1000))
        assert result.exit == 0
        assert result.dropped == 299_000
        assert result.stdout.count(b"\0") == 1000
        assert result.stdout.startswith(b"\0") and result.stdout.endswith(b"\0")

    @pytest.mark.parametrize("argv", [(), "echo hello", ("",), ("echo", "a\0b")])
    async def test_refuses_what_is_no_command(self, sandbox: Sandbox, argv: object) -> None:
        with pytest.raises(UsageError):
            await sandbox.run(argv)  # type: ignore[arg-type]

    async def test_keeps_files(self, sandbox: Sandbox) -> None:
        await sandbox.write("b/deep/er.bin", b"\0\xff")
        await sandbox.write("a.txt", b"one")
        await sandbox.write("./a.txt", b"two")
        assert await sandbox.read("a.txt") == b"two"
        assert await sandbox.read("b/deep/er.bin") == b"\0\xff"
        assert list((await sandbox.files()).items()) == [("a.txt", b"two"), ("b/deep/er.bin", b"\0\xff")]

    async def test_refuses_what_is_missing_or_too_long(self, sandbox: Sandbox) -> None:
        with pytest.raises(FileNotFoundError):
            await sandbox.read("nothing")
        with pytest.raises(FileNotFoundError):
            await sandbox.read("no/such/directory")
        await sandbox.write("long", b"x" * 11)
        with pytest.raises(OSError, match="longer than"):
            await sandbox.read("long", max_bytes=10)
        assert await sandbox.read("long", max_bytes=11) == b"x" * 11

    @pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", ".", "directory", "a\0b"])
    async def test_refuses_paths_to_anything_but_its_files(self, sandbox: Sandbox, path: str) -> None:
        await sandbox.write("directory/file", b"")
        with pytest.raises(PermissionError):
            await sandbox.read(path)
        with pytest.raises(PermissionError):
            await sandbox.write(path, b"x")

    async def test_refuses_a_file_as_a_directory(self, sandbox: Sandbox) -> None:
        await sandbox.write("file", b"")
        with pytest.raises(PermissionError):
            await sandbox.write("file/below", b"")

    async def test_bounds_what_is_written(self, sandbox: Sandbox) -> None:
        with pytest.raises(OSError, match="may hold"):
            await sandbox.write("big", bytes((64 << 20) + 1))

    async def test_a_fork_has_what_was_there_and_shares_no_change(self, sandbox: Sandbox) -> None:
        await sandbox.write("a.txt", b"one")
        await sandbox.write("d/b.txt", b"two")
        snapshot = await sandbox.snapshot()
        assert isinstance(snapshot, Snapshot)
        await sandbox.write("a.txt", b"of the origin")
        first, second = await snapshot.fork(), await snapshot.fork()
        await first.write("d/b.txt", b"of the first")
        await first.write("d/new/c.txt", b"three")
        assert await first.files() == {"a.txt": b"one", "d/b.txt": b"of the first", "d/new/c.txt": b"three"}
        assert await second.files() == {"a.txt": b"one", "d/b.txt": b"two"}
        assert await sandbox.files() == {"a.txt": b"of the origin", "d/b.txt": b"two"}
        assert await second.read("d/b.txt") == b"two"
        for path in ("d", "a.txt/below"):
            with pytest.raises(PermissionError):
                await second.write(path, b"")
        with pytest.raises(FileNotFoundError):
            await second.read("d/new/c.txt")
        for opened in (first, second, snapshot):
            await opened.close()

    async def test_forks_of_forks_outlive_what_they_came_from(self, sandbox: Sandbox) -> None:
        await sandbox.write("a", b"1")
        snapshot = await sandbox.snapshot()
        fork = await snapshot.fork()
        await snapshot.close()
        await snapshot.close()
        await sandbox.close()
        await fork.write("b", b"2")
        later = await fork.snapshot()
        await fork.write("a", b"changed")
        grandchild = await later.fork()
        await later.close()
        await fork.close()
        assert await grandchild.files() == {"a": b"1", "b": b"2"}
        await grandchild.close()
        with pytest.raises(UsageError, match="closed"):
            await snapshot.fork()
        with pytest.raises(UsageError, match="closed"):
            await sandbox.snapshot()

    async def test_a_shell_runs_commands_and_refuses_once_closed(self, sandbox: Sandbox) -> None:
        shell = await sandbox.shell()
        assert isinstance(shell, Shell)
        for _ in range(2):
            result = await shell.run("echo hello", wall_s=60)
            assert (result.stdout, result.exit, result.reason) == (b"hello\n", 0, None)
        with pytest.raises(UsageError, match="NUL"):
            await shell.run("echo a\0b")
        await shell.close()
        await shell.close()
        with pytest.raises(UsageError, match="ended"):
            await shell.run("echo hello")

    async def test_closes_twice_and_then_refuses(self, sandbox: Sandbox) -> None:
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(UsageError, match="closed"):
            await sandbox.run(COMMANDS["echo"])
        with pytest.raises(UsageError, match="closed"):
            await sandbox.read("a")
