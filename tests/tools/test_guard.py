"""Tool calls under a policy."""

from __future__ import annotations

from burnish.interfaces import Session
from burnish.sandbox import FakeSandboxes
from burnish.sandbox.policy import AccessPolicy, Rule
from burnish.sandbox.verdicts import Arbiter
from burnish.tools.guard import GuardedSession
from burnish.tools.shell import ShellSession
from burnish.types import ToolCall


async def test_a_denied_call_is_an_observation_and_reaches_nothing() -> None:
    policy = AccessPolicy(
        "p", (Rule("tool", "write", "allow", arguments={"path": "out/*"}), Rule("tool", "read", "allow"))
    )
    sandbox = await FakeSandboxes().open()
    session = GuardedSession(ShellSession(sandbox), Arbiter(policy))
    assert isinstance(session, Session) and {tool.name for tool in session.tools} == {"run", "read", "write"}
    allowed = await session.act(ToolCall("write", {"path": "out/a", "text": "x"}, "1"))
    denied = await session.act(ToolCall("write", {"path": "a", "text": "x"}, "2"))
    assert (allowed.error, denied.error, denied.call_id) == (None, "permission", "2")
    assert "no rule of p" in denied.content
    assert (await session.act(ToolCall("run", {"command": "ls"}))).error == "permission"
    assert await sandbox.files() == {"out/a": b"x"} and sandbox.ran == []
    assert (await session.act(ToolCall("read", {"path": "out/a"}))).content == "x"
    await session.close()
