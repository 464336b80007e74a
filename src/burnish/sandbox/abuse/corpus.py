"""Running the corpus: every case in a sandbox of its own, and what may be left of it, which is nothing.

What this file is: `CASES`, in the order of their numbers, and `run_case`.
What it is not: the cases (see the files beside).
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Literal

from burnish.sandbox.abuse import copies, escapes, outward, quotas
from burnish.sandbox.abuse.case import Case, Escaped, Ground
from burnish.sandbox.abuse.copies import descendants
from burnish.sandbox.image import find_step
from burnish.sandbox.lease import state_directory
from burnish.sandbox.local import LocalSandboxes
from burnish.types import InfrastructureError

CASES: tuple[Case, ...] = tuple(
    sorted((*quotas.CASES, *escapes.CASES, *outward.CASES, *copies.CASES), key=lambda case: case.number)
)

LAST_S = 120.0
"""Seconds after which a case that has not ended has escaped."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one case. `seen` says it in words."""

    case: Case
    outcome: Literal["held", "escaped", "does not apply"]
    seen: str
    milliseconds: float


async def run_case(case: Case, sandboxes: LocalSandboxes) -> Verdict:
    """Tries one case. Afterwards no process may survive and no workspace be left, or it has escaped, too."""
    lacking = _lacking(case)
    if lacking:
        return Verdict(case, "does not apply", lacking, 0.0)
    begin = time.monotonic()
    sandbox = await sandboxes.open()
    try:
        try:
            seen = await asyncio.wait_for(case.attempt(Ground(sandboxes, sandbox)), LAST_S)
        finally:
            await sandbox.close()
        _nothing_left(sandboxes, sandbox.path.exists())
    except (Escaped, TimeoutError, OSError, ValueError) as error:
        return Verdict(case, "escaped", str(error) or type(error).__name__, _since(begin))
    except InfrastructureError as error:
        return Verdict(case, "escaped", f"the sandbox itself failed: {error}", _since(begin))
    return Verdict(case, "held", seen, _since(begin))


def _lacking(case: Case) -> str:
    if case.needs == "root" and os.geteuid() != 0:
        return "an ordinary user's sandboxes share the user's id"
    if case.needs == "Landlock" and find_step(state_directory()) is None:
        return "no Landlock in this kernel, or no C compiler for the step that sets it"
    return ""


def _nothing_left(sandboxes: LocalSandboxes, workspace: bool) -> None:
    if workspace:
        raise Escaped("the workspace was not removed")
    left = descendants(sandboxes.spawner) if sandboxes.spawner is not None else []
    if left:
        raise Escaped(f"processes survived: {left}")


def _since(begin: float) -> float:
    return (time.monotonic() - begin) * 1e3
