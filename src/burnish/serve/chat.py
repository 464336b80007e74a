"""A chat request as a model call: messages in, deltas out.

What this file is: the step from a checked request to prompt tokens and sampling (`prepare`), and the stream
of what the model answers (`answer`), which frees the engine the moment it is closed.
What it is not: it knows nothing of HTTP, and it decides nothing about who may generate.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from burnish.interfaces import Engine
from burnish.model.renderer import Renderer
from burnish.serve.choice import Choice, Delta
from burnish.serve.errors import Refusal, invalid
from burnish.serve.protocol import ChatMessage, ChatRequest, ToolPart, characters
from burnish.types import Completion, InfrastructureError, Message, Sampling, Tool, ToolCall, UsageError

_CHARACTERS_PER_TOKEN = 64
"""Far more than text has on average. What is longer is refused before it is tokenized, which takes long."""


class ServedEngine(Engine, Protocol):
    """An engine that says which weights it holds: None before the first `load`."""

    @property
    def version(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model under the name that clients ask for. `context_length` is in tokens, the answer included, and at
    most what the engine holds. `created` is in Unix seconds."""

    name: str
    engine: ServedEngine
    renderer: Renderer
    context_length: int
    created: int = 0


@dataclass(slots=True)
class ModelCall:
    """A prepared request and, while it is answered, its choices."""

    model: ServedModel
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    choices: list[Choice]
    version: int | None = None

    @property
    def sampled(self) -> int:
        """Tokens sampled so far, over all choices."""
        return sum(choice.tokens for choice in self.choices)


def prepare(model: ServedModel, request: ChatRequest, seed: int) -> ModelCall:
    """Renders and tokenizes. `seed` is used when the request has none. Raises Refusal (400) for a
    conversation that the model's template rejects and for one that does not fit the context."""
    tools = () if request.tool_choice == "none" else tuple(map(_tool, request.tools or ()))
    messages = [_message(message) for message in request.messages]
    if (length := characters(request)) > _CHARACTERS_PER_TOKEN * model.context_length:
        raise _too_long(model, f"{length} characters in messages and tools")
    try:
        prompt_ids = model.renderer.start(messages, tools)
    except UsageError as error:
        raise invalid(str(error), "messages") from None
    room = model.context_length - len(prompt_ids)
    wanted = 1 if request.limit is None else request.limit
    if wanted > room:
        asked = f"{len(prompt_ids)} tokens in the messages"
        if request.limit is not None:
            total = len(prompt_ids) + request.limit
            asked = f"{total} tokens ({len(prompt_ids)} in the messages, {request.limit} in the answer)"
        raise _too_long(model, asked)
    sampling = Sampling(
        temperature=1.0 if request.temperature is None else request.temperature,
        max_tokens=room if request.limit is None else request.limit,
        seed=seed if request.seed is None else request.seed,
        stop_ids=model.renderer.stop_ids,
    )
    choices = [Choice(i, model.renderer, request.stops, bool(tools)) for i in range(request.n or 1)]
    return ModelCall(model, prompt_ids, sampling, choices)


async def answer(call: ModelCall) -> AsyncGenerator[Delta]:
    """Streams what every piece of the engine adds. Ends when all choices have ended. Closing it, or
    cancelling the task that waits for it, cancels the generation. Raises InfrastructureError when the engine
    fails."""
    unfinished = len(call.choices)
    async with _closing(call.model.engine.generate(call.prompt_ids, call.sampling, unfinished)) as pieces:
        async for piece in pieces:
            call.version = piece.version
            choice = call.choices[piece.index]
            if choice.finish is not None:
                continue
            delta = choice.push(piece)
            unfinished -= delta.finish is not None
            yield delta
            if unfinished == 0:
                return
    raise InfrastructureError("the engine ended its stream before the answer was complete")


@asynccontextmanager
async def _closing(pieces: AsyncIterator[Completion]) -> AsyncIterator[AsyncIterator[Completion]]:
    # The seam promises an iterator; one that holds nothing has nothing to close.
    try:
        yield pieces
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


def _too_long(model: ServedModel, asked: str) -> Refusal:
    message = f"The context holds {model.context_length} tokens, the answer included; {asked} do not fit."
    return invalid(message, "messages", "context_length_exceeded")


def _message(message: ChatMessage) -> Message:
    calls = tuple(
        ToolCall(part.function.name, json.loads(part.function.arguments), part.id)
        for part in message.tool_calls or ()
    )
    role = "system" if message.role == "developer" else message.role
    return Message(role, message.text, calls, message.tool_call_id)


def _tool(part: ToolPart) -> Tool:
    function = part.function
    schema = {"type": "object", "properties": {}} if function.parameters is None else function.parameters
    return Tool(function.name, function.description or "", schema)
