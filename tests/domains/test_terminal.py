"""The terminal domain: bounds, the budget of commands, and acting without looking."""

from __future__ import annotations

import pytest

from burnish.domains.terminal import COMMANDS, HELDOUT, TRAIN, TerminalDomain
from burnish.sandbox.local import LocalSandboxes
from burnish.types import Split, ToolCall
from tests.domains.walks import drawn, hold_to_bounds, hold_to_splits, plays


@pytest.mark.parametrize("split", ["train", "heldout"])
async def test_oracle_scores_one_and_doing_nothing_zero(split: Split) -> None:
    async with LocalSandboxes() as sandboxes:
        await hold_to_bounds(TerminalDomain(sandboxes), split)


def test_held_out_templates_ask_for_taught_pairs_in_new_words_and_for_new_files() -> None:
    hold_to_splits(TerminalDomain(LocalSandboxes()))
    taught = {(pair.source, pair.act) for pair in TRAIN.values()}
    pool = {item for pair in TRAIN.values() for item in pair.pool}
    for pair in HELDOUT.values():
        assert (pair.source, pair.act) in taught
        assert not pool.intersection(pair.pool)
        assert pair.wording not in {other.wording for other in TRAIN.values()}


async def test_a_fourth_command_ends_the_episode_without_reward() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = TerminalDomain(sandboxes)
        for task in drawn(domain, "train", 1):
            plan = [ToolCall(name, arguments) for name, arguments in task.secret["plan"]]
            waste = [ToolCall("run", {"command": "true"})] * (COMMANDS + 1 - len(plan))
            value, trajectory = await plays(domain, task, [*waste, *plan, "done"])
            assert value == 0.0
            assert trajectory.status is not None and trajectory.status.kind == "truncated"
            value, _ = await plays(domain, task, [*waste[1:], *plan, "done"])
            assert value == 1.0


async def test_acting_on_every_file_or_on_another_file_is_no_success() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = TerminalDomain(sandboxes)
        for task in drawn(domain, "train", 2) + drawn(domain, "heldout", 2):
            *_, (_, right) = task.secret["plan"]
            (path,) = (word for word in right["command"].split() if word in task.setup["files"])
            others = [other for other in task.setup["files"] if other != path]
            for wrong in (path.split("/")[0] + "/*", others[0]):
                command = right["command"].replace(path, wrong)
                moves = [ToolCall("run", {"command": command}), "done"]
                assert (await plays(domain, task, moves))[0] == 0.0, (task.tags, command)
