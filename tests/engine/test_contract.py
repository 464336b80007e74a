"""What every engine promises (`interfaces.Engine`), run over all that run here without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio
import torch

from burnish.engine.fake import FakeEngine
from burnish.engine.local import LocalEngine
from burnish.interfaces import Engine
from burnish.model.config import ModelConfig
from burnish.model.transformer import Transformer
from burnish.types import Completion, InfrastructureError, Sampling, UsageError

VOCABULARY, CONTEXT = 64, 128
PROMPT = (5, 9, 33, 2)


def _local(seed: int) -> tuple[LocalEngine, Any, Any]:
    config = ModelConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        layers=2,
        heads=2,
        kv_heads=1,
        head_dim=16,
        rope_theta=10000.0,
        rms_eps=1e-5,
        max_positions=CONTEXT,
        tie_embeddings=True,
        bos_id=None,
        eos_ids=(),
        pad_id=None,
    )
    engine = LocalEngine(config, slots=4, context=CONTEXT)
    return engine, _weights(config, seed), _weights(config, seed + 1)


def _weights(config: ModelConfig, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        shapes = Transformer(config).state_dict()
    return {name: 0.3 * torch.randn(t.shape, generator=generator) for name, t in shapes.items()}


def _fake(seed: int) -> tuple[FakeEngine, Any, Any]:
    return FakeEngine(vocab_size=VOCABULARY, context=CONTEXT, piece=3), seed, seed + 1


@pytest_asyncio.fixture(params=[_fake, _local], ids=["fake", "local"])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Any, Any, Any]]:
    """An engine without weights, and two sets of weights for it."""
    make: Callable[[int], tuple[Any, Any, Any]] = request.param
    engine, first, second = make(7)
    yield engine, first, second
    await engine.close()


@pytest_asyncio.fixture
async def engine(opened: tuple[Any, Any, Any]) -> Any:
    await opened[0].load(opened[1], version=1)
    return opened[0]


async def collect(engine: Engine, sampling: Sampling, n: int = 1, prompt=PROMPT) -> list[list[Completion]]:
    pieces: list[list[Completion]] = [[] for _ in range(n)]
    async for piece in engine.generate(prompt, sampling, n):
        pieces[piece.index].append(piece)
    return pieces


def ids(pieces: list[Completion]) -> list[int]:
    return [token for piece in pieces for token in piece.token_ids]


def test_it_is_an_engine(engine: Any) -> None:
    assert isinstance(engine, Engine)
    assert engine.version == 1


async def test_pieces_are_whole(engine: Any) -> None:
    (pieces,) = await collect(engine, Sampling(max_tokens=10, seed=4))
    assert len(ids(pieces)) == 10
    assert all(len(p.token_ids) == len(p.logprobs) > 0 for p in pieces)
    assert all(logprob <= 0 for p in pieces for logprob in p.logprobs)
    assert [p.stop for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert {p.version for p in pieces} == {1}


async def test_the_same_request_gives_the_same_again_whatever_runs_beside_it(engine: Any) -> None:
    sampling = Sampling(max_tokens=12, seed=3)
    alone = await collect(engine, sampling)
    others = [collect(engine, Sampling(max_tokens=9, seed=s), prompt=(1, 2, s)) for s in range(3)]
    crowded, *_ = await asyncio.gather(collect(engine, sampling), *others)
    assert ids(crowded[0]) == ids(alone[0])
    assert [p.logprobs for p in crowded[0]] == [p.logprobs for p in alone[0]]


async def test_another_seed_gives_another_answer_and_so_does_another_index(engine: Any) -> None:
    first, second = await collect(engine, Sampling(max_tokens=16, seed=1), n=2)
    (other,) = await collect(engine, Sampling(max_tokens=16, seed=2))
    (again,) = await collect(engine, Sampling(max_tokens=16, seed=1))
    assert ids(first) == ids(again)
    assert len({tuple(ids(first)), tuple(ids(second)), tuple(ids(other))}) == 3


async def test_greedy_ignores_the_seed(engine: Any) -> None:
    (one,) = await collect(engine, Sampling(temperature=0, max_tokens=8, seed=1))
    (two,) = await collect(engine, Sampling(temperature=0, max_tokens=8, seed=2))
    assert ids(one) == ids(two)


async def test_a_stop_token_ends_the_output_and_is_kept(engine: Any) -> None:
    (free,) = await collect(engine, Sampling(max_tokens=16, seed=3))
    stop = ids(free)[5]
    at = ids(free).index(stop)
    (stopped,) = await collect(engine, Sampling(max_tokens=16, seed=3, stop_ids=(stop,)))
    assert ids(stopped) == ids(free)[: at + 1]
    assert stopped[-1].stop == "stop"


async def test_the_context_ends_an_output(engine: Any) -> None:
    prompt = tuple(i % VOCABULARY for i in range(CONTEXT - 6))
    (pieces,) = await collect(engine, Sampling(max_tokens=50, seed=0), prompt=prompt)
    assert len(ids(pieces)) == 6
    assert pieces[-1].stop == "length"


@pytest.mark.parametrize(
    ("prompt", "sampling"),
    [
        ((), Sampling()),
        ((VOCABULARY,), Sampling()),
        ((-1,), Sampling()),
        ((1,) * CONTEXT, Sampling()),
        (PROMPT, Sampling(max_tokens=0)),
        (PROMPT, Sampling(temperature=-0.1)),
    ],
    ids=["empty", "too high", "negative", "too long", "no tokens", "negative temperature"],
)
async def test_impossible_requests_are_refused(engine: Any, prompt: Any, sampling: Sampling) -> None:
    with pytest.raises(UsageError):
        await collect(engine, sampling, prompt=prompt)
    assert engine.active == 0


async def test_without_weights_nothing_is_generated(opened: tuple[Any, Any, Any]) -> None:
    assert opened[0].version is None
    with pytest.raises(InfrastructureError, match="load"):
        await collect(opened[0], Sampling())


async def test_new_weights_are_used_and_stamped(opened: tuple[Any, Any, Any]) -> None:
    engine, first, second = opened
    sampling = Sampling(max_tokens=16, seed=3)
    await engine.load(first, version=1)
    (before,) = await collect(engine, sampling)
    await engine.load(second, version=2)
    (after,) = await collect(engine, sampling)
    assert {p.version for p in after} == {2}
    assert ids(after) != ids(before)
    await engine.load(first, version=3)
    (back,) = await collect(engine, sampling)
    assert ids(back) == ids(before)
    assert [p.logprobs for p in back] == [p.logprobs for p in before]


async def test_an_abandoned_request_leaves_nothing_running(engine: Any) -> None:
    for taken in (0, 1, 2):
        async with aclosing(engine.generate(PROMPT, Sampling(max_tokens=64), 2)) as pieces:
            for _ in range(taken):
                await anext(pieces)
    await collect(engine, Sampling(max_tokens=1))
    assert engine.active == 0


async def test_a_cancelled_task_leaves_nothing_running(engine: Any) -> None:
    task = asyncio.create_task(collect(engine, Sampling(max_tokens=100)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await collect(engine, Sampling(max_tokens=1))
    assert engine.active == 0


async def test_closing_twice_is_fine_and_ends_service(engine: Any) -> None:
    await engine.close()
    await engine.close()
    with pytest.raises(InfrastructureError):
        await collect(engine, Sampling())
