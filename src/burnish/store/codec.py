"""The nouns as JSON and back.

What this file is: the one encoding of tasks, trajectories, groups and their parts, by which everything that
is written can be read again. Unknown and missing fields are refused, so that a file of another version, or
one that was tampered with, is not half understood.
What it is not: it opens no files. A group's samples (token columns) are derived data and are not encoded.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from burnish.types import BurnishError, Group, Task, Trajectory

Noun = TypeVar("Noun")

_CONFIG = ConfigDict(
    extra="forbid", ser_json_inf_nan="strings", ser_json_bytes="base64", val_json_bytes="base64"
)

TASK_DIGEST = "task_digest"
"""Where a trajectory that was written without its task's secret keeps the digest of the whole task."""


@dataclass(slots=True)
class _StoredGroup:
    task: Task
    trajectories: list[Trajectory]


@cache
def _adapter(noun: Hashable) -> TypeAdapter[Any]:
    # Standard dataclasses take their configuration from what encloses them, hence the tuple of one.
    enclosed: Any = tuple.__class_getitem__((noun,))
    return TypeAdapter(enclosed, config=_CONFIG)


def encode(value: Any) -> bytes:
    """JSON on one line of any noun of `types.py` (of a `Group`: its task and trajectories). Free-form
    mappings keep what JSON can hold: tuples come back as lists, infinities as text."""
    if isinstance(value, Group):
        value = _StoredGroup(value.task, value.trajectories)
    raw = _adapter(cast(Hashable, type(value))).dump_json((value,), fallback=_plain)
    return raw[1:-1]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a trajectory")


def decode(noun: type[Noun], raw: bytes, where: str = "") -> Noun:
    """What `encode` wrote. Raises BurnishError, naming `where` and the field, when it is not exactly that."""
    stored: Any = _StoredGroup if noun is Group else noun
    try:
        (value,) = _adapter(stored).validate_json(b"[" + raw + b"]")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or "the whole"
        at = f"{where}: " if where else ""
        raise BurnishError(
            f"{at}not a {noun.__name__} that this version can read: {field}: {first['msg']}"
        ) from None
    if isinstance(value, _StoredGroup):
        value = Group(value.task, value.trajectories)
    result: Noun = value
    return result


def without_secret(trajectory: Trajectory) -> Trajectory:
    """A copy that may lie where others read: the task's secret is gone, and `lineage` keeps the digest of the
    task as it was, by which evaluations are still known to have run the same thing."""
    lineage = {**trajectory.lineage, TASK_DIGEST: task_digest(trajectory)}
    return replace(trajectory, task=replace(trajectory.task, secret={}), lineage=lineage)


def task_digest(trajectory: Trajectory) -> str:
    """The digest of the task that was run, whether or not its secret is still there."""
    kept = trajectory.lineage.get(TASK_DIGEST)
    return kept if isinstance(kept, str) else trajectory.task.digest()


def encode_lines(trajectories: Sequence[Trajectory]) -> bytes:
    """One trajectory a line, without secrets."""
    return b"".join(encode(without_secret(t)) + b"\n" for t in trajectories)


def decode_lines(lines: Sequence[bytes], where: str = "") -> list[Trajectory]:
    """What `encode_lines` wrote, given without the newlines."""
    return [decode(Trajectory, line, f"{where} line {n}".strip()) for n, line in enumerate(lines, 1)]
