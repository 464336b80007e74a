"""A server on a free port of this machine, in the test's own event loop, and raw connections to it.

The engine lives in the same loop, so a test can see what it does, and hold it still, without waiting for time
to pass.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

from burnish.engine.fake import FakeEngine, Gate, Rule
from burnish.model.renderer import Renderer
from burnish.observe.audit import MemoryAudit
from burnish.observe.metrics import Metrics
from burnish.serve.app import ServerLimits
from burnish.serve.chat import ServedModel
from burnish.serve.server import HttpServer, serve
from burnish.types import Message

CONTEXT = 4096


def saying(renderer: Renderer, *texts: str) -> Rule:
    """A rule that answers with these texts in turn, the last one for ever, each as the model would sample
    it."""
    asked = iter(texts)
    last = texts[-1]

    def rule(prompt_ids: Sequence[int]) -> Sequence[int]:
        return renderer.demonstrate(Message("assistant", next(asked, last)))

    return rule


def spelling(renderer: Renderer, text: str) -> Rule:
    """A rule that answers with `text`, byte by byte: no token is longer than a byte."""
    ids = [i for character in text for i in renderer.tokenizer.encode(character).ids]
    return lambda prompt_ids: [*ids, renderer.stop_ids[0]]


async def fake(
    renderer: Renderer, rule: Rule | int, gate: Gate | None = None, piece: int = 1, context: int = CONTEXT
) -> FakeEngine:
    size = renderer.tokenizer.get_vocab_size()
    engine = FakeEngine(vocab_size=size, context=context, piece=piece, gate=gate)
    await engine.load(rule, version=7)
    return engine


@dataclass
class Running:
    """The server under test."""

    http: HttpServer
    audit: MemoryAudit
    metrics: Metrics
    client: AsyncOpenAI
    task: asyncio.Task[None]

    @property
    def url(self) -> str:
        return self.http.url

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The data of all model_call events so far."""
        return [event["data"] for event in self.audit.events if event["kind"] == "model_call"]

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def send(self, body: bytes, kind: str = "application/json", path: str = "/v1/chat/completions"):
        """Posts bytes as they are; returns the status, headers and body of the answer."""
        reader, writer = await self.connect()
        writer.write(post(body, kind, path))
        status, headers, answer = await read_response(reader)
        writer.close()
        return status, headers, answer


def post(body: bytes, kind: str = "application/json", path: str = "/v1/chat/completions") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def chat(**fields: Any) -> bytes:
    """A chat request's body; overridden or added to by `fields`."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Say it."}], **fields}
    return json.dumps(body).encode()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = [line.partition(": ") for line in head[1:] if line]
    headers = {name.lower(): value for name, _, value in pairs}
    raw = await reader.readexactly(int(headers["content-length"]))
    is_json = headers["content-type"].startswith("application/json")
    return int(head[0].split()[1]), headers, json.loads(raw) if is_json else raw


async def until(condition: Callable[[], bool]) -> None:
    """Lets everything else in this event loop go on until `condition` holds."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


@asynccontextmanager
async def running(
    renderer: Renderer,
    engine: Any,
    limits: ServerLimits | None = None,
    context: int = CONTEXT,
    **options: Any,
) -> AsyncIterator[Running]:
    """The server, as long as the block lasts. It serves one model, `tiny`."""
    models = {"tiny": ServedModel("tiny", engine, renderer, context)}
    audit, metrics = MemoryAudit(), Metrics()
    started: asyncio.Future[HttpServer] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(
            models,
            audit,
            port=0,
            metrics=metrics,
            limits=limits,
            ready=started.set_result,
            **options,
        )
    )
    http = await started
    async with AsyncOpenAI(base_url=f"{http.url}/v1", api_key="none", max_retries=0) as client:
        try:
            yield Running(http, audit, metrics, client, task)
        finally:
            await client.close()
            http.stop()
            await task
