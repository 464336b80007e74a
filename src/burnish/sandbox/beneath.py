"""Opening files below a directory that hostile code has written to.

What this file is: one function, `open_beneath`, which never leaves its directory and never follows a link.
What it is not: it decides nothing about what a path may be used for; see `workspace`.

Source: openat2(2). Kernels before 5.6 have no openat2; a walk of single components, each opened with
O_NOFOLLOW relative to its parent, gives the same guarantee there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

_OPENAT2 = 437  # the same number on every architecture that Linux 5.6 and later support
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV | NO_MAGICLINKS | NO_SYMLINKS | BENEATH
_RACED = 64

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(directory: int, path: str, flags: int, mode: int = 0) -> int:
    """Opens `path` relative to the descriptor `directory`; returns a new descriptor.

    Raises PermissionError for an absolute path, for `..`, a symbolic link or another filesystem anywhere on
    the way, and for a name that no file can have; otherwise the OSError of the kernel.
    """
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise _refused(path)
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(_RACED):
        try:
            return _openat2(directory, path or ".", flags, mode)
        except OSError as error:
            if error.errno == errno.EAGAIN:  # a rename or a mount elsewhere raced with the lookup
                continue
            if error.errno in (errno.ENOSYS, errno.EPERM):
                return _walk(directory, path, flags, mode)
            if error.errno in (errno.ELOOP, errno.EXDEV):
                raise _refused(path) from error
            raise
    raise _refused(path)


def _openat2(directory: int, path: str, flags: int, mode: int) -> int:
    how = _OpenHow(flags, mode, _RESOLVE)
    name = ctypes.c_char_p(os.fsencode(path))
    fd = _libc.syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(directory), name, ctypes.byref(how), ctypes.c_size_t(24)
    )
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(fd)


def _walk(directory: int, path: str, flags: int, mode: int) -> int:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    device = os.fstat(directory).st_dev
    current = os.dup(directory)
    try:
        for part in parts[:-1]:
            following = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = following
            status = os.fstat(current)
            if stat.S_ISLNK(status.st_mode) or status.st_dev != device:
                raise _refused(path)
        return os.open(parts[-1] if parts else ".", flags, mode, dir_fd=current)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _refused(path) from error
        raise
    finally:
        os.close(current)


def _refused(path: str) -> PermissionError:
    return PermissionError(errno.EPERM, "a link, or not a path inside the workspace", path)
