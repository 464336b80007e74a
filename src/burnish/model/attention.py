"""Attention over packed token trees, for the learner, with a backward of its own.

What this file is: differentiable attention in which each segment of tokens sees a path of keys, in a fixed
order of summation: keys in tiles of 128 by absolute position, tile sums added in order. A row's result
therefore depends on its own query and its own path and on nothing else: not on padding, not on what is
packed beside it. `engine.attention` sums in the same order from a cache.
What it is not: it is not the engine's path, and it does not build layouts (`train.packing` does).

Source of the backward: Dao et al. 2022 (FlashAttention), appendix B, without the tiling of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TILE = 128


@dataclass(frozen=True, slots=True)
class Block:
    """Segments of similar size that are attended together. `queries` [S, Q] are packed token indices, -1 for
    padding; `keys` [S, K] the packed indices of each segment's path from position 0, K a multiple of TILE,
    padded with any valid index; `starts` [S] the position of the first query. A query at position p sees key
    slots 0..p."""

    queries: Tensor
    keys: Tensor
    starts: Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """A packed batch: `ids` and `positions` [T], and the blocks that together cover every token once."""

    ids: Tensor
    positions: Tensor
    blocks: tuple[Block, ...]


class PackedAttention:
    """`model.transformer.Attend` over a layout."""

    def __init__(self, layout: Layout) -> None:
        self.plans = [_Plan.of(block, len(layout.ids)) for block in layout.blocks]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _Attention.apply(q, k, v, self.plans)  # type: ignore[no-any-return, no-untyped-call]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A block with what every layer needs of it: flat gather indices, and the mask [S, tiles - first, Q, TILE] of
    the tiles from `first` on, before which every query sees every key."""

    rows: Tensor
    valid: Tensor
    keys: Tensor
    hidden: Tensor
    first: int
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, block: Block, total: int) -> _Plan:
        segments, queries = block.queries.shape
        tiles = block.keys.shape[1] // TILE
        valid = block.queries >= 0
        position = block.starts[:, None] + torch.arange(queries)
        first = int(block.starts.min()) // TILE
        slot = torch.arange(first * TILE, tiles * TILE).view(1, tiles - first, 1, TILE)
        hidden = slot > position[:, None, :, None]
        return cls(
            block.queries.clamp(min=0).reshape(-1), valid.reshape(-1), block.keys.reshape(-1), hidden, first,
            (segments, queries, tiles),
        )  # fmt: skip

    def folded(self, x: Tensor, kv_heads: int) -> Tensor:
        """[T, heads, d] -> [S, kv, 1, groups * Q, d]: the heads that share keys lie along the rows."""
        segments, queries, _ = self.shape
        groups, d = x.shape[1] // kv_heads, x.shape[2]
        rows = x.index_select(0, self.rows).view(segments, queries, kv_heads, groups, d)
        return rows.permute(0, 2, 3, 1, 4).reshape(segments, kv_heads, 1, groups * queries, d)

    def unfolded(self, x: Tensor, heads: int) -> Tensor:
        """The inverse of `folded`, real rows only: -> [valid rows, heads, d]."""
        segments, queries, _ = self.shape
        kv_heads, d = x.shape[1], x.shape[-1]
        rows = x.reshape(segments, kv_heads, heads // kv_heads, queries, d).permute(0, 3, 1, 2, 4)
        return rows.reshape(segments * queries, heads, d)[self.valid]

    def tiled(self, x: Tensor) -> Tensor:
        """[T, kv, d] -> [S, kv, tiles, TILE, d]."""
        segments, _, tiles = self.shape
        kv_heads, d = x.shape[1:]
        rows = x.index_select(0, self.keys).view(segments, tiles, TILE, kv_heads, d)
        return rows.permute(0, 3, 1, 2, 4).contiguous()

    def weights(self, q: Tensor, k: Tensor, groups: int) -> tuple[Tensor, Tensor]:
        """Unnormalized attention [S, kv, tiles, groups * Q, TILE] and the row sums [S, kv, groups * Q, 1],
        fp32, of queries that are scaled already."""
        scores = torch.matmul(q, k.transpose(-1, -2)).float()
        segments, queries, tiles = self.shape
        view = scores.view(segments, -1, tiles, groups, queries, TILE)[:, :, self.first :]
        view.masked_fill_(self.hidden[:, None, :, None], float("-inf"))
        weights = scores.sub_(scores.amax(dim=(2, 4), keepdim=True)).exp_()
        return weights, add_tiles(weights.sum(-1, keepdim=True))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plans: Sequence[_Plan]) -> Tensor:
        heads, kv_heads = q.shape[1], k.shape[1]
        out, scaled = torch.empty_like(q), q * q.shape[2] ** -0.5
        for plan in plans:
            weights, total = plan.weights(plan.folded(scaled, kv_heads), plan.tiled(k), heads // kv_heads)
            mixed = add_tiles(torch.matmul(weights.to(v.dtype), plan.tiled(v)).float()) / total
            out.index_copy_(0, plan.rows[plan.valid], plan.unfolded(mixed.to(q.dtype), heads))
        ctx.save_for_backward(q, k, v, out)
        ctx.plans = plans
        return out.view(len(q), -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out = ctx.saved_tensors
        heads, kv_heads, scale = q.shape[1], k.shape[1], q.shape[2] ** -0.5
        grad, scaled = grads[0].view(q.shape), q * scale
        inner = (grad.float() * out.float()).sum(-1, keepdim=True)
        dq, dk, dv = torch.empty_like(q), torch.zeros(k.shape), torch.zeros(v.shape)
        for plan in ctx.plans:
            segments, queries, _ = plan.shape
            fq, fk, fv = plan.folded(scaled, kv_heads), plan.tiled(k), plan.tiled(v)
            weights, total = plan.weights(fq, fk, heads // kv_heads)
            p = weights.div_(total.unsqueeze(2))
            # A padded query repeats a real row; its incoming gradient must not be counted again.
            keep = plan.valid.view(segments, 1, 1, 1, queries).expand(-1, -1, -1, heads // kv_heads, -1)
            keep = keep.reshape(segments, 1, 1, -1, 1)
            fg = plan.folded(grad, kv_heads) * keep
            less = plan.folded(inner, kv_heads) * keep
            ds = torch.matmul(fg, fv.transpose(-1, -2)).float().sub_(less).mul_(p).to(q.dtype)
            gq = add_tiles(torch.matmul(ds, fk).float()).mul_(scale)
            dq.index_copy_(0, plan.rows[plan.valid], plan.unfolded(gq.to(q.dtype), heads))
            _scatter(dk, plan, torch.matmul(ds.transpose(-1, -2), fq))
            _scatter(dv, plan, torch.matmul(p.to(v.dtype).transpose(-1, -2), fg.to(v.dtype)))
        return dq, dk.to(k.dtype), dv.to(v.dtype), None


def _scatter(target: Tensor, plan: _Plan, tiles: Tensor) -> None:
    """Adds [S, kv, tiles, TILE, d] back to the tokens [T, kv, d] that the keys came from."""
    target.index_add_(0, plan.keys, tiles.permute(0, 2, 3, 1, 4).reshape(-1, *target.shape[1:]).float())


def add_tiles(x: Tensor) -> Tensor:
    """Sums [.., tiles, rows, n] over tiles in order, so that trailing empty tiles change nothing."""
    total = x[..., 0, :, :]
    for tile in range(1, x.shape[-3]):
        total = total + x[..., tile, :, :]
    return total
