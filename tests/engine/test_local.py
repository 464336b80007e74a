"""What only the embedded engine promises: the same bits however a request is batched, chunked or cached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio
import torch

from burnish.engine.local import LocalEngine
from burnish.model.attention import PackedAttention
from burnish.model.config import ModelConfig
from burnish.model.transformer import Transformer
from burnish.train.packing import build_samples, pack
from burnish.types import Completion, Group, InfrastructureError, Sampling
from tests.train.trees import trajectory_of, turn

CONFIG = ModelConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, layers=2, heads=4, kv_heads=2, head_dim=16,
    rope_theta=1e4, rms_eps=1e-5, max_positions=512, tie_embeddings=True,
    bos_id=None, eos_ids=(), pad_id=None,
)  # fmt: skip
LONG = [(7 * i + i // 9) % 97 for i in range(180)]


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        shapes = Transformer(CONFIG).state_dict()
    made = {name: (0.2 * torch.randn(t.shape, generator=generator)).bfloat16() for name, t in shapes.items()}
    return made | {"head.weight": made["embedding"]}


async def opened(**options: Any) -> LocalEngine:
    engine = LocalEngine(CONFIG, **({"slots": 6, "context": 256} | options))
    await engine.load(weights(), version=1)
    return engine


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[LocalEngine]:
    made = await opened()
    yield made
    await made.close()


async def answer(
    engine: LocalEngine, prompt: Sequence[int], sampling: Sampling
) -> tuple[list[int], list[float]]:
    pieces = [piece async for piece in engine.generate(prompt, sampling)]
    return [p.token_ids[0] for p in pieces], [p.logprobs[0] for p in pieces]


REQUESTS = [
    (LONG[:n], Sampling(temperature, 10, seed))
    for seed, (n, temperature) in enumerate(
        [(3, 1.0), (140, 0.7), (130, 1.0), (129, 0.0), (60, 1.3), (180, 1.0)]
    )
]


async def test_alone_batched_chunked_and_cached_give_the_same_bits() -> None:
    expected = []
    for prompt, sampling in REQUESTS:
        alone = await opened(slots=1)
        expected.append(await answer(alone, prompt, sampling))
        await alone.close()
    for options in ({}, {"chunk": 17}, {"slots": 2, "chunk": 5}):
        engine = await opened(**options)
        for _ in range(2):  # the second time from the cache
            assert await asyncio.gather(*(answer(engine, p, s) for p, s in REQUESTS)) == expected
        assert engine.counters.reused > 400
        await engine.close()


async def test_greedy_is_the_argmax_of_the_model(engine: LocalEngine) -> None:
    tokens, _ = await answer(engine, LONG[:20], Sampling(0.0, 8))
    model = Transformer(CONFIG).bfloat16()
    model.load_state_dict(weights())
    trajectory = trajectory_of([turn(None, LONG[:20], tokens)])
    group = Group(trajectory.task, [trajectory])
    build_samples(group)
    packed = pack([group])
    with torch.no_grad():
        hidden = model(packed.layout.ids, packed.layout.positions, PackedAttention(packed.layout))
    assert model.logits(hidden[packed.sources]).float().argmax(-1).tolist() == tokens


async def test_loading_weights_makes_running_requests_compute_again_and_stamps_what_follows(
    engine: LocalEngine,
) -> None:
    seen: list[Completion] = []
    async for piece in engine.generate(LONG[:40], Sampling(1.0, 60, 3)):
        seen.append(piece)
        if len(seen) == 5:
            await engine.load(weights(1), version=2)
    versions = [piece.version for piece in seen]
    assert versions == sorted(versions) and set(versions) == {1, 2}
    switch = versions.index(2)
    # What followed is what the new weights give on the whole context, not on keys of the old ones.
    context = [*LONG[:40], *(p.token_ids[0] for p in seen[:switch])]
    fresh = await opened(slots=1)
    await fresh.load(weights(1), version=2)
    (token, *_), (logprob, *_) = await answer(fresh, context, Sampling(0.0, 1))
    (mine, *_), (value, *_) = await answer(engine, context, Sampling(0.0, 1))
    assert (token, logprob) == (mine, value)
    await fresh.close()


async def test_new_weights_do_not_answer_from_old_keys(engine: LocalEngine) -> None:
    await answer(engine, LONG, Sampling(0.0, 4))
    await engine.load(weights(1), version=2)
    other = await opened(slots=1)
    await other.load(weights(1), version=2)
    sampling = Sampling(1.0, 8, 5)
    assert await answer(engine, LONG, sampling) == await answer(other, LONG, sampling)
    await other.close()


async def test_weights_are_copied_not_shared(engine: LocalEngine) -> None:
    handle = weights()
    await engine.load(handle, version=2)
    before = await answer(engine, LONG[:9], Sampling(1.0, 6, 1))
    for tensor in handle.values():
        tensor.zero_()
    engine.cache.clear()
    assert await answer(engine, LONG[:9], Sampling(1.0, 6, 1)) == before


async def test_cancelled_requests_free_their_slots(engine: LocalEngine) -> None:
    for _ in range(4):
        async with aclosing(engine.generate(LONG[:30], Sampling(1.0, 200), n=6)) as pieces:
            await anext(pieces)
    await answer(engine, LONG[:5], Sampling(1.0, 1))
    assert engine.active == 0
    assert not any(slot.busy for slot in engine.cache.slots)


async def test_requests_beyond_the_slots_wait_their_turn(engine: LocalEngine) -> None:
    done = await asyncio.gather(*(answer(engine, [i, i + 1], Sampling(1.0, 5, i)) for i in range(20)))
    assert [len(tokens) for tokens, _ in done] == [5] * 20
    assert engine.active == 0


async def test_the_context_ends_an_answer_as_length() -> None:
    engine = await opened(slots=2, context=128)
    pieces = [p async for p in engine.generate(LONG[:120], Sampling(1.0, 50))]
    assert len(pieces) == 8 and pieces[-1].stop == "length"
    await engine.close()


async def test_a_failing_step_fails_its_requests_and_the_engine_goes_on(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "_step", broken)
        with pytest.raises(InfrastructureError, match="no memory"):
            await answer(engine, LONG[:4], Sampling(1.0, 3))
    assert not any(slot.busy for slot in engine.cache.slots)
    assert len((await answer(engine, LONG[:4], Sampling(1.0, 3)))[0]) == 3


async def test_closing_fails_what_runs() -> None:
    engine = await opened()
    running = asyncio.create_task(answer(engine, LONG, Sampling(1.0, 70)))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await running
