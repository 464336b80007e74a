"""chat: talking with a model in the terminal, token by token.

What this file is: the conversation's tokens, which are never made again from text, the streamed answer, and
the reading of messages from a terminal or of one from a pipe.
What it is not: an agent; the model is told of no tools.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from burnish.commands.models import find_model, opened
from burnish.commands.output import emit, note, say
from burnish.engine.local import LocalEngine
from burnish.model.renderer import Renderer
from burnish.types import Message, Sampling, StopReason, UsageError


@dataclass
class Conversation:
    """`ids` are all tokens so far. `answer` streams one more answer to standard output unless `quiet`."""

    engine: LocalEngine
    renderer: Renderer
    sampling: Sampling
    system: str = ""
    quiet: bool = False
    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    ended: bool = True

    def clear(self) -> None:
        self.messages, self.ids, self.ended = [], [], True

    async def answer(self, text: str) -> str:
        """What the model says to `text`. An interrupted answer stays, as far as it went. Raises UsageError
        when the conversation no longer fits the context; it is then as before."""
        ids = self._prompt(Message("user", text))
        room = self.engine.context - len(ids)
        if room < 1:
            raise UsageError(
                f"the conversation fills the context of {self.engine.context} tokens: /new starts afresh"
            )
        sampling = Sampling(
            self.sampling.temperature, min(self.sampling.max_tokens, room),
            self.sampling.seed + len(self.messages), self.renderer.stop_ids,
        )  # fmt: skip
        output: list[int] = []
        stop: StopReason = "cancelled"
        stream = self.renderer.stream()
        try:
            async with aclosing(cast(Any, self.engine.generate(ids, sampling))) as pieces:
                async for piece in pieces:
                    output += piece.token_ids
                    stop = piece.stop or stop
                    self._show(stream.push(piece.token_ids))
            self._show(stream.finish() + "\n")
        finally:
            self.ids, self.ended = [*ids, *output], stop == "stop"
            said = self.renderer.parse(output).message.content
            self.messages += [Message("user", text), Message("assistant", said)]
        return said

    def _prompt(self, new: Message) -> list[int]:
        first = [Message("system", self.system)] if self.system else []
        if not self.messages:
            return list(self.renderer.start([*first, new]))
        history = [*first, *self.messages]
        added = self.renderer.extend(history, [new], (), self.ended)
        return [*self.ids, *added] if added is not None else list(self.renderer.start([*history, new]))

    def _show(self, text: str) -> None:
        if not self.quiet and text:
            say(text, end="")


def chat(
    model: str, system: str, temperature: float, max_tokens: int, seed: int, context: int, as_json: bool
) -> None:
    """Reads messages until /quit where someone types; else one from standard input."""
    if temperature < 0 or max_tokens < 1:
        raise UsageError("--temperature must be at least 0 and --max-tokens at least 1")
    typed = sys.stdin.isatty()
    if typed and as_json:
        raise UsageError("--json is for one message from a pipe: echo 'Hello' | burnish chat MODEL --json")
    text = "" if typed else sys.stdin.read().strip()
    if not typed and not text:
        raise UsageError("there is no message on standard input; give one: echo 'Hello' | burnish chat MODEL")
    found = find_model(model)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        engine, renderer = runner.run(stack.enter_async_context(opened(found, 1, context)))
        sampling = Sampling(temperature, max_tokens, seed)
        talk = Conversation(engine, renderer, sampling, system, quiet=as_json)
        try:
            if typed:
                _read_and_answer(talk, runner, found.name)
            else:
                answer = runner.run(talk.answer(text))
                if as_json:
                    emit(
                        {"model": found.name, "answer": answer, "ended": talk.ended, "tokens": len(talk.ids)}
                    )
        finally:
            runner.run(stack.aclose())


def _read_and_answer(talk: Conversation, runner: asyncio.Runner, name: str) -> None:
    note(f"{name}: /new starts afresh, /quit ends, Ctrl-C stops an answer")
    while True:
        try:
            text = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            say()
            return
        if text in ("/quit", "/exit"):
            return
        if text == "/new":
            talk.clear()
        elif text:
            try:
                runner.run(talk.answer(text))
            except KeyboardInterrupt:
                say(" (stopped)")
            except UsageError as error:
                note(str(error))
