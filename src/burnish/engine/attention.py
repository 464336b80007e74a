"""Attention from the cache, for one step of the engine.

What this file is: the engine's `Attend`: writes the new keys and values, then lets each new token see its
slot's positions, tiles of 128 in order, summed in the order that `model.attention` sums. Sequences that decode
one token are attended together over a window of slots; a sequence that prefills is attended by itself.
What it is not: it has no backward, and shares no code with the learner's attention on purpose: parity between
the two is tested, not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.engine.cache import SlotCache
from burnish.model.attention import TILE


@dataclass(frozen=True, slots=True)
class Span:
    """`count` new tokens of the sequence in `slot`, the first at position `start`."""

    slot: int
    start: int
    count: int


class CachedAttention:
    """Attention of one step over `spans`, whose tokens lie in that order; spans of one token come first."""

    def __init__(self, cache: SlotCache, spans: Sequence[Span]) -> None:
        self.cache = cache
        positions = torch.cat([torch.arange(s.start, s.start + s.count) for s in spans])
        self.positions = positions
        self._slot = torch.repeat_interleave(
            torch.tensor([s.slot for s in spans]), torch.tensor([s.count for s in spans])
        )
        self._tile, self._offset = positions // TILE, positions % TILE
        self._singles = sum(1 for s in spans if s.count == 1)
        self._window = int(self._slot[: self._singles].max()) + 1 if self._singles else 0
        self._whole = self._window == self._singles and bool(
            (self._slot[: self._singles] == torch.arange(self._window)).all()
        )
        reach = torch.full((self._window,), -1)
        reach[self._slot[: self._singles]] = positions[: self._singles]
        self._single_hidden = _hidden(reach[:, None]) if self._singles else None
        self._single_tiles = int(reach.max()) // TILE + 1 if self._singles else 0
        self._long = spans[self._singles :]
        self._long_hidden = [_hidden(torch.arange(s.start, s.start + s.count)[None]) for s in self._long]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        where = (self._tile, self._slot, slice(None), self._offset)
        keys[where], values[where] = k, v
        out = torch.empty_like(q)
        if self._single_hidden is not None:
            out[: self._singles] = self._decode(q[: self._singles], keys, values, self._single_hidden)
        first = self._singles
        for span, hidden in zip(self._long, self._long_hidden, strict=True):
            rows = slice(first, first + span.count)
            window = slice(span.slot, span.slot + 1)
            tiles = (span.start + span.count - 1) // TILE + 1
            out[rows] = _attend(q[rows].unsqueeze(0), keys[:, window], values[:, window], tiles, hidden)[0]
            first += span.count
        return out.view(len(q), -1)

    def _decode(self, q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
        window, tiles = slice(0, self._window), self._single_tiles
        if self._whole:
            return _attend(q.unsqueeze(1), keys[:, window], values[:, window], tiles, hidden)[:, 0]
        spread = q.new_zeros(self._window, *q.shape[1:])
        slots = self._slot[: self._singles]
        spread[slots] = q
        return _attend(spread.unsqueeze(1), keys[:, window], values[:, window], tiles, hidden)[slots, 0]


def _hidden(positions: Tensor) -> Tensor:
    """Mask [tiles, n, 1, 1, t, TILE] of the slots that queries at `positions` [n, t] must not see, for the last
    tiles only: those before are seen whole by every query."""
    positions = positions.clamp(min=0)
    first, tiles = int(positions.min()) // TILE, int(positions.max()) // TILE + 1
    slot = torch.arange(first * TILE, tiles * TILE).view(tiles - first, 1, 1, TILE)
    hidden = slot > positions.unsqueeze(-1)
    return hidden[:, :, None, None]


def _attend(q: Tensor, keys: Tensor, values: Tensor, tiles: int, hidden: Tensor) -> Tensor:
    """`q` [n, t, heads, d]; `keys`, `values` [>= tiles, n, kv, TILE, d] views -> [n, t, heads, d]."""
    n, count, heads, d = q.shape
    kv = keys.shape[2]
    groups = heads // kv
    rows = (
        (q * d**-0.5).view(n, count, kv, groups, d).permute(0, 2, 3, 1, 4).reshape(n * kv, groups * count, d)
    )
    scores = torch.empty(tiles, n * kv, groups * count, TILE)
    for tile in range(tiles):
        scores[tile] = torch.bmm(rows, keys[tile].view(n * kv, TILE, d).transpose(1, 2))
    first = tiles - len(hidden)
    scores.view(tiles, n, kv, groups, count, TILE)[first:].masked_fill_(hidden, float("-inf"))
    scores.sub_(scores.amax(dim=(0, 3), keepdim=True)).exp_()
    sums, weights = scores.sum(-1, keepdim=True), scores.to(values.dtype)
    total, mixed = sums[0], torch.bmm(weights[0], values[0].view(n * kv, TILE, d)).float()
    for tile in range(1, tiles):
        total = total + sums[tile]
        mixed = mixed + torch.bmm(weights[tile], values[tile].view(n * kv, TILE, d)).float()
    mixed = (mixed / total).to(q.dtype)
    return mixed.view(n, kv, groups, count, d).permute(0, 3, 1, 2, 4).reshape(n, count, heads, d)
