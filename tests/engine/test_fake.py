"""The fake engine: what a test can script, see and hold still. What all engines share: `test_contract.py`."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from contextlib import aclosing

import numpy as np
import pytest

from burnish.engine.fake import FakeEngine, Gate, Script
from burnish.types import InfrastructureError, Sampling, UsageError


async def collect(engine: FakeEngine, prompt: tuple[int, ...], sampling: Sampling, n: int = 1):
    ids: list[list[int]] = [[] for _ in range(n)]
    logprobs: list[list[float]] = [[] for _ in range(n)]
    stops: list[str | None] = [None] * n
    async for piece in engine.generate(prompt, sampling, n):
        ids[piece.index] += piece.token_ids
        logprobs[piece.index] += piece.logprobs
        stops[piece.index] = piece.stop
    return ids, logprobs, stops


async def test_a_rule_sees_the_prompt_and_is_certain() -> None:
    engine = FakeEngine(vocab_size=100)
    await engine.load(lambda prompt: [len(prompt), prompt[-1], 9], version=3)
    ids, logprobs, stops = await collect(engine, (5, 6, 7), Sampling(stop_ids=(9,)))
    assert (ids, logprobs, stops) == ([[3, 7, 9]], [[0.0, 0.0, 0.0]], ["stop"])


async def test_a_rule_that_does_not_stop_is_cut() -> None:
    engine = FakeEngine()
    await engine.load(lambda prompt: range(10), version=1)
    assert (await collect(engine, (1,), Sampling(max_tokens=4)))[0] == [[0, 1, 2, 3]]
    ids, _, stops = await collect(engine, (1,), Sampling(max_tokens=50))
    assert (ids, stops) == ([list(range(10))], ["length"])


async def test_a_rule_that_says_nothing_is_a_fault_of_the_test() -> None:
    engine = FakeEngine()
    await engine.load(lambda prompt: [], version=1)
    with pytest.raises(InfrastructureError, match="no tokens"):
        await collect(engine, (1,), Sampling())
    assert engine.active == 0
    assert engine.counters.failed == 1


async def test_a_script_answers_in_order_and_once() -> None:
    engine = FakeEngine()
    script = Script([[1, 2], [3]])
    await engine.load(script, version=1)
    assert (await collect(engine, (7,), Sampling()))[0] == [[1, 2]]
    assert (await collect(engine, (8,), Sampling()))[0] == [[3]]
    with pytest.raises(InfrastructureError, match="2 outputs"):
        await collect(engine, (9,), Sampling())
    assert script.asked == [(7,), (8,)]


async def test_random_draws_follow_the_distribution() -> None:
    engine = FakeEngine(vocab_size=4)
    await engine.load(11, version=1)
    mass = engine.probabilities((2,), 0.7)
    draws = 2000
    counts: Counter[int] = Counter()
    for seed in range(draws):
        ids, _, _ = await collect(engine, (2,), Sampling(temperature=0.7, max_tokens=1, seed=seed))
        counts[ids[0][0]] += 1
    expected = mass * draws
    chi_square = sum((counts[v] - expected[v]) ** 2 / expected[v] for v in range(4))
    assert chi_square < 16.27  # the 0.999 quantile with three degrees of freedom


async def test_logprobs_are_those_of_the_tempered_distribution() -> None:
    engine = FakeEngine(vocab_size=16)
    await engine.load(5, version=1)
    ids, logprobs, _ = await collect(engine, (3, 4), Sampling(temperature=0.5, max_tokens=20, seed=1))
    context = [3, 4]
    for token, logprob in zip(ids[0], logprobs[0], strict=True):
        mass = engine.probabilities(context, 0.5)
        assert mass.sum() == pytest.approx(1.0)
        assert logprob == pytest.approx(math.log(mass[token]))
        context.append(token)


async def test_greedy_takes_the_mode_and_reports_at_temperature_one() -> None:
    engine = FakeEngine(vocab_size=16)
    await engine.load(5, version=1)
    ids, logprobs, _ = await collect(engine, (3,), Sampling(temperature=0, max_tokens=1))
    mass = engine.probabilities((3,), 1.0)
    assert ids == [[int(np.argmax(mass))]]
    assert logprobs[0][0] == pytest.approx(math.log(mass.max()))


async def test_a_rule_has_no_distribution() -> None:
    engine = FakeEngine()
    await engine.load(lambda prompt: [1], version=1)
    with pytest.raises(UsageError, match="rule"):
        engine.probabilities((1,), 1.0)


@pytest.mark.parametrize("after", [0, 1, 3])
async def test_the_gate_holds_generation_still(after: int) -> None:
    engine = FakeEngine(gate=Gate(after))
    await engine.load(lambda prompt: [1, 2, 3, 4], version=1)
    assert engine.gate is not None
    task = asyncio.create_task(collect(engine, (1,), Sampling()))
    await engine.gate.reached.wait()
    assert engine.active == 1
    assert engine.counters.sampled == after
    engine.gate.open()
    assert (await task)[0] == [[1, 2, 3, 4]]
    assert (engine.active, engine.counters.finished) == (0, 1)


async def test_cancelling_and_closing_are_counted_apart_from_finishing() -> None:
    engine = FakeEngine(gate=Gate(2))
    await engine.load(0, version=1)
    assert engine.gate is not None
    task = asyncio.create_task(collect(engine, (1,), Sampling()))
    await engine.gate.reached.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await engine.idle.wait()
    async with aclosing(engine.generate((1,), Sampling())) as pieces:
        await anext(pieces)
    assert engine.active == 0
    assert (engine.counters.started, engine.counters.cancelled, engine.counters.finished) == (2, 2, 0)
