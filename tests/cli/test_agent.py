"""An agent at work on a copy: what it may see, what comes back, and what is never touched."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from burnish.commands import agent as command
from burnish.commands.changes import Changes, copy
from burnish.commands.output import visible
from burnish.model.renderer import Renderer
from burnish.sandbox import FakeSandbox
from burnish.tools.shell import SHOWN_LINES, ShellSession
from burnish.types import BurnishError, Result, ToolCall, UsageError
from tests.cli.conftest import Burnish
from tests.serve.running import fake, saying


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.fixture
def work(place: Path) -> Path:
    directory = place / "work"
    (directory / "sub").mkdir(parents=True)
    (directory / "a.txt").write_text("one\ntwo\n")
    (directory / "run.sh").write_text("echo hi\n")
    (directory / "run.sh").chmod(0o755)
    (directory / "sub" / "gone.txt").write_text("old\n")
    (directory / ".git" / "hooks").mkdir(parents=True)
    (directory / ".git" / "config").write_text("mine\n")
    (directory / "link").symlink_to("/etc")
    return directory


def tree(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def script(monkeypatch: pytest.MonkeyPatch, tiny: Path, *answers: str) -> None:
    """Puts a model in place that says these things."""

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Any]:
        renderer = Renderer.from_directory(tiny)
        engine = await fake(renderer, saying(renderer, *answers))
        yield engine, renderer

    monkeypatch.setattr(command, "opened", opened)


STEPS = (
    call("run", command="ls -a; cat a.txt"),
    call("write", path="a.txt", text="one\nthree\n"),
    call(
        "run", command="rm sub/gone.txt; echo 'echo ho' > run.sh; mkdir -p .git/hooks; echo x > .git/hooks/go"
    ),
    call("read", path="nowhere"),
    "I changed \x1b[31ma.txt.",
)


def test_it_works_on_a_copy(
    burnish: Burnish, tiny: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(work)
    script(monkeypatch, tiny, *STEPS)
    done = burnish("agent", tiny, "change a.txt", "--workdir", work, "--out", "kept")
    assert done.code == 0 and tree(work) == before
    assert (
        "[1] <tool_call>" in done.out and "    one" in done.out and "no file nowhere (not_found)" in done.out
    )
    assert "-two\n+three\n" in done.out and "+++ /dev/null" in done.out
    assert "left out: .git/hooks/go" in done.out and "answer: I changed \\x1b[31ma.txt." in done.out
    assert tree(Path("kept")) == {"a.txt": b"one\nthree\n", "run.sh": b"echo ho\n"}
    listed = done.out.split("[2]")[0].split()
    assert "a.txt" in listed and ".git" not in listed and "link" not in listed


def test_changes_are_written_back_only_when_asked(
    burnish: Burnish, tiny: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, tiny, *STEPS)
    done = burnish("agent", tiny, "change a.txt", "--workdir", work, "--yes", "--json", "--log", "log.jsonl")
    assert done.code == 0 and done.data["changed"] == ["a.txt", "run.sh", "sub/gone.txt"]
    assert done.data["left_out"] == [".git/hooks/go"] and done.data["status"]["kind"] == "completed"
    assert [s["name"] for s in done.data["steps"]] == ["run", "write", "run", "read"]
    assert (work / "a.txt").read_text() == "one\nthree\n" and not (work / "sub" / "gone.txt").exists()
    assert (work / "run.sh").stat().st_mode & 0o777 == 0o755
    assert tree(work / ".git") == {"config": b"mine\n"}
    assert burnish("log", "verify", "log.jsonl").code == 0


@pytest.mark.parametrize(("typed", "kept"), [("y", "one\nthree\n"), ("", "one\ntwo\n")])
def test_apply_asks(
    burnish: Burnish, tiny: Path, work: Path, monkeypatch: pytest.MonkeyPatch, typed: str, kept: str
) -> None:
    script(monkeypatch, tiny, *STEPS)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", lambda prompt: typed)
    assert burnish("agent", tiny, "change a.txt", "--workdir", work, "--apply").code == 0
    assert (work / "a.txt").read_text() == kept


def test_a_limit_is_no_answer(
    burnish: Burnish, tiny: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, tiny, call("run", command="true"))
    done = burnish("agent", tiny, "loop", "--workdir", work, "--turns", 2, "--json")
    assert done.code == 1 and done.data["status"] == {"kind": "truncated", "reason": "turns"}
    assert done.data["answer"] is None and done.data["changed"] == []


def test_nothing_is_written_behind_a_link(work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "way").symlink_to(outside)
    before = copy(work).files
    for path in ("way/x", "link"):
        with pytest.raises(BurnishError, match="behind a link"):
            Changes(before, {**before, "a.txt": b"new", path: b"x"}).apply(work)
    assert list(outside.iterdir()) == [] and (work / "a.txt").read_text() == "one\ntwo\n"


def test_nothing_is_written_over_what_changed_meanwhile(work: Path) -> None:
    before = copy(work).files
    (work / "a.txt").write_text("somebody else's\n")
    with pytest.raises(BurnishError, match="meanwhile"):
        Changes(before, {**before, "a.txt": b"new", "b.txt": b"new"}).apply(work)
    assert (work / "a.txt").read_text() == "somebody else's\n" and not (work / "b.txt").exists()


def test_a_directory_that_is_too_large(work: Path) -> None:
    with (work / "big").open("wb") as file:
        file.truncate(40 << 20)
    with pytest.raises(UsageError, match="more than 32 MiB"):
        copy(work)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"a": b"x"}, {"a": b"y"}, "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n"),
        ({}, {"a": b"\xff"}, "binary file a added\n"),
        ({"a": b""}, {}, "empty file a removed\n"),
        ({"a": b"x"}, {"a": b"x"}, ""),
    ],
)
def test_differences(before: Mapping[str, bytes], after: Mapping[str, bytes], shown: str) -> None:
    assert Changes(before, after).diff().startswith(shown) and bool(shown) == bool(
        Changes(before, after).diff()
    )


def test_text_that_commands_a_terminal_is_written_out() -> None:
    assert visible("a\x1b[2J\r\n\tb\x07\u202e\ud800") == "a\\x1b[2J\n\tb\\x07\\x202e?"


async def test_the_shell_tells_failures() -> None:
    results = {
        "long": Result(b"line\n" * 100, b"", 0),
        "fail": Result(b"", b"first\nlast\n", 2),
        "slow": Result(b"", b"", None, "wall"),
        "big": Result(b"", b"", None, "memory"),
        "quiet": Result(b"", b"", 0),
    }
    session = ShellSession(FakeSandbox([lambda argv, stdin, files: results[argv[2]]]))

    async def act(name: str, **arguments: str) -> tuple[str, str | None]:
        seen = await session.act(ToolCall(name, arguments))
        return seen.content, seen.error

    content, error = await act("run", command="long")
    assert error is None and f"({100 - SHOWN_LINES} more lines)" in content
    assert await act("run", command="fail") == ("exit 2: first\nlast", "exception")
    assert (await act("run", command="slow"))[1] == "timeout"
    assert (await act("run", command="big"))[1] == "resource"
    assert await act("run", command="quiet") == ("ok", None)
    assert (await act("run", command="x\0"))[1] == "malformed"
    assert await act("write", path="d/f", text="text") == ("ok", None)
    assert await act("read", path="d/f") == ("text", None)
    assert (await act("write", path="../f", text="x"))[1] == "permission"
    assert (await act("read", path="d"))[1] == "permission"
    assert (await session.evidence()).artifacts == {"d/f": b"text"}
    await session.close()
