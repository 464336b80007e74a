"""agent: a model works on a copy of a directory, in a sandbox, before your eyes.

What this file is: the episode around one task of the user's own, its steps as they happen, and what is done
with the changed files at the end.
What it is not: it never writes into the directory but with `--apply`, after the difference was shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from burnish.agent.loop import run_episode
from burnish.agent.policy import ModelPolicy
from burnish.commands.asking import arbiter
from burnish.commands.changes import Changes, check_free, copy
from burnish.commands.models import FoundModel, find_model, home, opened
from burnish.commands.output import Stopped, emit, note, say, visible
from burnish.observe.audit import Audit, AuditLog, Kind
from burnish.rewards.outcome import final_answer
from burnish.sandbox.local import LocalSandboxes
from burnish.tools.guard import GuardedSession
from burnish.tools.shell import LIMITS, ShellSession
from burnish.tools.tool import tools_of
from burnish.types import Budget, BurnishError, Message, Sampling, Task, Trajectory, UsageError


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for. `turn_tokens` bounds one turn; `apply` writes the changes back, after a question
    unless `sure`; `out` keeps the changed copy; `log` is the audit log's file; `policy` names what its tools and
    commands may do."""

    text: str
    workdir: Path
    turns: int = 20
    turn_tokens: int = 512
    context: int = 4096
    temperature: float = 0.0
    seed: int = 0
    apply: bool = False
    sure: bool = False
    out: Path | None = None
    log: Path | None = None
    policy: str | None = None

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise UsageError(
                'the task is empty; say what to do: burnish agent MODEL "count the lines of a.txt"'
            )
        if self.turns < 1 or self.turn_tokens < 1 or self.temperature < 0:
            raise UsageError("--turns and --turn-tokens must be at least 1, and --temperature at least 0")
        if self.apply and not self.sure and not sys.stdin.isatty():
            raise UsageError("--apply asks before it writes, and nobody is there to answer: add --yes")
        if self.out is not None:
            check_free(self.out)


@dataclass(frozen=True, slots=True)
class Watched:
    """An audit log whose events are also shown as they come."""

    log: Audit
    show: Callable[[Kind, Mapping[str, Any]], None]

    def append(self, kind: Kind, data: Mapping[str, Any]) -> None:
        self.log.append(kind, data)
        self.show(kind, data)


def agent(model: str, request: Request, as_json: bool) -> int:
    """Exit code: 0 when the agent answered, 1 when a limit or a failure of ours ended it."""
    copied = copy(request.workdir)
    found = find_model(model)
    if copied.left_out:
        note(f"not copied from {request.workdir}, being links or unreadable: {copied.left_out}")
    log = request.log or _log_path()
    try:
        with AuditLog(log) as audit:
            shown = Watched(audit, _show_on(note if as_json else say))
            trajectory, after = asyncio.run(_work(found, request, copied.files, shown))
    except KeyboardInterrupt:
        raise Stopped(f"stopped; {request.workdir} was not changed") from None
    changes = Changes(copied.files, after)
    if as_json:
        emit(_as_data(found, trajectory, changes, log))
    else:
        _show_end(trajectory, changes)
    _keep(changes, request, as_json)
    return 0 if trajectory.status is not None and trajectory.status.kind == "completed" else 1


async def _work(
    found: FoundModel, request: Request, files: Mapping[str, bytes], audit: Audit
) -> tuple[Trajectory, Mapping[str, bytes]]:
    """The episode, and the files that were there at its end."""
    task = Task(
        "agent", "agent", (Message("user", request.text),), tools_of(ShellSession),
        Budget(turns=request.turns), {}, {},
    )  # fmt: skip
    audit.append("run", {"task": request.text, "model": found.name, "files": len(files)})
    decides = arbiter(request.policy, audit)
    sandboxes = LocalSandboxes(limits=LIMITS, audit=audit, arbiter=decides)
    async with sandboxes, await sandboxes.open() as sandbox:
        for path, content in files.items():
            await sandbox.write(path, content)
        async with opened(found, 1, request.context) as (engine, renderer):
            sampling = Sampling(request.temperature, request.turn_tokens)
            policy = ModelPolicy(engine, renderer, sampling, engine.context)
            shell = ShellSession(sandbox)
            session = shell if decides is None else GuardedSession(shell, decides)
            lineage = {"model": found.name, "version": found.version, "seed": request.seed}
            trajectory = await run_episode(policy, session, task, id="agent", lineage=lineage, audit=audit)
            try:
                return trajectory, await shell.artifacts()
            except OSError as error:
                raise BurnishError(f"the agent left files that cannot be read back: {error}") from None


def _log_path() -> Path:
    """A log of its own for each task, by time and process."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return home("XDG_STATE_HOME", ".local/state") / "agent" / f"{stamp}-{os.getpid()}" / "events.jsonl"


def _show_on(out: Callable[[str], None]) -> Callable[[Kind, Mapping[str, Any]], None]:
    def show(kind: Kind, data: Mapping[str, Any]) -> None:
        if kind == "model_call":
            out(f"[{data['turn'] + 1}] {data['content'].strip()}")
        elif kind == "tool_call":
            failed = f" ({data['error']})" if data["error"] else ""
            out("\n".join(f"    {line}" for line in (data["content"] or "(nothing)").splitlines()) + failed)

    return show


def _show_end(trajectory: Trajectory, changes: Changes) -> None:
    say()
    say(changes.diff() or "no file was changed\n", end="")
    for path in changes.refused:
        say(f"left out: {path}")
    status = trajectory.status
    if status is not None and status.kind == "completed":
        say(f"\nanswer: {final_answer(trajectory)}")
    elif status is not None:
        say(f"\nno answer: {status.kind} ({status.reason})")


def _as_data(found: FoundModel, trajectory: Trajectory, changes: Changes, log: Path) -> dict[str, Any]:
    status = trajectory.status
    steps = [
        {"turn": e.turn, **{k: e.data[k] for k in ("name", "arguments", "content", "error")}}
        for e in trajectory.events
        if e.kind == "tool"
    ]
    return {
        "model": found.name,
        "status": None if status is None else {"kind": status.kind, "reason": status.reason},
        "answer": final_answer(trajectory) if status is not None and status.kind == "completed" else None,
        "steps": json.loads(json.dumps(steps, default=str)),
        "costs": trajectory.costs,
        "changed": list(changes.changed),
        "left_out": list(changes.refused),
        "diff": visible(changes.diff()),
        "log": str(log),
    }


def _keep(changes: Changes, request: Request, as_json: bool) -> None:
    tell = note if as_json else say
    if request.out is not None:
        changes.save(request.out)
        tell(f"the changed copy is in {request.out}")
    if not request.apply or not changes.changed:
        return
    if not request.sure:
        answer = input(f"write {len(changes.changed)} files into {request.workdir}? [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            tell("nothing was written")
            return
    changes.apply(request.workdir)
    tell(f"wrote {len(changes.changed)} files into {request.workdir}")
