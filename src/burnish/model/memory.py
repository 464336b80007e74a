"""Keeping freed memory, up to a point.

What this file is: one call that asks glibc not to hand large blocks back to the kernel, since training allocates and
frees the same gigabytes at every step, and page faults took a tenth of the time; and one that hands back what has
piled up between steps of different sizes, which otherwise grows for as long as a run lasts.
What it is not: an allocator. Where the C library is another one, nothing happens.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

SURPLUS = 3 << 30
"""Bytes that a step of training frees and takes again."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory() -> bool:
    """Idempotent; whether the C library took the settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_ARENA_MAX, 1), (_M_TOP_PAD, 256 << 20))
    return all(mallopt(name, value) for name, value in settings)


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    ))  # fmt: skip


def return_surplus(bytes_kept: int = SURPLUS) -> bool:
    """Hands freed memory back to the kernel where more than `bytes_kept` of it are resident and idle; whether it
    did. Source: mallinfo(3), malloc_trim(3), proc(5)."""
    library = ctypes.CDLL(None)
    try:
        mallinfo, trim = library.mallinfo2, library.malloc_trim
    except AttributeError:  # glibc before 2.33, or none
        return False
    mallinfo.restype = _Mallinfo2
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return bool(resident - mallinfo().uordblks > bytes_kept and trim(0))
