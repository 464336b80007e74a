"""The decoder's elementwise operators, each with a backward written out.

What this file is: RMSNorm, the rotation of fused queries and keys, and SwiGLU, as autograd functions. Left to
autograd, their many small steps take more of a training step than its matrix products do on a CPU; written out,
each reads and writes its tensors about once.
What it is not: it holds no parameters and no products.

The forward computes in fp32 (fp64 for fp64) and rounds where Llama does. A row never depends on other rows.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm (Zhang & Sennrich 2019) over the last axis of `x` [T, D], rounded before the gain `weight` [D]."""
    if torch.is_grad_enabled():
        return _RMSNorm.apply(x, weight, eps)  # type: ignore[no-any-return, no-untyped-call]
    return _normalized(x, eps)[0] * weight


def split_rotated(
    mixed: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Fused projections [T, heads + 2 kv_heads, d] -> queries and keys, rotated (Su et al. 2021, halves
    convention), and values. `cos`, `sin` [T, 1, d / 2]."""
    if torch.is_grad_enabled():
        return _SplitRotated.apply(mixed, cos, sin, heads, kv_heads)  # type: ignore[no-any-return, no-untyped-call]
    rotated = _rotate(mixed[:, : heads + kv_heads], cos, sin)
    return rotated[:, :heads], rotated[:, heads:], mixed[:, heads + kv_heads :]


def swiglu(fused: Tensor) -> Tensor:
    """`fused` [T, 2 I], gate then up -> silu(gate) * up [T, I] (Shazeer 2020)."""
    if torch.is_grad_enabled():
        return _SwiGLU.apply(fused)  # type: ignore[no-any-return, no-untyped-call]
    gate, up = fused.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _normalized(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x over its root mean square, in x's type, and the reciprocal root [T, 1] in fp32."""
    wide = _wide(x)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype), scale


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        unit, scale = _normalized(x, eps)
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        unit, scale, weight = ctx.saved_tensors
        wide, grad = _wide(unit), grads[0]
        by_unit = _wide(grad) * wide
        grad_weight = by_unit.sum(0).to(weight.dtype)
        # dx = scale * (g w - unit * mean(g w unit))
        inner = torch.mv(by_unit, _wide(weight)).div_(unit.shape[-1]).unsqueeze(1)
        grad_x = torch.addcmul(_wide(grad) * _wide(weight), wide, inner, value=-1.0).mul_(scale)
        return grad_x.to(unit.dtype), grad_weight, None


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    wide, out = _wide(x), torch.empty(x.shape, dtype=x.dtype)
    first, second = wide[..., :half], wide[..., half:]
    out[..., :half] = torch.addcmul(first * cos, second, sin, value=-1.0)
    out[..., half:] = torch.addcmul(second * cos, first, sin)
    return out


class _SplitRotated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mixed: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        ctx.shape = mixed.shape
        rotated = _rotate(mixed[:, : heads + kv_heads], cos, sin)
        return rotated[:, :heads], rotated[:, heads:], mixed[:, heads + kv_heads :].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        cos, sin = ctx.saved_tensors
        q, k, v = grads
        out = q.new_empty(ctx.shape)
        # A rotation's transpose is the rotation back.
        out[:, : q.shape[1]] = _rotate(q, cos, -sin)
        out[:, q.shape[1] : q.shape[1] + k.shape[1]] = _rotate(k, cos, -sin)
        out[:, q.shape[1] + k.shape[1] :] = v
        return out, None, None, None, None


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fused: Tensor) -> Tensor:
        ctx.save_for_backward(fused)
        gate, up = fused.chunk(2, dim=-1)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor]:
        (fused,) = ctx.saved_tensors
        gate, up = fused.chunk(2, dim=-1)
        out = torch.empty_like(fused)
        width, grad = gate.shape[-1], grads[0]
        out[:, :width] = torch.ops.aten.silu_backward(grad * up, gate)
        torch.mul(F.silu(gate), grad, out=out[:, width:])
        return (out,)
