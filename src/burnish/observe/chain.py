"""Reading a hash-chained log and finding what was done to it.

What this file is: `verify`, which names the line that was edited, removed, inserted or reordered and why,
and, against the heads that checkpoints keep, a tail that was cut or written anew.
What it is not: it never changes a log, and it cannot see a tail that was cut after the last kept head.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rfc8785

from burnish.types import UsageError

GENESIS = "0" * 64
_FIELDS = frozenset(("seq", "time", "kind", "data", "prev", "hash"))
_HASH = b',"hash":"'
_AFTER_HASH = b',"kind":"'


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing found wrong. `line` counts from 1 and is None where no line can be named; `change` is one of
    `edited`, `removed`, `inserted`, `reordered`, `cut` and `rewritten`."""

    line: int | None
    change: str
    why: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found. `torn_bytes` counts what a kill left of an unfinished last line, which is no
    problem: opening the log sets it aside. `seq` and `hash` are the last whole event's."""

    path: str
    events: int
    heads: int
    problems: tuple[Problem, ...]
    torn_bytes: int
    seq: int
    hash: str

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def seal(event: Mapping[str, Any]) -> tuple[str, bytes]:
    """Hash (hex) and canonical line of an event that has every field but `hash`."""
    body = rfc8785.dumps(dict(event))
    event_hash = hashlib.sha256(body).hexdigest()
    # Canonical members are in alphabetical order, and `kind` follows `hash`: one encoding serves both.
    head, _, tail = body.rpartition(_AFTER_HASH)
    return event_hash, head + _HASH + event_hash.encode() + b'"' + _AFTER_HASH + tail


def read_event(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The event on a line, or None and why it cannot be the one that was written."""
    try:
        event = json.loads(line, parse_int=_integer)
    except (ValueError, RecursionError):
        return None, "it is not JSON"
    if not isinstance(event, dict) or event.keys() != _FIELDS:
        return None, "it is not an event with seq, time, kind, data, prev and hash"
    if not isinstance(event["seq"], int) or not isinstance(event["hash"], str):
        return None, "its seq or hash has the wrong type"
    try:
        canonical = rfc8785.dumps(event)
    except (rfc8785.CanonicalizationError, RecursionError):
        return None, "it has no canonical form"
    if canonical != line:
        return None, "it is not in the canonical form in which it was written"
    head, _, tail = line.rpartition(_AFTER_HASH)
    body = head[: head.rfind(_HASH)] + _AFTER_HASH + tail
    if hashlib.sha256(body).hexdigest() != event["hash"]:
        return None, "its contents do not give its hash"
    return event, ""


def _integer(text: str) -> int | float:
    """RFC 8785 writes every number as a double does; a large whole double must come back as one."""
    number = int(text) if len(text) <= 17 else float(text)
    return number if abs(number) < 2**53 else float(text)


def verify(path: Path, heads: Mapping[str, Mapping[str, Any]] | None = None) -> Verification:
    """Checks a log line by line and against `heads` (a name, such as a checkpoint's, to its `seq` and
    `hash`). Raises UsageError when there is no log."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"No audit log at {path}: {error.strerror}.") from None
    end = raw.rfind(b"\n") + 1
    lines = raw[:end].split(b"\n")[:-1]
    problems: list[Problem] = []
    hashes = _check_chain(lines, problems)
    for name, head in sorted((heads or {}).items(), key=lambda item: (item[1]["seq"], item[0])):
        _check_head(name, head, hashes, problems)
    last = max(hashes, default=-1)
    return Verification(
        path=str(path),
        events=len(lines),
        heads=len(heads or {}),
        problems=tuple(problems),
        torn_bytes=len(raw) - end,
        seq=last,
        hash=hashes.get(last, GENESIS),
    )


def _check_chain(lines: list[bytes], problems: list[Problem]) -> dict[int, str]:
    """Appends what is wrong inside the chain, and returns the hash found for each event number."""
    read = [read_event(line) for line in lines]
    present = {event["seq"] for event, _ in read if event is not None}
    hashes: dict[int, str] = {}
    seq, link = -1, GENESIS
    for number, (event, why) in enumerate(read, 1):
        if event is None:
            problems.append(Problem(number, "edited", f"line {number} was edited: {why}"))
            # The line's own claim, if it has one, lets the lines after it be judged by themselves.
            seq, link = seq + 1, _claimed_hash(lines[number - 1])
            continue
        if event["seq"] != seq + 1:
            problems.append(_out_of_order(number, event["seq"], seq, hashes, present))
        elif event["prev"] != link:
            why = f"line {number} does not continue from the line before it: one of the two was replaced"
            problems.append(Problem(number, "edited", why))
        seq, link = event["seq"], event["hash"]
        hashes.setdefault(seq, link)
    return hashes


def _claimed_hash(line: bytes) -> str:
    try:
        claimed = json.loads(line)["hash"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return ""
    return claimed if isinstance(claimed, str) else ""


def _out_of_order(
    number: int, found: int, before: int, hashes: Mapping[int, str], present: set[int]
) -> Problem:
    if found in hashes:
        why = f"line {number} repeats event {found}, which stands further up"
        return Problem(number, "inserted", why)
    if found <= before or present.intersection(range(before + 1, found)):
        why = f"line {number} is event {found} but stands where event {before + 1} belongs"
        return Problem(number, "reordered", why)
    missing = f"event {before + 1} is" if found == before + 2 else f"events {before + 1} to {found - 1} are"
    return Problem(number, "removed", f"before line {number} (event {found}), {missing} missing")


def _check_head(
    name: str, head: Mapping[str, Any], hashes: Mapping[int, str], problems: list[Problem]
) -> None:
    seq = head["seq"]
    if seq < 0:
        return
    if seq > max(hashes, default=-1):
        why = f"the log ends before event {seq}, which {name} recorded as its last: the tail was cut"
        problems.append(Problem(None, "cut", why))
    elif seq in hashes and hashes[seq] != head["hash"]:
        why = (
            f"event {seq} is not the one that {name} recorded: the log was written anew from there or before"
        )
        problems.append(Problem(None, "rewritten", why))
