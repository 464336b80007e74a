"""A decoder's weights on disk: ordinary Hugging Face directories, safetensors only.

What this file is: loading with every name and shape checked, saving that is either complete or not there,
and the correspondence between Hugging Face's tensors and our fused ones.
What it is not: it reads no pickle, and it makes no optimizer state or lineage (training writes those).
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from burnish.model.compute import compute_thread
from burnish.model.config import ModelConfig
from burnish.model.template import read_json
from burnish.model.transformer import Transformer
from burnish.store.files import sync, sync_tree, write_atomically, writing
from burnish.types import UsageError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)

# what some checkpoints carry besides weights, and what is the embedding again when the head is tied to it
_IGNORED = ("rotary_emb.inv_freq",)


@dataclass(frozen=True, slots=True)
class Place:
    """Rows `start:stop` of our parameter `name`, which are one Hugging Face tensor of `shape`."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]


def layout(config: ModelConfig) -> dict[str, Place]:
    """Where each Hugging Face tensor lies in `Transformer`'s parameters, by its Hugging Face name."""
    places: dict[str, Place] = {}

    def put(ours: str, columns: int | None, **rows: int) -> None:
        start = 0
        for theirs, count in rows.items():
            shape = (count,) if columns is None else (count, columns)
            places[theirs] = Place(ours, start, start + count, shape)
            start += count

    width, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.heads * size, config.kv_heads * size
    put("embedding", width, **{"model.embed_tokens.weight": config.vocab_size})
    for i in range(config.layers):
        theirs, ours = f"model.layers.{i}.", f"layers.{i}."
        attention, mlp = theirs + "self_attn.", theirs + "mlp."
        rows = {
            f"{attention}q_proj.weight": q,
            f"{attention}k_proj.weight": kv,
            f"{attention}v_proj.weight": kv,
        }
        put(ours + "attention_norm", None, **{theirs + "input_layernorm.weight": width})
        put(ours + "qkv.weight", width, **rows)
        put(ours + "output.weight", q, **{attention + "o_proj.weight": width})
        put(ours + "mlp_norm", None, **{theirs + "post_attention_layernorm.weight": width})
        put(
            ours + "gate_up.weight", width, **{f"{mlp}gate_proj.weight": inner, f"{mlp}up_proj.weight": inner}
        )
        put(ours + "down.weight", inner, **{f"{mlp}down_proj.weight": width})
    put("norm", None, **{"model.norm.weight": width})
    if not config.tie_embeddings:
        put("head.weight", width, **{"lm_head.weight": config.vocab_size})
    return places


def load_config(directory: Path) -> ModelConfig:
    """config.json of a model directory. Raises UsageError that names the file."""
    directory = Path(directory)
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such model directory")
    data = read_json(directory / "config.json")
    try:
        return ModelConfig.from_hf(data)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(f"{directory / 'config.json'}: a field has an impossible value: {error}") from None
    except UsageError as error:
        raise UsageError(f"{directory}: {error}") from None


def load_model(directory: Path, dtype: torch.dtype = torch.bfloat16) -> Transformer:
    """The model of a Hugging Face directory (one file or sharded), its parameters in `dtype` on the CPU.
    Raises UsageError, naming file and tensor, for anything missing, cut short, unknown or misshapen."""
    compute_thread()
    directory = Path(directory)
    config = load_config(directory)
    files = _files(directory)
    if config.layers > len(files):
        raise UsageError(
            f"{directory}: config.json asks for {config.layers:,} layers, but there are {len(files)} tensors"
        )
    places = layout(config)
    missing = [name for name in places if name not in files]
    if missing:
        raise UsageError(f"{directory}: tensor {missing[0]!r} is missing ({len(missing)} in all)")
    with ExitStack() as stack:
        opened = {file: stack.enter_context(_open(file)) for file in dict.fromkeys(files.values())}
        # every shape before any memory is taken: config.json may ask for the impossible
        for name, place in places.items():
            _check_shape(opened[files[name]], files[name], name, place)
        model = Transformer(config)
        # not Module.to, which would touch all of the memory that is about to be written
        for parameter in model.parameters():
            parameter.data = torch.empty(parameter.shape, dtype=dtype)
        parameters = dict(model.named_parameters())
        for name, place in places.items():
            with torch.no_grad():
                parameters[place.name][place.start : place.stop].copy_(opened[files[name]].get_tensor(name))
    _refuse_unknown(files, config)
    return model


def _refuse_unknown(files: Mapping[str, Path], config: ModelConfig) -> None:
    known = {*layout(config), *(["lm_head.weight"] if config.tie_embeddings else [])}
    unknown = [name for name in files if name not in known and not name.endswith(_IGNORED)]
    if unknown:
        raise UsageError(
            f"{files[unknown[0]]}: tensor {unknown[0]!r} has no place in this architecture "
            f"({config.architecture}); computing without it would give another model"
        )


def stored_dtype(directory: Path) -> torch.dtype:
    """The type in which a model directory holds its embedding."""
    files = _files(Path(directory))
    name = "model.embed_tokens.weight"
    if name not in files:
        raise UsageError(f"{directory}: tensor {name!r} is missing")
    with _open(files[name]) as opened:
        dtype: torch.dtype = opened.get_tensor(name).dtype
        return dtype


def save_model(
    model: Transformer,
    directory: Path,
    dtype: torch.dtype | None = None,
    source: Path | None = None,
) -> Path:
    """Writes an ordinary Hugging Face directory: config.json, model.safetensors (in `dtype`, or the model's
    own; a tied head is left out), and the tokenizer's files copied from the directory `source`. A directory
    that does not exist yet appears whole or not at all. One that exists is filled, so it must be a draft
    that its owner publishes. Raises UsageError when it holds weights already, BurnishError when the disk
    refuses."""
    directory = Path(directory)
    if (directory / WEIGHTS).exists():
        raise UsageError(f"{directory} holds a model already; choose another place or remove it.")
    if directory.is_dir():
        with writing(directory):
            _fill(model, directory, dtype, source)
    else:
        with publish(directory) as draft:
            _fill(model, draft, dtype, source)
    return directory


def _fill(model: Transformer, directory: Path, dtype: torch.dtype | None, source: Path | None) -> None:
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    dtype = dtype or parameters["embedding"].dtype
    tensors: dict[str, Tensor] = {
        name: parameters[place.name][place.start : place.stop].to("cpu", dtype, copy=True)
        for name, place in layout(model.config).items()
    }
    config = model.config.to_hf(str(dtype).removeprefix("torch."))
    write_atomically(directory / "config.json", json.dumps(config, indent=2).encode() + b"\n")
    try:
        save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:
        # the library wraps the system's refusal in text
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(int(code[1]) if code else errno.EIO, str(error)) from error
    (directory / WEIGHTS).chmod(0o644)
    for name in TOKENIZER_FILES:
        if source is not None and (Path(source) / name).is_file():
            shutil.copyfile(Path(source) / name, directory / name)


@contextmanager
def publish(directory: Path, replace: bool = False) -> Iterator[Path]:
    """A draft beside `directory`, which becomes it when the block ends: all is flushed to disk first, then
    renamed, so a reader never sees half of it. When the block fails, nothing is left behind. With `replace`
    an existing directory gives way. Raises UsageError when `directory` exists otherwise, and BurnishError
    when the disk refuses."""
    if directory.exists() and not replace:
        raise UsageError(f"{directory} exists already; choose another place or remove it.")
    draft = directory.with_name(f".{directory.name}.writing-{os.getpid()}")
    old = directory.with_name(f".{directory.name}.old-{os.getpid()}")
    with writing(directory):
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            _sweep(directory)
            draft.mkdir()
            yield draft
            sync_tree(draft)
            if directory.exists():
                directory.rename(old)
            try:
                draft.rename(directory)
            except OSError:
                if old.exists():
                    old.rename(directory)
                raise
            sync(directory.parent)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _sweep(directory: Path) -> None:
    """Removes what writers that run no more (killed, say) left beside `directory`."""
    for left in sorted(directory.parent.glob(f".{directory.name}.*-*")):
        kind, _, writer = left.name.removeprefix(f".{directory.name}.").partition("-")
        ours = kind in ("writing", "old") and writer.isdigit()
        if ours and (writer == str(os.getpid()) or not Path("/proc", writer).exists()):
            shutil.rmtree(left, ignore_errors=True)


def _files(directory: Path) -> dict[str, Path]:
    """The file of each tensor in the directory."""
    single, index = directory / WEIGHTS, directory / INDEX
    if single.is_file() or not index.is_file():
        with _open(single) as opened:
            return dict.fromkeys(opened.keys(), single)
    entries = read_json(index).get("weight_map")
    if not isinstance(entries, dict) or not all(isinstance(f, str) for f in entries.values()):
        raise UsageError(f"{index}: has no weight_map from tensors to files")
    outside = [file for file in entries.values() if Path(file).name != file]
    if outside:
        raise UsageError(f"{index}: names {outside[0]!r}, which is not a file of its own directory")
    return {name: directory / file for name, file in entries.items()}


def _open(file: Path) -> Any:
    if not file.is_file():
        raise UsageError(f"{file}: the file is missing; weights are read from safetensors files only")
    try:
        return safe_open(file, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{file}: damaged or cut short: {error}; fetch or save it again") from None


def _check_shape(opened: Any, file: Path, name: str, place: Place) -> None:
    try:
        view = opened.get_slice(name)
        shape, kind = list(view.get_shape()), view.get_dtype()
    except SafetensorError as error:
        raise UsageError(f"{file}: tensor {name!r} cannot be read: {error}") from None
    if shape != list(place.shape):
        raise UsageError(
            f"{file}: tensor {name!r} has shape {shape}, but config.json asks for {list(place.shape)}"
        )
    if kind not in ("F32", "F16", "BF16", "F64"):
        raise UsageError(f"{file}: tensor {name!r} is of type {kind}; F32, F16 or BF16 was expected")
