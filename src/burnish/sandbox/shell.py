"""A shell or a Python that lives on between commands, in one sandbox.

What this file is: `LocalShell`: commands one after the other in one process, which keeps its directory, variables and
functions; what each printed, and its status, which comes on a descriptor of its own and never out of the output.
What it is not: a terminal. No program in it finds one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from burnish.sandbox import watch
from burnish.sandbox.capture import Capture, share
from burnish.sandbox.execution import Execution
from burnish.types import InfrastructureError, LimitReason, Result, UsageError

Language = Literal["bash", "python"]

COMMANDS, STATUSES = 6, 7
"""Descriptors on which the program inside reads commands and tells how they ended."""

INT_S, KILL_S = 0.3, 1.0
"""How long a command that ran out of time has after SIGINT, and the shell after its command was killed."""

# An interrupt breaks out of every loop, the command's and ours; ours is then begun again, one level deeper.
_BASH = f"""
burnish_serve() {{
    while IFS= read -r -d '' -u {COMMANDS} burnish_command; do
        burnish_busy=1
        eval "$burnish_command" </dev/null {COMMANDS}<&- {STATUSES}>&-
        burnish_status=$?
        burnish_busy=0
        printf '%d\\n' "$burnish_status" >&{STATUSES}
    done
    if [ "$burnish_interrupted" = 1 ]; then
        if [ "$burnish_busy" = 1 ]; then printf '130\\n' >&{STATUSES}; fi
        burnish_interrupted=0 burnish_busy=0
        burnish_serve
    fi
}}
burnish_busy=0 burnish_interrupted=0
trap 'burnish_interrupted=1; break 999' INT
burnish_serve
"""

_PYTHON = f"""
import ast, code, os, sys
commands, statuses = os.fdopen({COMMANDS}, "rb"), os.fdopen({STATUSES}, "w", buffering=1)
for fd in ({COMMANDS}, {STATUSES}):
    os.set_inheritable(fd, False)

class Cells(code.InteractiveInterpreter):
    failed = False
    def write(self, data):
        self.failed = True
        sys.stderr.write(data)
    def cell(self, text):
        self.failed = False
        try:
            tree = ast.parse(text, "<cell>")
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            self.runcode(compile(tree, "<cell>", "exec"))
            if last is not None and not self.failed:
                self.runcode(compile(ast.Interactive([last]), "<cell>", "single"))
        except (SyntaxError, ValueError, OverflowError):
            self.showsyntaxerror("<cell>")
        return int(self.failed)

cells, kept = Cells({{"__name__": "__main__"}}), b""
while True:
    try:
        while b"\\0" not in kept:
            piece = commands.read1(65536)
            if not piece:
                raise SystemExit
            kept += piece
        text, _, kept = kept.partition(b"\\0")
        status = cells.cell(text.decode("utf-8", "replace"))
    except KeyboardInterrupt:
        continue
    sys.stdout.flush()
    sys.stderr.flush()
    print(status, file=statuses)
"""

_PROGRAMS = {
    "bash": ["/bin/bash", "--noprofile", "--norc", "-c", _BASH],
    "python": ["python3", "-u", "-c", _PYTHON],
}


def program(language: Language) -> list[str]:
    """What to run in the sandbox. Raises UsageError for a language that there is none for."""
    if language not in _PROGRAMS:
        raise UsageError(f"a shell speaks {' or '.join(_PROGRAMS)}, not {language!r}")
    return _PROGRAMS[language]


class Pipes:
    """On `ours` commands are written and statuses read; `theirs` are for the program inside."""

    def __init__(self) -> None:
        inside, write = os.pipe()
        read, told = os.pipe()
        self.ours, self.theirs = (write, read), (inside, told)
        for fd in self.ours:
            os.set_blocking(fd, False)

    def close(self) -> None:
        for fd in (*self.ours, *self.theirs):
            os.close(fd)


class LocalShell:
    """Made by `LocalSandbox.shell`, in whose limits all its commands are together; ends with `close`, or when a
    limit ends it, or when a command of it exits. Implements `burnish.interfaces.Shell`."""

    def __init__(
        self,
        execution: Execution,
        task: asyncio.Task[Result],
        pipes: Pipes,
        log: Callable[[str, Result], None],
    ) -> None:
        self._execution = execution
        self._log = log
        self._task = task
        self._pipes = pipes
        self._commands, self._statuses = pipes.ours
        self._lock = asyncio.Lock()
        self._output = execution.limits.output
        task.add_done_callback(lambda _: self._release())

    @property
    def alive(self) -> bool:
        return not self._task.done()

    async def run(
        self, text: str, wall_s: float = 10.0, on_output: Callable[[str, bytes], None] | None = None
    ) -> Result:
        """Runs a command, or a cell of Python, whose last expression is printed. `exit` is its status; in Python 1
        after an exception. Out of time it is interrupted, then killed, and `reason` is `wall`; the shell lives on
        where that was enough. `on_output("stdout" | "stderr", piece)` is called as output comes.

        Raises UsageError for text with a NUL byte, and once the shell has ended."""
        if "\0" in text:
            raise UsageError("a command holds a NUL byte, which no shell can be given")
        async with self._lock:
            if not self.alive:
                raise UsageError("this shell has ended; open another one")
            begin = time.monotonic()
            captures = self._execution.listen(on_output)
            try:
                status, reason = await self._status(text, wall_s)
            except asyncio.CancelledError:
                await self.close()  # nobody knows in what state it is
                raise
            self._execution.drain()
            result = self._result(captures, status, reason, time.monotonic() - begin)
            self._log(text, result)
            return result

    async def close(self) -> None:
        """Idempotent; ends everything that runs in it."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def __aenter__(self) -> LocalShell:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _status(self, text: str, wall_s: float) -> tuple[int | None, LimitReason | None]:
        """(status, what ended the command). Waits for the process as a whole where the shell ended with it."""
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._expect(told)
        self._send(text.encode("utf-8", "replace") + b"\0")
        try:
            if await self._within(told, wall_s):
                return self._ended(told, None)
            for number, patience in ((signal.SIGINT, INT_S), (signal.SIGKILL, KILL_S)):
                self._signal(number)
                if await self._within(told, patience):
                    return self._ended(told, "wall")
            await self.close()
            return None, "wall"
        finally:
            self._task.get_loop().remove_reader(self._statuses)

    async def _within(self, told: asyncio.Future[int], seconds: float) -> bool:
        both: list[asyncio.Future[Any]] = [told, self._task]
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return told.done() or self._task.done()

    def _ended(
        self, told: asyncio.Future[int], reason: LimitReason | None
    ) -> tuple[int | None, LimitReason | None]:
        if told.done():
            return (told.result() if reason is None else None), reason
        if self._task.cancelled():
            raise InfrastructureError("the shell was closed while a command ran in it")
        result = self._task.result()
        return result.exit, reason or result.reason

    def _expect(self, told: asyncio.Future[int]) -> None:
        line = bytearray()

        def read() -> None:
            with suppress(BlockingIOError):
                piece = os.read(self._statuses, 64)
                line.extend(piece)
                if not piece:
                    loop.remove_reader(self._statuses)
                elif b"\n" in line and not told.done():
                    number = bytes(line).split(b"\n")[0]
                    told.set_result(int(number) if number.isdigit() else 255)

        loop = asyncio.get_running_loop()
        loop.add_reader(self._statuses, read)

    def _send(self, data: bytes) -> None:
        loop, left = asyncio.get_running_loop(), memoryview(data)

        def write() -> None:
            nonlocal left
            try:
                left = left[os.write(self._commands, left) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                left = memoryview(b"")
            if not left:
                loop.remove_writer(self._commands)

        loop.add_writer(self._commands, write)

    def _signal(self, number: int) -> None:
        """To the command; SIGINT also to the shell, which is used to it, but SIGKILL not."""
        inner = self._execution.inner
        if inner is None:
            return
        spared = {inner} if number == signal.SIGINT else {inner, *watch.children(inner)}
        for pid in watch.look(inner).pids:
            if pid in spared:
                continue
            with suppress(ProcessLookupError, PermissionError):
                handle = os.pidfd_open(pid)
                try:
                    if pid in watch.look(inner).pids:  # it is still the process that we mean
                        signal.pidfd_send_signal(handle, number)
                finally:
                    os.close(handle)

    def _result(
        self, captures: tuple[Capture, Capture], status: int | None, reason: LimitReason | None, wall_s: float
    ) -> Result:
        out, err = captures
        kept = share(self._output, out.total, err.total)
        stdout, dropped_out = out.finish(kept[0])
        stderr, dropped_err = err.finish(kept[1])
        ended = None if reason is not None else status
        return Result(stdout, stderr, ended, reason, dropped_out + dropped_err, wall_s, self._execution.cpu_s)

    def _release(self) -> None:
        loop = self._task.get_loop()
        for fd in self._pipes.ours:
            loop.remove_reader(fd)
            loop.remove_writer(fd)
        self._pipes.close()
        if not self._task.cancelled():
            self._task.exception()  # looked at, so that nobody is warned about it
