"""A directory that untrusted code writes to, handled from outside.

What this file is: reading, writing, measuring, freezing and removing such a directory, and what lies frozen
below it, without being tricked by links, FIFOs, devices, `..`, permissions, endless depth or endless size.
What it is not: it isolates nothing; see `bubblewrap`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from burnish.sandbox.beneath import open_beneath
from burnish.sandbox.layers import DIRECTORY, MAX_DEPTH, Layer, Stack, View, hide_below, listing, look

MAX_FILES = 10_000
"""Files, directories, links and so on that one workspace may hold."""


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
    """One workspace, open: the directory `path`, which is made, on top of the layers `below`, which it holds
    and later releases. `owner` is the uid and gid that files written here get; None leaves them ours."""

    def __init__(self, path: Path, owner: int | None, below: Sequence[Layer] = ()) -> None:
        self.path = path
        self.scratch = path.with_name(f"{path.name}.scratch")
        self.below = tuple(layer.hold() for layer in below)
        self._owner = owner
        self._frozen = 0
        self._open()

    def _open(self) -> None:
        self._fd = _make(self.path, self._owner)
        self.device = os.fstat(self._fd).st_dev
        if self.below and not self.scratch.exists():
            os.close(_make(self.scratch, self._owner))

    def view(self, copy: Path | None = None) -> View:
        """What a command in this workspace is to be shown."""
        below = tuple(layer.path.absolute() for layer in self.below)
        return View(self.path.absolute(), below, self.scratch.absolute(), copy and copy.absolute())

    def freeze(self) -> tuple[Layer, ...]:
        """What is there never changes again, and this workspace goes on on top of it. Returns the layers,
        each held once more, for the caller to release. Nothing may run in the workspace meanwhile."""
        with os.scandir(self._fd) as entries:
            changed = next(entries, None) is not None
        if changed or not self.below:
            self._frozen += 1
            target = self.path.with_name(f"{self.path.name}.layer{self._frozen}")
            self.path.rename(target)
            self.below = (Layer(target, self._fd), *self.below)
            self._open()
        return tuple(layer.hold() for layer in self.below)

    def rest_on(self, layer: Layer) -> None:
        """Goes on, empty, on top of `layer` alone, which holds the same as all that was here. Takes over
        `layer`'s hold."""
        remove_tree(self.path)
        os.close(self._fd)
        release(self.below)
        self.below = (layer,)
        self._open()

    def read(self, path: str, max_bytes: int) -> bytes:
        """Raises FileNotFoundError; PermissionError for anything but a regular file of the workspace; and
        OSError (EFBIG) where it is longer than `max_bytes`."""
        fd = _open_regular(self._place(path), path, os.O_RDONLY)
        try:
            return _read_all(fd, path, max_bytes)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes, disk: int) -> None:
        """Creates missing directories. Raises PermissionError as `read` does, and OSError (ENOSPC) where the
        workspace would then hold more than `disk` bytes."""
        if self.measure().size + len(data) > disk:
            raise OSError(errno.ENOSPC, f"the workspace may hold {disk} bytes", path)
        self._copy_up(path)
        self._make_parents(path)
        try:
            fd = _open_regular(self._fd, path, os.O_WRONLY)
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
        for path, place, status in self._stack().entries():
            if not stat.S_ISREG(status.st_mode):
                continue
            try:
                fd = _open_regular(place, path, os.O_RDONLY)
            except (FileNotFoundError, PermissionError):  # gone, replaced or closed to us: not a file to keep
                continue
            try:
                found[path] = _read_all(fd, path, max_bytes)
            finally:
                os.close(fd)
            max_bytes -= len(found[path])
        return dict(sorted(found.items()))

    def measure(self, most: int = MAX_FILES) -> Usage:
        """Of what was written on top of the layers. Looks no further once more than `most` entries were seen."""
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
        for path in self.leave():
            remove_tree(path)

    def leave(self) -> list[Path]:
        """Closes the workspace; returns what is to be removed, which may then be done in another thread."""
        if self._fd < 0:
            return []
        os.close(self._fd)
        self._fd = -1
        return [self.path, self.scratch, *(layer.path for layer in self.below if layer.release())]

    def _entries(self) -> Iterator[tuple[str, str, os.stat_result | None]]:
        """(directory, name, status) of everything that was written here; status None for a directory that is
        too deep to be entered."""
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            if directory.count("/") >= MAX_DEPTH:
                yield directory, "", None
                continue
            for name, status in listing(self._fd, directory):
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(f"{directory}/{name}" if directory else name)
                yield directory, name, status

    def _stack(self) -> Stack:
        return Stack([self._fd, *(layer.fd for layer in self.below)])

    def _place(self, path: str) -> int:
        """The directory in which `path` is to be looked up; what is no path is for `open_beneath` to refuse."""
        if not self.below or not _parts(path):
            return self._fd
        try:
            return self._stack().find(path)[0]
        except FileNotFoundError:
            return self._fd

    def _copy_up(self, path: str) -> None:
        """Makes of what lies below, as an overlay would, the directories that lead to `path` and an empty file
        with its permissions; `write` then needs to know nothing of layers."""
        parts = _parts(path) if self.below else []
        for end in range(1, len(parts) + 1):
            prefix, last = "/".join(parts[:end]), end == len(parts)
            kind = look(self._fd, prefix)
            if kind == "other":
                return
            if kind not in ("absent", "hidden"):
                continue
            parent = open_beneath(self._fd, "/".join(parts[: end - 1]), DIRECTORY)
            try:
                if kind == "hidden":
                    os.unlink(parts[end - 1], dir_fd=parent)
                    if not last:
                        self._make_inside(parent, parts[end - 1], stat.S_IFDIR | 0o755, opaque=True)
                    continue
                below = self._stack().find(prefix)[0]
                mode = os.stat(prefix, dir_fd=below, follow_symlinks=False).st_mode
                if not last and not stat.S_ISDIR(mode):
                    raise PermissionError(errno.EPERM, "a file stands where a directory is needed", path)
                self._make_inside(parent, parts[end - 1], mode, opaque=False)
            except FileNotFoundError:
                return
            finally:
                os.close(parent)

    def _make_inside(self, parent: int, name: str, mode: int, opaque: bool) -> None:
        if stat.S_ISDIR(mode):
            os.mkdir(name, stat.S_IMODE(mode), dir_fd=parent)
            fd = open_beneath(parent, name, DIRECTORY)
        elif stat.S_ISREG(mode):
            fd = open_beneath(parent, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(mode))
        else:
            raise PermissionError(errno.EPERM, "not a regular file", name)
        try:
            self._own(fd)
            os.fchmod(fd, stat.S_IMODE(mode))
            if opaque:
                hide_below(fd)
        finally:
            os.close(fd)

    def _make_parents(self, path: str) -> None:
        parts = _parts(path)
        if not parts:
            raise PermissionError(errno.EPERM, "not a path inside the workspace", path)
        current = os.dup(self._fd)
        try:
            for part in parts[:-1]:
                try:
                    os.mkdir(part, 0o755, dir_fd=current)
                    created = True
                except FileExistsError:
                    created = False
                following = open_beneath(current, part, DIRECTORY)
                os.close(current)
                current = following
                if created:
                    self._own(current)
        except NotADirectoryError as error:
            raise PermissionError(errno.EPERM, "a file stands where a directory is needed", path) from error
        finally:
            os.close(current)

    def _own(self, fd: int) -> None:
        _give(fd, self._owner)


def make_layer(path: Path, owner: int | None) -> Layer:
    """A new, empty directory, for a trusted program to fill before anybody else sees it."""
    return Layer(path, _make(path, owner))


def _make(path: Path, owner: int | None) -> int:
    path.mkdir(mode=0o700)
    fd = os.open(path, DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    _give(fd, owner)
    return fd


def _give(fd: int, owner: int | None) -> None:
    if owner is not None:
        os.fchown(fd, owner, owner)


def release(layers: Sequence[Layer]) -> None:
    """Lets go of layers, and removes those that nobody holds any more."""
    for layer in layers:
        if layer.release():
            remove_tree(layer.path)


def remove_tree(path: Path) -> None:
    """Removes a directory that hostile code has filled, and cannot be made to recurse or to follow a link.

    Every directory met is first moved to the top, so that no path is longer than two names however deep the
    tree was. A missing directory is no error."""
    try:
        top = os.open(path, DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
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
    fd = os.open(name, DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
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


def _parts(path: str) -> list[str]:
    """The names in `path`; none where it is no path inside a workspace."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return [] if path.startswith("/") or ".." in parts or "\0" in path or path.endswith("/") else parts


def _open_regular(place: int, path: str, flags: int) -> int:
    try:
        # O_NONBLOCK: a FIFO or a device must not make us wait before we know what it is.
        fd = open_beneath(place, path, flags | os.O_NONBLOCK | os.O_NOCTTY)
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


def _read_all(fd: int, path: str, max_bytes: int) -> bytes:
    if os.fstat(fd).st_size > max_bytes:
        raise OSError(errno.EFBIG, f"longer than the {max_bytes} bytes that were asked for", path)
    pieces = bytearray()
    while piece := os.read(fd, 1 << 20):
        pieces += piece
        if len(pieces) > max_bytes:
            raise OSError(errno.EFBIG, f"longer than the {max_bytes} bytes that were asked for", path)
    return bytes(pieces)
