"""From a request to an answer that is held to, and written down.

What this file is: `Arbiter`, which asks a policy, and where that says `ask`, a person: through a callback, or
through `pending` and `answer`, which a command line or a server shows. Silence is no.
What it is not: rules (see `policy`), and not what waits for the answer (see `proxy`, `tools.guard`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

from burnish.observe.audit import Audit
from burnish.sandbox.policy import AccessPolicy, Allow, Ask, Deny, Request
from burnish.types import UsageError


@dataclass(frozen=True, slots=True)
class Question:
    """A request that waits for a person. `deadline` is on the clock of `time.monotonic`."""

    number: int
    request: Request
    reason: str
    deadline: float

    @property
    def left_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())


Asker = Callable[[Question], Awaitable[bool]]
"""Answers a question: True allows. It may take as long as the policy allows; raising is no."""


@dataclass
class Arbiter:
    """Decides requests by `policy`. With `asker`, that is called for each question; without, questions wait in
    `pending` for `answer`. Every answer is an audit event."""

    policy: AccessPolicy
    audit: Audit | None = None
    asker: Asker | None = None
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, tuple[Question, asyncio.Future[tuple[bool, str]]]] = field(default_factory=dict)

    async def decide(self, request: Request) -> Allow | Deny:
        """Never Ask: it returns when there is an answer. If cancelled, the question is withdrawn."""
        begin = time.monotonic()
        verdict = self.policy.decide(request)
        by = "rule"
        if isinstance(verdict, Ask):
            verdict, by = await self._asked(request, verdict)
        if self.audit is not None:
            self.audit.append("verdict", {
                "policy": self.policy.name, "request": asdict(request), "by": by, "reason": verdict.reason,
                "verdict": "allow" if isinstance(verdict, Allow) else "deny",
                "waited_s": round(time.monotonic() - begin, 3),
            })  # fmt: skip
        return verdict

    def pending(self) -> list[Question]:
        """What waits for an answer, the oldest first."""
        return [question for question, _ in self._waiting.values()]

    def answer(self, number: int, allow: bool, by: str) -> None:
        """Answers a question of `pending`; `by` says who. Raises UsageError where it waits no more."""
        if number not in self._waiting or self._waiting[number][1].done():
            raise UsageError(f"question {number} does not wait for an answer (any more)")
        self._waiting[number][1].set_result((allow, by))

    async def _asked(self, request: Request, ask: Ask) -> tuple[Allow | Deny, str]:
        question = Question(next(self._numbers), request, ask.reason, time.monotonic() + ask.timeout_s)
        answered: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
        self._waiting[question.number] = question, answered
        caller = None if self.asker is None else asyncio.ensure_future(self._call(self.asker, question))
        try:
            allowed, by = await asyncio.wait_for(answered, ask.timeout_s)
        except TimeoutError:
            return Deny(f"nobody answered within {ask.timeout_s:g} s ({ask.reason})"), "timeout"
        finally:
            del self._waiting[question.number]
            if caller is not None:
                caller.cancel()
        return (Allow(f"{by} said yes") if allowed else Deny(f"{by} said no")), by

    async def _call(self, asker: Asker, question: Question) -> None:
        try:
            allowed, by = bool(await asker(question)), "asked"
        except Exception as error:  # whoever is asked may fail in any way: that is no
            allowed, by = False, f"asked, who failed ({type(error).__name__})"
        waiting = self._waiting.get(question.number)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result((allowed, by))
