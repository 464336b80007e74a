"""The tokenizer made from GGUF metadata, against transformers and against known ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from burnish.model.gguf import GGUF
from burnish.model.renderer import load_tokenizer
from burnish.model.tokenizer import build_tokenizer, special_ids
from tests.model.test_prepare import as_gguf
from tests.model.tiny import SPECIALS, tiny_tokenizer

ORIGIN = tiny_tokenizer()

STRINGS = [
    "", " ", "\n\n\n", "  leading and trailing  ", "Hello, world!", "it's we'll I'D",
    "naïve façade — “quotes”",
    "1234567890 3.14159 2nd v1.0", "١٢٣ ४५ ½ ²", "日本語のテキスト", "😀👩‍👩‍👧‍👦 emoji", "e\u0301 combining",
    "\t\ttabs\r\nand\r\nreturns", "def f(x):\n    return x**2  # comment\n", '{"name": "a", "arguments": {}}',
    "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b <|endoftext|> <|im_",
    "\x00\x01\x7f", "\u2028\ufeff\ufffd",
    "x" * 300, "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "https://example.com/?q=1&r=2#frag",
]  # fmt: skip


@pytest.fixture(scope="module")
def gguf(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> GGUF:
    file = tmp_path_factory.mktemp("tokenizer") / "tiny.gguf"
    file.write_bytes(as_gguf(tiny))
    return GGUF(file)


@pytest.fixture(scope="module")
def built(gguf: GGUF) -> Tokenizer:
    return build_tokenizer(gguf)


@settings(max_examples=200, deadline=None)
@given(st.text())
@example("".join(STRINGS))
def test_the_ids_are_those_of_the_tokenizer_that_the_file_came_from(built: Tokenizer, text: str) -> None:
    ids = built.encode(text).ids
    assert ids == ORIGIN.encode(text).ids
    assert built.decode(ids, skip_special_tokens=False) == text


def test_control_tokens_are_whole_and_special(gguf: GGUF, built: Tokenizer) -> None:
    added = built.get_added_tokens_decoder()
    assert [added[i].content for i in sorted(added)] == list(SPECIALS)
    assert all(token.special for token in added.values())
    assert built.encode("a<|im_end|>b").ids[1] == 2
    assert special_ids(gguf) == (1, (2,), 2)


def test_digits_stand_alone(built: Tokenizer) -> None:
    assert built.encode("2024").tokens == ["2", "0", "2", "4"]


def same_as_transformers(directory: Path) -> None:
    theirs, ours = PreTrainedTokenizerFast.from_pretrained(directory), load_tokenizer(directory)
    for text in STRINGS:
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == theirs.encode(text, add_special_tokens=False), text
        assert ids == theirs.encode(text), "no BOS is added by itself"
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids) == text


def test_transformers_reads_the_tiny_directory_alike(tiny: Path) -> None:
    same_as_transformers(tiny)


@pytest.mark.real_model
def test_transformers_reads_the_real_directory_alike(real: Path) -> None:
    same_as_transformers(real)


@pytest.mark.real_model
def test_known_ids_of_the_real_model(real: Path) -> None:
    tokenizer = load_tokenizer(real)
    assert tokenizer.encode("<|im_start|>system\n").ids == [1, 9690, 198]
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert tokenizer.encode("Hi 123").ids == [26843, 216, 33, 34, 35]
    assert tokenizer.get_vocab_size() == 49152
