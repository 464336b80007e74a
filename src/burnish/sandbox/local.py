"""The local sandbox: bubblewrap on this Linux machine.

What this file is: `LocalSandbox`, one workspace in which commands run isolated; `LocalSnapshot`, a frozen one
from which others are forked; and `LocalSandboxes`, which opens them.
What it is not: a virtual machine. It shares the kernel with the host: it holds a program that a model wrote,
not an attacker with a kernel exploit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from burnish.observe.audit import Audit
from burnish.sandbox import bubblewrap, lease
from burnish.sandbox.execution import Execution, Job
from burnish.sandbox.host import Family, Host
from burnish.sandbox.layers import Layer
from burnish.sandbox.proxy import PORT, Proxy, Resolver, resolve
from burnish.sandbox.shell import Language, LocalShell, Pipes, program
from burnish.sandbox.supervisor import Request
from burnish.sandbox.verdicts import Arbiter
from burnish.sandbox.workspace import Workspace, make_layer, remove_tree
from burnish.types import InfrastructureError, Limits, Result, UsageError

SHELL_S = 86_400.0
"""Seconds that a shell may live, and compute, unless it is given other limits."""

_FEW = 100  # so many files are removed sooner than a thread could be asked to
_DEEP = 24  # layers, beyond which they are copied into one: mount(2) takes a page of options, names included
_COPY = Limits(wall_s=60, cpu_s=60, memory=1 << 30, file_size=1 << 40, disk=1 << 40)


class LocalSandbox:
    """One workspace. Several commands may run in it at once; each sees only its own processes, and an empty
    /tmp. Once it lies on a snapshot, its own or another's, they take turns. `close` ends them. Implements
    `burnish.interfaces.Sandbox`."""

    def __init__(
        self, owner: LocalSandboxes, host: Host, family: Family, below: Sequence[Layer] = ()
    ) -> None:
        self.limits = owner.limits
        self.number = host.number()
        self._owner = owner
        self._host = host
        self._family = family
        self._workspace = Workspace(host.lease.directory / f"{self.number:06d}", family.uid, below)
        self._running: set[asyncio.Task[Result]] = set()
        self._shells: list[LocalShell] = []
        self._turn = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    @property
    def path(self) -> Path:
        """The workspace on the host; of a fork, what was changed in it. What is there is hostile: go through
        `read`, `write` and `files`."""
        return self._workspace.path

    async def run(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        limits: Limits | None = None,
        on_output: Callable[[str, bytes], None] | None = None,
    ) -> Result:
        """Runs a command in /work without a shell. `limits` replaces the sandbox's own for this command;
        `on_output("stdout" | "stderr", piece)` is called as output comes.

        Output longer than `limits.output` keeps head and tail around a mark that says how much was left out.
        `exit` of a command that a signal ended is None, also where it was a shell that reported it (128 + n).
        Raises UsageError for an argv that no program can be given; InfrastructureError where our side failed.
        """
        self._check_open()
        if isinstance(argv, str) or not argv or not all(isinstance(item, str) and item for item in argv[:1]):
            raise UsageError(f"a command is a non-empty sequence of strings, not {argv!r}")
        job = self._job(argv, limits or self.limits, stdin=stdin, on_output=on_output)
        result = await self._result_of(job)
        self._log(argv, result)
        return result

    async def shell(self, language: Language = "bash", limits: Limits | None = None) -> LocalShell:
        """A shell, or a Python, that lives on between commands. `limits` are for all of them together, and by
        default the sandbox's own but for time. On a snapshot it is the only thing that runs while it is open."""
        self._check_open()
        argv = program(language)
        self._check_alone()
        pipes = Pipes()
        try:
            limits = limits or replace(self.limits, wall_s=SHELL_S, cpu_s=SHELL_S)
            job = self._job(argv, limits, extra=pipes.theirs)
            execution = Execution(self._host.supervisor, self._workspace, job)
            task = self._started(self._in_turn(execution), job)
            shell = LocalShell(execution, task, pipes, lambda text, r: self._log([f"({language})", text], r))
        except BaseException:
            pipes.close()
            raise
        self._shells.append(shell)
        return shell

    def _job(self, argv: Sequence[str], limits: Limits, copy: Path | None = None, **rest: Any) -> Job:
        self._check_alone()
        host, arbiter = self._host, self._owner.arbiter
        proxy = None
        if arbiter is not None and arbiter.policy.reaches_out:
            proxy = Proxy(arbiter, self.number, self._owner.resolver)
        command = bubblewrap.arguments(host.image, self._workspace.view(copy), limits, argv, bool(proxy))
        ceilings = bubblewrap.rlimits(limits, host.counts_processes)
        group = host.group(limits)
        port, doors = None if proxy is None else PORT, () if group is None else group.doors
        request = Request(command, self._family.uid, ceilings, port, doors)
        return Job(request, limits, host.filter_fd, group, proxy, **rest)

    def _started(self, work: Coroutine[Any, Any, Result], job: Job) -> asyncio.Task[Result]:
        """Something that runs in this sandbox, and is ended with it."""
        task = asyncio.ensure_future(work)
        self._running.add(task)

        def done(_: asyncio.Task[Result]) -> None:
            self._running.discard(task)
            if job.group is not None:
                job.group.remove()

        task.add_done_callback(done)
        return task

    async def _result_of(self, job: Job) -> Result:
        task = self._started(self._in_turn(Execution(self._host.supervisor, self._workspace, job)), job)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            if self._closing is not None:
                raise InfrastructureError("the sandbox was closed while a command ran in it") from None
            raise

    async def _in_turn(self, execution: Execution) -> Result:
        if not self._workspace.below:
            return await execution.run()
        # Each command mounts its own overlay, and what two of them do to one upper directory is undefined.
        async with self._turn:
            return await execution.run()

    def _check_alone(self) -> None:
        if self._workspace.below and any(shell.alive for shell in self._shells):
            raise UsageError(
                "a shell is open in this fork, and must be all that works in it: use it, or close it"
            )

    def _log(self, argv: Sequence[str], result: Result) -> None:
        if self._owner.audit is not None:
            self._owner.audit.append("code_execution", {
                "sandbox": self.number, "argv": list(argv), "exit": result.exit, "reason": result.reason,
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
        self._check_alone()
        self._workspace.write(path, data, self.limits.disk)

    async def files(self) -> Mapping[str, bytes]:
        """As in the interface, sorted by path; OSError (EFBIG) where they are longer than `limits.disk`."""
        self._check_open()
        return self._workspace.files(self.limits.disk)

    async def snapshot(self) -> LocalSnapshot:
        """The workspace as it is now, to fork others from; this one goes on, unaffected by them. Raises
        UsageError while a command runs in it. Without overlays (`burnish doctor`) everything is copied."""
        self._check_open()
        if self._running:
            raise UsageError("a command still runs in this sandbox: wait for it before you take a snapshot")
        if not self._host.overlays:
            return LocalSnapshot(self._owner, self._host, self._family, (await self._copied(),))
        if len(self._workspace.below) >= _DEEP:
            self._workspace.rest_on(await self._copied())
        return LocalSnapshot(self._owner, self._host, self._family, self._workspace.freeze())

    async def _copied(self) -> Layer:
        """A copy of the workspace, every byte of which was moved by a program inside the sandbox."""
        path = self._host.lease.directory / f"{self._host.number():06d}.copy"
        layer = make_layer(path, self._family.uid)
        try:
            # What is closed to its owner is opened to him: inside, nobody stands above permissions.
            await self._copy(["/bin/chmod", "-R", "u+rX", "/work"], layer)
            await self._copy(["/bin/cp", "-a", "/work/.", "/copy"], layer)
        except BaseException:
            layer.release()
            remove_tree(path)
            raise
        return layer

    async def fill(self, layer: Layer) -> None:
        """Copies a layer into this workspace, which is empty."""
        await self._copy(["/bin/cp", "-a", "/copy/.", "/work"], layer)

    async def _copy(self, argv: Sequence[str], layer: Layer) -> None:
        result = await self._result_of(self._job(argv, _COPY, layer.path))
        if result.exit != 0:
            said = result.stderr.decode(errors="replace").strip() or result.reason
            raise InfrastructureError(f"the workspace could not be copied: {said}")

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
        few = self._workspace.measure(most=_FEW).entries <= _FEW
        gone = self._workspace.leave()
        if few and len(gone) <= 2:  # no layer among them
            _remove(gone)
        else:
            await asyncio.to_thread(_remove, gone)
        self._family.leave()
        self._owner.returned(self)

    async def __aenter__(self) -> LocalSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise UsageError("this sandbox is closed; open another one")


class LocalSnapshot:
    """A workspace as it was. It never changes; `close` it when nothing more is to be forked from it. Implements
    `burnish.interfaces.Snapshot`."""

    def __init__(self, owner: LocalSandboxes, host: Host, family: Family, layers: Sequence[Layer]) -> None:
        self._owner = owner
        self._host = host
        self._family = family.join()
        self._layers = tuple(layers)
        self._closed = False
        owner.snapshots.add(self)

    async def fork(self) -> LocalSandbox:
        """A sandbox that starts with what was frozen, sees nothing of its siblings, and outlives the snapshot.
        Waits, as `LocalSandboxes.open` does, where as many as allowed are open."""
        self._check_open()
        await self._owner.room()
        self._check_open()
        if self._host.overlays:
            return self._owner.started(self._host, self._family.join(), self._layers)
        made = self._owner.started(self._host, self._family.join())
        try:
            await made.fill(self._layers[0])
        except BaseException:
            await made.close()
            raise
        return made

    async def close(self) -> None:
        """Idempotent. Forks keep what they need of it."""
        if self._closed:
            return
        self._closed = True
        self._owner.snapshots.discard(self)
        gone = [layer.path for layer in self._layers if layer.release()]
        self._family.leave()
        await asyncio.to_thread(_remove, gone)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this snapshot is closed; take another one")

    async def __aenter__(self) -> LocalSnapshot:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        remove_tree(path)


@dataclass
class LocalSandboxes:
    """Opens local sandboxes, at most `max_open` at once (more wait). `root` is where workspaces are made; as
    root it must be a directory that every user can enter. `async with`, or `close` when done. What an earlier
    process left behind when it died is removed on the first `open`. With `audit` every command is an event.
    With an `arbiter` whose policy allows something on a network, commands find a proxy that asks it, and looks
    names up with `resolver`; otherwise they have no network.

    Sandboxes belong to the event loop that they were opened in; once that is closed, `open` starts afresh.
    """

    root: Path | None = None
    limits: Limits = field(default_factory=Limits)
    max_open: int = 64
    audit: Audit | None = None
    arbiter: Arbiter | None = None
    resolver: Resolver = resolve

    def __post_init__(self) -> None:
        if not 0 < self.max_open <= lease.BLOCK:
            raise UsageError(f"max_open is {self.max_open}: it must be between 1 and {lease.BLOCK}")
        self.snapshots: set[LocalSnapshot] = set()
        self._host: Host | None = None
        self._open: set[LocalSandbox] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def spawner(self) -> int | None:
        """The pid of the process below which everything sandboxed runs; None before the first `open`."""
        return None if self._host is None else self._host.supervisor.pid

    async def open(self) -> LocalSandbox:
        """An empty workspace. Raises BurnishError, with what to type, where a layer of it is missing."""
        host = await self.room()
        return self.started(host, Family(host))

    async def room(self) -> Host:
        """Waits until one more sandbox may be open."""
        host = self._ready()
        while len(self._open) >= self.max_open:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake()  # the turn may already have been ours: pass it on
                raise
            host = self._ready()
        return host

    def started(self, host: Host, family: Family, below: Sequence[Layer] = ()) -> LocalSandbox:
        """A sandbox that is one more member of `family`."""
        try:
            made = LocalSandbox(self, host, family, below)
        except BaseException:
            family.leave()
            self._wake()
            raise
        self._open.add(made)
        return made

    def returned(self, sandbox: LocalSandbox) -> None:
        """A sandbox was closed: another one may be opened."""
        self._open.discard(sandbox)
        self._wake()

    async def close(self) -> None:
        """Idempotent; closes the sandboxes and snapshots that are still open."""
        for sandbox in list(self._open):
            await sandbox.close()
        for snapshot in list(self.snapshots):
            await snapshot.close()
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
        if not self._host.supervisor.alive:
            raise InfrastructureError(
                "the process that runs sandboxes was ended: close this LocalSandboxes first"
            )
        return self._host

    def _shut(self) -> None:
        if self._host is not None:
            self._host.close()
        self._host = None
        self._open, self.snapshots, self._waiting = set(), set(), deque()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
