"""A shell over files: the tools with which an agent works on somebody's own task.

What this file is: `ShellSession`, a session over one sandbox with the tools `run`, `read` and `write`,
named and described as in the domains that models are trained on.
What it is not: it grades nothing and draws no task; and the sandbox, not this file, is what isolates.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Mapping

from burnish.interfaces import Sandbox
from burnish.tools.tool import ToolFailure, tool
from burnish.tools.world import World
from burnish.types import Limits, Result

MAX_COMMAND = 8000
SHOWN_LINES = 40

LIMITS = Limits(wall_s=60.0, cpu_s=60.0, memory=1 << 30, processes=64, output=64 << 10, disk=64 << 20)
"""Those of one command. Longer and larger than in training: the task is not one of ours."""


class ShellSession(World):
    """Works in `sandbox`, which closes with the session."""

    def __init__(self, sandbox: Sandbox, limits: Limits = LIMITS) -> None:
        super().__init__()
        self.sandbox = sandbox
        self.limits = limits

    @tool
    async def run(self, command: str) -> str:
        """Run a shell command."""
        if "\0" in command or len(command) > MAX_COMMAND:
            raise ToolFailure("malformed", "a command is a short text")
        return _printed(await self.sandbox.run(["sh", "-c", command], limits=self.limits))

    @tool
    async def read(self, path: str) -> str:
        """Read a file."""
        try:
            content = await self.sandbox.read(posixpath.normpath(path))
        except FileNotFoundError:
            raise ToolFailure("not_found", f"no file {path}") from None
        except (OSError, ValueError):
            raise ToolFailure("permission", f"{path} is not a file to read") from None
        return _head(content.decode(errors="replace")) or "(empty)"

    @tool
    async def write(self, path: str, text: str) -> str:
        """Write a whole file."""
        try:
            await self.sandbox.write(posixpath.normpath(path), text.encode(errors="replace"))
        except (OSError, ValueError) as failure:
            full = isinstance(failure, OSError) and failure.errno == errno.ENOSPC
            raise ToolFailure("resource" if full else "permission", f"cannot write {path}") from None
        return "ok"

    async def artifacts(self) -> Mapping[str, bytes]:
        """The files that are there now."""
        return dict(await self.sandbox.files())

    async def release(self) -> None:
        await self.sandbox.close()


def _head(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    left = len(lines) - SHOWN_LINES
    return "\n".join(lines[:SHOWN_LINES]) + (f"\n({left} more lines)" if left > 0 else "")


def _printed(result: Result) -> str:
    """What a command printed, or `ok`. Raises ToolFailure with its error text and exit code, or with the
    limit that it hit."""
    text = result.stdout.decode(errors="replace")
    if result.exit == 0:
        return _head(text) or "ok"
    if result.exit is None and result.reason in ("wall", "cpu"):
        raise ToolFailure("timeout", "stopped: the command took too long")
    if result.exit is None:
        raise ToolFailure("resource", f"stopped: over a limit ({result.reason})")
    error = result.stderr.decode(errors="replace").strip() or text.strip()
    last = "\n".join(error.split("\n")[-8:])[-600:]
    raise ToolFailure("exception", f"exit {result.exit}: {last}".rstrip(": "))
