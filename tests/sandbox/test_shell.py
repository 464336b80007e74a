"""A shell and a Python that live on between commands, and output as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from burnish.observe.audit import MemoryAudit
from burnish.sandbox import LocalSandbox, LocalSandboxes
from burnish.sandbox.shell import LocalShell
from burnish.types import InfrastructureError, Limits, UsageError
from tests.sandbox.conftest import descendants, spawner_of

LONG = 60.0


@pytest.fixture
async def bash(sandbox: LocalSandbox) -> AsyncIterator[LocalShell]:
    async with await sandbox.shell() as opened:
        yield opened


@pytest.fixture
async def python(sandbox: LocalSandbox) -> AsyncIterator[LocalShell]:
    async with await sandbox.shell("python") as opened:
        yield opened


async def said(shell: LocalShell, text: str) -> str:
    result = await shell.run(text, wall_s=LONG)
    assert (result.exit, result.stderr) == (0, b""), result
    return result.stdout.decode()


async def test_bash_keeps_directory_variables_and_functions(bash: LocalShell) -> None:
    assert await said(bash, "mkdir -p a/b; cd a/b; x='1  2'; f() { echo \"f $x\"; }; set -o pipefail") == ""
    assert await said(bash, "pwd; f") == "/work/a/b\nf 1  2\n"
    assert (await bash.run("false | true")).exit == 1
    assert (await bash.run("(exit 7)")).exit == 7
    assert (await bash.run("no-such-command")).exit == 127
    assert await said(bash, "cat <<'E'\nline 'one'\n$x\nE") == "line 'one'\n$x\n"
    assert (await bash.run("if then")).exit in (1, 2)
    assert await said(bash, "echo alive") == "alive\n"


async def test_output_belongs_to_its_command_and_is_bounded(bash: LocalShell) -> None:
    flood = await bash.run("echo first; head -c 300000 /dev/zero; echo last >&2", wall_s=LONG)
    assert flood.stdout.startswith(b"first\n\0") and flood.stderr == b"last\n" and flood.dropped > 200_000
    assert (await bash.run("echo next")).stdout == b"next\n"
    for number in range(200):
        assert (await bash.run(f"echo {number}")).stdout == b"%d\n" % number


async def test_a_large_command_is_passed_whole(bash: LocalShell) -> None:
    text = "x" * 300_000
    assert await said(bash, f"y={text}; echo ${{#y}}") == "300000\n"


async def test_a_status_is_not_taken_from_the_output(bash: LocalShell) -> None:
    assert (await bash.run("echo 0 >&7; echo 0 >&6; printf '0\\n'; (exit 9)")).exit == 9


@pytest.mark.parametrize(
    "text", ["while :; do :; done", "sleep 99", "sleep 99 | cat", "trap '' TERM; sleep 99"]
)
async def test_out_of_time_a_command_is_interrupted_and_the_shell_lives_on(
    bash: LocalShell, text: str
) -> None:
    await said(bash, "kept=1")
    result = await bash.run(f"echo begun; {text}", wall_s=0.3)
    assert (result.stdout, result.exit, result.reason) == (b"begun\n", None, "wall")
    assert await said(bash, "echo $kept") == "1\n"


async def test_what_ignores_interrupts_is_killed(bash: LocalShell) -> None:
    text = "import signal, time; signal.signal(2, signal.SIG_IGN); print('on', flush=True); time.sleep(99)"
    result = await bash.run(f'python3 -c "{text}"', wall_s=1.5)
    assert (result.stdout, result.exit, result.reason) == (b"on\n", None, "wall")
    assert await said(bash, "echo alive") == "alive\n"


async def test_a_shell_that_cannot_be_interrupted_is_ended(bash: LocalShell) -> None:
    result = await bash.run("trap '' INT; while :; do :; done", wall_s=0.2)
    assert (result.exit, result.reason) == (None, "wall")
    assert not bash.alive
    with pytest.raises(UsageError, match="ended"):
        await bash.run("echo")


async def test_a_command_that_exits_ends_the_shell(bash: LocalShell) -> None:
    assert (await bash.run("exit 3", wall_s=LONG)).exit == 3
    assert not bash.alive


async def test_limits_are_of_the_whole_shell(sandbox: LocalSandbox) -> None:
    limits = Limits(wall_s=60, cpu_s=60, memory=128 << 20)
    async with await sandbox.shell("python", limits) as shell:
        text = "import os, time\nfor _ in range(4):\n    if not os.fork():\n"
        text += "        x = b'x' * (50 << 20); time.sleep(99)"
        result = await shell.run(text + "\ntime.sleep(99)", wall_s=LONG)
        assert (result.exit, result.reason) == (None, "memory")
        assert not shell.alive


async def test_python_keeps_names_and_prints_what_a_cell_is(python: LocalShell) -> None:
    assert await said(python, "import math\nx = 3\ndef f():\n    return x * 2") == ""
    assert await said(python, "f()") == "6\n"
    assert await said(python, "print('a'); None") == "a\n"
    failed = await python.run("y = 1\n1 / 0")
    assert failed.exit == 1 and b"ZeroDivisionError" in failed.stderr
    assert (await python.run("def")).exit == 1
    assert await said(python, "y") == "1\n"
    out = await python.run("while True: pass", wall_s=0.3)
    assert (out.exit, out.reason) == (None, "wall") and b"KeyboardInterrupt" in out.stderr
    assert await said(python, "x") == "3\n"
    assert (await python.run("raise SystemExit(4)", wall_s=LONG)).exit == 4


async def test_nothing_survives_and_files_are_seen_from_outside(
    sandboxes: LocalSandboxes, sandbox: LocalSandbox
) -> None:
    async with await sandbox.shell() as shell:
        await said(shell, "setsid sleep 99 & echo data > made")
        assert await sandbox.read("made") == b"data\n"
        await sandbox.write("given", b"in")
        assert await said(shell, "cat given") == "in"
    assert descendants(spawner_of(sandboxes)) == []


async def test_closing_the_sandbox_is_not_the_commands_fault(sandboxes: LocalSandboxes) -> None:
    sandbox = await sandboxes.open()
    shell = await sandbox.shell()
    task = asyncio.create_task(shell.run("sleep 99", wall_s=LONG))
    await asyncio.wait([task], timeout=0.1)
    await sandbox.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await task
    with pytest.raises(UsageError, match="closed"):
        await sandbox.shell()


async def test_cancelling_a_command_ends_the_shell(bash: LocalShell) -> None:
    task = asyncio.create_task(bash.run("sleep 99", wall_s=LONG))
    await asyncio.wait([task], timeout=0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not bash.alive


async def test_in_a_fork_the_shell_is_alone(sandbox: LocalSandbox) -> None:
    await sandbox.write("a", b"1")
    async with await sandbox.snapshot() as snapshot, await snapshot.fork() as fork:
        async with await fork.shell() as shell:
            assert await said(shell, "cat a; echo 2 > b") == "1"
            assert await fork.read("b") == b"2\n"
            for work in (fork.run(["true"]), fork.write("c", b""), fork.shell()):
                with pytest.raises(UsageError, match="a shell is open in this fork"):
                    await work
            with pytest.raises(UsageError, match="still runs"):
                await fork.snapshot()
        assert (await fork.run(["cat", "b"])).stdout == b"2\n"


async def test_output_comes_as_it_is_written(sandbox: LocalSandbox, bash: LocalShell) -> None:
    await sandbox.run(["mkfifo", "go"])
    seen: list[tuple[str, bytes]] = []
    first = asyncio.Event()

    def watch(stream: str, piece: bytes) -> None:
        seen.append((stream, piece))
        first.set()

    text = "echo one; read x < go; echo two >&2"
    for work in (
        sandbox.run(["sh", "-c", text], limits=Limits(wall_s=LONG), on_output=watch),
        bash.run(text, wall_s=LONG, on_output=watch),
    ):
        seen.clear()
        first.clear()
        task = asyncio.ensure_future(work)
        await asyncio.wait_for(first.wait(), LONG)
        assert seen == [("stdout", b"one\n")] and not task.done()
        await sandbox.run(["sh", "-c", "echo > go"])
        result = await task
        assert (result.stdout, result.stderr) == (b"one\n", b"two\n")
        assert seen == [("stdout", b"one\n"), ("stderr", b"two\n")]


async def test_every_command_is_an_event() -> None:
    audit = MemoryAudit()
    sandboxes = LocalSandboxes(audit=audit)
    async with sandboxes, await sandboxes.open() as sandbox, await sandbox.shell() as shell:
        await shell.run("false", wall_s=LONG)
        await shell.run("sleep 99", wall_s=0.1)
    found = [(e["kind"], e["data"]["argv"], e["data"]["exit"], e["data"]["reason"]) for e in audit.events]
    assert found == [
        ("code_execution", ["(bash)", "false"], 1, None), ("code_execution", ["(bash)", "sleep 99"], None, "wall"),
    ]  # fmt: skip


async def test_a_language_that_there_is_none_for(sandbox: LocalSandbox) -> None:
    with pytest.raises(UsageError, match="bash or python"):
        await sandbox.shell("fish")  # type: ignore[arg-type]
