"""Model directories: what is saved comes back, other loaders read it, and damage is named."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from burnish.model.weights import layout, load_config, load_model, publish, save_model, stored_dtype
from burnish.types import BurnishError, UsageError
from tests.model.tiny import tiny_directory


def causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).flatten(1)


def our_logits(directory: Path, ids: Tensor) -> Tensor:
    model = load_model(directory, torch.float32)
    with torch.no_grad():
        return model.logits(model(ids, torch.arange(len(ids)), causal))


def their_logits(directory: Path, ids: Tensor) -> Tensor:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with torch.no_grad():
        return model(ids.unsqueeze(0)).logits[0]


def untie(directory: Path) -> None:
    """Gives the model a head of its own."""
    weights = load_file(directory / "model.safetensors")
    generator = torch.Generator().manual_seed(7)
    weights["lm_head.weight"] = torch.randn(512, 64, generator=generator) / 8
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    change_config(directory, tie_word_embeddings=False)


def change_config(directory: Path, **fields: object) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | fields))


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_saved_is_read_alike_by_us_and_by_transformers(tied: bool, tmp_path: Path) -> None:
    source = tiny_directory(tmp_path / "source")
    if not tied:
        untie(source)
    saved = save_model(load_model(source, torch.float32), tmp_path / "a" / "saved", source=source)
    before, after = load_file(source / "model.safetensors"), load_file(saved / "model.safetensors")
    assert before.keys() == after.keys()
    assert ("lm_head.weight" in after) is not tied
    assert all(torch.equal(before[name], after[name]) for name in before)
    ids = torch.arange(3, 90)
    ours = our_logits(saved, ids)
    assert torch.allclose(ours, their_logits(saved, ids), atol=2e-5)
    assert torch.allclose(ours, their_logits(source, ids), atol=2e-5)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (saved / name).read_bytes() == (source / name).read_bytes()
    assert (saved / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_the_type_is_as_asked_and_the_rotary_frequencies_are_not_rounded(tiny: Path, tmp_path: Path) -> None:
    exact, rounded = load_model(tiny, torch.float32), load_model(tiny)
    assert {p.dtype for p in rounded.parameters()} == {torch.bfloat16}
    assert all(
        torch.equal(*pair)
        for pair in zip(*(m.rotation(torch.arange(99)) for m in (exact, rounded)), strict=True)
    )
    assert rounded.head.weight is rounded.embedding
    assert stored_dtype(save_model(rounded, tmp_path / "own")) == torch.bfloat16
    assert stored_dtype(save_model(exact, tmp_path / "asked", torch.bfloat16)) == torch.bfloat16
    kept = load_file(tmp_path / "asked" / "model.safetensors")["model.layers.1.self_attn.k_proj.weight"]
    assert torch.equal(kept, rounded.layers[1].qkv.weight[64:96])


def test_the_layout_covers_every_parameter_once(tiny: Path) -> None:
    model = load_model(tiny)
    rows: dict[str, list[int]] = {}
    for place in layout(model.config).values():
        rows.setdefault(place.name, []).extend(range(place.start, place.stop))
    sizes = {name: parameter.shape[0] for name, parameter in model.named_parameters()}
    assert rows == {name: list(range(size)) for name, size in sizes.items()}


def test_a_sharded_directory_is_read(tiny: Path, tmp_path: Path) -> None:
    source = tiny_directory(tmp_path / "source")
    weights = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    files = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(sorted(weights))}
    for file in set(files.values()):
        save_file({name: t for name, t in weights.items() if files[name] == file}, source / file)
    index = source / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    ids = torch.arange(3, 20)
    assert torch.equal(our_logits(source, ids), our_logits(tiny, ids))
    index.write_text(json.dumps({"weight_map": files | {"model.norm.weight": "../outside.safetensors"}}))
    with pytest.raises(UsageError, match="not a file of its own directory"):
        load_model(source)
    index.write_text(json.dumps({"weight_map": files | {"model.norm.weight": "model-7.safetensors"}}))
    with pytest.raises(UsageError, match=r"model-7\.safetensors: the file is missing"):
        load_model(source)


def edit(directory: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    weights = load_file(directory / "model.safetensors")
    change(weights)
    save_file(weights, directory / "model.safetensors")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (lambda d: d.rename(d.with_name("elsewhere")), "no such model directory"),
    "no config": (lambda d: (d / "config.json").unlink(), r"config\.json: the file is missing"),
    "config cut": (lambda d: (d / "config.json").write_text('{"a"'), r"config\.json: cannot be read as JSON"),
    "config list": (lambda d: (d / "config.json").write_text("[]"), "a JSON object was expected"),
    "other architecture": (lambda d: change_config(d, architectures=["BertModel"]), "'BertModel' is not"),
    "no size": (lambda d: change_config(d, hidden_size="wide"), "impossible value"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), r"model\.safetensors: the file is missing"),
    "pickle only": (
        lambda d: (d / "model.safetensors").rename(d / "pytorch_model.bin"),
        "weights are read from safetensors files only",
    ),
    "layers": (lambda d: change_config(d, num_hidden_layers=10**12), "asks for 1,000,000,000,000 layers"),
    "one layer more": (
        lambda d: change_config(d, num_hidden_layers=3),
        r"'model\.layers\.2\.input_layernorm\.weight' is missing \(9 in all\)",
    ),
    "one layer less": (
        lambda d: change_config(d, num_hidden_layers=1),
        r"model\.safetensors: tensor 'model\.layers\.1\.\S+' has no place",
    ),
    "impossible width": (
        lambda d: change_config(d, intermediate_size=10**12),
        r"'model\.layers\.0\.mlp\.gate_proj\.weight' has shape \[128, 64\], but config\.json asks for",
    ),
    "no norm": (lambda d: edit(d, lambda w: w.pop("model.norm.weight")), r"'model\.norm\.weight' is missing"),
    "a bias": (
        lambda d: edit(d, lambda w: w.update({"model.layers.0.mlp.down_proj.bias": torch.zeros(64)})),
        r"down_proj\.bias' has no place in this architecture",
    ),
    "integers": (
        lambda d: edit(d, lambda w: w.update({"model.norm.weight": torch.ones(64, dtype=torch.int32)})),
        r"'model\.norm\.weight' is of type I32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    directory = tiny_directory(tmp_path / "model")
    inflict, message = DAMAGE[damage]
    inflict(directory)
    with pytest.raises(UsageError, match=message) as caught:
        load_model(directory)
    assert str(directory) in str(caught.value)


def test_weights_cut_anywhere_are_refused(tmp_path: Path) -> None:
    directory = tiny_directory(tmp_path / "model")
    whole = (directory / "model.safetensors").read_bytes()
    for size in [*range(0, 4000, 97), len(whole) // 2, len(whole) - 1]:
        (directory / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"model\.safetensors: damaged or cut short"):
            load_model(directory)


def test_a_directory_appears_whole_or_not_at_all(tiny: Path, tmp_path: Path) -> None:
    def names() -> list[str]:
        return sorted(p.name for p in tmp_path.iterdir())

    for stale in (".model.writing-999999999", ".model.old-999999999"):
        (tmp_path / stale).mkdir()
    with pytest.raises(RuntimeError, match="half way"), publish(tmp_path / "model") as draft:
        (draft / "config.json").write_text("{}")
        assert names() == [draft.name]
        raise RuntimeError("half way")
    assert names() == []
    model = load_model(tiny)
    save_model(model, tmp_path / "model", source=tiny)
    with pytest.raises(UsageError, match="holds a model already"):
        save_model(model, tmp_path / "model")
    with pytest.raises(UsageError, match="exists already"), publish(tmp_path / "model"):
        pass
    with publish(tmp_path / "model", replace=True) as draft:
        (draft / "new").write_text("new")
    assert names() == ["model"]
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["new"]


def test_what_was_there_comes_back_when_it_cannot_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "kept").touch()
    with (
        pytest.raises(BurnishError, match="Cannot write"),
        publish(tmp_path / "model", replace=True) as draft,
    ):
        draft.rename(tmp_path / "lost")
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["kept"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lost", "model"]


def test_a_draft_of_somebody_elses_is_filled(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    save_model(load_model(tiny), tmp_path / "draft", source=tiny)
    assert load_config(tmp_path / "draft") == load_config(tiny)


def test_a_refusing_disk_is_one_clear_message_and_leaves_nothing(tiny: Path, tmp_path: Path) -> None:
    model = load_model(tiny)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(BurnishError, match=r"Cannot write .*model: .*MiB free"):
            save_model(model, tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
