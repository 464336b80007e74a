"""The GGUF reader: values, formats against slow references, and files that are damaged in every way."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.model.gguf import FORMATS, GGUF
from burnish.types import UsageError

IDS = {form.name: kind for kind, form in FORMATS.items()}


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def typed(value: Any) -> bytes:
    """A metadata value with its type, as GGUF stores it."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    inner = typed(value[0])[:4]
    return (
        struct.pack("<I", 9) + inner + struct.pack("<Q", len(value)) + b"".join(typed(v)[4:] for v in value)
    )


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[tuple[int, ...], str, bytes]], version: int = 3
) -> bytes:
    """A GGUF file. `tensors`: name -> (shape in numpy's order, format name, data)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += text(key) + typed(value)
    body = b""
    for name, (shape, form, data) in tensors.items():
        body += b"\0" * (-len(body) % 32)
        head += (
            text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in shape[::-1])
        )
        head += struct.pack("<IQ", IDS[form], len(body))
        body += data
    return head + b"\0" * (-len(head) % 32) + body


def f32(array: np.ndarray[Any, Any]) -> tuple[tuple[int, ...], str, bytes]:
    return array.shape, "F32", array.astype("<f4").tobytes()


def small(version: int = 3) -> bytes:
    metadata = {
        "general.architecture": "llama",
        "n": 3,
        "eps": 0.5,
        "on": True,
        "words": ["a", "é"],
        "ids": [1, 2],
    }
    return gguf_bytes(metadata, {"w": f32(np.arange(6.0).reshape(2, 3)), "v": f32(np.ones(4))}, version)


def test_reads_metadata_and_tensors(tmp_path: Path) -> None:
    for version in (2, 3):
        file = tmp_path / f"{version}.gguf"
        file.write_bytes(small(version))
        gguf = GGUF(file)
        assert gguf.metadata == {
            "general.architecture": "llama", "n": 3, "eps": 0.5, "on": True,
            "words": ["a", "é"], "ids": [1, 2],
        }  # fmt: skip
        assert gguf.tensors["w"].shape == (2, 3)
        assert gguf.read("w").tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        assert gguf.read("v").dtype == np.float32
        with pytest.raises(UsageError, match="'absent' is missing"):
            gguf.read("absent")


def slow(form: str, block: bytes) -> list[float]:
    """The values of one block, read one by one, as ggml's reference dequantization does."""
    half = lambda at: struct.unpack_from("<e", block, at)[0]  # noqa: E731
    if form == "Q8_0":
        return [half(0) * q for q in struct.unpack_from("<32b", block, 2)]
    if form in ("Q4_0", "Q4_1"):
        start = 2 if form == "Q4_0" else 4
        low = [block[start + i] % 16 for i in range(16)]
        high = [block[start + i] // 16 for i in range(16)]
        if form == "Q4_0":
            return [half(0) * (q - 8) for q in low + high]
        return [float(np.float32(half(0) * q) + np.float32(half(2))) for q in low + high]
    if form == "F16":
        return [half(0)]
    if form == "BF16":
        return [struct.unpack("<f", b"\0\0" + block)[0]]
    return list(struct.unpack("<f", block))


@pytest.mark.parametrize("form", sorted(IDS))
def test_dequantizes_as_the_reference(form: str, tmp_path: Path) -> None:
    kind = FORMATS[IDS[form]]
    random = np.random.default_rng(1)
    blocks = [bytearray(random.integers(0, 256, kind.size, dtype=np.uint8).tobytes()) for _ in range(12)]
    for block in blocks:
        if form.startswith("Q"):
            block[0:2] = struct.pack("<e", random.normal())
            if form == "Q4_1":
                block[2:4] = struct.pack("<e", random.normal())
        elif form == "F32":
            block[:] = struct.pack("<f", random.normal())
        else:
            block[1] = 0x3C  # a finite number
    shape = (3, 4 * kind.block)
    file = tmp_path / "x.gguf"
    file.write_bytes(gguf_bytes({}, {"x": (shape, form, b"".join(map(bytes, blocks)))}))
    expected = np.array([slow(form, bytes(b)) for b in blocks], dtype=np.float32).reshape(shape)
    assert np.array_equal(GGUF(file).read("x"), expected)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole, file = small(), tmp_path / "cut.gguf"
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"cut\.gguf"):
            GGUF(file)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(small()) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_file_reads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]]
) -> None:
    data = bytearray(small())
    for at, value in edits:
        data[at] = value
    file = tmp_path_factory.getbasetemp() / "damaged.gguf"
    file.write_bytes(data)
    try:
        gguf = GGUF(file)
    except UsageError as error:
        assert "damaged.gguf" in str(error)
    else:
        for name, info in gguf.tensors.items():
            assert gguf.read(name).shape == info.shape


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read as GGUF"),
        (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
        (small(1), "version 1 is not supported"),
        (b"GGUF" + struct.pack(">I", 3) + small()[8:], "little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0) + bytes(64), "tensors cannot fit"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60) + bytes(64), "metadata entries cannot fit"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63) + bytes(64), "ends within a metadata key"),
        (gguf_bytes({"general.alignment": 7}, {}), "general.alignment"),
        (gguf_bytes({}, {"q": ((1, 48), "Q4_1", bytes(30))}), "does not fit Q4_1"),
    ],
)  # fmt: skip
def test_says_what_is_wrong(data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=message):
        GGUF(file)


def test_names_the_formats_that_it_reads(tmp_path: Path) -> None:
    data = small().replace(struct.pack("<IQQIQ", 2, 3, 2, 0, 0), struct.pack("<IQQIQ", 2, 3, 2, 12, 0))
    file = tmp_path / "q4k.gguf"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=r"'w' has ggml type 12.*Q4_1, Q8_0"):
        GGUF(file)


def test_a_tensor_named_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "twice.gguf"
    file.write_bytes(small().replace(text("v") + struct.pack("<I", 1), text("w") + struct.pack("<I", 1)))
    with pytest.raises(UsageError, match="'w' is there twice"):
        GGUF(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such GGUF file"):
        GGUF(tmp_path / "none.gguf")
