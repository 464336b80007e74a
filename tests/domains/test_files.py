"""The files domain: bounds, grading of answers, and what its tools say."""

from __future__ import annotations

import pytest

from burnish.domains.files import FilesDomain
from burnish.sandbox.local import LocalSandboxes
from burnish.types import Split, ToolCall
from tests.domains.walks import drawn, hold_to_bounds, hold_to_no_constant, hold_to_splits, plays


@pytest.mark.parametrize("split", ["train", "heldout"])
async def test_oracle_scores_one_and_doing_nothing_zero(split: Split) -> None:
    async with LocalSandboxes() as sandboxes:
        await hold_to_bounds(FilesDomain(sandboxes), split)


def test_splits_and_answers() -> None:
    domain = FilesDomain(LocalSandboxes())
    hold_to_splits(domain)
    hold_to_no_constant(domain)


async def test_dumping_everything_is_no_answer() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = FilesDomain(sandboxes)
        for task in drawn(domain, "train", 3) + drawn(domain, "heldout", 3):
            files = task.setup["files"]
            everything = "\n".join(f"{path}: {content}" for path, content in files.items())
            assert (await plays(domain, task, [everything]))[0] == 0.0
            both = f"{task.secret['answer']} or {(task.secret['others'] or ['12'])[0]}"
            assert (await plays(domain, task, [both]))[0] == 0.0
            assert (await plays(domain, task, [f"It is {task.secret['answer']}."]))[0] == 1.0


async def test_what_the_agent_does_wrong_comes_back_typed() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = FilesDomain(sandboxes)
        (task,) = domain.tasks("train", 0, 1)
        folder = next(iter(task.setup["files"])).split("/")[0]
        calls = [
            ("read", {"path": "no/such.txt"}, "not_found"),
            ("read", {"path": folder}, "permission"),
            ("read", {"path": "../../etc/passwd"}, "permission"),
            ("list", {"path": "nowhere"}, "not_found"),
            ("list", {"path": "."}, None),
            ("search", {"word": ""}, None),
            ("search", {"words": "lamp"}, "malformed"),
            ("run", {"command": "ls"}, "unknown_tool"),
        ]
        session = await domain.open(task)
        seen = [(await session.act(ToolCall(name, arguments))).error for name, arguments, _ in calls]
        await session.close()
        assert seen == [error for _, _, error in calls]
