"""The transform domain: bounds, and files that only look as if the work were done."""

from __future__ import annotations

import pytest

from burnish.domains.toolkit import words
from burnish.domains.transform import HELDOUT, TRAIN, TransformDomain
from burnish.domains.workspace import printed
from burnish.sandbox.local import LocalSandboxes
from burnish.tools.tool import ToolFailure
from burnish.types import Result, Split, ToolCall
from tests.domains.walks import drawn, hold_to_bounds, hold_to_splits, plays


@pytest.mark.parametrize("split", ["train", "heldout"])
async def test_oracle_scores_one_and_doing_nothing_zero(split: Split) -> None:
    async with LocalSandboxes() as sandboxes:
        await hold_to_bounds(TransformDomain(sandboxes), split)


def test_held_out_templates_ask_for_taught_pairs_in_new_words_and_for_new_kinds_of_file() -> None:
    hold_to_splits(TransformDomain(LocalSandboxes()))
    taught = {(pair.source, pair.operation) for pair in TRAIN.values()}
    kinds = {suffix for pair in TRAIN.values() for suffix in pair.suffixes}
    for pair in HELDOUT.values():
        assert (pair.source, pair.operation) in taught
        assert not kinds.intersection(pair.suffixes)
        assert pair.wording not in {other.wording for other in TRAIN.values()}


async def test_no_one_command_does_every_task() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = TransformDomain(sandboxes)
        for task in drawn(domain, "train", 2) + drawn(domain, "heldout", 2):
            (out,) = set(task.secret["goal"]) - set(task.setup["files"])
            assert out in words(task.prompt[0].content)
            for command in (f"touch {out}", f"cat */* > {out}", f"ln -s /etc/passwd {out}", f"mkfifo {out}"):
                moves = [ToolCall("run", {"command": command}), "done"]
                assert (await plays(domain, task, moves))[0] == 0.0, (task.tags, command)


async def test_a_spoiled_source_is_no_success() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = TransformDomain(sandboxes)
        (task,) = domain.tasks("train", 0, 1)
        plan = [ToolCall(name, arguments) for name, arguments in task.secret["plan"]]
        assert (await plays(domain, task, [*plan, "done"]))[0] == 1.0
        spoil = ToolCall("run", {"command": "rm -r */"})
        assert (await plays(domain, task, [*plan, spoil, "done"]))[0] == 0.0


async def test_a_wrong_command_comes_back_as_the_shell_says_it() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = TransformDomain(sandboxes)
        (task,) = domain.tasks("train", 0, 1)
        session = await domain.open(task)
        seen = [
            await session.act(ToolCall("run", {"command": command}))
            for command in (
                "cat no.txt",
                "sort 'x",
                "a\0b",
                "seq 50",
                "true",
                "printf 'a\\377\\n'",
            )
        ]
        await session.close()
        assert [o.error for o in seen[:3]] == ["exception", "exception", "malformed"]
        assert seen[0].content == "exit 1: cat: no.txt: No such file or directory"
        assert seen[1].content.startswith("exit 2: ")
        assert seen[3].content == "1\n2\n3\n4\n5\n6\n7\n8\n(42 more lines)"
        assert seen[4].content == "ok"
        assert seen[5].content == "a\N{REPLACEMENT CHARACTER}"


def test_limits_come_back_typed() -> None:
    for reason, kind in (
        ("wall", "timeout"),
        ("cpu", "timeout"),
        ("memory", "resource"),
        ("disk", "resource"),
    ):
        with pytest.raises(ToolFailure) as failure:
            printed(Result(b"some", b"", None, reason))
        assert failure.value.kind == kind
