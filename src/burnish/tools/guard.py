"""Tool calls under a policy.

What this file is: `GuardedSession`, which asks an arbiter before every call of the session that it wraps.
What it is not: rules (see `sandbox.policy`). A denied call is an observation that the agent is to react to, never a
failure of the episode.
"""

from __future__ import annotations

from burnish.interfaces import Session
from burnish.sandbox.policy import Deny, Request
from burnish.sandbox.verdicts import Arbiter
from burnish.types import Evidence, Observation, ToolCall


class GuardedSession:
    """Implements `burnish.interfaces.Session` around another one."""

    def __init__(self, session: Session, arbiter: Arbiter) -> None:
        self.session = session
        self.tools = session.tools
        self._arbiter = arbiter

    async def act(self, call: ToolCall) -> Observation:
        verdict = await self._arbiter.decide(Request("tool", call.name, "call", dict(call.arguments)))
        if isinstance(verdict, Deny):
            return Observation(f"denied: {verdict.reason}", "permission", call_id=call.id)
        return await self.session.act(call)

    async def evidence(self) -> Evidence:
        return await self.session.evidence()

    async def close(self) -> None:
        await self.session.close()
