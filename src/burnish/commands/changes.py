"""A directory copied into a sandbox, and what the agent changed in the copy.

What this file is: the bounded reading of a directory, the difference as a unified diff, and writing changes
back without ever following a link or touching what was not copied.
What it is not: it decides nothing about whether to write back; the command asks.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from burnish.store.files import write_atomically, writing
from burnish.types import BurnishError, UsageError

MOST_BYTES = 32 << 20
MOST_FILES = 2000
WITHHELD = frozenset((".git", ".hg", ".svn"))
"""Directories that are neither copied nor written: what lies in them can run as the user (Git's hooks)."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Regular files by relative path; `left_out` counts links, devices and what could not be read."""

    files: Mapping[str, bytes]
    left_out: int


def copy(directory: Path) -> Copied:
    """Raises UsageError for what is no directory, and for more than a sandbox should be given."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory; --workdir is what the agent gets a copy of")
    files: dict[str, bytes] = {}
    size = left_out = 0
    for place, folders, names in os.walk(directory):
        linked = [name for name in folders if Path(place, name).is_symlink()]
        left_out += len(linked)
        folders[:] = sorted(name for name in folders if name not in WITHHELD and name not in linked)
        for name in sorted(names):
            path = Path(place, name)
            relative = str(path.relative_to(directory))
            if path.is_symlink() or not path.is_file() or name in WITHHELD or not _is_text(relative):
                left_out += 1
                continue
            size += path.stat().st_size
            if size > MOST_BYTES or len(files) >= MOST_FILES:
                raise UsageError(
                    f"{directory} holds more than {MOST_BYTES >> 20} MiB or {MOST_FILES} files: give the "
                    "directory of the task alone"
                )
            try:
                files[relative] = path.read_bytes()
            except PermissionError:
                left_out += 1
    return Copied(files, left_out)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two trees; by path, the new content, or None for a file that is gone. Changes
    below directories that are never written are in `refused`."""

    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    changed: Mapping[str, bytes | None] = field(init=False)
    refused: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        paths = sorted(p for p in {*self.before, *self.after} if self.before.get(p) != self.after.get(p))
        refused = tuple(p for p in paths if WITHHELD.intersection(Path(p).parts))
        object.__setattr__(self, "refused", refused)
        object.__setattr__(self, "changed", {p: self.after.get(p) for p in paths if p not in refused})

    def diff(self) -> str:
        """Unified, as `diff -u` and Git write it; files that are not text are only named."""
        return "".join(_file_diff(p, self.before.get(p), new) for p, new in self.changed.items())

    def save(self, directory: Path) -> None:
        """The whole changed copy, into a directory that is empty or not there."""
        check_free(directory)
        for path, content in self.after.items():
            if path not in self.refused:
                write_atomically(directory / path, content)

    def apply(self, directory: Path) -> None:
        """Writes the changes to where the copy came from. Everything is checked before anything is written:
        raises BurnishError where a file is no longer what was copied, or would lie behind a link."""
        for path in self.changed:
            _check_unchanged(directory, path, self.before.get(path))
        for path, content in self.changed.items():
            target = directory / path
            if content is None:
                with writing(target):
                    target.unlink()
                continue
            mode = target.stat().st_mode & 0o7777 if target.exists() else None
            write_atomically(target, content)
            if mode is not None:
                target.chmod(mode)


def check_free(directory: Path) -> None:
    """Raises UsageError where `directory` cannot take a whole copy."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty; --out needs a directory of its own")


def _check_unchanged(directory: Path, path: str, before: bytes | None) -> None:
    target = directory / path
    above = [directory / folder for folder in Path(path).parents if folder != Path()]
    if any(p.is_symlink() or (p.exists() and not p.is_dir()) for p in above) or target.is_symlink():
        raise BurnishError(
            f"{target} is behind a link; nothing was written. --out DIR keeps the changed copy."
        )
    now = target.read_bytes() if target.is_file() else None
    if now != before or (target.exists() and now is None):
        raise BurnishError(
            f"{target} was changed by somebody else meanwhile; nothing was written. --out DIR keeps the copy."
        )


def _file_diff(path: str, old: bytes | None, new: bytes | None) -> str:
    try:
        texts = [(b or b"").decode().splitlines(keepends=True) for b in (old, new)]
    except UnicodeDecodeError:
        what = "added" if old is None else "removed" if new is None else "changed"
        return f"binary file {path} {what}\n"
    before, after = ("/dev/null" if c is None else side + path for side, c in (("a/", old), ("b/", new)))
    lines = list(difflib.unified_diff(texts[0], texts[1], before, after))
    if not lines:
        return f"empty file {path} {'added' if old is None else 'removed'}\n"
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
