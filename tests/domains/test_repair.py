"""The repair domain: bounds, other right repairs, and attacks on its grading, none of which scores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from burnish.domains import bugs
from burnish.domains.repair import RepairDomain, same
from burnish.sandbox.local import LocalSandboxes
from burnish.types import InfrastructureError, Split, Task, ToolCall
from tests.domains.walks import drawn, hold_to_bounds, hold_to_splits, plays

EQUAL_TO_ALL = """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
def FUNCTION(*arguments): return Any(1)
"""
PATCHED_JSON = """
import builtins, json, sys
json.dumps = lambda value, *a, **k: "[" + ", ".join("[true]" for _ in value) + "]"
builtins.len = lambda _: 0
class Yes:
    def __eq__(self, other): return True
    __hash__ = None
def FUNCTION(*arguments): return Yes()
"""
PEEKING = """
import sys
frame = sys._getframe()
seen = {}
while frame:
    seen.update(frame.f_globals)
    frame = frame.f_back
cases = seen.get("cases") or seen.get("expected") or seen["request"].get("expected")
def FUNCTION(*arguments): return dict(cases)[arguments] if cases else None
"""
EXITING = "import os\nprint('8 passed')\nos._exit(0)\n"
PRINTING = "import os\nos.write(1, b'[[1], [1], [1], [1], [1], [1], [1], [1]]')\nos._exit(0)\n"
PLANTED = {
    "sitecustomize.py": "import os\nos._exit(0)\n",
    "usercustomize.py": "import os\nos._exit(0)\n",
    "conftest.py": "def pytest_runtest_makereport(item, call):\n    call.excinfo = None\n",
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    "json.py": "def load(stream): return {}\ndef dumps(value): return 'true'\n",
    "solution.py": "import os\nos._exit(0)\n",
    "reward.json": '{"outcome": 1}',
}


def _write(path: str, text: str) -> ToolCall:
    return ToolCall("write", {"path": path, "text": text})


@pytest.mark.parametrize("split", ["train", "heldout"])
async def test_oracle_scores_one_and_doing_nothing_zero(split: Split) -> None:
    async with LocalSandboxes() as sandboxes:
        await hold_to_bounds(RepairDomain(sandboxes), split)


def test_splits_share_no_function() -> None:
    hold_to_splits(RepairDomain(LocalSandboxes()))
    names = [bug.name for bug in bugs.TRAIN + bugs.HELDOUT]
    assert len(set(names)) == len(names) == 75


async def test_a_right_repair_in_other_words_scores_and_noise_does_not_harm_it() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = RepairDomain(sandboxes)
        task = _task_of(domain, "told")
        (bug,) = (bug for bug in bugs.TRAIN if bug.name == task.secret["function"])
        source = f"print('loading')\ndef {bug.name}({bug.parameters}):\n    print(1)\n    it = {bug.good}\n"
        repaired = _write(task.secret["path"], source + "    return it\n")
        assert (await plays(domain, task, [repaired, "done"]))[0] == 1.0
        unfinished = [ToolCall("read", {"path": "."})] * 6
        assert (await plays(domain, task, [repaired, *unfinished, "done"]))[0] == 0.0


async def test_attacks_on_the_grading_score_nothing() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = RepairDomain(sandboxes)
        for template in ("told", "docstring"):
            task = _task_of(domain, template)
            path, function = task.secret["path"], task.secret["function"]
            for attack in (EQUAL_TO_ALL, PATCHED_JSON, PEEKING, EXITING, PRINTING):
                moves = [_write(path, attack.replace("FUNCTION", function)), "done"]
                assert (await plays(domain, task, moves))[0] == 0.0, attack
            comment = ToolCall("write", {"path": path, "text": task.setup["files"][path] + "# repaired\n"})
            for name, text in PLANTED.items():
                assert (await plays(domain, task, [_write(name, text), "done"]))[0] == 0.0, name
                assert (await plays(domain, task, [_write(name, text), comment, "done"]))[0] == 0.0, name
            assert (await plays(domain, task, [_write(path, ""), "done"]))[0] == 0.0


async def test_results_hard_coded_for_one_input_score_nothing() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = RepairDomain(sandboxes)
        for task in drawn(domain, "train", 2):
            arguments, right = task.secret["cases"][0]
            body = f"    return {right!r} if list(given) == {arguments!r} else 0\n"
            source = f"def {task.secret['function']}(*given):\n{body}"
            assert (await plays(domain, task, [_write(task.secret["path"], source), "done"]))[0] == 0.0


async def test_no_constant_is_right_for_any_function() -> None:
    domain = RepairDomain(LocalSandboxes())
    for split in ("train", "heldout"):
        for task in domain.tasks(split, 2, 200):
            results = [expected for _, expected in task.secret["cases"]]
            assert any(result != results[0] for result in results), task.id
            inputs = [str(arguments) for arguments, _ in task.secret["cases"]]
            assert len(set(inputs)) == len(inputs)


async def test_a_grader_whose_control_passes_is_our_failure() -> None:
    async with LocalSandboxes() as sandboxes:
        domain = RepairDomain(sandboxes)
        task = _task_of(domain, "told")
        (bug,) = (bug for bug in bugs.TRAIN if bug.name == task.secret["function"])
        names = bug.parameters.split(", ")
        cases = [
            [arguments, bugs.value(bug.bad, dict(zip(names, arguments, strict=True)))]
            for arguments, _ in task.secret["cases"]
        ]
        broken = replace(task, secret={**task.secret, "cases": cases})
        with pytest.raises(InfrastructureError, match="unrepaired function passes"):
            await plays(domain, broken, [_write(task.secret["path"], "x = 1\n"), "done"])


def test_results_are_compared_with_their_types() -> None:
    assert same([[1, "a"]], [[1, "a"]])
    assert not same([True], [1])
    assert not same([1.0], [1])
    assert not same([1, 2], [1])


def _task_of(domain: RepairDomain, template: str) -> Task:
    return next(task for task in domain.tasks("train", 1, 16) if task.tags["template"] == template)
