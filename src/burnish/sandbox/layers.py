"""Frozen directories on which forked workspaces lie, and the one view that they give together.

What this file is: `Layer`, a directory that nobody writes to any more, removed when its last holder lets go;
`View`, what a command is shown; and `Stack`, which finds a path in a pile of directories by the rules of
overlayfs, without a mount.
What it is not: a mount (see `bubblewrap`). Hostile code has written all of these directories: nothing here
follows a link.

Source: the Linux kernel's Documentation/filesystems/overlayfs.rst. A character device 0:0 hides a name of the
directories below; `user.overlay.opaque` on a directory hides what lies below it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish.sandbox.beneath import open_beneath

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY

MAX_DEPTH = 64
"""Directories that may lie within one another: looking into deeper ones would take us too long."""

_OPAQUE = "user.overlay.opaque"

Kind = Literal["absent", "hidden", "directory", "opaque", "other"]


@dataclass(frozen=True, slots=True)
class View:
    """What /work shows: the directory `upper`, which is written to, and under it the frozen `below`, the
    uppermost first; overlayfs then needs `scratch` for itself. `copy`, if given, is bound at /copy. All of them
    are absolute."""

    upper: Path
    below: tuple[Path, ...] = ()
    scratch: Path | None = None
    copy: Path | None = None


class Layer:
    """A frozen directory. `hold` and `release` count who needs it; `remove` is called when nobody does."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self._holders = 1

    def hold(self) -> Layer:
        self._holders += 1
        return self

    def release(self) -> bool:
        """True when this was the last holder: the directory is then the caller's to remove."""
        self._holders -= 1
        if self._holders == 0:
            os.close(self.fd)
            return True
        return False


class Stack:
    """Directories by descriptor, the uppermost first. What is in the first one wins."""

    def __init__(self, fds: Sequence[int]) -> None:
        self._fds = tuple(fds)

    def find(self, path: str) -> list[int]:
        """The directories that `path` is in: one, or for a directory all that are merged in it. Where something
        else than a directory stands on the way, the one that has it. Raises FileNotFoundError."""
        live = list(self._fds)
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for end in range(1, len(parts) + 1):
            live, is_directory = self._narrow(live, "/".join(parts[:end]))
            if not live:
                raise FileNotFoundError(path)
            if not is_directory:
                break
        return live

    def entries(self) -> Iterator[tuple[str, int, os.stat_result]]:
        """(path, the directory that it is in, status) of everything that can be seen but directories, and but
        what is deeper than `MAX_DEPTH`."""
        waiting = [("", list(self._fds))]
        while waiting:
            directory, live = waiting.pop()
            if directory.count("/") >= MAX_DEPTH:
                continue
            below: dict[str, list[int]] = {}
            closed: set[str] = set()
            for fd in live:
                for name, status in listing(fd, directory):
                    if name in closed:
                        continue
                    path = f"{directory}/{name}" if directory else name
                    kind = _kind(fd, path, status)
                    if kind in ("directory", "opaque"):
                        below.setdefault(name, []).append(fd)
                    elif kind == "other" and name not in below:
                        yield path, fd, status
                    if kind != "directory":
                        closed.add(name)
            waiting += [(f"{directory}/{name}" if directory else name, fds) for name, fds in below.items()]

    def _narrow(self, live: Sequence[int], path: str) -> tuple[list[int], bool]:
        """Of the directories `live`, in which all that leads to `path` is a directory, those that show it."""
        found: list[int] = []
        for fd in live:
            kind = look(fd, path)
            if kind == "other" and not found:
                return [fd], False
            if kind in ("directory", "opaque"):
                found.append(fd)
            if kind in ("hidden", "opaque", "other"):
                break
        return found, True


def look(fd: int, path: str) -> Kind:
    """What one directory has at `path`."""
    try:
        handle = open_beneath(fd, path, os.O_PATH)
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except PermissionError:  # a link: it hides what lies below, and is not followed
        return "other"
    try:
        return _kind(fd, path, os.fstat(handle))
    finally:
        os.close(handle)


def hide_below(fd: int) -> None:
    """Makes an open directory hide what lies below it."""
    os.setxattr(fd, _OPAQUE, b"y")


def _kind(fd: int, path: str, status: os.stat_result) -> Kind:
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
        return "hidden"
    if not stat.S_ISDIR(status.st_mode):
        return "other"
    with suppress(OSError):  # no such attribute, or a filesystem without any
        handle = open_beneath(fd, path, DIRECTORY)
        try:
            return "opaque" if os.getxattr(handle, _OPAQUE) == b"y" else "directory"
        finally:
            os.close(handle)
    return "directory"


def enter(fd: int, directory: str) -> int:
    """Opens a directory below `fd`, "" for itself. One that is closed to its owner is opened to him first:
    what we cannot see we cannot count. Raises OSError where it is no directory any more."""
    if not directory:
        return os.open(".", DIRECTORY, dir_fd=fd)
    try:
        return open_beneath(fd, directory, DIRECTORY)
    except PermissionError:
        handle = open_beneath(fd, directory, os.O_PATH | os.O_DIRECTORY)
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
        return open_beneath(fd, directory, DIRECTORY)


def listing(fd: int, directory: str) -> Iterator[tuple[str, os.stat_result]]:
    """(name, status) of all that lies in a directory below `fd`; nothing where it is none any more."""
    try:
        handle = enter(fd, directory)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # removed or replaced while we looked
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False)
    finally:
        os.close(handle)
