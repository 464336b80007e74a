"""Keeping freed memory.

What this file is: one call that asks glibc not to hand large blocks back to the kernel. Training allocates and frees
the same gigabytes at every step, and page faults took a tenth of the time.
What it is not: an allocator. Where the C library is another one, nothing happens.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory() -> bool:
    """Idempotent; whether the C library took the settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_ARENA_MAX, 1), (_M_TOP_PAD, 256 << 20))
    return all(mallopt(name, value) for name, value in settings)
