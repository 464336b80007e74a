"""A directory that untrusted code writes to, handled from outside.

What this file is: reading, writing, measuring and removing such a directory without being tricked by links,
FIFOs, devices, `..`, permissions, endless depth or endless size.
What it is not: it isolates nothing; see `bubblewrap`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from burnish.sandbox.beneath import open_beneath

MAX_FILES = 10_000
"""Files, directories, links and so on that one workspace may hold."""

MAX_DEPTH = 64
"""Directories that may lie within one another: looking into deeper ones would take us too long."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@dataclass(frozen=True, slots=True)
class Usage:
    """What a workspace takes: bytes on disk and number of entries. `hidden` says that a part of it is
    deeper than `MAX_DEPTH`, and was not looked into."""

    size: int
    entries: int
    hidden: bool

    def exceeds(self, disk: int) -> bool:
        return self.hidden or self.size > disk or self.entries > MAX_FILES


class Workspace:
    """One workspace, open. `owner` is the uid and gid that files written here get; None leaves them ours."""

    def __init__(self, path: Path, owner: int | None) -> None:
        path.mkdir(mode=0o700)
        self.path = path
        self._owner = owner
        self._fd = os.open(path, _DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.device = os.fstat(self._fd).st_dev
        self._own(self._fd)

    def read(self, path: str, max_bytes: int) -> bytes:
        """Raises FileNotFoundError; PermissionError for anything but a regular file of the workspace; and
        OSError (EFBIG) where it is longer than `max_bytes`."""
        fd = self._open_regular(path, os.O_RDONLY)
        try:
            return _read_all(fd, path, max_bytes)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes, disk: int) -> None:
        """Creates missing directories. Raises PermissionError as `read` does, and OSError (ENOSPC) where the
        workspace would then hold more than `disk` bytes."""
        if self.measure().size + len(data) > disk:
            raise OSError(errno.ENOSPC, f"the workspace may hold {disk} bytes", path)
        self._make_parents(path)
        try:
            fd = self._open_regular(path, os.O_WRONLY)
        except FileNotFoundError:
            fd = open_beneath(self._fd, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            self._own(fd)
        try:
            os.ftruncate(fd, 0)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def files(self, max_bytes: int) -> dict[str, bytes]:
        """Every regular file by path, sorted. Raises OSError (EFBIG) where they are longer than `max_bytes`
        together."""
        found: dict[str, bytes] = {}
        left = max_bytes
        for directory, entry, status in self._entries():
            if status is None or not stat.S_ISREG(status.st_mode):
                continue
            path = f"{directory}/{entry}" if directory else entry
            try:
                found[path] = self.read(path, left)
            except (FileNotFoundError, PermissionError):  # gone, replaced or closed to us: not a file to keep
                continue
            left -= len(found[path])
        return dict(sorted(found.items()))

    def measure(self, most: int = MAX_FILES) -> Usage:
        """Looks no further once more than `most` entries were seen."""
        size = entries = 0
        hidden = False
        for _, _, status in self._entries():
            entries += 1
            if status is None:
                hidden = True
            elif status.st_nlink == 1 or not stat.S_ISREG(status.st_mode):
                size += status.st_blocks * 512
            else:
                size += status.st_blocks * 512 // status.st_nlink
            if hidden or entries > most:
                break
        return Usage(size, entries, hidden)

    def growth(self) -> tuple[int, int]:
        """(bytes, entries) in use on the whole filesystem: cheap, and a hint that it is time to `measure`."""
        status = os.fstatvfs(self._fd)
        return (status.f_blocks - status.f_bfree) * status.f_frsize, status.f_files - status.f_ffree

    def remove(self) -> None:
        """Idempotent. Nothing may run in the workspace any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            remove_tree(self.path)

    def _entries(self) -> Iterator[tuple[str, str, os.stat_result | None]]:
        """(directory, name, status) of everything in the workspace; status None for a directory that is too
        deep to be entered. Directories are kept open to their owner: what we cannot see we cannot count."""
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            if directory.count("/") >= MAX_DEPTH:
                yield directory, "", None
                continue
            try:
                fd = self._enter(directory)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # removed or replaced while we looked
            try:
                with os.scandir(fd) as listing:
                    for entry in listing:
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue
                        if stat.S_ISDIR(status.st_mode):
                            waiting.append(f"{directory}/{entry.name}" if directory else entry.name)
                        yield directory, entry.name, status
            finally:
                os.close(fd)

    def _enter(self, directory: str) -> int:
        if not directory:
            return os.open(".", _DIRECTORY, dir_fd=self._fd)
        try:
            return open_beneath(self._fd, directory, _DIRECTORY)
        except PermissionError:
            handle = open_beneath(self._fd, directory, os.O_PATH | os.O_DIRECTORY)
            try:
                Path(f"/proc/self/fd/{handle}").chmod(0o700)
            finally:
                os.close(handle)
            return open_beneath(self._fd, directory, _DIRECTORY)

    def _open_regular(self, path: str, flags: int) -> int:
        try:
            # O_NONBLOCK: a FIFO or a device must not make us wait before we know what it is.
            fd = open_beneath(self._fd, path, flags | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.ENXIO, errno.ENODEV):
                raise PermissionError(errno.EPERM, "not a regular file", path) from error
            if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise PermissionError(errno.EPERM, "not a regular file", path)
        return fd

    def _make_parents(self, path: str) -> None:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or ".." in parts or not parts or path.endswith("/"):
            raise PermissionError(errno.EPERM, "not a path inside the workspace", path)
        current = os.dup(self._fd)
        try:
            for part in parts[:-1]:
                try:
                    os.mkdir(part, 0o755, dir_fd=current)
                    created = True
                except FileExistsError:
                    created = False
                following = open_beneath(current, part, _DIRECTORY)
                os.close(current)
                current = following
                if created:
                    self._own(current)
        except NotADirectoryError as error:
            raise PermissionError(errno.EPERM, "a file stands where a directory is needed", path) from error
        finally:
            os.close(current)

    def _own(self, fd: int) -> None:
        if self._owner is not None:
            os.fchown(fd, self._owner, self._owner)


def remove_tree(path: Path) -> None:
    """Removes a directory that hostile code has filled, and cannot be made to recurse or to follow a link.

    Every directory met is first moved to the top, so that no path is longer than two names however deep the
    tree was. A missing directory is no error."""
    try:
        top = os.open(path, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        moved = 0
        while True:
            os.fchmod(top, 0o700)
            with os.scandir(top) as listing:
                names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
            if not names:
                break
            for name, is_directory in names:
                if is_directory:
                    moved = _flatten(top, name, moved)
                else:
                    os.unlink(name, dir_fd=top)
    finally:
        os.close(top)
    path.rmdir()


def _flatten(top: int, name: str, moved: int) -> int:
    """Empties directory `name` of `top`, moving its directories into `top`, and removes it."""
    try:
        os.rmdir(name, dir_fd=top)
        return moved
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    os.chmod(name, 0o700, dir_fd=top)
    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        with os.scandir(fd) as listing:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
        for inner, is_directory in entries:
            if not is_directory:
                os.unlink(inner, dir_fd=fd)
                continue
            os.chmod(inner, 0o700, dir_fd=fd)
            while True:
                moved += 1
                try:
                    os.rename(inner, f".removed-{moved}", src_dir_fd=fd, dst_dir_fd=top)
                except OSError as error:
                    if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                        continue  # the hostile code guessed our name for it
                    raise
                break
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)
    return moved


def _read_all(fd: int, path: str, max_bytes: int) -> bytes:
    if os.fstat(fd).st_size > max_bytes:
        raise OSError(errno.EFBIG, f"longer than the {max_bytes} bytes that were asked for", path)
    pieces = bytearray()
    while piece := os.read(fd, 1 << 20):
        pieces += piece
        if len(pieces) > max_bytes:
            raise OSError(errno.EFBIG, f"longer than the {max_bytes} bytes that were asked for", path)
    return bytes(pieces)
