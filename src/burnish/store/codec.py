"""The nouns as JSON and back.

What this file is: the one encoding of tasks, trajectories, groups and their parts, by which everything that
is written can be read again. Unknown and missing fields are refused, so that a file of another version, or
one that was tampered with, is not half understood.
What it is not: it opens no files. A group's samples (token columns) are derived data and are not encoded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

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
    mappings keep what JSON can hold: tuples come back as lists, infinities as text, half
    a surrogate pair as U+FFFD."""
    if isinstance(value, Group):
        value = _StoredGroup(value.task, value.trajectories)
    adapter = _adapter(cast(Hashable, type(value)))
    try:
        return adapter.dump_json((value,), fallback=_plain)[1:-1]
    except PydanticSerializationError as error:
        if "surrogates not allowed" not in str(error):
            raise
    # A model can write half of a surrogate pair into a call's JSON; no file can hold it.
    return adapter.dump_json((_encodable(value),), fallback=_plain)[1:-1]


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_encodable(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _encodable(getattr(value, f.name)) for f in fields(value)})
    return value


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
