"""One command in one sandbox, from its pipes to its result.

What this file is: feeding and draining the command, holding it to its limits, ending all of it, and
saying why.
What it is not: isolation (see `bubblewrap`) or bookkeeping of workspaces (see `local`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from burnish.sandbox import watch
from burnish.sandbox.bubblewrap import SCRATCH
from burnish.sandbox.capture import Capture, share
from burnish.sandbox.cgroup import Group
from burnish.sandbox.proxy import Proxy
from burnish.sandbox.supervisor import Child, Ended, Request, Supervisor
from burnish.sandbox.workspace import MAX_FILES, Workspace
from burnish.types import InfrastructureError, LimitReason, Limits, Result

DRAIN = 256 << 20
"""Bytes of output that are read, and mostly dropped, before a command is ended for its output: draining takes
processor time that others need."""

_CHUNK = 64 << 10
_FIRST_LOOK_S, _LOOK_S = 0.004, 0.05
_NO_PROGRAM = b"bwrap: execvp "  # said by bubblewrap when all walls stand and the command cannot be executed
_COST = (
    30  # a look at the disk that took t seconds is followed by none for this many times t, but see `growth`
)


@dataclass(frozen=True, slots=True)
class Job:
    request: Request
    limits: Limits
    filter_fd: int
    group: Group | None = None
    proxy: Proxy | None = None
    stdin: bytes = b""
    on_output: Callable[[str, bytes], None] | None = None
    extra: tuple[int, ...] = ()
    """Descriptors that the command gets beside the usual three, from 6 on; the caller's to close."""


class Execution:
    """Use once: `await Execution(...).run()`. `inner` is the first process of its pid namespace, once it has one,
    and `cpu_s` what was used when it was last looked at."""

    def __init__(self, supervisor: Supervisor, workspace: Workspace, job: Job) -> None:
        self._supervisor = supervisor
        self._loop = supervisor.loop
        self._workspace = workspace
        self._job = job
        self.limits = job.limits
        self.inner: int | None = None
        self.cpu_s = 0.0
        self._stdin = memoryview(job.stdin)
        self._on_output = job.on_output
        self._outputs: dict[int, int] = {}
        self._fds: set[int] = set()
        self._child: Child | None = None
        self.listen(job.on_output)
        self._reason: LimitReason | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._peak = 0
        self._next_disk = 0.0
        self._growth = workspace.growth()

    async def run(self) -> Result:
        """Returns when nothing of the command is left, however it ended. If cancelled, ends it first."""
        begin = time.monotonic()
        child = self._child = self._start()
        try:
            inner = self.inner = await asyncio.shield(child.started)
            if self._job.proxy is not None and child.listener is not None:
                await self._job.proxy.start(child.listener)
            begin = time.monotonic()
            if inner is not None:
                self._timers["wall"] = self._loop.call_later(self.limits.wall_s, self._end, child, "wall")
                self._look(child, inner, _FIRST_LOOK_S)
            ended = await asyncio.shield(child.ended)
        finally:
            await self._settle(child)
            if self._job.proxy is not None:
                await self._job.proxy.close()
            for timer in self._timers.values():
                timer.cancel()
            self.drain()
            for fd in list(self._fds):
                self._close(fd)
            if self._job.group is not None:
                self._reason = self._reason or self._group_exceeded(self._job.group)
        return self._result(ended, time.monotonic() - begin)

    def listen(self, on_output: Callable[[str, bytes], None] | None) -> tuple[Capture, Capture]:
        """From here on output goes into these."""
        self._on_output = on_output
        self._captures = (Capture(self.limits.output), Capture(self.limits.output))
        return self._captures

    def drain(self) -> None:
        """Takes what was written until now."""
        for fd in self._outputs:
            self._drain(fd)

    def _start(self) -> Child:
        """Pipes, then the command; on a failure nothing stays open."""
        theirs: list[int] = []
        try:
            if self._stdin:
                entrance, writer = os.pipe()
                self._fds.add(writer)
                os.set_blocking(writer, False)
            else:
                entrance, writer = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1
            theirs.append(entrance)
            self._outputs = {self._outlet(theirs): 0, self._outlet(theirs): 1}
            theirs.append(os.open(f"/proc/self/fd/{self._job.filter_fd}", os.O_RDONLY | os.O_CLOEXEC))
            status, report = os.pipe()
            theirs.append(report)
            gate, opener = os.pipe()
            theirs += [gate, opener, status]
            child = self._supervisor.spawn(self._job.request, [*theirs[:-2], *self._job.extra, *theirs[-2:]])
        except BaseException:
            for fd in self._fds:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        if writer >= 0:
            self._loop.add_writer(writer, self._feed, writer)
        for fd in self._outputs:
            self._loop.add_reader(fd, self._drain, fd, 4)
        return child

    def _outlet(self, theirs: list[int]) -> int:
        reader, writer = os.pipe()
        theirs.append(writer)
        self._fds.add(reader)
        os.set_blocking(reader, False)
        return reader

    async def _settle(self, child: Child) -> None:
        """Ends what still runs and waits for it, also while our own task is being cancelled."""
        while not child.ended.done():
            self._supervisor.kill(child)
            try:
                await asyncio.wait([child.ended])
            except asyncio.CancelledError:
                continue
        if not child.ended.cancelled():
            child.ended.exception()  # looked at, so that nobody is warned about it

    def _feed(self, fd: int) -> None:
        try:
            self._stdin = self._stdin[os.write(fd, self._stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._stdin = memoryview(b"")
        if not self._stdin:
            self._close(fd)

    def _drain(self, fd: int, pieces: int = 1 << 30) -> None:
        """Reads up to `pieces` pieces of what is there, so that no flood keeps the loop from its timers."""
        while fd in self._fds and pieces > 0:
            pieces -= 1
            try:
                piece = os.read(fd, _CHUNK)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                piece = b""
            if not piece:
                self._close(fd)
                return
            self._captures[self._outputs[fd]].feed(piece)
            if self._on_output is not None:
                self._on_output(("stdout", "stderr")[self._outputs[fd]], piece)
            if self._child is not None and sum(each.total for each in self._captures) > DRAIN:
                self._end(self._child, "output")

    def _close(self, fd: int) -> None:
        self._fds.discard(fd)
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)
        os.close(fd)

    def _end(self, child: Child, reason: LimitReason) -> None:
        if self._reason is None and not child.ended.done():
            self._reason = reason
            self._supervisor.kill(child)

    def _look(self, child: Child, inner: int, pause: float) -> None:
        def later() -> None:
            reason = self._exceeded(inner)
            if child.ended.done() or self._reason is not None:
                return
            if reason is not None:
                self._end(child, reason)
            else:
                self._look(child, inner, min(2 * pause, _LOOK_S))

        self._timers["look"] = self._loop.call_later(pause, later)

    def _exceeded(self, inner: int) -> LimitReason | None:
        reason = (
            self._counted_exceeded(inner)
            if self._job.group is None
            else self._group_exceeded(self._job.group)
        )
        if reason is not None:
            return reason
        if any(watch.temporary(inner, path)[1] > MAX_FILES for path in SCRATCH):
            return "disk"
        growth = self._workspace.growth()
        grown = (
            growth[0] - self._growth[0] > self.limits.disk // 2
            or growth[1] - self._growth[1] > MAX_FILES // 2
        )
        now = time.monotonic()
        if now < self._next_disk and not grown:
            return None
        self._growth = growth
        full = self._disk_exceeded(watch.look(inner).pids)
        self._next_disk = now + _COST * (time.monotonic() - now)
        return "disk" if full else None

    def _counted_exceeded(self, inner: int) -> LimitReason | None:
        """By counting the processes one by one, where there is no group."""
        seen = watch.look(inner)
        self.cpu_s = max(self.cpu_s, seen.cpu_s)
        memory = seen.memory
        if memory > self.limits.memory:
            memory = watch.proportional_memory(seen.pids)
        self._peak = max(self._peak, memory)
        if memory > self.limits.memory:
            return "memory"
        if seen.cpu_s > self.limits.cpu_s:
            return "cpu"
        return "processes" if seen.tasks > self.limits.processes else None

    def _group_exceeded(self, group: Group) -> LimitReason | None:
        """By what the kernel counted. It holds to the memory by itself; we only learn of it."""
        use = group.use()
        self.cpu_s = max(self.cpu_s, use.cpu_s)
        if use.out_of_memory:
            self._peak = max(self._peak, self.limits.memory)
            return "memory"
        if use.cpu_s > self.limits.cpu_s:
            return "cpu"
        return "processes" if use.tasks > self.limits.processes else None

    def _disk_exceeded(self, pids: tuple[int, ...]) -> bool:
        usage = self._workspace.measure()
        hidden = watch.deleted_bytes(pids, self._workspace.device)
        return usage.exceeds(self.limits.disk) or usage.size + hidden > self.limits.disk

    def _result(self, ended: Ended, wall_s: float) -> Result:
        out, err = self._captures
        kept = share(self.limits.output, out.total, err.total)
        stdout, dropped_out = out.finish(kept[0])
        stderr, dropped_err = err.finish(kept[1])
        code, reason = ended.code, self._reason
        cpu_s = max(ended.cpu_s, self.cpu_s)
        if reason is None and code is None and stderr.startswith(_NO_PROGRAM):
            code = 127 if stderr.rstrip().endswith(b"No such file or directory") else 126  # as a shell has it
            stderr = stderr.removeprefix(_NO_PROGRAM)
        if reason is None and code is None:
            detail = stderr.decode(errors="replace").strip() or "it was killed from outside"
            raise InfrastructureError(f"bubblewrap did not start the command: {detail}")
        if reason is None and code is not None and 128 < code <= 128 + signal.NSIG:
            reason = self._by_signal(code - 128, cpu_s)
        if reason is None and self._workspace.measure().exceeds(self.limits.disk):
            reason = "disk"
        return Result(
            stdout=stdout,
            stderr=stderr,
            exit=code if reason is None else None,
            reason=reason,
            dropped=dropped_out + dropped_err,
            wall_s=wall_s,
            cpu_s=cpu_s,
            peak_memory=max(ended.peak, self._peak),
        )

    def _by_signal(self, number: int, cpu_s: float) -> LimitReason:
        if number == signal.SIGKILL and cpu_s >= self.limits.cpu_s:
            return "cpu"
        if number == signal.SIGXCPU:
            return "cpu"
        return "file_size" if number == signal.SIGXFSZ else "signal"
