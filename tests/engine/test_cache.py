"""Which slot a prompt gets, and how much of it is there already."""

from __future__ import annotations

import pytest
import torch

from burnish.engine.cache import Slot, SlotCache
from burnish.model.attention import TILE
from burnish.model.config import ModelConfig

CONFIG = ModelConfig(
    vocab_size=32, hidden_size=8, intermediate_size=8, layers=2, heads=1, kv_heads=1, head_dim=8,
    rope_theta=1e4, rms_eps=1e-5, max_positions=512, tie_embeddings=True,
    bos_id=None, eos_ids=(), pad_id=None,
)  # fmt: skip


@pytest.fixture
def cache() -> SlotCache:
    return SlotCache(CONFIG, slots=3, context=300, dtype=torch.float32)


def take(cache: SlotCache, ids: list[int], step: int = 0) -> Slot:
    slot = cache.acquire(ids, step)
    assert slot is not None
    return slot


def finish(cache: SlotCache, slot: Slot) -> None:
    slot.computed = len(slot.ids)
    cache.release(slot)


def test_the_context_is_rounded_up_to_whole_tiles(cache: SlotCache) -> None:
    assert cache.context == 3 * TILE == 384
    assert cache.keys.shape == (2, 3, 3, 1, TILE, 8)


def test_the_last_token_is_always_left_to_compute(cache: SlotCache) -> None:
    ids = [1, 2, 3, 4]
    finish(cache, take(cache, ids))
    assert take(cache, ids).computed == 3


def test_a_continued_conversation_gets_its_own_slot_back(cache: SlotCache) -> None:
    first = take(cache, [1, 2, 3, 4])
    finish(cache, first)
    again = take(cache, [1, 2, 3, 4, 5, 6])
    assert again is first and again.computed == 4


def test_a_busy_sequences_prefix_is_copied(cache: SlotCache) -> None:
    owner = take(cache, [1] * 200)
    owner.computed = 200
    cache.keys[:, :, owner.index] = 7.0
    cache.values[:, :, owner.index] = 8.0
    other = take(cache, [1] * 150 + [2])
    assert other is not owner and other.computed == 150
    assert bool((cache.keys[:, :2, other.index] == 7.0).all())
    assert bool((cache.values[:, :2, other.index] == 8.0).all())
    assert owner.busy and owner.computed == 200


def test_a_short_common_prefix_does_not_cost_a_long_sequence_its_slot(cache: SlotCache) -> None:
    long = take(cache, list(range(30)))
    finish(cache, long)
    other = take(cache, [0, 1, 2, 31, 31])
    assert other is not long and other.computed == 3
    assert take(cache, [*range(30), 5]).computed == 30


def test_a_prompt_waits_for_a_prefix_that_another_is_about_to_compute(cache: SlotCache) -> None:
    owner = take(cache, [1] * 100)
    assert cache.acquire([1] * 99 + [2], 0) is None
    owner.computed = 100
    assert take(cache, [1] * 99 + [2]).computed == 99


def test_a_prefix_that_is_short_is_not_waited_for(cache: SlotCache) -> None:
    take(cache, [1] * 10)
    assert take(cache, [1] * 9 + [2]).computed == 0


def test_none_is_free_when_all_are_busy(cache: SlotCache) -> None:
    slots = [take(cache, [i, i]) for i in range(3)]
    assert cache.acquire([9, 9], 0) is None
    cache.release(slots[1])
    assert take(cache, [9, 9]) is slots[1]


def test_the_least_recently_used_is_given_up_first(cache: SlotCache) -> None:
    for number, used in enumerate((5, 2, 9)):
        slot = take(cache, [number] * 4)
        slot.used, slot.computed = used, 4
    for slot in cache.slots:
        cache.release(slot)
    assert take(cache, [30, 30], step=10).index == 1


def test_what_was_not_computed_is_not_kept(cache: SlotCache) -> None:
    slot = take(cache, [1, 2, 3, 4])
    slot.computed = 2
    cache.release(slot)
    assert slot.ids.tolist() == [1, 2]
    assert take(cache, [1, 2, 3, 4]).computed == 2


def test_new_weights_forget_everything_but_who_owns_what(cache: SlotCache) -> None:
    idle, busy = take(cache, [1, 2, 3]), take(cache, [4, 5, 6])
    finish(cache, idle)
    busy.computed = 3
    cache.clear()
    assert (idle.computed, len(idle.ids)) == (0, 0)
    assert (busy.computed, busy.ids.tolist(), busy.busy) == (0, [4, 5, 6], True)
    assert take(cache, [1, 2, 3]).computed == 0
