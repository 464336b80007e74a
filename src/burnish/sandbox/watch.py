"""What a running sandbox uses, seen from outside.

What this file is: one look at the process tree of a sandbox through /proc: memory, processor time, processes,
and what is hidden in files that were deleted while open or in the sandbox's own temporary filesystems.
What it is not: a limit (see `execution`) or a kernel accounting; between two looks a program can exceed what
it may by what it manages to take in that time.

Source: proc(5).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Look:
    """`memory` in bytes, shared pages counted once per process that maps them; `cpu_s` of all that live and
    of their reaped children; `tasks` counts threads. `pids` are those of the tree."""

    memory: int
    cpu_s: float
    tasks: int
    pids: tuple[int, ...]


def look(inner: int) -> Look:
    """Looks at the tree below `inner`, the first process of a sandbox, which is not counted as a task."""
    memory = tasks = ticks = 0
    pids = []
    for pid in _tree(inner):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
        except OSError:
            continue
        pids.append(pid)
        ticks += sum(map(int, fields[11:15]))
        memory += int(fields[21]) * _PAGE
        tasks += int(fields[17])
    return Look(memory, ticks / _TICK, max(0, tasks - 1), tuple(pids))


def children(pid: int) -> tuple[int, ...]:
    """The processes that it started, or that were left to it."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_bytes().split())
    return tuple(found)


def proportional_memory(pids: tuple[int, ...]) -> int:
    """Bytes that these processes take together, each shared page counted once in all. Slower than `look`."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
    return total


def deleted_bytes(pids: tuple[int, ...], device: int) -> int:
    """Bytes on `device` of files that have no name any more but are held open by these processes."""
    found: dict[int, int] = {}
    for pid in pids:
        try:
            opened = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for path in opened:
            try:
                status = path.stat()
            except OSError:
                continue
            if status.st_nlink == 0 and status.st_dev == device:
                found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def temporary(inner: int, directory: str) -> tuple[int, int]:
    """(bytes, entries) in a temporary filesystem mounted at `directory` inside the sandbox of `inner`;
    nothing while bubblewrap is still at work and the root of `inner` is the host's."""
    try:
        if Path(f"/proc/{inner}/root").samefile("/"):
            return 0, 0
        status = os.statvfs(f"/proc/{inner}/root{directory}")
    except OSError:
        return 0, 0
    return (status.f_blocks - status.f_bfree) * status.f_frsize, status.f_files - status.f_ffree


def _tree(root: int) -> Iterator[int]:
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children(pid)
