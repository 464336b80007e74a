"""The shape of a decoder.

What this file is: the hyperparameters of a Llama-family model, read from and written to Hugging Face's
`config.json` fields.
What it is not: it holds no weights and reads no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish.types import UsageError

SUPPORTED = {"LlamaForCausalLM": "llama"}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Hyperparameters. Sizes count elements; `rope_theta` is the base of the rotary frequencies;
    `max_positions` the longest context that the model was trained for."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    rms_eps: float
    max_positions: int
    tie_embeddings: bool
    bos_id: int | None
    eos_ids: tuple[int, ...]
    pad_id: int | None
    architecture: str = "LlamaForCausalLM"

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise UsageError(
                f"config.json: {self.heads} attention heads cannot be shared by {self.kv_heads} key/value "
                "heads; the first must be a multiple of the second"
            )
        if self.head_dim % 2:
            raise UsageError(f"config.json: head_dim {self.head_dim} must be even for rotary embeddings")

    @classmethod
    def from_hf(cls, data: Mapping[str, Any]) -> ModelConfig:
        """Reads the fields of a Hugging Face `config.json`. Raises UsageError for an architecture or a
        feature that the decoder does not have, rather than computing something else."""
        architecture = (data.get("architectures") or ["?"])[0]
        if architecture not in SUPPORTED:
            raise UsageError(
                f"config.json: architecture {architecture!r} is not supported; this version reads "
                + ", ".join(sorted(SUPPORTED))
            )
        rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise UsageError(f"config.json: rope type {kind!r} is not supported; only 'default' is")
        if data.get("hidden_act", "silu") != "silu":
            raise UsageError(f"config.json: hidden_act {data['hidden_act']!r} is not supported; 'silu' is")
        if data.get("attention_bias") or data.get("mlp_bias"):
            raise UsageError("config.json: biases in attention or MLP are not supported")
        try:
            hidden, heads = int(data["hidden_size"]), int(data["num_attention_heads"])
            eos = data.get("eos_token_id")
            return cls(
                vocab_size=int(data["vocab_size"]),
                hidden_size=hidden,
                intermediate_size=int(data["intermediate_size"]),
                layers=int(data["num_hidden_layers"]),
                heads=heads,
                kv_heads=int(data.get("num_key_value_heads") or heads),
                head_dim=int(data.get("head_dim") or hidden // heads),
                rope_theta=float(rope.get("rope_theta") or data.get("rope_theta") or 10000.0),
                rms_eps=float(data.get("rms_norm_eps", 1e-6)),
                max_positions=int(data.get("max_position_embeddings", 2048)),
                tie_embeddings=bool(data.get("tie_word_embeddings", False)),
                bos_id=data.get("bos_token_id"),
                eos_ids=tuple(eos) if isinstance(eos, list) else (() if eos is None else (int(eos),)),
                pad_id=data.get("pad_token_id"),
                architecture=architecture,
            )
        except KeyError as missing:
            raise UsageError(f"config.json: field {missing} is missing") from None

    def to_hf(self, dtype: str = "float32") -> dict[str, Any]:
        """The fields of `config.json` that other loaders (transformers, vLLM, llama.cpp) read."""
        return {
            "architectures": [self.architecture],
            "model_type": SUPPORTED[self.architecture],
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "rms_norm_eps": self.rms_eps,
            "max_position_embeddings": self.max_positions,
            "tie_word_embeddings": self.tie_embeddings,
            "bos_token_id": self.bos_id,
            "eos_token_id": self.eos_ids[0] if len(self.eos_ids) == 1 else list(self.eos_ids),
            "pad_token_id": self.pad_id,
            "attention_bias": False,
            "mlp_bias": False,
            "initializer_range": 0.02,
            "torch_dtype": dtype,
        }
