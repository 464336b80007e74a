"""The decoder's operators: values against plain torch, and their written-out backwards by `gradcheck`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from burnish.model.operators import rms_norm, split_rotated, swiglu

HEADS, KV_HEADS, DIM, ROWS = 3, 1, 6, 4


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64, grad: bool = True) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.to(dtype).requires_grad_(grad)


def angles(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    turned = random(ROWS, 1, DIM // 2, seed=9, dtype=dtype, grad=False) * 3
    return turned.cos(), turned.sin()


def rotated(mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return split_rotated(mixed, *angles(), HEADS, KV_HEADS)


def test_rms_norm_has_the_gradient_of_its_definition() -> None:
    x, weight = random(ROWS, 8, seed=1), random(8, seed=2)
    assert torch.autograd.gradcheck(lambda a, b: rms_norm(a, b, 1e-5), (x, weight))
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    torch.testing.assert_close(rms_norm(x, weight, 1e-5), expected)


def test_the_epsilon_of_rms_norm_counts() -> None:
    x, weight = torch.full((1, 4), 1e-3), torch.ones(4)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6), torch.full((1, 4), 0.5**0.5))


def test_rotation_has_the_gradient_of_its_definition() -> None:
    assert torch.autograd.gradcheck(rotated, (random(ROWS, HEADS + 2 * KV_HEADS, DIM, seed=3),))


def test_rotation_turns_halves_and_leaves_values_alone() -> None:
    mixed = random(ROWS, HEADS + 2 * KV_HEADS, DIM, seed=3)
    q, k, v = rotated(mixed)
    cos, sin = angles()
    half = DIM // 2
    plane = torch.complex(mixed[..., :half], mixed[..., half:]) * torch.complex(cos, sin)
    expected = torch.cat([plane.real, plane.imag], -1)
    torch.testing.assert_close(q, expected[:, :HEADS])
    torch.testing.assert_close(k, expected[:, HEADS : HEADS + KV_HEADS])
    torch.testing.assert_close(v, mixed[:, HEADS + KV_HEADS :])


def test_swiglu_has_the_gradient_of_its_definition() -> None:
    fused = random(ROWS, 10, seed=4)
    assert torch.autograd.gradcheck(swiglu, (fused,))
    gate, up = fused.chunk(2, -1)
    torch.testing.assert_close(swiglu(fused), gate * torch.sigmoid(gate) * up)


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "rms_norm": lambda x: rms_norm(x.flatten(1), torch.linspace(0.5, 2, 30, dtype=x.dtype), 1e-5),
    "split_rotated": lambda x: torch.cat([t.flatten(1) for t in rotated32(x)], 1),
    "swiglu": lambda x: swiglu(x.flatten(1)),
}


def rotated32(mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    cos, sin = angles(torch.float32)
    return split_rotated(mixed, cos[: len(mixed)], sin[: len(mixed)], HEADS, KV_HEADS)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_with_and_without_gradient_the_bits_are_the_same(name: str, dtype: torch.dtype) -> None:
    """A learner computes with gradient and an engine without: parity rests on this."""
    x = random(ROWS, HEADS + 2 * KV_HEADS, DIM, seed=5, dtype=dtype)
    with torch.no_grad():
        plain = OPERATORS[name](x)
    assert torch.equal(OPERATORS[name](x), plain)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_row_does_not_depend_on_the_others(name: str) -> None:
    x = random(ROWS, HEADS + 2 * KV_HEADS, DIM, seed=6, dtype=torch.bfloat16, grad=False)
    assert torch.equal(OPERATORS[name](x)[:1], OPERATORS[name](x[:1]))
