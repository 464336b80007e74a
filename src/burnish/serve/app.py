"""The server as an ASGI application.

What this file is: `create_app`, which puts the routes, the limits and the error shapes together.
What it is not: it opens no engine and no port (`server.py` does the latter); whoever made an engine closes
it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from burnish.observe.audit import Audit
from burnish.observe.metrics import CONTENT_TYPE, Metrics
from burnish.serve.admission import Admission
from burnish.serve.chat import ServedModel
from burnish.serve.endpoint import ChatCompletions
from burnish.serve.errors import Refusal, broken, unknown_model
from burnish.serve.lifeline import Lifeline
from burnish.types import UsageError

_log = logging.getLogger("burnish.serve")


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """For each model: `running` requests that generate at once, and `waiting` more. For each request: bytes
    of the body, seconds in which it must arrive, and seconds for which a client may leave an event
    untaken."""

    running: int = 64
    waiting: int = 256
    body_bytes: int = 4 << 20
    body_seconds: float = 30.0
    stall_seconds: float = 60.0


class Service:
    """What the routes share. `drain` makes the service finish what it has and refuse what is new."""

    def __init__(self, models: Mapping[str, ServedModel], metrics: Metrics, limits: ServerLimits) -> None:
        if not models:
            raise UsageError("There is no model to serve.")
        for name, model in models.items():
            if name != model.name:
                raise UsageError(f"The model '{model.name}' cannot be served under another name, '{name}'.")
        self.models = dict(models)
        self.metrics = metrics
        self.admissions = {name: Admission(limits.running, limits.waiting) for name in models}

    @property
    def state(self) -> str:
        """`ok`, `loading` or `draining`."""
        if any(admission.draining for admission in self.admissions.values()):
            return "draining"
        loading = any(model.engine.version is None for model in self.models.values())
        return "loading" if loading else "ok"

    def drain(self) -> None:
        for admission in self.admissions.values():
            admission.drain()


def create_app(
    models: Mapping[str, ServedModel],
    audit: Audit,
    metrics: Metrics | None = None,
    limits: ServerLimits | None = None,
    seed: int = 0,
    keeps_content: bool = False,
) -> FastAPI:
    """The application that serves `models` by name. Every request becomes a `model_call` event of `audit`,
    with digests instead of texts unless `keeps_content`. Requests without a seed get seeds that follow from
    `seed` and their order. `app.state.service` is the `Service`."""
    limits = limits or ServerLimits()
    service = Service(models, metrics or Metrics(), limits)
    app = FastAPI(title="Burnish", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.service = service
    app.add_middleware(
        Lifeline,
        metrics=service.metrics,
        body_bytes=limits.body_bytes,
        body_seconds=limits.body_seconds,
        stall_seconds=limits.stall_seconds,
    )
    completions = ChatCompletions(
        service.models, service.admissions, audit, service.metrics, seed, keeps_content
    )
    app.router.routes.append(_NamedRoute("/v1/chat/completions", completions, methods=["POST"]))
    _add_views(app, service)
    _add_error_shapes(app)
    return app


class _NamedRoute(Route):
    """A route to an ASGI application that, like FastAPI's own, tells the outer layers which route it was."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


def _add_views(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models")
    async def list_models() -> Response:
        data = [_model_object(model) for model in service.models.values()]
        return JSONResponse({"object": "list", "data": data})

    @app.get("/v1/models/{name:path}")
    async def show_model(name: str) -> Response:
        if name not in service.models:
            raise unknown_model(name, sorted(service.models))
        return JSONResponse(_model_object(service.models[name]))

    @app.get("/healthz")
    async def health() -> Response:
        versions = {name: model.engine.version for name, model in service.models.items()}
        status = 200 if service.state == "ok" else 503
        return JSONResponse({"status": service.state, "models": versions}, status)

    @app.get("/metrics")
    async def exposition() -> Response:
        return Response(service.metrics.exposition(), media_type=CONTENT_TYPE)


def _model_object(model: ServedModel) -> dict[str, Any]:
    """OpenAI's model object, and the length of the context, under vLLM's name for it."""
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "burnish",
        "max_model_len": model.context_length,
    }


def _add_error_shapes(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> Response:
        return JSONResponse(refusal.body, refusal.status, refusal.headers)

    @app.exception_handler(HTTPException)
    async def routed_nowhere(request: Request, error: HTTPException) -> Response:
        message = f"{HTTPStatus(error.status_code).phrase}: {request.method} {request.url.path}."
        refusal = Refusal(error.status_code, message, code="unknown_url")
        return JSONResponse(refusal.body, refusal.status, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return JSONResponse(broken().body, broken().status)
