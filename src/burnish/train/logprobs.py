"""Log-probabilities of chosen tokens, with a backward of its own.

What this file is: head, temperature and log softmax for the positions that predict a trainable token, in chunks,
so that the fp32 distribution over the vocabulary never exists for a whole batch at once.
What it is not: a loss. The forward's operations are those of the engine's sampler, on purpose: same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from burnish.engine.sampler import log_probabilities

CHUNK = 512


def token_logprobs(
    hidden: Tensor, weight: Tensor, sources: Tensor, targets: Tensor, temperatures: Tensor
) -> tuple[Tensor, Tensor]:
    """`hidden` [T, D], head `weight` [V, D]; items `sources`, `targets`, `temperatures` [N]. Returns the
    targets' log-probabilities [N] (differentiable, fp32) and the entropies [N] in nats (detached)."""
    keys = torch.stack([sources.double(), temperatures.double()])
    unique, inverse = torch.unique(keys, dim=1, return_inverse=True)
    rows = hidden.index_select(0, unique[0].long())
    out: tuple[Tensor, Tensor] = _TokenLogprobs.apply(rows, weight, unique[1].float(), inverse, targets)  # type: ignore[no-untyped-call]
    return out


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, temperatures: Tensor, inverse: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        chosen, entropies = torch.empty(len(targets)), torch.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            logprobs = log_probabilities(torch.nn.functional.linear(rows[part], weight), temperatures[part])
            items = ((inverse >= start) & (inverse < start + CHUNK)).nonzero()[:, 0]
            chosen[items] = logprobs[inverse[items] - start, targets[items]]
            entropies[part] = -(logprobs.exp() * logprobs).sum(-1)
        ctx.save_for_backward(rows, weight, temperatures, inverse, targets)
        entropy = entropies[inverse]
        ctx.mark_non_differentiable(entropy)
        return chosen, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        rows, weight, temperatures, inverse, targets = ctx.saved_tensors
        grad_rows, grad_weight = torch.empty_like(rows), torch.zeros(weight.shape)
        total = torch.zeros(len(rows)).index_add_(0, inverse, grads[0])
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            logits = torch.nn.functional.linear(rows[part], weight)
            delta = log_probabilities(logits, temperatures[part]).exp_().mul_(-total[part, None])
            items = ((inverse >= start) & (inverse < start + CHUNK)).nonzero()[:, 0]
            delta.index_put_((inverse[items] - start, targets[items]), grads[0][items], accumulate=True)
            scaled = delta.div_(temperatures[part, None]).to(rows.dtype)
            grad_rows[part] = scaled @ weight
            grad_weight += scaled.t() @ rows[part]
        return grad_rows, grad_weight.to(weight.dtype), None, None, None
