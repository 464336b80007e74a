"""The contract, run against both sandboxes that come with Burnish."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from burnish.observe.audit import MemoryAudit
from burnish.sandbox import FakeSandboxes, LocalSandbox, LocalSandboxes
from burnish.sandbox.fake import FakeSandbox
from burnish.types import Limits, Result
from tests.sandbox.contract import COMMANDS, SandboxContract


def script(argv: Sequence[str], stdin: bytes, files: dict[str, bytes]) -> Result | None:
    answers = {
        COMMANDS["echo"]: Result(b"hello\n", b"", 0),
        COMMANDS["shell"]: Result(b"hello\n", b"", 0),
        COMMANDS["cat"]: Result(stdin, b"", 0),
        COMMANDS["false"]: Result(b"", b"", 1),
        COMMANDS["flood"]: Result(bytes(300_000), b"", 0),
    }
    return answers.get(tuple(argv))


class TestFakeSandbox(SandboxContract):
    @pytest.fixture
    async def sandbox(self) -> AsyncIterator[FakeSandbox]:
        sandboxes = FakeSandboxes([script])
        yield await sandboxes.open()
        await sandboxes.close()

    async def test_remembers_commands_and_lets_scripts_change_files(self) -> None:
        def touch(argv: Sequence[str], stdin: bytes, files: dict[str, bytes]) -> Result | None:
            files[argv[1]] = stdin
            return Result(b"", b"", 0)

        async with await FakeSandboxes([touch]).open() as sandbox:
            await sandbox.run(["touch", "x"], stdin=b"data")
            assert await sandbox.read("x") == b"data"
            assert sandbox.ran == [("touch", "x")]


class TestLocalSandbox(SandboxContract):
    @pytest.fixture
    async def sandbox(self) -> AsyncIterator[LocalSandbox]:
        async with LocalSandboxes() as sandboxes:
            yield await sandboxes.open()


async def test_every_command_is_an_event_with_how_it_ended() -> None:
    audit = MemoryAudit()
    async with LocalSandboxes(audit=audit) as sandboxes, await sandboxes.open() as sandbox:
        await sandbox.run(["sh", "-c", "exit 3"])
        await sandbox.run(["sleep", "30"], limits=Limits(wall_s=0.2))
    assert {event["kind"] for event in audit.events} == {"code_execution"}
    assert [(e["data"]["exit"], e["data"]["reason"]) for e in audit.events] == [(3, None), (None, "wall")]
    assert audit.events[0]["data"]["argv"] == ["sh", "-c", "exit 3"]
