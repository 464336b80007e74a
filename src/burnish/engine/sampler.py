"""Drawing tokens.

What this file is: temperature sampling of a batch of rows by inversion of the distribution function with one
uniform number per (seed, position), so that a draw depends on its own row only and not on the batch; and the
log-probability of what was drawn under the distribution that it was drawn from.
What it is not: truncation (top-k, top-p), penalties and grammars are not here yet.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

_BLOCK = 128


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), a pure function of its arguments (BLAKE2b, 53 bits)."""
    digest = hashlib.blake2b(struct.pack("<qq", seed, position), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 11) / float(1 << 53)


def child_seed(seed: int, index: int) -> int:
    """The seed of continuation `index` of a request; index 0 keeps the request's own."""
    if index == 0:
        return seed
    digest = hashlib.blake2b(struct.pack("<qq", seed, index), digest_size=8, person=b"continuation").digest()
    return int.from_bytes(digest, "little") >> 1


def log_probabilities(logits: Tensor, temperatures: Tensor) -> Tensor:
    """[N, V] in any dtype and temperatures [N] (0: greedy, reported at temperature 1) -> fp32 log softmax."""
    divisor = torch.where(temperatures > 0, temperatures, 1.0).unsqueeze(1)
    return torch.log_softmax(logits.float() / divisor, dim=-1)


def draw(logprobs: Tensor, temperatures: Tensor, uniforms: Sequence[float]) -> tuple[list[int], list[float]]:
    """One token for each row of `logprobs` [N, V], and its log-probability."""
    n, vocab = logprobs.shape
    mass = logprobs.exp()
    padded = torch.nn.functional.pad(mass, (0, -vocab % _BLOCK)).view(n, -1, _BLOCK)
    edges = padded.sum(-1).double().cumsum(-1)
    target = torch.tensor(uniforms, dtype=torch.float64).unsqueeze(1) * edges[:, -1:]
    block = torch.searchsorted(edges, target, right=True).clamp(max=edges.shape[1] - 1)
    before = torch.where(block > 0, edges.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = padded[torch.arange(n), block[:, 0]].double()
    index = torch.searchsorted(inside.cumsum(-1), target - before, right=True)
    # Rounding can push the target past the block's last token with mass: take that token.
    last = (inside > 0).long().mul(torch.arange(_BLOCK)).amax(-1, keepdim=True)
    sampled = (block * _BLOCK + torch.minimum(index, last))[:, 0]
    chosen = torch.where(temperatures > 0, sampled, logprobs.argmax(-1))
    return chosen.tolist(), logprobs.gather(1, chosen[:, None])[:, 0].tolist()
