"""A client that goes away takes its generation with it, wherever that stands (BerriAI/litellm#30244)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from burnish.engine.fake import FakeEngine, Gate
from burnish.engine.local import LocalEngine
from burnish.model.renderer import Renderer
from burnish.model.weights import load_model
from burnish.serve.app import ServerLimits
from tests.serve.running import Running, chat, fake, post, running, until

CALLS = 100


async def held(renderer: Renderer, after: int, piece: int = 1) -> tuple[FakeEngine, Gate]:
    gate = Gate(after)
    return await fake(renderer, 1, gate, piece), gate


async def recorded(server: Running, count: int) -> None:
    """Waits until so many requests are in the log."""
    await until(lambda: len(server.calls) >= count)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("after", [0, 3], ids=["before the first token", "in the middle"])
@pytest.mark.parametrize("abrupt", [False, True], ids=["closed", "reset"])
async def test_a_disconnect_frees_the_engine(
    renderer: Renderer, streamed: bool, after: int, abrupt: bool
) -> None:
    engine, gate = await held(renderer, after)
    async with running(renderer, engine) as server:
        _, writer = await server.connect()
        writer.write(post(chat(stream=streamed, n=2)))
        await gate.reached.wait()
        assert engine.active == 1
        if abrupt:
            writer.transport.abort()
        else:
            writer.close()
        await engine.idle.wait()
        await recorded(server, 1)
        await until(lambda: server.metric("burnish_requests_in_flight") == 0)
        assert engine.counters.cancelled == 1
        (call,) = server.calls
        assert call["outcome"] == "cancelled"
        assert [answer["finish"] for answer in call["answers"]] == [None, None]
        # The tokens that were sampled until then count.
        sampled = sum(answer["tokens"] for answer in call["answers"])
        assert sampled == engine.counters.sampled
        assert server.metric("burnish_tokens_total", direction="completion") == sampled
        route = {"route": "/v1/chat/completions", "status": "499"}
        assert server.metric("burnish_requests_total", **route) == 1


async def test_nothing_leaks_over_many_disconnects(renderer: Renderer) -> None:
    engine, gate = await held(renderer, 2)
    async with running(renderer, engine, ServerLimits(running=4, waiting=4)) as server:
        for number in range(CALLS):
            gate.reached.clear()
            _, writer = await server.connect()
            writer.write(post(chat(stream=number % 2 == 0)))
            await gate.reached.wait()
            writer.transport.abort()
            await recorded(server, number + 1)
        assert engine.active == 0
        assert engine.counters.cancelled == CALLS
        gate.open()
        status, _, answer = await server.send(chat(max_tokens=3))
    assert (status, answer["usage"]["completion_tokens"]) == (200, 3)


async def test_a_client_that_waits_in_the_queue_can_leave_it(renderer: Renderer) -> None:
    engine, gate = await held(renderer, 0)
    async with running(renderer, engine, ServerLimits(running=1, waiting=1)) as server:
        first = asyncio.create_task(server.send(chat(max_tokens=1)))
        await gate.reached.wait()
        admission = server.http.service.admissions["tiny"]
        _, writer = await server.connect()
        writer.write(post(chat()))
        await until(lambda: admission.inside == 2)
        writer.close()
        await recorded(server, 1)
        assert admission.inside == 1
        gate.open()
        assert (await first)[0] == 200
        assert admission.inside == 0
    assert engine.counters.started == 1


async def test_a_client_that_leaves_while_it_sends_its_body_starts_nothing(renderer: Renderer) -> None:
    engine, _ = await held(renderer, 0)
    async with running(renderer, engine) as server:
        _, writer = await server.connect()
        writer.write(post(chat())[:-5])
        await writer.drain()
        writer.close()
        status, _, _ = await server.send(b"{}")
        assert status == 400
        await until(lambda: server.metric("burnish_requests_in_flight") == 0)
    assert engine.counters.started == 0


async def test_a_client_that_stops_reading_is_let_go(renderer: Renderer) -> None:
    # Far more than the buffers of both sides and of the system hold.
    engine = await fake(renderer, lambda prompt_ids: [40] * 4000, context=8192)
    async with running(renderer, engine, ServerLimits(stall_seconds=0.05), context=8192) as server:
        _, writer = await server.connect()
        writer.transport.pause_reading()
        writer.write(post(chat(stream=True, n=16, logprobs=True)))
        await recorded(server, 1)
        await engine.idle.wait()
        assert server.calls[0]["outcome"] == "cancelled"
        assert engine.counters.sampled < 16 * 4000
        writer.transport.abort()


async def test_the_engines_failure_is_an_error_and_not_an_end(renderer: Renderer) -> None:
    engine, gate = await held(renderer, 3)
    async with running(renderer, engine) as server:
        reader, writer = await server.connect()
        writer.write(post(chat(stream=True)))
        await gate.reached.wait()
        await engine.close()
        gate.open()
        head = await reader.readuntil(b"\r\n\r\n")
        events = (await reader.readuntil(b"\r\n0\r\n\r\n")).decode()
        writer.close()
        assert b" 200 " in head.splitlines()[0]
        assert "[DONE]" not in events
        assert '"type":"server_error"' in events
        status, _, answer = await server.send(chat())
        assert (status, answer["error"]["type"]) == (500, "server_error")
        outcomes: list[Any] = [call["outcome"] for call in server.calls]
        assert outcomes == ["failed", "failed"]


async def test_the_real_engine_gives_its_slots_back(tiny: Path, renderer: Renderer) -> None:
    loaded = load_model(tiny)
    engine = LocalEngine(loaded.config, slots=2, context=4096)
    await engine.load(loaded.state_dict(), version=1)
    try:
        async with running(renderer, engine) as server:
            for number in range(6):
                reader, writer = await server.connect()
                writer.write(post(chat(stream=True, n=2, logprobs=True)))
                await reader.readuntil(b'"token"')
                writer.transport.abort()
                await recorded(server, number + 1)
            # Both slots are needed, so this one gets its answer only when all of them are free again.
            status, _, answer = await server.send(chat(n=2, max_tokens=3))
            assert (status, len(answer["choices"])) == (200, 2)
            await until(lambda: engine.active == 0)
    finally:
        await engine.close()
