"""Log-probabilities of chosen tokens: value, gradient and entropy against plain torch, chunk by chunk."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from burnish.train import logprobs
from burnish.train.logprobs import token_logprobs


def case(items: int = 7, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Hidden states, head, and items of which some share a state, and some of those a temperature."""
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(5, 8, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(11, 8, generator=generator).to(dtype).requires_grad_()
    sources = torch.tensor([3, 0, 3, 3, 1, 4, 0])[:items]
    targets = torch.tensor([2, 10, 2, 5, 0, 7, 10])[:items]
    temperatures = torch.tensor([1.0, 0.5, 1.0, 1.0, 2.0, 1.0, 1.0])[:items]
    return hidden, weight, sources, targets, temperatures


def plainly(
    hidden: Tensor, weight: Tensor, sources: Tensor, targets: Tensor, t: Tensor
) -> tuple[Tensor, Tensor]:
    every = torch.log_softmax((hidden[sources] @ weight.T).float() / t[:, None], -1)
    return every.gather(1, targets[:, None])[:, 0], -(every.exp() * every).sum(-1)


@pytest.mark.parametrize("chunk", [1, 2, 512])
def test_values_and_gradients_are_plain_torchs(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "CHUNK", chunk)
    arguments = case()
    (mine, entropy), (plain, wanted) = token_logprobs(*arguments), plainly(*arguments)
    torch.testing.assert_close(mine, plain)
    torch.testing.assert_close(entropy, wanted)
    assert not entropy.requires_grad
    weights = torch.linspace(-1, 2, 7)
    for a, b in zip(
        torch.autograd.grad((mine * weights).sum(), arguments[:2]),
        torch.autograd.grad((plain * weights).sum(), arguments[:2]),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_chunks_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = case(dtype=torch.bfloat16)
    whole = token_logprobs(*arguments)[0]
    monkeypatch.setattr(logprobs, "CHUNK", 2)
    assert torch.equal(token_logprobs(*arguments)[0], whole)


def test_no_items_give_no_logprobs() -> None:
    hidden, weight, *rest = case(0)
    values, entropy = token_logprobs(hidden, weight, *rest)
    assert len(values) == len(entropy) == 0
    values.sum().backward()
    assert hidden.grad is not None and not hidden.grad.any()
