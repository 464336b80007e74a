"""From the tokens of one continuation to what a client sees of it, as it comes.

What this file is: `Choice`, the chain tokens -> text -> up to a stop string -> content and tool calls, whose
joined output is the same however the engine cuts its pieces.
What it is not: it does no I/O and does not know the wire format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from burnish.model.calls import CallParser
from burnish.model.renderer import Renderer
from burnish.serve.stops import StopMatcher
from burnish.types import Completion, InfrastructureError, ToolCall

Finish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A sampled token: its text alone (U+FFFD for part of a character) and its log-probability."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class Delta:
    """What one piece added to a choice. `calls` come whole, with the `finish` that ends the choice."""

    index: int
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    tokens: tuple[TokenLogprob, ...] = ()
    finish: Finish | None = None


class AnswerReader:
    """Separates content from tool calls. From the first call on everything is held back: should a later call
    be malformed, then none may be made, and the raw text is the content, as it is for a whole answer."""

    def __init__(self) -> None:
        self._parser = CallParser()
        self._raw = ""
        self._shown = 0
        self._held: list[str] = []
        self._calls: list[ToolCall] = []

    def feed(self, text: str) -> str:
        """The content that may be shown now."""
        self._raw += text
        return self._sort(self._parser.feed(text))

    def finish(self) -> tuple[str, tuple[ToolCall, ...]]:
        """The rest of the content, and the calls."""
        shown = self._sort(self._parser.finish())
        if self._parser.error is not None:
            return shown + self._raw[self._shown :], ()
        return shown + "".join(self._held), tuple(self._calls)

    def _sort(self, pieces: Sequence[str | ToolCall]) -> str:
        shown = ""
        for piece in pieces:
            if isinstance(piece, ToolCall):
                self._calls.append(piece)
            elif self._calls:
                self._held.append(piece)
            else:
                shown += piece
        self._shown += len(shown)
        return shown


class Choice:
    """One continuation. `tokens` counts what was sampled up to its end, the stop token or the token that
    completed the stop string included; what an engine sends after a stop string is not looked at."""

    def __init__(self, index: int, renderer: Renderer, stops: Sequence[str], reads_calls: bool) -> None:
        self.index = index
        self.tokens = 0
        self.text = ""
        self.calls: tuple[ToolCall, ...] = ()
        self.finish: Finish | None = None
        self._renderer = renderer
        self._detokenizer = renderer.stream()
        self._stops = StopMatcher(stops)
        self._reader = AnswerReader() if reads_calls else None

    def push(self, piece: Completion) -> Delta:
        """What this piece adds."""
        if piece.stop == "cancelled":
            raise InfrastructureError("the engine cancelled a request that nobody had cancelled")
        shown = ""
        sampled: list[TokenLogprob] = []
        for token, logprob in zip(piece.token_ids, piece.logprobs, strict=True):
            if self._stops.matched is not None:
                break
            self.tokens += 1
            sampled.append(TokenLogprob(self._renderer.decode((token,)), logprob))
            shown += self._show(self._detokenizer.push((token,)))
        if piece.stop is not None and self._stops.matched is None:
            shown += self._show(self._detokenizer.finish())
        if piece.stop is None and self._stops.matched is None:
            self.text += shown
            return Delta(self.index, shown, (), tuple(sampled))
        return self._end(piece, shown, tuple(sampled))

    def _show(self, text: str) -> str:
        shown = self._stops.feed(text)
        return shown if self._reader is None else self._reader.feed(shown)

    def _end(self, piece: Completion, shown: str, sampled: tuple[TokenLogprob, ...]) -> Delta:
        rest = self._stops.finish()
        if self._reader is None:
            shown += rest
        else:
            shown += self._reader.feed(rest)
            last, self.calls = self._reader.finish()
            shown += last
        self.text += shown
        if self._stops.matched is None and piece.stop == "length":
            self.finish = "length"
        else:
            self.finish = "tool_calls" if self.calls else "stop"
        return Delta(self.index, shown, self.calls, sampled, self.finish)
