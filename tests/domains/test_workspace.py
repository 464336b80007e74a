"""What the domains on files share: short observations, and evidence that never holds up the grading."""

from __future__ import annotations

import asyncio

from burnish.domains.repair import RepairDomain
from burnish.domains.transform import TransformDomain
from burnish.domains.workspace import SHOWN_CHARACTERS, clip, reached
from burnish.rewards.compose import score
from burnish.sandbox.local import LocalSandboxes
from burnish.types import Limits, Message, Sampling, Status, Task, ToolCall, Trajectory, Turn


def _answered(task: Task) -> Trajectory:
    turn = Turn(None, None, "agent", (), (), (), (), Message("assistant", "done"), "stop", Sampling())
    return Trajectory("t", task, [turn], status=Status("completed"))


async def test_grading_needs_no_second_place_beside_the_episode() -> None:
    """As many episodes may end at once as there are sandboxes, and each grading opens another."""
    async with LocalSandboxes(max_open=1) as sandboxes:
        domain = RepairDomain(sandboxes)
        (task,) = domain.tasks("train", 0, 1)
        session = await domain.open(task)
        for name, arguments in task.secret["plan"]:
            await session.act(ToolCall(name, arguments))
        evidence = await session.evidence()
        graded = await asyncio.wait_for(score(_answered(task), evidence, domain), timeout=60)
        await session.close()
        assert graded.value == 1.0


async def test_leaving_more_than_a_grader_reads_is_a_failure_of_the_agent() -> None:
    async with LocalSandboxes(limits=Limits(disk=1 << 20)) as sandboxes:
        domain = TransformDomain(sandboxes)
        (task,) = domain.tasks("train", 0, 1)
        session = await domain.open(task)
        plan = [ToolCall(name, arguments) for name, arguments in task.secret["plan"]]
        for call in [*plan, ToolCall("run", {"command": "head -c 2000000 /dev/zero > big"})]:
            assert (await session.act(call)).error is None
        evidence = await session.evidence()
        await session.close()
        assert (await score(_answered(task), evidence, domain)).value == 0.0


def test_observations_are_short_and_are_text() -> None:
    assert clip("a\nb\n") == "a\nb"
    assert clip("1\n2\n3\n4\n", most=2) == "1\n2\n(2 more lines)"
    assert clip("x" * 5000) == "x" * (SHOWN_CHARACTERS - 3) + "..."
    assert clip("name\udcff") == "name?"


def test_a_goal_is_compared_but_for_the_last_newline() -> None:
    goal = {"a.txt": "one\ntwo\n"}
    assert reached(goal, {"a.txt": b"one\ntwo"}, exact=True)
    assert reached(goal, {"a.txt": b"one\ntwo\n", "b.txt": b""}, exact=False)
    assert not reached(goal, {"a.txt": b"one\ntwo\n", "b.txt": b""}, exact=True)
    assert not reached(goal, {"a.txt": b"one\n\ntwo\n"}, exact=False)
    assert not reached(goal, {}, exact=False)
