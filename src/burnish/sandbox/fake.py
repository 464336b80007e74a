"""The fake sandbox: a workspace in memory, and commands that a test has scripted.

What this file is: a peer of `LocalSandbox` that passes the same contract tests, for tests of what uses one.
What it is not: an isolation. It never executes anything: a command that was not scripted is not found (127).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from burnish.sandbox.capture import Capture, share
from burnish.types import Limits, Result, UsageError

Script = Callable[[Sequence[str], bytes, dict[str, bytes]], Result | None]
"""(argv, stdin, files, which it may change) -> what the command did, or None where it does not know it."""


class FakeSandbox:
    """`scripts` are asked in turn for each command. Implements `burnish.interfaces.Sandbox`."""

    def __init__(self, scripts: Sequence[Script] = (), limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.ran: list[tuple[str, ...]] = []
        self._scripts = tuple(scripts)
        self._files: dict[str, bytes] = {}
        self._closed = False

    async def run(self, argv: Sequence[str], stdin: bytes = b"", limits: Limits | None = None) -> Result:
        self._check_open()
        if isinstance(argv, str) or not argv or not argv[0]:
            raise UsageError(f"a command is a non-empty sequence of strings, not {argv!r}")
        if any("\0" in item for item in argv):
            raise UsageError("an argument of a command holds a NUL byte, which no program can be given")
        self.ran.append(tuple(argv))
        for script in self._scripts:
            result = script(argv, stdin, self._files)
            if result is not None:
                return _bounded(result, (limits or self.limits).output)
        return Result(b"", f"{argv[0]}: not found\n".encode(), 127)

    async def read(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        self._check_open()
        name = _inside(path)
        if name not in self._files:
            if name == "" or any(other.startswith(f"{name}/") for other in self._files):
                raise PermissionError(errno.EPERM, "not a regular file", path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if len(self._files[name]) > max_bytes:
            raise OSError(errno.EFBIG, f"longer than the {max_bytes} bytes that were asked for", path)
        return self._files[name]

    async def write(self, path: str, data: bytes) -> None:
        self._check_open()
        name = _inside(path)
        above = name.split("/")[:-1]
        blocked = any("/".join(above[: end + 1]) in self._files for end in range(len(above)))
        if not name or path.endswith("/") or blocked or any(o.startswith(f"{name}/") for o in self._files):
            raise PermissionError(errno.EPERM, "not a path for a regular file of the workspace", path)
        if sum(map(len, self._files.values())) + len(data) > self.limits.disk:
            raise OSError(errno.ENOSPC, f"the workspace may hold {self.limits.disk} bytes", path)
        self._files[name] = bytes(data)

    async def files(self) -> Mapping[str, bytes]:
        self._check_open()
        return dict(sorted(self._files.items()))

    async def shell(self) -> FakeShell:
        self._check_open()
        return FakeShell(self)

    async def snapshot(self) -> FakeSnapshot:
        self._check_open()
        return FakeSnapshot(self, dict(self._files))

    def copy(self, files: Mapping[str, bytes]) -> FakeSandbox:
        """Another sandbox with the same scripts and limits, and with `files`."""
        made = FakeSandbox(self._scripts, self.limits)
        made._files.update(files)
        return made

    async def close(self) -> None:
        self._closed = True
        self._files.clear()

    async def __aenter__(self) -> FakeSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this sandbox is closed; open another one")


@dataclass
class FakeShell:
    """Each command is `bash -c TEXT` to the scripts, which keep what a shell would. Implements
    `burnish.interfaces.Shell`."""

    sandbox: FakeSandbox
    closed: bool = False

    async def run(self, text: str, wall_s: float = 10.0) -> Result:
        if self.closed:
            raise UsageError("this shell has ended; open another one")
        return await self.sandbox.run(("bash", "-c", text))

    async def close(self) -> None:
        self.closed = True


@dataclass
class FakeSnapshot:
    """The files of a fake sandbox as they were. Implements `burnish.interfaces.Snapshot`."""

    source: FakeSandbox
    files: Mapping[str, bytes]
    closed: bool = False

    async def fork(self) -> FakeSandbox:
        if self.closed:
            raise UsageError("this snapshot is closed; take another one")
        return self.source.copy(self.files)

    async def close(self) -> None:
        self.closed = True


@dataclass
class FakeSandboxes:
    """Opens fake sandboxes that all follow the same scripts; `opened` keeps them for a test to look at."""

    scripts: Sequence[Script] = ()
    limits: Limits = field(default_factory=Limits)
    opened: list[FakeSandbox] = field(default_factory=list)

    async def open(self) -> FakeSandbox:
        self.opened.append(FakeSandbox(self.scripts, self.limits))
        return self.opened[-1]

    async def close(self) -> None:
        for sandbox in self.opened:
            await sandbox.close()


def _inside(path: str) -> str:
    """The path without `.` and empty names; raises PermissionError where it would leave the workspace."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names or "\0" in path:
        raise PermissionError(errno.EPERM, "not a path inside the workspace", path)
    return "/".join(names)


def _bounded(result: Result, cap: int) -> Result:
    kept = share(cap, len(result.stdout), len(result.stderr))
    streams = []
    dropped = result.dropped
    for text, limit in zip((result.stdout, result.stderr), kept, strict=True):
        capture = Capture(cap)
        capture.feed(text)
        shown, lost = capture.finish(limit)
        streams.append(shown)
        dropped += lost
    return Result(
        streams[0],
        streams[1],
        result.exit,
        result.reason,
        dropped,
        result.wall_s,
        result.cpu_s,
        result.peak_memory,
    )
