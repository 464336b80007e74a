"""What the domains that work on files share: a task as it is drawn, the world in a sandbox, the verifier.

What this file is: drafts (a task's text, its tree of files, its shortest way, what is to be true at the end),
the tools over a sandbox's files with their short observations, and the domain that both make.
What it is not: it knows no template; those are in `files`, `transform`, `repair`, `terminal` and `iterate`.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Protocol

from burnish.domains.toolkit import BaseDomain, Drawn, Template, says
from burnish.interfaces import OracleScript, Sandbox
from burnish.tools.tool import ToolFailure, tool
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Limits, Result, Split, Task, ToolCall, Trajectory

SHOWN_LINES = 8
SHOWN_CHARACTERS = 320
"""How much of a file or of a command's output an observation holds: every token of it is paid for."""

MAX_COMMAND = 2000

LIMITS = Limits(wall_s=5.0, cpu_s=4.0, memory=256 << 20, processes=16, output=16 << 10, disk=16 << 20)


class Sandboxes(Protocol):
    """A factory of sandboxes, each a fresh workspace."""

    async def open(self) -> Sandbox: ...


Files = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Draft:
    """A task as a template draws it. `files` is the tree at the start; `plan` the calls of the shortest way,
    of which `errors` fail; `answer` what is to be said at the end and `others` what must not be said beside
    it, or None where only `goal` counts: the files that are to be there. `reply` is how the oracle says the
    answer, where that is more than the answer. `secret` is for a domain's own verifier."""

    text: str
    files: Files
    plan: Sequence[tuple[str, Mapping[str, str]]]
    answer: str | None = None
    others: Sequence[str] = ()
    goal: Files | None = None
    reply: str | None = None
    errors: int = 0
    secret: Mapping[str, Any] = field(default_factory=dict)

    def drawn(self) -> Drawn:
        secret: dict[str, Any] = {
            "answer": self.answer,
            "reply": self.reply or self.answer or "done",
            "others": [other for other in self.others if other != self.answer],
            "goal": None if self.goal is None else dict(self.goal),
            "plan": [[name, dict(arguments)] for name, arguments in self.plan],
            "errors": self.errors,
        }
        return Drawn(self.text, {"files": dict(self.files)}, secret | dict(self.secret))


def templates(
    train: Mapping[str, Callable[[Random], Draft]], heldout: Mapping[str, Callable[[Random], Draft]]
) -> tuple[Template, ...]:
    """Templates of drafts, given by name."""

    def made(name: str, split: Split, draft: Callable[[Random], Draft]) -> Template:
        return Template(name, split, lambda rng: draft(rng).drawn())

    return (
        *(made(name, "train", draft) for name, draft in train.items()),
        *(made(name, "heldout", draft) for name, draft in heldout.items()),
    )


def clip(text: str, most: int = SHOWN_LINES) -> str:
    """The head of a long text, at most so many lines, and how many lines were left out. What is no text (a
    file's name may be any bytes) becomes a question mark."""
    lines = text.encode(errors="replace").decode().rstrip("\n").split("\n")
    head = "\n".join(lines[:most])
    shown = head if len(head) <= SHOWN_CHARACTERS else head[: SHOWN_CHARACTERS - 3] + "..."
    left = len(lines) - shown.count("\n") - 1
    return shown if left <= 0 else f"{shown}\n({left} more lines)"


def printed(result: Result) -> str:
    """What a command printed, or `ok`. Raises ToolFailure with the end of its error text and its exit code,
    or with the limit that it hit."""
    text = result.stdout.decode(errors="replace")
    if result.exit == 0:
        return clip(text) or "ok"
    if result.exit is None and result.reason in ("wall", "cpu"):
        raise ToolFailure("timeout", "stopped: the command took too long")
    if result.exit is None:
        raise ToolFailure("resource", f"stopped: over a limit ({result.reason})")
    error = result.stderr.decode(errors="replace").strip() or text.strip()
    raise ToolFailure("exception", f"exit {result.exit}: {error.split(chr(10))[-1][-200:]}".rstrip(": "))


class FileWorld(World):
    """A world that is one sandbox's workspace."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    async def artifacts(self) -> Mapping[str, bytes]:
        """The files that were left; none where the agent left more than can be read. The sandbox closes with
        them, since a grader may wait for its place."""
        try:
            return dict(await self.sandbox.files())
        except OSError:
            return {}
        finally:
            await self.sandbox.close()

    async def release(self) -> None:
        await self.sandbox.close()

    async def content(self, path: str) -> bytes:
        """Of a regular file. Raises ToolFailure."""
        try:
            return await self.sandbox.read(posixpath.normpath(path))
        except FileNotFoundError:
            raise ToolFailure("not_found", f"no file {path}") from None
        except (OSError, ValueError):
            raise ToolFailure("permission", f"{path} is not a file to read") from None

    async def store(self, path: str, data: bytes) -> str:
        """Writes a file. Raises ToolFailure."""
        try:
            await self.sandbox.write(posixpath.normpath(path), data)
        except (OSError, ValueError) as failure:
            full = isinstance(failure, OSError) and failure.errno == errno.ENOSPC
            raise ToolFailure("resource" if full else "permission", f"cannot write {path}") from None
        return "ok"

    async def entries(self, path: str) -> str:
        """What lies in a folder. Raises ToolFailure."""
        folder = posixpath.normpath(path)
        prefix = "" if folder == "." else folder + "/"
        below = [name.removeprefix(prefix) for name in await self.sandbox.files() if name.startswith(prefix)]
        if not below:
            raise ToolFailure("not_found", f"no file or folder {path}")
        return clip("\n".join(sorted({name.split("/")[0] for name in below})))


class ShellWorld(FileWorld):
    @tool
    async def run(self, command: str) -> str:
        """Run a shell command."""
        if "\0" in command or len(command) > MAX_COMMAND:
            raise ToolFailure("malformed", "a command is one short line of text")
        return printed(await self.sandbox.run(["sh", "-c", command], limits=LIMITS))


def said_right(task: Task, answer: str) -> bool:
    """Whether the answer says the gold and no other candidate."""
    secret = task.secret
    return says(answer, secret["answer"], secret["others"], task.prompt[-1].content)


def reached(goal: Files, tree: Mapping[str, bytes], exact: bool) -> bool:
    """Whether the goal's files are there, but for newlines at their ends; if `exact`, and no others."""
    if exact and tree.keys() != goal.keys():
        return False
    return all(
        path in tree and tree[path].rstrip(b"\n") == content.encode().rstrip(b"\n")
        for path, content in goal.items()
    )


class FileDomain(BaseDomain):
    """A domain of drafts over one sandboxed workspace. `exact`: a task with a goal leaves no other files."""

    world: ClassVar[type[FileWorld]]
    budget: ClassVar[Budget] = Budget(turns=7, tokens=400, tool_calls=6)
    exact: ClassVar[bool] = False

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes

    async def open(self, task: Task) -> FileWorld:
        sandbox = await self.sandboxes.open()
        try:
            for path, content in task.setup["files"].items():
                await sandbox.write(path, content.encode())
        except BaseException:
            await sandbox.close()
            raise
        return type(self).world(sandbox)

    def verify(
        self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory
    ) -> float | Awaitable[float]:
        """1 where the answer is right and the tree that was left is the goal, each if the task has one."""
        secret = task.secret
        right = secret["answer"] is None or said_right(task, answer)
        left = secret["goal"] is None or reached(secret["goal"], evidence.artifacts, self.exact)
        return float(right and left)

    def oracle(self, task: Task) -> OracleScript:
        """The shortest way, and the answer if just the calls failed that were to fail."""
        errors = 0
        for name, arguments in task.secret["plan"]:
            errors += (yield ToolCall(name, arguments)).error is not None
        yield task.secret["reply"] if errors == task.secret["errors"] else "I could not do it."
