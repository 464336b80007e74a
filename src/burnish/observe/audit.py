"""The audit log: one hash-chained stream of everything that a run, an agent or a server did.

What this file is: the writer (`AuditLog`) of `events.jsonl` and its fake that keeps events in memory. Each
line is one event in canonical JSON (RFC 8785) with `seq`, `time` (UTC), `kind`, `data`, `prev` and `hash`,
where `hash` is the SHA-256 of the canonical event without `hash`, and `prev` is the hash of the event
before.
What it is not: it does not judge a log (`chain.py` does), and it is not a store of contents: long texts
are logged as digest and length, and what a key such as `secret` or `authorization` holds is never logged.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from burnish.observe.chain import GENESIS, read_event, seal, verify
from burnish.types import BurnishError, Task, UsageError

Kind = Literal[
    "run",
    "resume",
    "recovery",
    "model_call",
    "tool_call",
    "code_execution",
    "verdict",
    "network",
    "weight_update",
    "checkpoint",
    "evaluation",
    "release",
    "error",
]

LONGEST_TEXT = 400
"""Characters of a string that are logged as they are; a longer one is logged as its digest and length."""

WITHHELD = frozenset(
    [
        "secret",
        "secrets",
        "password",
        "passwd",
        "api_key",
        "apikey",
        "access_token",
        "refresh_token",
        "authorization",
        "cookie",
        "set-cookie",
        "credentials",
        "private_key",
        "client_secret",
    ]
)
"""Keys whose values never reach the log, whatever their case."""

_LARGEST_INTEGER = 2**53 - 1


class Audit(Protocol):
    """Where events go. Every part that acts takes one; `AuditLog` writes a file, `MemoryAudit` keeps a
    list."""

    def append(self, kind: Kind, data: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Withheld:
    """Marks a value that the caller knows to be secret: it is logged as the word `withheld`."""

    value: Any


def digest(content: str | bytes) -> dict[str, Any]:
    """What the log keeps of a long content: SHA-256 (hex) of its bytes and its length in bytes."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    return {"sha256": hashlib.sha256(raw).hexdigest(), "length": len(raw)}


def loggable(value: Any) -> Any:
    """`value` as plain JSON data that may be written down: long texts and bytes as digests, secrets withheld,
    a `Task` as its id, domain and digest, numbers that JSON cannot carry exactly as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _loggable_text(value)
    if isinstance(value, int):
        return int(value) if abs(value) <= _LARGEST_INTEGER else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {_loggable_key(key): _loggable_item(key, item) for key, item in value.items()}
    if isinstance(value, bytes | bytearray):
        return digest(bytes(value))
    if isinstance(value, Task):
        return {"id": value.id, "domain": value.domain, "digest": value.digest()}
    if isinstance(value, Withheld):
        return "withheld"
    if is_dataclass(value) and not isinstance(value, type):
        return loggable({part.name: getattr(value, part.name) for part in fields(value)})
    if isinstance(value, set | frozenset):
        return sorted((loggable(item) for item in value), key=repr)
    if isinstance(value, list | tuple):
        return [loggable(item) for item in value]
    if hasattr(value, "tolist"):
        return loggable(value.tolist())
    return _loggable_text(str(value))


def _loggable_text(text: str) -> Any:
    if len(text) > LONGEST_TEXT:
        return digest(text)
    return text if _encodable(text) else text.encode("utf-8", "backslashreplace").decode()


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _loggable_key(key: Any) -> str:
    text = _loggable_text(str(key))
    return text if isinstance(text, str) else f"sha256:{text['sha256']}"


def _loggable_item(key: Any, item: Any) -> Any:
    return "withheld" if str(key).lower() in WITHHELD else loggable(item)


def _utc() -> datetime:
    return datetime.now(UTC)


class _Chain:
    """The next event's number and the hash that it continues from."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.seq = -1
        self.hash = GENESIS
        self._now = now

    def next(self, kind: str, data: Mapping[str, Any]) -> tuple[str, bytes]:
        """Hash and line of the next event."""
        return seal(
            {
                "seq": self.seq + 1,
                "time": self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "kind": kind,
                "data": loggable(data),
                "prev": self.hash,
            }
        )

    def accept(self, event_hash: str) -> None:
        self.seq += 1
        self.hash = event_hash


class MemoryAudit:
    """The same chain, kept in memory: for tests, and for callers that keep no log."""

    def __init__(self, now: Callable[[], datetime] = _utc) -> None:
        self.events: list[dict[str, Any]] = []
        self._chain = _Chain(now)
        self._lock = threading.Lock()

    def append(self, kind: Kind, data: Mapping[str, Any]) -> None:
        with self._lock:
            event_hash, line = self._chain.next(kind, data)
            self._chain.accept(event_hash)
            self.events.append(json.loads(line))

    def head(self, sync: bool = False) -> dict[str, Any]:
        with self._lock:
            return {"seq": self._chain.seq, "hash": self._chain.hash}


class AuditLog:
    """Appends events to the log at `path`, made when missing and continued when there.

    One process at a time owns a log; a second is refused with a UsageError. Threads may share one. Every
    event is handed to the operating system before `append` returns, so that a killed process loses none;
    `head` with `sync` also waits for the disk. A last line that a kill tore is moved to
    `events.torn-<seq>-<digest>` beside the log, and a `recovery` event says so. A last line that is whole
    but not what was written is an edit, and the log is not continued (BurnishError).
    """

    def __init__(self, path: Path, now: Callable[[], datetime] = _utc) -> None:
        self.path = path
        self._chain = _Chain(now)
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise UsageError(
                f"{path} is being written by another process; wait for it to end, or stop it."
            ) from None
        try:
            self._continue()
        except BaseException:
            os.close(self._file)
            raise

    def append(self, kind: Kind, data: Mapping[str, Any]) -> None:
        """Writes one event. Raises BurnishError when the disk is full; the log then ends with a whole
        line."""
        with self._lock:
            event_hash, line = self._chain.next(kind, data)
            self._write(line + b"\n")
            self._chain.accept(event_hash)

    def head(self, sync: bool = False) -> dict[str, Any]:
        """`seq` and `hash` of the last event (-1 and zeros for an empty log), as checkpoints keep them. With
        `sync`, everything up to it is on the disk first."""
        with self._lock:
            if sync:
                os.fsync(self._file)
            return {"seq": self._chain.seq, "hash": self._chain.hash}

    def resume(self, checkpoint: str, head: Mapping[str, Any]) -> None:
        """Records that the run goes on from `checkpoint`, whose `burnish.json` kept `head`. Events after the
        head stay: they happened. Raises BurnishError when the log is not the one that the checkpoint knew."""
        found = verify(self.path, {checkpoint: head})
        if not found.ok:
            raise BurnishError(
                f"{self.path} is not the log that {checkpoint} knew: {found.problems[0].why}. "
                f"See `burnish log verify {self.path.parent}`; a changed log is not continued."
            )
        after = found.seq - int(head["seq"])
        self.append("resume", {"checkpoint": checkpoint, "head": head, "events_after_head": after})

    def close(self) -> None:
        """Ends the writing and lets another process continue the log. Idempotent."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        if self._file < 0:
            raise BurnishError(f"The audit log {self.path} was closed; nothing more can be recorded in it.")
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(self._file, size)
            free = shutil.disk_usage(self.path.parent).free
            raise BurnishError(
                f"Cannot write the audit log {self.path}: {error.strerror} ({free >> 20} MiB free there). "
                "Nothing goes on unrecorded: make room, then continue with `burnish resume`."
            ) from error

    def _continue(self) -> None:
        """Takes up the chain from the last whole line and sets a torn one aside."""
        size = os.fstat(self._file).st_size
        window = 1 << 16
        tail = os.pread(self._file, window, max(0, size - window))
        while len(tail) < size and tail.count(b"\n") < 2:
            window *= 4
            tail = os.pread(self._file, window, max(0, size - window))
        whole = tail[: tail.rfind(b"\n") + 1]
        torn = tail[len(whole) :]
        if whole:
            last = whole[whole[:-1].rfind(b"\n") + 1 : -1]
            event, problem = read_event(last)
            if event is None:
                raise BurnishError(
                    f"The last line of {self.path} was changed after it was written ({problem}). "
                    f"Run `burnish log verify {self.path.parent}`; a changed log is not continued."
                )
            self._chain.seq, self._chain.hash = event["seq"], event["hash"]
        if torn:
            self._set_aside(torn, size - len(torn))

    def _set_aside(self, torn: bytes, start: int) -> None:
        facts = digest(torn)
        beside = self.path.with_name(f"{self.path.stem}.torn-{self._chain.seq + 1:06d}-{facts['sha256'][:8]}")
        try:
            beside.write_bytes(torn)
            os.ftruncate(self._file, start)
        except OSError as error:
            raise BurnishError(f"Cannot set a torn line of {self.path} aside: {error.strerror}.") from error
        self.append("recovery", {"reason": "torn last line", "moved_to": beside.name, **facts})


def read_events(path: Path) -> list[dict[str, Any]]:
    """The whole events of a log, unverified, in order; a torn last line is left out."""
    raw = path.read_bytes()
    return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
