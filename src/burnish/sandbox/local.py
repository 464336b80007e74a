"""The local sandbox: bubblewrap on this Linux machine.

What this file is: `LocalSandbox`, one workspace in which commands run isolated, and `LocalSandboxes`, which
opens them.
What it is not: a virtual machine. It shares the kernel with the host: it holds a program that a model wrote,
not an attacker with a kernel exploit.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from burnish.observe.audit import Audit
from burnish.sandbox import bubblewrap, image, lease, probe, seccomp
from burnish.sandbox.execution import Execution, Job
from burnish.sandbox.supervisor import Request, Supervisor
from burnish.sandbox.workspace import Workspace
from burnish.types import InfrastructureError, Limits, Result, UsageError

_FEW = 100  # so many files are removed sooner than a thread could be asked to


class LocalSandbox:
    """One workspace. Several commands may run in it at once; each sees only its own processes, and an empty
    /tmp. `close` ends them. Implements `burnish.interfaces.Sandbox`."""

    def __init__(self, owner: LocalSandboxes, host: Host, slot: int) -> None:
        self.limits = owner.limits
        self._owner = owner
        self._slot = slot
        self._host = host
        self._uid = None if host.lease.first_uid is None else host.lease.first_uid + slot
        self._workspace = Workspace(host.lease.directory / f"{slot:03d}", self._uid)
        self._running: set[asyncio.Task[Result]] = set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def path(self) -> Path:
        """The workspace on the host. What is in it is hostile: go through `read`, `write` and `files`."""
        return self._workspace.path

    async def run(self, argv: Sequence[str], stdin: bytes = b"", limits: Limits | None = None) -> Result:
        """Runs a command in /work without a shell. `limits` replaces the sandbox's own for this command.

        Output longer than `limits.output` keeps head and tail around a mark that says how much was left out.
        `exit` of a command that a signal ended is None, also where it was a shell that reported it (128 + n).
        Raises UsageError for an argv that no program can be given; InfrastructureError where our side failed.
        """
        self._check_open()
        if isinstance(argv, str) or not argv or not all(isinstance(item, str) and item for item in argv[:1]):
            raise UsageError(f"a command is a non-empty sequence of strings, not {argv!r}")
        job = self._job(argv, stdin, limits or self.limits)
        task = asyncio.ensure_future(Execution(self._host.supervisor, self._workspace, job).run())
        self._running.add(task)
        try:
            result = await task
            self._log(argv, result)
            return result
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            if self._closing is not None:
                raise InfrastructureError("the sandbox was closed while a command ran in it") from None
            raise
        finally:
            self._running.discard(task)

    def _log(self, argv: Sequence[str], result: Result) -> None:
        if self._owner.audit is not None:
            self._owner.audit.append("code_execution", {
                "sandbox": self._slot, "argv": list(argv), "exit": result.exit, "reason": result.reason,
                "wall_s": round(result.wall_s, 4), "cpu_s": round(result.cpu_s, 4), "dropped": result.dropped,
            })  # fmt: skip

    async def read(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        """As in the interface; and OSError (EFBIG) for a file longer than `max_bytes`."""
        self._check_open()
        return self._workspace.read(path, max_bytes)

    async def write(self, path: str, data: bytes) -> None:
        """Makes missing directories. Raises PermissionError for a path that leaves the workspace, passes a
        link, or names something other than a regular file; OSError (ENOSPC) beyond `limits.disk`."""
        self._check_open()
        self._workspace.write(path, data, self.limits.disk)

    async def files(self) -> Mapping[str, bytes]:
        """As in the interface, sorted by path; OSError (EFBIG) where they are longer than `limits.disk`."""
        self._check_open()
        return self._workspace.files(self.limits.disk)

    async def close(self) -> None:
        """Ends what runs and removes the workspace. Goes on to its end even if its caller is cancelled."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        if self._workspace.measure(most=_FEW).entries <= _FEW:
            self._workspace.remove()
        else:
            await asyncio.to_thread(self._workspace.remove)
        self._owner.returned(self._slot)

    async def __aenter__(self) -> LocalSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _job(self, argv: Sequence[str], stdin: bytes, limits: Limits) -> Job:
        host = self._host
        command = bubblewrap.arguments(host.image, self._workspace.path.absolute(), limits, argv)
        request = Request(command, self._uid, bubblewrap.rlimits(limits, host.counts_processes))
        return Job(request, limits, stdin, host.filter_fd)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise UsageError("this sandbox is closed; open another one")


class Host:
    """What the sandboxes of one process share: lease, image, system call filter and spawner."""

    def __init__(self, root: Path | None) -> None:
        if root is not None:
            _check_root(root)
        probe.require()
        # Before Linux 5.14 RLIMIT_NPROC counts all that the user runs, inside and outside: with no uid of its
        # own a sandbox is then only watched for its number of processes.
        self.counts_processes = os.geteuid() == 0 or probe.kernel() >= (5, 14)
        self.image = image.prepare(lease.state_directory())
        self.lease = lease.Lease(root)
        try:
            self.filter_fd = os.memfd_create("burnish-seccomp")
            os.write(self.filter_fd, seccomp.program())
            self.supervisor = Supervisor.start()
        except BaseException:
            self.lease.release()
            raise

    def close(self) -> None:
        self.supervisor.close()
        os.close(self.filter_fd)
        self.lease.release()


def _check_root(root: Path) -> None:
    if not root.is_dir():
        raise UsageError(f"{root}, where sandboxes are to be made, is not a directory\nmkdir -p {root}")
    closed = image.closed_directory(root) if os.geteuid() == 0 else None
    if closed is not None:
        raise UsageError(
            f"sandboxes of root run as other users, which cannot enter {closed}: choose another root than "
            f"{root}, or none\nchmod o+x {closed}"
        )


@dataclass
class LocalSandboxes:
    """Opens local sandboxes, at most `max_open` at once (more wait). `root` is where workspaces are made; as
    root it must be a directory that every user can enter. `async with`, or `close` when done. What an earlier
    process left behind when it died is removed on the first `open`. With `audit` every command is an event.

    Sandboxes belong to the event loop that they were opened in; once that is closed, `open` starts afresh.
    """

    root: Path | None = None
    limits: Limits = field(default_factory=Limits)
    max_open: int = 64
    audit: Audit | None = None

    def __post_init__(self) -> None:
        if not 0 < self.max_open <= lease.BLOCK:
            raise UsageError(f"max_open is {self.max_open}: it must be between 1 and {lease.BLOCK}")
        self._host: Host | None = None
        self._free: list[int] = []
        self._open: dict[int, LocalSandbox] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def spawner(self) -> int | None:
        """The pid of the process below which everything sandboxed runs; None before the first `open`."""
        return None if self._host is None else self._host.supervisor.pid

    async def open(self) -> LocalSandbox:
        """An empty workspace. Raises BurnishError, with what to type, where a layer of it is missing."""
        host = self._ready()
        while not self._free:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake()  # the turn may already have been ours: pass it on
                raise
            host = self._ready()
        slot = self._free.pop()
        try:
            self._open[slot] = LocalSandbox(self, host, slot)
        except BaseException:
            self.returned(slot)
            raise
        return self._open[slot]

    def returned(self, slot: int) -> None:
        """A sandbox was closed; its slot, and its uid, may be used again."""
        self._open.pop(slot, None)
        self._free.append(slot)
        self._wake()

    async def close(self) -> None:
        """Idempotent; closes the sandboxes that are still open."""
        for sandbox in list(self._open.values()):
            await sandbox.close()
        self._shut()

    async def __aenter__(self) -> LocalSandboxes:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _ready(self) -> Host:
        if self._host is not None and self._host.supervisor.loop.is_closed():
            self._shut()
        if self._host is None:
            self._host = Host(self.root)
            self._free = list(range(self.max_open - 1, -1, -1))
        if not self._host.supervisor.alive:
            raise InfrastructureError(
                "the process that runs sandboxes was ended: close this LocalSandboxes first"
            )
        return self._host

    def _shut(self) -> None:
        if self._host is not None:
            self._host.close()
        self._host = None
        self._free, self._open, self._waiting = [], {}, deque()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
