"""The iterate domain: bounds, and that the first attempt teaches but does not answer."""

from __future__ import annotations

import pytest

from burnish.domains.iterate import IterateDomain
from burnish.sandbox.local import LocalSandboxes
from burnish.types import Split, ToolCall
from tests.domains.walks import drawn, hold_to_bounds, hold_to_no_constant, hold_to_splits, plays, solves


@pytest.mark.parametrize("split", ["train", "heldout"])
async def test_oracle_scores_one_and_doing_nothing_zero(split: Split) -> None:
    async with LocalSandboxes() as sandboxes:
        await hold_to_bounds(IterateDomain(sandboxes), split)


def test_splits_and_answers() -> None:
    domain = IterateDomain(LocalSandboxes())
    hold_to_splits(domain)
    hold_to_no_constant(domain)


async def test_the_answer_is_first_seen_after_the_revision() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = IterateDomain(sandboxes)
        for task in drawn(domain, "train", 3) + drawn(domain, "heldout", 3):
            look, first, second = events = (await solves(domain, task)).events
            assert [event.data["error"] for event in events] == [None, "exception", None]
            assert first.data["content"].startswith("exit 1: ValueError: ")
            answer = task.secret["answer"]
            for event in (look, first):
                digits = "".join(c if c.isdigit() else " " for c in event.data["content"].replace(",", ""))
                assert answer not in digits.split(), task.tags
            assert second.data["content"] == answer


async def test_code_that_leaves_odd_lines_out_is_wrong_where_they_count() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = IterateDomain(sandboxes)
        for task in [t for t in drawn(domain, "train", 3) if t.tags["template"] in ("sum-unit", "max-comma")]:
            (path,) = task.setup["files"]
            name = task.tags["template"].split("-")[0]
            plain = [int(line) for line in task.setup["files"][path].split("\n") if line.isdigit()]
            code = f"print({name}(int(x) for x in open('{path}') if x.strip().isdigit()))"
            answer = str(max(plain) if name == "max" else sum(plain))
            value, trajectory = await plays(domain, task, [ToolCall("python", {"code": code}), answer])
            assert trajectory.events[0].data["content"] == answer
            assert value == 0.0
