"""sandbox run, sandbox abuse: a command behind the walls, and everything that is known to be tried on them.

What this file is: a command in an empty sandbox; and the abuse corpus as a table.
What it is not: the corpus (see `sandbox.abuse`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from burnish.commands.asking import arbiter
from burnish.commands.output import Stopped, emit, note, say, table
from burnish.observe.progress import LiveView
from burnish.sandbox.abuse.case import Case
from burnish.sandbox.abuse.corpus import CASES, Verdict, run_case
from burnish.sandbox.local import LocalSandboxes
from burnish.sandbox.verdicts import Arbiter
from burnish.types import Limits, Result, UsageError


def run_abuse(names: Sequence[str], as_json: bool) -> int:
    """Runs the corpus, or the cases whose names hold one of `names`. Returns 1 when one escaped."""
    cases = [case for case in CASES if not names or any(name in case.id for name in names)]
    if not cases:
        raise UsageError(
            f"no case is named {' or '.join(names)}: burnish sandbox abuse --json lists all names"
        )
    try:
        verdicts = asyncio.run(_tried(cases))
    except KeyboardInterrupt:
        raise Stopped("stopped; nothing of the cases is left") from None
    counts = {o: sum(v.outcome == o for v in verdicts) for o in ("held", "escaped", "does not apply")}
    if as_json:
        emit({"ok": not counts["escaped"], "counts": counts, "cases": [_row(v) for v in verdicts]})
    else:
        rows = [[v.case.id, v.outcome, v.case.layer, v.seen, f"{v.milliseconds:.0f}"] for v in verdicts]
        table(("case", "outcome", "stopped by", "how", "ms"), rows, numbers_from=4)
        say(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count))
    return 1 if counts["escaped"] else 0


async def _tried(cases: Sequence[Case]) -> list[Verdict]:
    verdicts = []
    async with LocalSandboxes() as sandboxes:
        with LiveView() as view:
            view.phase("abuse", len(cases))
            for case in cases:
                verdicts.append(await run_case(case, sandboxes))
                view.advance(escaped=float(sum(v.outcome == "escaped" for v in verdicts)))
    return verdicts


def _row(verdict: Verdict) -> dict[str, object]:
    case = verdict.case
    return {
        "case": case.id, "number": case.number, "layer": case.layer, "outcome": verdict.outcome,
        "seen": verdict.seen, "ms": round(verdict.milliseconds, 1),
    }  # fmt: skip


def sandbox_run(
    command: Sequence[str], wall_s: float, memory_mb: int, piped: bool, policy: str | None, as_json: bool
) -> int:
    """Runs a command in an empty workspace. Returns its exit code, or 1 where a limit ended it. `piped`
    passes standard input on; otherwise the command has none. `policy` names what it may reach."""
    if not command:
        raise UsageError("there is no command: burnish sandbox run -- python3 -c 'print(6 * 7)'")
    if not wall_s > 0 or memory_mb < 1:
        raise UsageError("--wall and --memory must be positive")
    limits = replace(Limits(), wall_s=wall_s, cpu_s=wall_s, memory=memory_mb << 20)
    decides = arbiter(policy, free=not piped)
    stdin = sys.stdin.buffer.read() if piped else b""
    try:
        result = asyncio.run(_sandboxed(command, stdin, limits, decides))
    except KeyboardInterrupt:
        raise Stopped("stopped; the command and its workspace are gone") from None
    if as_json:
        texts = {n: getattr(result, n).decode(errors="replace") for n in ("stdout", "stderr")}
        emit({**asdict(result), **texts})
    else:
        say(result.stdout.decode(errors="replace"), end="")
        sys.stderr.flush()
        if result.stderr:
            note(result.stderr.decode(errors="replace").rstrip("\n"))
        note(_usage(result))
    return 1 if result.exit is None else result.exit


async def _sandboxed(command: Sequence[str], stdin: bytes, limits: Limits, decides: Arbiter | None) -> Result:
    sandboxes = LocalSandboxes(limits=limits, arbiter=decides)
    async with sandboxes, await sandboxes.open() as sandbox:
        return await sandbox.run(list(command), stdin)


def _usage(result: Result) -> str:
    ended = f"exit {result.exit}" if result.exit is not None else f"ended by the sandbox: {result.reason}"
    dropped = f", {result.dropped} bytes of output dropped" if result.dropped else ""
    peak = f"{result.peak_memory / (1 << 20):.1f} MiB"
    return f"({ended}; {result.wall_s:.3f} s, {result.cpu_s:.3f} s of CPU, {peak}{dropped})"
