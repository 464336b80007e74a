"""One thing that a hostile program tries, and what must come of it.

What this file is: `Case` and the ground that it is tried on, in the terms that the corpus is written in.
What it is not: the corpus (see the files beside) or who runs it (see `corpus`).
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from burnish.sandbox.local import LocalSandbox, LocalSandboxes
from burnish.types import LimitReason, Limits, Result

MIB = 1 << 20

LONG = Limits(wall_s=60, cpu_s=60)
"""So that none but the limit in question ends a program, also on a machine that is busy."""

SHORT = Limits(wall_s=0.3)

C = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); X = os.uname().machine == 'x86_64'\n"
"""What a Python program opens with that makes system calls; `X` tells the two tables of numbers apart."""


class Escaped(Exception):
    """The attempt was not stopped, or not as it must be. The message says what was seen."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a case is tried: a fresh sandbox, and what opens others beside it."""

    sandboxes: LocalSandboxes
    sandbox: LocalSandbox

    async def shell(self, text: str, limits: Limits = LONG) -> Result:
        return await self.sandbox.run(["sh", "-c", text], limits=limits)

    async def python(self, text: str, limits: Limits = LONG) -> Result:
        return await self.sandbox.run(["python3", "-c", text], limits=limits)

    @property
    def spawner(self) -> int:
        """The process below which everything sandboxed runs."""
        assert self.sandboxes.spawner is not None
        return self.sandboxes.spawner


Attempt = Callable[[Ground], Awaitable[str]]
"""Returns in a few words how the attempt ended. Raises Escaped where it was not stopped."""


@dataclass(frozen=True, slots=True)
class Case:
    """`number` is that of its kind in docs/sandbox.md, which several cases may share. `layer` is what must
    stop it, `needs` a layer that not every machine and user has: elsewhere the case does not apply."""

    number: int
    name: str
    layer: str
    attempt: Attempt
    needs: Literal["", "root", "Landlock"] = ""

    @property
    def id(self) -> str:
        return f"{self.number:02d}-{self.name.replace(' ', '-')}"


def check(held: bool, seen: object) -> None:
    if not held:
        raise Escaped(str(seen)[:400])


def ended_by(result: Result, reason: LimitReason) -> str:
    """That this limit ended it and no other."""
    check((result.exit, result.reason) == (None, reason), result)
    return f"ended by {reason}"


def printed(result: Result, *lines: object) -> str:
    """That it came to its end, and printed exactly `lines`."""
    expected = [str(line) for line in lines]
    check(result.exit == 0 and result.stdout.decode(errors="replace").splitlines() == expected, result)
    return ", ".join(dict.fromkeys(expected))


def failed(result: Result, *numbers: int) -> str:
    """That it printed the number of the error that each attempt was answered with, after what a system call
    returned where it made one."""
    lines = result.stdout.decode(errors="replace").splitlines()
    codes = [line.removeprefix("-1 ") for line in lines]
    check(result.exit == 0 and codes == [str(number) for number in numbers], result)
    return ", ".join(dict.fromkeys(errno.errorcode[number] for number in numbers))


def calls(*names: str) -> str:
    """A program that makes system calls and prints each one's answer and errno."""
    return C + "".join(f"ctypes.set_errno(0); print(c.{name}, ctypes.get_errno())\n" for name in names)
