"""Reads GGUF files: metadata, and tensors dequantized to fp32.

What this file is: a reader of GGUF versions 2 and 3 in numpy over a memory map, in which every count, length
and offset of the file is checked before it is used (https://github.com/ggml-org/ggml, docs/gguf.md).
What it is not: it writes no GGUF, runs no model, and knows no architecture.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from burnish.types import UsageError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_NESTING = 4
_MAX_DIMENSIONS = 4

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def _halves(blocks: Bytes, at: int) -> Floats:
    """The fp16 at byte `at` of each block, as fp32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(blocks: Bytes, at: int) -> Floats:
    """The 32 four-bit values at byte `at` of each block: 16 low nibbles, then 16 high ones."""
    packed = blocks[:, at : at + 16]
    return np.concatenate((packed & 15, packed >> 4), axis=1).astype(np.float32)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    """d (fp16), 32 nibbles: w = d (q - 8)."""
    return _halves(blocks, 0) * (_nibbles(blocks, 2) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    """d, m (fp16), 32 nibbles: w = d q + m."""
    return _halves(blocks, 0) * _nibbles(blocks, 4) + _halves(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    """d (fp16), 32 int8: w = d q."""
    return _halves(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Format:
    """A tensor type: `block` values are stored in `size` bytes."""

    name: str
    block: int
    size: int
    read: Callable[[Bytes], Floats]


FORMATS: Mapping[int, Format] = {
    0: Format("F32", 1, 4, _f32),
    1: Format("F16", 1, 2, _f16),
    2: Format("Q4_0", 32, 18, _q4_0),
    3: Format("Q4_1", 32, 20, _q4_1),
    8: Format("Q8_0", 32, 34, _q8_0),
    30: Format("BF16", 1, 2, _bf16),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. `shape` is in numpy's order (rows first); `start` counts bytes from the file's
    beginning."""

    name: str
    shape: tuple[int, ...]
    format: Format
    start: int
    size: int


class GGUF:
    """An open GGUF file: `metadata` (plain values by key), `tensors` (by name), and `read`. The constructor
    raises UsageError for a file that is missing, cut short, malformed, or of a type that is not supported."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            self._data: Bytes = np.memmap(self.path, dtype=np.uint8, mode="r")
        except FileNotFoundError:
            raise UsageError(f"{self.path}: no such GGUF file") from None
        except (OSError, ValueError) as error:  # ValueError: numpy cannot map an empty file
            raise UsageError(f"{self.path}: cannot be read as GGUF: {error}") from None
        cursor = _Cursor(self.path, self._data)
        if cursor.take(4, "its magic number") != b"GGUF":
            raise UsageError(f"{self.path}: not a GGUF file (it does not begin with 'GGUF')")
        self.version = cursor.scalar("I", "its version")
        if self.version not in (2, 3):
            raise UsageError(
                f"{self.path}: GGUF version {self.version} is not supported; 2 and 3, little-endian, are"
            )
        tensors = cursor.count(24, "tensors")
        keys = cursor.count(13, "metadata entries")
        self.metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = cursor.string("a metadata key")
            self.metadata[key] = cursor.value(f"metadata {key!r}")
        self.tensors = self._tensors(cursor, tensors)

    def get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """A metadata value of a given type. Raises UsageError when it is missing or of another type."""
        value = self.metadata.get(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise UsageError(f"{self.path}: metadata {key!r} is missing or not of the expected type")
        return value

    def read(self, name: str) -> Floats:
        """A tensor, dequantized, fp32 in numpy's order: a linear weight is [out, in]. Raises UsageError when
        there is none of that name."""
        if name not in self.tensors:
            raise UsageError(f"{self.path}: tensor {name!r} is missing")
        info = self.tensors[name]
        blocks = np.array(self._data[info.start : info.start + info.size]).reshape(-1, info.format.size)
        return info.format.read(blocks).reshape(info.shape)

    def _tensors(self, cursor: _Cursor, count: int) -> dict[str, TensorInfo]:
        found = []
        for _ in range(count):
            name = cursor.string("a tensor's name")
            dimensions = cursor.scalar("I", f"tensor {name!r}")
            if not 1 <= dimensions <= _MAX_DIMENSIONS:
                raise UsageError(
                    f"{self.path}: tensor {name!r} has {dimensions} dimensions; 1 to 4 are possible"
                )
            shape = tuple(cursor.scalar("Q", f"tensor {name!r}") for _ in range(dimensions))
            kind = cursor.scalar("I", f"tensor {name!r}")
            found.append((name, shape, kind, cursor.scalar("Q", f"tensor {name!r}")))
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment % 8:
            raise UsageError(f"{self.path}: general.alignment {alignment!r} is not a multiple of 8")
        base = -(-cursor.at // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, shape, kind, offset in found:
            if name in tensors:
                raise UsageError(f"{self.path}: tensor {name!r} is there twice")
            tensors[name] = self._place(name, shape, kind, base, offset)
        return tensors

    def _place(self, name: str, shape: tuple[int, ...], kind: int, base: int, offset: int) -> TensorInfo:
        where = f"{self.path}: tensor {name!r}"
        if kind not in FORMATS:
            names = ", ".join(f.name for f in FORMATS.values())
            raise UsageError(f"{where} has ggml type {kind}, which is not supported; supported are {names}")
        form = FORMATS[kind]
        if 0 in shape or shape[0] % form.block:
            raise UsageError(
                f"{where}: shape {list(shape)} does not fit {form.name} (blocks of {form.block})"
            )
        size = math.prod(shape) // form.block * form.size
        if base + offset + size > len(self._data):
            raise UsageError(
                f"{where} ends at byte {base + offset + size:,}, but the file has {len(self._data):,}: "
                "it was cut short; fetch it again"
            )
        return TensorInfo(name, shape[::-1], form, base + offset, size)


class _Cursor:
    """Reads the header in order. `what` names what is being read, for the error of a file cut short."""

    def __init__(self, path: Path, data: Bytes) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, size: int, what: str) -> bytes:
        if size > len(self.data) - self.at:
            raise UsageError(f"{self.path}: the file ends within {what}: it was cut short; fetch it again")
        piece = self.data[self.at : self.at + size].tobytes()
        self.at += size
        return piece

    def scalar(self, code: str, what: str) -> Any:
        code = "<" + code
        return struct.unpack(code, self.take(struct.calcsize(code), what))[0]

    def count(self, smallest: int, what: str) -> int:
        """A number of things of at least `smallest` bytes each, which must fit into the rest of the file."""
        number: int = self.scalar("Q", f"the number of {what}")
        if number * smallest > len(self.data) - self.at:
            raise UsageError(
                f"{self.path}: {number:,} {what} cannot fit into the file: it is malformed or cut short"
            )
        return number

    def string(self, what: str) -> str:
        data = self.take(self.scalar("Q", what), what)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{self.path}: {what} is not UTF-8") from None

    def value(self, what: str, nesting: int = 0) -> Any:
        return self._typed(self.scalar("I", what), what, nesting)

    def _typed(self, kind: int, what: str, nesting: int) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind], what)
        if kind == _STRING:
            return self.string(what)
        if kind != _ARRAY or nesting == _MAX_NESTING:
            raise UsageError(f"{self.path}: {what} has an unknown value type {kind}")
        inner = self.scalar("I", what)
        smallest = struct.calcsize(_SCALARS[inner]) if inner in _SCALARS else 8
        number = self.count(smallest, f"values in {what}")
        if inner in _SCALARS:
            return list(struct.unpack(f"<{number}{_SCALARS[inner]}", self.take(number * smallest, what)))
        return [self._typed(inner, what, nesting + 1) for _ in range(number)]
