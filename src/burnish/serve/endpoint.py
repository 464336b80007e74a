"""POST /v1/chat/completions.

What this file is: `ChatCompletions`, which takes a request through its stations (read, admit, prepare,
answer, record) and sends what comes of it, whole or as server-sent events.
What it is not: each station is another file's. It is plain ASGI, and not a function that returns a response,
so that the engine is held by a block that ends with the request in every case.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from burnish.observe.audit import Audit
from burnish.observe.metrics import Metrics
from burnish.serve.admission import Admission
from burnish.serve.chat import ServedModel, answer, prepare
from burnish.serve.choice import Delta, TokenLogprob
from burnish.serve.errors import Refusal, broken, invalid, still_loading, unknown_model
from burnish.serve.lifeline import ClientStalled
from burnish.serve.protocol import ChatRequest, read_request
from burnish.serve.record import CallRecord
from burnish.serve.wire import DONE, Reply, event
from burnish.types import UsageError

_log = logging.getLogger("burnish.serve")

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class ChatCompletions:
    """The endpoint, as an ASGI application. `seed` is what the seeds of requests without one follow from."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        admissions: Mapping[str, Admission],
        audit: Audit,
        metrics: Metrics,
        seed: int,
        keeps_content: bool,
    ) -> None:
        self._models, self._admissions = models, admissions
        self._audit, self._metrics = audit, metrics
        self._seed, self._asked = seed, 0
        self._keeps_content = keeps_content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, receive, send)
        request_id = f"chatcmpl-{uuid.uuid4().hex}"
        record = CallRecord(self._audit, request_id, self._keeps_content)
        try:
            await self._serve(request_id, record, exchange)
        except (asyncio.CancelledError, ClientStalled):
            record.close("cancelled")
            raise
        except Refusal as refusal:
            record.close("refused", refusal)
            await exchange.refuse(refusal)
        except UsageError as error:
            record.close("refused", invalid(str(error)))
            await exchange.refuse(invalid(str(error)))
        except Exception:
            _log.exception("request %s failed", request_id)
            record.close("failed", broken())
            await exchange.refuse(broken())
        finally:
            if record.call is not None:
                self._metrics.used(len(record.call.prompt_ids), record.call.sampled)

    async def _serve(self, request_id: str, record: CallRecord, exchange: _Exchange) -> None:
        # Reading and rendering a large request takes a while, and others are being answered meanwhile.
        request = await asyncio.to_thread(read_request, await exchange.body())
        record.request = request
        model = self._find(request)
        async with self._admissions[model.name].place():
            seed = self._next_seed()
            call = await asyncio.to_thread(prepare, model, request, seed)
            record.call = call
            reply = Reply(
                id=request_id,
                created=int(time.time()),
                call=call,
                logprobs=bool(request.logprobs),
                include_usage=request.stream_options is not None and request.stream_options.include_usage,
            )
            async with aclosing(self._timed(answer(call))) as deltas:
                if request.stream:
                    await _stream(reply, deltas, record, exchange)
                else:
                    await _whole(reply, deltas, record, exchange)

    def _find(self, request: ChatRequest) -> ServedModel:
        model = self._models.get(request.model)
        if model is None:
            raise unknown_model(request.model, sorted(self._models))
        if model.engine.version is None:
            raise still_loading(model.name)
        return model

    def _next_seed(self) -> int:
        """A seed for a request that brings none: the n-th one gets the same again after a restart."""
        text = f"request seed {self._seed} {self._asked}"
        self._asked += 1
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1

    async def _timed(self, deltas: AsyncGenerator[Delta]) -> AsyncGenerator[Delta]:
        """The same deltas; the first one's delay is measured."""
        begun = time.monotonic()
        first = True
        async with aclosing(deltas) as open_deltas:
            async for delta in open_deltas:
                if first:
                    self._metrics.first_token_seconds.observe(time.monotonic() - begun)
                    first = False
                yield delta


async def _whole(reply: Reply, deltas: AsyncIterator[Delta], record: CallRecord, exchange: _Exchange) -> None:
    tokens: dict[int, list[TokenLogprob]] = {}
    async for delta in deltas:
        tokens.setdefault(delta.index, []).extend(delta.tokens)
    record.close("completed")
    await exchange.respond(reply.whole(tokens))


async def _stream(
    reply: Reply, deltas: AsyncIterator[Delta], record: CallRecord, exchange: _Exchange
) -> None:
    # Nothing is sent before the first delta, so that an engine that refuses still gets its proper status.
    first = await anext(deltas)
    await exchange.open_stream()
    await exchange.push(reply.openings())
    await exchange.push(reply.chunks(first))
    async for delta in deltas:
        await exchange.push(reply.chunks(delta))
    record.close("completed")
    await exchange.push(reply.last())
    await exchange.end_stream()


class _Exchange:
    """The sending side of one request: a JSON response, or a stream of events that may end in an error."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._streaming = False

    async def body(self) -> bytes:
        """Raises Refusal (415) for another type than JSON: such a request a web page could send unasked."""
        request = Request(self._scope, self._receive)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "The header 'Content-Type: application/json' is needed.", code="not_json")
        return await request.body()

    async def respond(self, data: dict[str, Any]) -> None:
        await JSONResponse(data)(self._scope, self._receive, self._send)

    async def refuse(self, refusal: Refusal) -> None:
        """An error response; inside a stream an error event, after which no [DONE] comes."""
        if not self._streaming:
            response = JSONResponse(refusal.body, refusal.status, refusal.headers)
            await response(self._scope, self._receive, self._send)
            return
        await self._push_bytes(event(refusal.body), more=False)

    async def open_stream(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        self._streaming = True

    async def push(self, chunks: list[dict[str, Any]]) -> None:
        if chunks:
            await self._push_bytes(b"".join(map(event, chunks)), more=True)

    async def end_stream(self) -> None:
        await self._push_bytes(DONE, more=False)

    async def _push_bytes(self, data: bytes, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
