"""Refusals in the shape that OpenAI clients understand.

What this file is: `Refusal`, an exception that carries status, type, offending field and code, and its JSON.
What it is not: it decides nothing; whoever finds something wrong raises it.
Source of the shape: https://platform.openai.com/docs/guides/error-codes.
"""

from __future__ import annotations

from typing import Any

from burnish.types import BurnishError


class Refusal(BurnishError):
    """A request that is answered with an error. `param` names the field of the body that was wrong;
    `retry_after` is in whole seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """OpenAI's `type` of the error."""
        if self.status == 429:
            return "rate_limit_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    @property
    def body(self) -> dict[str, Any]:
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def invalid(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """The request itself was wrong (400)."""
    return Refusal(400, message, param, code)


def unknown_model(name: str, known: list[str]) -> Refusal:
    """No model of that name is served (404)."""
    shown = name if len(name) <= 100 else f"{name[:100]}..."
    have = ", ".join(f"'{model}'" for model in known)
    return Refusal(404, f"There is no model '{shown}' here. Served: {have}.", "model", "model_not_found")


def still_loading(name: str) -> Refusal:
    """The model is known and has no weights yet (503)."""
    return Refusal(503, f"The model '{name}' is still loading.", code="model_loading", retry_after=1)


def shutting_down() -> Refusal:
    """The server finishes what it has and takes nothing new (503)."""
    return Refusal(503, "The server is shutting down.", code="shutting_down")


def broken() -> Refusal:
    """A failure of ours (500). What exactly failed is for the server's log, not for the client."""
    return Refusal(500, "The server failed to answer. Its log says why.", code="internal_error")
