"""Questions of a policy, put to whoever sits at the terminal.

What this file is: the arbiter of a command line: a policy by name, and a person where there is one.
What it is not: the only way to answer; a program uses `Arbiter.pending` and `Arbiter.answer`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress

from burnish.commands.output import note, visible
from burnish.observe.audit import Audit
from burnish.sandbox.policy import find_policy
from burnish.sandbox.verdicts import Arbiter, Question


def arbiter(name: str | None, audit: Audit | None = None, free: bool = True) -> Arbiter | None:
    """Of a preset or a policy file; None where none is named. `free` says that standard input is not needed for
    anything else; where nobody can be asked, a question is answered with no."""
    if name is None:
        return None
    return Arbiter(find_policy(name), audit, ask if free and sys.stdin.isatty() else refuse)


async def refuse(question: Question) -> bool:
    note(f"denied, since nobody is there to ask: {_told(question)}")
    return False


async def ask(question: Question) -> bool:
    """Waits for a line on standard input; anything but yes is no. The line is not read before it is there, so
    that a question that was withdrawn leaves no thread waiting for it."""
    sys.stderr.write(visible(f"allow {_told(question)}? [y/N, {question.left_s:.0f} s] "))
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bytes] = loop.create_future()
    source = sys.stdin.fileno()

    def read() -> None:
        line = os.read(source, 1024)
        if not answered.done():
            answered.set_result(line)

    loop.add_reader(source, read)
    try:
        return (await answered).strip().lower() in (b"y", b"yes")
    except asyncio.CancelledError:
        with suppress(OSError):
            sys.stderr.write("(no answer)\n")
        raise
    finally:
        loop.remove_reader(source)


def _told(question: Question) -> str:
    request = question.request
    arguments = f" {json.dumps(dict(request.arguments), ensure_ascii=False)}" if request.arguments else ""
    return f"{request.operation} {request.subject}{arguments} ({question.reason})"
