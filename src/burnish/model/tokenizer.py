"""Builds an ordinary Hugging Face tokenizer from the metadata of a GGUF file.

What this file is: tokenizer.json, tokenizer_config.json and generation_config.json for GPT-2 style byte-level
BPE vocabularies, which is what SmolLM2 and Llama 3 have.
What it is not: it does not encode (the `tokenizers` library does), and it reads no SentencePiece vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from burnish.model.gguf import GGUF
from burnish.types import UsageError

# ggml's token types: control and user-defined tokens are never cut
_CONTROL = 3
_WHOLE = (_CONTROL, 4)

# llama.cpp src/llama-vocab.cpp, LLAMA_VOCAB_PRE_TYPE_LLAMA3
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _smollm() -> pre_tokenizers.PreTokenizer:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _llama3() -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated")
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "llama-bpe": _llama3,
}


def build_tokenizer(gguf: GGUF) -> Tokenizer:
    """The tokenizer, with the file's own ids. Control tokens are special: whole in every text that the
    template writes. Raises UsageError for a vocabulary that is malformed or of another kind."""
    kind, pre = gguf.get("tokenizer.ggml.model", str), gguf.metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2":
        raise UsageError(
            f"{gguf.path}: tokenizer model {kind!r} is not supported; byte-level BPE ('gpt2') is"
        )
    if pre not in PRE_TOKENIZERS:
        supported = ", ".join(PRE_TOKENIZERS)
        raise UsageError(f"{gguf.path}: pre-tokenizer {pre!r} is not supported; supported are {supported}")
    tokens: list[str] = _strings(gguf, "tokenizer.ggml.tokens")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise UsageError(f"{gguf.path}: tokenizer.ggml.tokens holds a token twice")
    merges = []
    for line in _strings(gguf, "tokenizer.ggml.merges"):
        left, _, right = line.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            raise UsageError(f"{gguf.path}: the merge {line!r} names a token that is not in the vocabulary")
        merges.append((left, right))
    # llama.cpp: Llama 3 takes a word that is in the vocabulary whole, whatever the merges say
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    types = gguf.get("tokenizer.ggml.token_type", list)
    if len(types) != len(tokens):
        raise UsageError(f"{gguf.path}: {len(types)} token types for {len(tokens)} tokens")
    whole = [(t, what == _CONTROL) for t, what in zip(tokens, types, strict=True) if what in _WHOLE]
    tokenizer.add_tokens([AddedToken(token, special=special, normalized=False) for token, special in whole])
    return tokenizer


def special_ids(gguf: GGUF) -> tuple[int | None, tuple[int, ...], int | None]:
    """(bos, end-of-text ids, padding), as the file names them. Raises UsageError for an id outside the
    vocabulary."""
    size = len(_strings(gguf, "tokenizer.ggml.tokens"))

    def named(name: str) -> int | None:
        found = gguf.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if found is not None and not (isinstance(found, int) and 0 <= found < size):
            raise UsageError(f"{gguf.path}: {name}_token_id {found!r} is not in the vocabulary of {size}")
        return found

    ends = dict.fromkeys(i for i in (named("eos"), named("eot")) if i is not None)
    return named("bos"), tuple(ends), named("padding")


def write_tokenizer(gguf: GGUF, directory: Path, max_length: int) -> None:
    """Writes tokenizer.json, tokenizer_config.json (with the chat template) and generation_config.json into
    an existing directory. `max_length` counts tokens. Raises UsageError when there is no chat template."""
    tokenizer = build_tokenizer(gguf)
    tokens = _strings(gguf, "tokenizer.ggml.tokens")
    bos, ends, padding = special_ids(gguf)
    unknown = gguf.metadata.get("tokenizer.ggml.unknown_token_id")
    named = {"bos": bos, "eos": ends[0] if ends else None, "pad": padding, "unk": unknown}
    config: dict[str, Any] = {
        # the class that takes tokenizer.json as it is; a model's own class would build another pre-tokenizer
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        **{f"{name}_token": tokens[i] for name, i in named.items() if i is not None},
    }
    template = gguf.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str) or not template:
        raise UsageError(
            f"{gguf.path}: there is no tokenizer.chat_template, so messages cannot be turned into a prompt; "
            "use the instruction-tuned variant of the model"
        )
    config["chat_template"] = template
    generation = {
        "bos_token_id": bos,
        "eos_token_id": ends[0] if len(ends) == 1 else list(ends),
        "pad_token_id": padding,
    }
    tokenizer.save(str(directory / "tokenizer.json"))
    _write(directory / "tokenizer_config.json", config)
    _write(directory / "generation_config.json", {k: v for k, v in generation.items() if v not in (None, [])})


def _write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _strings(gguf: GGUF, key: str) -> list[str]:
    found: Sequence[Any] = gguf.get(key, list)
    if not all(isinstance(item, str) for item in found):
        raise UsageError(f"{gguf.path}: metadata {key!r} must be a list of strings")
    return list(found)
