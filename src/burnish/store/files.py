"""Writing files so that a kill leaves the old or the new, never a half.

What this file is: atomic replacement, appended JSON lines, and the one place where the operating system's
refusals (full disk, read-only, no permission) become messages that a user can act on.
What it is not: it knows nothing of runs or of what the bytes mean.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from burnish.types import BurnishError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOTHING_FREE = 1 << 20
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError raised inside into a BurnishError that names `path`, the reason and the free space."""
    try:
        yield
    except OSError as error:
        where = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
        free = shutil.disk_usage(where).free
        advice = (
            "Make room there, or choose another place; a run goes on with `burnish resume`."
            if error.errno in _FULL
            else "Check that the place exists and that you may write there."
        )
        raise BurnishError(
            f"Cannot write {path}: {error.strerror or error} ({free >> 20} MiB free). {advice}"
        ) from error


@contextmanager
def naming_a_full_disk(path: Path) -> Iterator[None]:
    """Turns the many ways in which libraries say that the disk is full into the one OSError."""
    try:
        yield
    except (OSError, BurnishError):
        raise
    except Exception as error:
        if "No space left" in str(error) or shutil.disk_usage(path).free < _NOTHING_FREE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces `path` with `data`: after a kill or a power cut it holds all of the old or all of the new."""
    beside = path.with_name(f".{path.name}.writing")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            sync(path.parent)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def append(path: Path, line: bytes) -> None:
    """Adds a line, which must end in a newline, and hands it to the operating system. When that fails the
    file is left as it was."""
    with writing(path):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(file).st_size
            if os.write(file, line) < len(line):
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of an appended file without their newlines; a last one that a kill tore is left out."""
    raw = path.read_bytes() if path.exists() else b""
    return raw[: raw.rfind(b"\n") + 1].split(b"\n")[:-1]


def cut_torn_line(path: Path) -> None:
    """Removes what a kill left of an unfinished last line, so that the next one starts on its own."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def sync(path: Path) -> None:
    """Waits until a file's contents, or a directory's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(directory: Path) -> None:
    """Waits until everything below `directory` is on the disk."""
    for place, _, names in os.walk(directory):
        for name in names:
            sync(Path(place, name))
        sync(Path(place))


def to_json(value: Any) -> bytes:
    """Compact JSON. Numbers of numpy and torch become plain ones; what JSON has no number for (NaN,
    infinities) is written as text, and `from_json` reads it back."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def from_json(raw: bytes) -> Any:
    """The inverse of `to_json`."""
    return json.loads(raw, object_hook=_restore)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _plain(value.tolist()) if hasattr(value, "tolist") else value


def _restore(item: dict[str, Any]) -> dict[str, Any]:
    return {k: _NON_FINITE.get(v, v) if isinstance(v, str) else v for k, v in item.items()}
