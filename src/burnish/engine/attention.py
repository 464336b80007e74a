"""Attention from the cache, for one step of the engine.

What this file is: the engine's `Attend`: writes the new keys and values, then lets each new token see its slot's
positions, tiles of 128 in order, summed in the order that `model.attention` sums. Sequences with about as many
new tokens are attended together: all that decode one token, and those that prefill in bands of similar length.
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


@dataclass(frozen=True, slots=True)
class _Band:
    """Spans that are attended together. `tokens` [n, t] index the step's tokens, padded by repeating a real
    one; `real` [n, t] says which are not padding. `slots` select their caches: a slice where they lie side by
    side, which costs no copy."""

    tokens: Tensor
    real: Tensor
    slots: slice | Tensor
    tiles: int
    hidden: Tensor

    @classmethod
    def of(cls, spans: Sequence[tuple[int, Span]]) -> _Band:
        """`spans` with the index of each one's first token."""
        first = torch.tensor([index for index, _ in spans])[:, None]
        start = torch.tensor([span.start for _, span in spans])[:, None]
        count = torch.tensor([span.count for _, span in spans])[:, None]
        step = torch.arange(int(count.max()))[None]
        inside = torch.minimum(step, count - 1)
        positions = start + inside
        slots = torch.tensor([span.slot for _, span in spans])
        together = bool((slots == torch.arange(int(slots[0]), int(slots[0]) + len(slots))).all())
        return cls(
            tokens=first + inside,
            real=step < count,
            slots=slice(int(slots[0]), int(slots[0]) + len(slots)) if together else slots,
            tiles=int(positions.max()) // TILE + 1,
            hidden=_hidden(positions),
        )


class CachedAttention:
    """Attention of one step over `spans`, whose tokens lie in that order."""

    def __init__(self, cache: SlotCache, spans: Sequence[Span]) -> None:
        self.cache = cache
        self.positions = torch.cat([torch.arange(s.start, s.start + s.count) for s in spans])
        counts = torch.tensor([s.count for s in spans])
        self._slot = torch.repeat_interleave(torch.tensor([s.slot for s in spans]), counts)
        self._tile, self._offset = self.positions // TILE, self.positions % TILE
        bands: dict[int, list[tuple[int, Span]]] = {}
        for first, span in zip((counts.cumsum(0) - counts).tolist(), spans, strict=True):
            bands.setdefault((span.count - 1).bit_length(), []).append((first, span))
        self._bands = [_Band.of(band) for band in bands.values()]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        where = (self._tile, self._slot, slice(None), self._offset)
        keys[where], values[where] = k, v
        out = torch.empty_like(q)
        for band in self._bands:
            rows = q[band.tokens]
            seen = slice(0, band.tiles)
            mixed = _attend(rows, keys[seen, band.slots], values[seen, band.slots], band.hidden)
            out[band.tokens[band.real]] = mixed[band.real]
        return out.view(len(q), -1)


def _hidden(positions: Tensor) -> Tensor:
    """Mask [tiles, n, 1, 1, t, TILE] of the slots that queries at `positions` [n, t] must not see, for the last
    tiles only: those before are seen whole by every query."""
    first, tiles = int(positions.min()) // TILE, int(positions.max()) // TILE + 1
    slot = torch.arange(first * TILE, tiles * TILE).view(tiles - first, 1, 1, TILE)
    hidden = slot > positions.unsqueeze(-1)
    return hidden[:, :, None, None]


def _attend(q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
    """`q` [n, t, heads, d]; `keys`, `values` [tiles, n, kv, TILE, d] -> [n, t, heads, d]."""
    n, count, heads, d = q.shape
    tiles, _, kv = keys.shape[:3]
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
