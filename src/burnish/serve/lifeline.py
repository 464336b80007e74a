"""A request lives as long as its client: the outermost layer of the server.

What this file is: `Lifeline`, an ASGI layer that reads the body within limits of size and time, cancels the
work of a client that has gone (on every route, before the first byte as well as after) or has stopped
reading, and counts requests.
What it is not: it parses nothing and knows no route.
Source: https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from burnish.observe.metrics import Metrics
from burnish.serve.errors import Refusal

_CLIENT_GONE = 499
_UNMATCHED = "(unmatched)"


class ClientStalled(Exception):
    """The client has not taken what was sent to it for too long."""


class Lifeline:
    """`body_bytes` is the largest body. `body_seconds` is how long sending it may take, `stall_seconds` how
    long a client may leave a sent piece untaken."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        body_bytes: int,
        body_seconds: float,
        stall_seconds: float,
    ) -> None:
        self._app, self._metrics = app, metrics
        self._body_bytes = body_bytes
        self._body_seconds = body_seconds
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        exchange = _Exchange(receive, send, self._stall_seconds)
        self._metrics.in_flight.inc()
        try:
            body = await self._read(scope, exchange)
            if body is not None:
                await exchange.run(self._app, scope, body)
        except Refusal as refusal:
            headers = {**refusal.headers, "Connection": "close"}
            await JSONResponse(refusal.body, refusal.status, headers)(scope, receive, exchange.send)
        except Exception:
            # The layer outside answers this one.
            exchange.outcome = 500
            raise
        finally:
            self._metrics.in_flight.dec()
            route = getattr(scope.get("route"), "path", _UNMATCHED)
            self._metrics.request(route, exchange.outcome, time.monotonic() - begun)

    async def _read(self, scope: Scope, exchange: _Exchange) -> bytes | None:
        """The body; None when the client left. Raises Refusal: 413 or 408."""
        try:
            async with asyncio.timeout(self._body_seconds):
                return await exchange.read(self._body_bytes)
        except TimeoutError:
            message = f"The body did not arrive within {self._body_seconds:g} seconds."
            raise Refusal(408, message, code="request_timeout") from None


class _Exchange:
    """One request and its response."""

    def __init__(self, receive: Receive, send: Send, stall_seconds: float) -> None:
        self._receive, self._send, self._stall_seconds = receive, send, stall_seconds
        self.outcome = _CLIENT_GONE  # the status, once the response is complete
        self._status = _CLIENT_GONE
        self._complete = False

    async def read(self, most: int) -> bytes | None:
        body = bytearray()
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            size += len(message.get("body", b""))
            # Somewhat more is read and dropped: a client that is still sending does not look at an answer.
            if size <= most:
                body += message.get("body", b"")
            if size > 4 * most or (size > most and not message.get("more_body", False)):
                raise Refusal(413, f"The body is larger than {most} bytes.", code="body_too_large")
            if not message.get("more_body", False):
                return bytes(body)

    async def run(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        """Runs the application until it is done or the client has gone, whichever is first."""
        gone = asyncio.create_task(self._disconnected())
        work = asyncio.create_task(self._work(app, scope, _replay(body, gone)))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if self._complete:
                # uvicorn reports a disconnect after every complete response too: that is no reason to cancel.
                await work
        finally:
            gone.cancel()
            work.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
        if not work.cancelled() and not isinstance(work.exception(), ClientStalled):
            work.result()

    async def _work(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        await app(scope, receive, self.send)

    async def send(self, message: Message) -> None:
        """Passes a message on. Raises ClientStalled when the client does not take it in time."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self._complete = True
            self.outcome = self._status
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._send(message)
        except TimeoutError:
            self._complete = False
            self.outcome = _CLIENT_GONE
            raise ClientStalled from None

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _replay(body: bytes, gone: asyncio.Task[None]) -> Receive:
    """A `receive` that gives the body again, and then waits for the client to go."""
    pending: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not pending:
            await asyncio.wait({gone})
            return {"type": "http.disconnect"}
        message: Message = pending.pop()
        return message

    return receive
