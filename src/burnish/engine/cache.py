"""Keys and values of running and recently finished sequences.

What this file is: slots of tile-major storage (a tile of 128 positions of all slots lies together, so that one
product reads a tile of the whole batch as a view, without a gather), and the rule by which a new prompt takes
over or copies what an earlier sequence already computed.
What it is not: it runs no model. Paging and prefix blocks shared without a copy are not here yet; they replace
this file behind the same calls.

A slot's contents are valid only for the weights version that wrote them: `clear` is called on every load.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from burnish.model.attention import TILE
from burnish.model.config import ModelConfig


class Slot:
    """One sequence's place. `ids` are the tokens it holds or is about to hold, `computed` how many of them
    have keys and values; `busy` while a request owns it; `used` is the engine's step of last use."""

    __slots__ = ("busy", "computed", "ids", "index", "used")

    def __init__(self, index: int) -> None:
        self.index = index
        self.ids: NDArray[np.int64] = np.empty(0, np.int64)
        self.computed = 0
        self.busy = False
        self.used = -1

    def shared(self, ids: NDArray[np.int64], *, planned: bool = False) -> int:
        """Length of the common prefix of `ids` with what is computed (or planned) here."""
        n = min(len(ids), len(self.ids) if planned else self.computed)
        differs = np.nonzero(self.ids[:n] != ids[:n])[0]
        return int(differs[0]) if len(differs) else n


class SlotCache:
    """`keys` and `values` [layers, tiles, slots, kv_heads, TILE, head_dim]."""

    def __init__(self, config: ModelConfig, slots: int, context: int, dtype: torch.dtype) -> None:
        tiles = -(-context // TILE)
        shape = (config.layers, tiles, slots, config.kv_heads, TILE, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)
        self.context = tiles * TILE
        self.slots = [Slot(i) for i in range(slots)]

    def clear(self) -> None:
        """Forgets everything that is computed; owners keep their slots and must compute again."""
        for slot in self.slots:
            slot.computed = 0
            if not slot.busy:
                slot.ids = slot.ids[:0]

    def acquire(self, prompt: Sequence[int], step: int) -> Slot | None:
        """A slot for `prompt` with as much of it computed as any slot has, at most all but the last token
        (whose hidden state is needed). None when all are busy, or when a running request is about to compute
        a longer shared prefix that is worth waiting for."""
        ids = np.asarray(prompt, np.int64)
        free = [s for s in self.slots if not s.busy]
        if not free:
            return None
        best = max(self.slots, key=lambda s: (s.shared(ids), not s.busy))
        shared = min(best.shared(ids), len(ids) - 1)
        soon = max((s.shared(ids, planned=True) for s in self.slots if s.busy), default=0)
        if min(soon, len(ids) - 1) > shared + 16:
            return None
        if best.busy or shared < best.computed // 2:
            target = min(free, key=lambda s: (s.computed > 0, s.used, s.index))
            if target is not best:
                self._copy(best, target, shared)
        else:
            target = best
        target.ids, target.computed, target.busy, target.used = ids, shared, True, step
        return target

    def release(self, slot: Slot) -> None:
        """Ends ownership; what is computed stays for a later prompt that starts the same."""
        slot.busy = False
        slot.ids = slot.ids[: slot.computed]

    def _copy(self, source: Slot, target: Slot, length: int) -> None:
        tiles = -(-length // TILE)
        for store in (self.keys, self.values):
            store[:, :tiles, target.index] = store[:, :tiles, source.index]
