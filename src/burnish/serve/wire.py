"""The JSON that answers /v1/chat/completions, whole and in chunks.

What this file is: `Reply`, which writes a model call's outcome in OpenAI's shape.
What it is not: it holds no state of the generation and sends nothing.
Source: https://platform.openai.com/docs/api-reference/chat/object and .../chat-streaming.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.serve.chat import ModelCall
from burnish.serve.choice import Delta, TokenLogprob
from burnish.types import ToolCall

DONE = b"data: [DONE]\n\n"


def event(data: Mapping[str, Any]) -> bytes:
    """One server-sent event. JSON escapes line ends, so that it is always one line."""
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request. `created` is in Unix seconds; `logprobs`, `include_usage` as requested."""

    id: str
    created: int
    call: ModelCall
    logprobs: bool = False
    include_usage: bool = False

    def whole(self, tokens: Mapping[int, Sequence[TokenLogprob]]) -> dict[str, Any]:
        """A chat.completion. `tokens` are the sampled tokens of each choice, shown if logprobs were
        wanted."""
        choices = [
            {
                "index": choice.index,
                "message": {
                    "role": "assistant",
                    "content": choice.text if choice.text or not choice.calls else None,
                    "refusal": None,
                    **({"tool_calls": self._calls(choice.index, choice.calls)} if choice.calls else {}),
                },
                "logprobs": self._logprobs(tokens.get(choice.index, ())),
                "finish_reason": choice.finish,
            }
            for choice in self.call.choices
        ]
        return {**self._envelope("chat.completion"), "choices": choices, "usage": self.usage()}

    def openings(self) -> list[dict[str, Any]]:
        """The first chunk of every choice: who speaks."""
        return [
            self._chunk(choice.index, {"role": "assistant", "content": ""}) for choice in self.call.choices
        ]

    def chunks(self, delta: Delta) -> list[dict[str, Any]]:
        """The chunks that show one delta; none for one that shows nothing."""
        chunks: list[dict[str, Any]] = []
        if delta.text or (self.logprobs and delta.tokens):
            chunks.append(self._chunk(delta.index, {"content": delta.text}, delta.tokens))
        for at, call in enumerate(self._calls(delta.index, delta.calls)):
            chunks.append(self._chunk(delta.index, {"tool_calls": [{"index": at, **call}]}))
        if delta.finish is not None:
            chunks.append(self._chunk(delta.index, {}, finish=delta.finish))
        return chunks

    def last(self) -> list[dict[str, Any]]:
        """The usage chunk, if it was asked for."""
        if not self.include_usage:
            return []
        return [{**self._envelope("chat.completion.chunk"), "choices": [], "usage": self.usage()}]

    def usage(self) -> dict[str, int]:
        """Tokens as they were rendered and sampled, exactly."""
        prompt, completion = len(self.call.prompt_ids), self.call.sampled
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.call.model.name,
            "system_fingerprint": f"weights-{self.call.version}",
        }

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, Any],
        tokens: Sequence[TokenLogprob] = (),
        finish: str | None = None,
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(tokens) if tokens else None,
            "finish_reason": finish,
        }
        usage = {"usage": None} if self.include_usage else {}
        return {**self._envelope("chat.completion.chunk"), "choices": [choice], **usage}

    def _logprobs(self, tokens: Iterable[TokenLogprob]) -> dict[str, Any] | None:
        if not self.logprobs:
            return None
        content = [
            {
                "token": token.text,
                "logprob": token.logprob,
                "bytes": None if "\ufffd" in token.text else list(token.text.encode()),
                "top_logprobs": [],
            }
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _calls(self, index: int, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
        """Calls with ids that are unique beyond this answer, since clients keep them in long histories."""
        stem = self.id.removeprefix("chatcmpl-")
        return [
            {
                "id": f"call_{stem}_{index}_{at}",
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for at, call in enumerate(calls)
        ]
