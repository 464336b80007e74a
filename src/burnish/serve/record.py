"""What the audit log keeps of one request.

What this file is: `CallRecord`, which becomes exactly one `model_call` event, whatever becomes of the
request.
What it is not: a store of content. Prompt and answers are digests and counts, unless content is asked for.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from burnish.observe.audit import Audit, digest
from burnish.serve.chat import ModelCall
from burnish.serve.errors import Refusal
from burnish.serve.protocol import ChatRequest

Outcome = Literal["completed", "cancelled", "failed", "refused"]


class CallRecord:
    """Filled in as a request goes its way; `close` writes it, once."""

    def __init__(self, audit: Audit, request_id: str, keeps_content: bool) -> None:
        self.request: ChatRequest | None = None
        self.call: ModelCall | None = None
        self.closed = False
        self._audit = audit
        self._id = request_id
        self._keeps_content = keeps_content

    def close(self, outcome: Outcome, refusal: Refusal | None = None) -> None:
        """Appends the event; later calls do nothing. Raises what the log raises when it cannot be written."""
        if self.closed:
            return
        self.closed = True
        data: dict[str, Any] = {"id": self._id, "route": "chat.completions", "outcome": outcome}
        if refusal is not None:
            data["error"] = {"status": refusal.status, "code": refusal.code, "param": refusal.param}
        if self.request is not None:
            data |= self._asked(self.request)
        if self.call is not None:
            data |= self._answered(self.call)
        self._audit.append("model_call", data)

    def _asked(self, request: ChatRequest) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "model": request.model,
            "messages": len(request.messages),
            "tools": len(request.tools or ()),
            "stream": bool(request.stream),
        }
        if self._keeps_content:
            asked["content"] = [{"role": m.role, "text": m.text} for m in request.messages]
        return asked

    def _answered(self, call: ModelCall) -> dict[str, Any]:
        answers = [
            {
                "tokens": choice.tokens,
                "finish": choice.finish,
                "calls": [named.name for named in choice.calls],
                "digest": digest(choice.text)["sha256"],
                **({"text": choice.text} if self._keeps_content else {}),
            }
            for choice in call.choices
        ]
        sampling = call.sampling
        return {
            "version": call.version,
            "prompt": {
                "tokens": len(call.prompt_ids),
                "digest": digest(json.dumps(call.prompt_ids))["sha256"],
            },
            "sampling": {
                "temperature": sampling.temperature,
                "max_tokens": sampling.max_tokens,
                "seed": str(sampling.seed),
            },
            "answers": answers,
        }
