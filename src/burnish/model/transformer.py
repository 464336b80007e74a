"""The decoder: one definition for training and for generation.

What this file is: a Llama-family transformer (grouped-query attention, rotary positions, RMSNorm, SwiGLU) over
a flat row of tokens. Who attends to whom is the caller's: `attend` is given each layer's queries, keys and
values, so a learner passes packed trees and an engine passes a cache.
What it is not: it knows no batch, no padding, no cache, no sampling and no parallelism.

Every product goes through `Linear`, because train/inference parity rests on it: a row of a bf16 product on
CPU does not depend on the other rows, as long as there are at least two (tests/model/test_rows.py).
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from burnish.model.config import ModelConfig
from burnish.model.operators import rms_norm, split_rotated, swiglu


class Attend(Protocol):
    """Attention of one layer. `q` [T, heads, head_dim], `k` and `v` [T, kv_heads, head_dim], rotated;
    returns [T, heads * head_dim]."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


class Linear(nn.Module):
    """A product without bias, weight [out, in]. `pack` reorders a frozen bf16 weight for oneDNN, which is
    faster and, as the tests check, equal bit for bit."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self._packed: Tensor | None = None

    def pack(self) -> None:
        if self.weight.dtype == torch.bfloat16 and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), 32)

    def unpack(self) -> None:
        self._packed = None

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 1:
            # oneDNN sums a single row of a long product in another order than the same row among others.
            return self.forward(x.expand(2, -1))[:1]
        if self._packed is not None:
            packed: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
            return packed
        return F.linear(x, self.weight)


class Layer(nn.Module):
    """One block. `qkv` and `gate_up` are fused: rows are queries, keys, values, and gate, up."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self.index, self.config = index, config
        width = config.hidden_size
        self.attention_norm = nn.Parameter(torch.ones(width))
        self.qkv = Linear(width, (config.heads + 2 * config.kv_heads) * config.head_dim)
        self.output = Linear(config.heads * config.head_dim, width)
        self.mlp_norm = nn.Parameter(torch.ones(width))
        self.gate_up = Linear(width, 2 * config.intermediate_size)
        self.down = Linear(config.intermediate_size, width)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        c = self.config
        mixed = self.qkv(rms_norm(x, self.attention_norm, c.rms_eps))
        q, k, v = split_rotated(mixed.view(len(x), -1, c.head_dim), *rotation, c.heads, c.kv_heads)
        x = x + self.output(attend(self.index, q, k, v))
        fused = self.gate_up(rms_norm(x, self.mlp_norm, c.rms_eps))
        out: Tensor = x + self.down(swiglu(fused))
        return out


class Transformer(nn.Module):
    """The whole decoder. `forward` gives the final, normalized hidden states; `logits` the head's output,
    which is only worth computing at positions that predict something."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.hidden_size))
        self.head = Linear(config.hidden_size, config.vocab_size)
        if config.tie_embeddings:
            self.head.weight = self.embedding

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """`ids` and `positions` [T] int64 -> hidden states [T, hidden_size]."""
        x = F.embedding(ids, self.embedding)
        rotation = self.rotation(positions)
        for layer in self.layers:
            x = layer(x, rotation, attend)
        return rms_norm(x, self.norm, self.config.rms_eps)

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [T, 1, head_dim / 2], always fp32: bf16 angles would blur far positions."""
        d = self.config.head_dim
        inverse = self.config.rope_theta ** (-torch.arange(0, d, 2).float() / d)
        angles = positions.float().unsqueeze(1) * inverse
        return angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, hidden_size] -> [N, vocab_size], in the model's dtype."""
        out: Tensor = self.head(hidden)
        return out

    def linears(self) -> list[Linear]:
        return [m for m in self.modules() if isinstance(m, Linear)]
