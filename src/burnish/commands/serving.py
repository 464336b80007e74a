"""serve: models behind an HTTP server, until Ctrl-C.

What this file is: the opening of engines under names, the audit log of the server, and the lines that say
where it listens.
What it is not: the server; that is `serve`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from burnish.commands.models import FoundModel, find_model, home, opened
from burnish.commands.output import Stopped, emit, note, say
from burnish.observe.audit import AuditLog
from burnish.serve.chat import ServedModel
from burnish.serve.server import HttpServer, serve
from burnish.types import UsageError


def serve_models(
    models: Sequence[str], host: str, port: int, context: int, slots: int, log: Path | None, as_json: bool
) -> None:
    """Serves until SIGTERM or Ctrl-C. Each of `models` is MODEL, or NAME=MODEL for another name."""
    found = _named(models)
    path = log or home("XDG_STATE_HOME", ".local/state") / "serve" / f"{port}" / "events.jsonl"
    with AuditLog(path) as audit:
        try:
            asyncio.run(_run(found, audit, host, port, context, slots, as_json))
        except KeyboardInterrupt:
            raise Stopped("stopped before the server was ready") from None
    note(f"stopped; what was asked is in {path}")


def _named(models: Sequence[str]) -> dict[str, FoundModel]:
    found: dict[str, FoundModel] = {}
    for text in models:
        name, equals, path = text.partition("=")
        named = bool(equals) and not Path(text).exists()
        model = find_model(path if named else text)
        name = name if named else model.name
        if name in found:
            raise UsageError(f"two models are called {name!r}: name one of them, as in other={text}")
        found[name] = model
    return found


async def _run(
    found: dict[str, FoundModel],
    audit: AuditLog,
    host: str,
    port: int,
    context: int,
    slots: int,
    as_json: bool,
) -> None:
    async with AsyncExitStack() as stack:
        served = {}
        for name, model in found.items():
            note(f"loading {name}")
            engine, renderer = await stack.enter_async_context(opened(model, slots, context))
            created = int((model.path / "config.json").stat().st_mtime)
            served[name] = ServedModel(name, engine, renderer, engine.context, created)

        def ready(server: HttpServer) -> None:
            if as_json:
                emit({"url": f"{server.url}/v1", "models": list(served)})
                return
            say(f"serving {', '.join(served)} at {server.url}/v1 (Ctrl-C ends it); try:")
            say(f"  curl {server.url}/v1/chat/completions -H 'Content-Type: application/json' -d ", end="")
            say(f'\'{{"model": "{next(iter(served))}", ', end="")
            say('"messages": [{"role": "user", "content": "Hello"}]}\'')

        await serve(served, audit, host, port, ready=ready)
