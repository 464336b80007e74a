"""What a checkpoint came from, and whether it is whole: `burnish.json`.

What this file is: the record that is written last into a checkpoint directory, by which it is known to be
complete: parent, recipe, weights, evaluation, certificates, the audit log's head, and the size of every
file.
What it is not: it neither makes nor loads weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from burnish.store.files import to_json, write_atomically
from burnish.types import UsageError

FILE = "burnish.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Lineage:
    """`parent` is the name of the checkpoint before, or what the run started from; `recipe` and `weights` are
    SHA-256 (hex); `audit` is the head of the audit log (`seq`, `hash`); `files` maps every other file of the
    directory to its size in bytes; `evaluation` and `certificates` are added when they exist."""

    step: int
    parent: str | None
    recipe: str
    weights: str
    audit: Mapping[str, Any]
    files: Mapping[str, int]
    evaluation: Mapping[str, Any] | None = None
    certificates: tuple[Mapping[str, Any], ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT


_ADAPTER = TypeAdapter(tuple[Lineage], config=ConfigDict(extra="forbid"))


def write_lineage(directory: Path, lineage: Lineage) -> None:
    """Writes `burnish.json`, which declares the directory complete."""
    write_atomically(directory / FILE, to_json(asdict(lineage)) + b"\n")


def read_lineage(directory: Path) -> Lineage:
    """Raises UsageError where there is no checkpoint, or none that this version can read."""
    path = directory / FILE
    try:
        raw = path.read_bytes()
    except OSError:
        raise UsageError(
            f"{directory} is no complete checkpoint: it has no {FILE}, which is written last."
        ) from None
    try:
        (lineage,) = _ADAPTER.validate_json(b"[" + raw + b"]")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(str(part) for part in first["loc"][1:])
        raise UsageError(f"{path} cannot be read: {at} {first['msg']}".replace("  ", " ")) from None
    if lineage.format != FORMAT:
        raise UsageError(f"{path} has format {lineage.format}; this version of Burnish reads {FORMAT}.")
    return lineage


def check_files(directory: Path, lineage: Lineage) -> None:
    """Raises UsageError when a file of the checkpoint is missing or has another size than was recorded."""
    for name, size in sorted(lineage.files.items()):
        path = directory / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            fault = "is missing" if found is None else f"has {found} bytes instead of {size}"
            raise UsageError(
                f"The checkpoint {directory} is damaged: {name} {fault}. Restore the file, or remove the "
                "directory to go on from the checkpoint before it."
            )


def file_sizes(directory: Path) -> dict[str, int]:
    """Size in bytes of every file below `directory`, by relative path, but for `burnish.json`."""
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    return {str(p.relative_to(directory)): p.stat().st_size for p in files if p.name != FILE}


def weights_digest(directory: Path) -> str:
    """SHA-256 (hex) of the model's weights: of `model.safetensors`, or for several `model*.safetensors` of
    their lines as `sha256sum` prints them. Raises UsageError when there are none."""
    files = sorted(directory.glob("model*.safetensors"))
    if not files:
        raise UsageError(f"No weights in {directory}: there is no model.safetensors.")
    digests = [(_sha256(path), path.name) for path in files]
    if len(digests) == 1:
        return digests[0][0]
    return hashlib.sha256("".join(f"{d}  {name}\n" for d, name in digests).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
