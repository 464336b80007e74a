"""The iterate domain: bounds, and that the first attempt teaches but does not answer."""

from __future__ import annotations

import pytest

from burnish.domains.iterate import HELDOUT, OPERATIONS, TRAIN, IterateDomain, Lookup
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
        tasks = [t for t in drawn(domain, "train", 9) if t.tags["template"] == "comma"]
        found = {next(name for name in OPERATIONS if name in t.prompt[0].content): t for t in tasks}
        assert found.keys() == OPERATIONS.keys()
        for name, task in found.items():
            (path,) = task.setup["files"]
            plain = [int(line) for line in task.setup["files"][path].split("\n") if line.isdigit()]
            code = f"print({name}(int(x) for x in open('{path}') if x.strip().isdigit()))"
            answer = str(OPERATIONS[name](plain))
            value, trajectory = await plays(domain, task, [ToolCall("python", {"code": code}), answer])
            assert trajectory.events[0].data["content"] == answer
            assert value == 0.0


def test_held_out_tasks_ask_of_other_modules_for_other_forms() -> None:
    taught = [template for template in TRAIN.values() if isinstance(template, Lookup)]
    asked = [template for template in HELDOUT.values() if isinstance(template, Lookup)]
    assert len(asked) == 2
    for of in (
        lambda t: [module for module, _ in t.functions],
        lambda t: [function for _, function in t.functions] + list(t.insteads),
        lambda t: [form for form in t.forms if form != "{}"],
    ):
        assert not {item for t in taught for item in of(t)} & {item for t in asked for item in of(t)}
