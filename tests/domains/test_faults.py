"""Domain 6: admission; the right reaction succeeds and blind repetition fails, whichever source is asked."""

from __future__ import annotations

import pytest

from burnish.domains.faults import Faults, FaultyWorld
from burnish.domains.play import play
from burnish.interfaces import OracleScript
from burnish.types import Task, ToolCall
from tests.domains.admission import admit, drawn, outcome, told

TWO_SIDED = (
    "refused",
    "refused-second",
    "broken",
    "broken-second",
    "refused-then-limit",
    "limit-then-refused",
)


async def test_admission() -> None:
    await admit(Faults())


def blind(task: Task, source: int) -> OracleScript:
    """Repeats every failed call unchanged until it succeeds; knows the answer."""
    for key in task.secret["keys"]:
        call = ToolCall("get", {"source": task.setup["sources"][source], "key": key})
        while (yield call).error is not None:
            pass
    yield task.secret["gold"]


@pytest.mark.parametrize(
    "template", ["limit-first", "limit-second", "limit-twice", "timeout-then-broken", *TWO_SIDED]
)
async def test_blind_repetition_fails(template: str) -> None:
    faults = Faults()
    for task in drawn(faults, template):
        for source in range(len(task.setup["sources"])):
            assert await outcome(faults, task, blind(task, source)) == 0.0


@pytest.mark.parametrize("template", ["timeout-once", "calm"])
async def test_a_timeout_may_be_repeated(template: str) -> None:
    faults = Faults()
    for task in drawn(faults, template):
        assert await outcome(faults, task, blind(task, 0)) == 1.0


@pytest.mark.parametrize("template", TWO_SIDED)
async def test_faults_follow_the_source_that_is_asked_first(template: str) -> None:
    faults = Faults()
    for task in drawn(faults, template):
        script = faults.oracle(task)
        first = next(script)
        assert isinstance(first, ToolCall)
        names = task.setup["sources"]
        swap = dict(zip(names, reversed(names), strict=True))

        def mirrored(task: Task = task, swap: dict[str, str] = swap) -> OracleScript:
            inner = faults.oracle(task)
            move = next(inner)
            while isinstance(move, ToolCall):
                arguments = dict(move.arguments)
                if "source" in arguments:
                    arguments["source"] = swap[arguments["source"]]
                move = inner.send((yield ToolCall(move.name, arguments)))
            yield move

        _, evidence = await play(faults, task, mirrored())
        assert len(evidence.faults) >= 1
        assert await outcome(faults, task, mirrored()) == 1.0


async def test_waiting_too_short_does_not_help_and_too_long_ends_the_episode() -> None:
    faults = Faults()
    for task in drawn(faults, "limit-first"):
        retry = int(task.setup["faults"][0]["retry_after"])
        call = ToolCall("get", {"source": task.setup["sources"][0], "key": task.secret["keys"][0]})

        def wait(seconds: int, call: ToolCall = call, task: Task = task) -> OracleScript:
            yield call
            yield ToolCall("wait", {"seconds": seconds})
            seen = yield call
            yield task.secret["gold"] if seen.error is None else "still limited"

        assert await outcome(faults, task, wait(retry)) == 1.0
        assert await outcome(faults, task, wait(retry - 1)) == 0.0
        trajectory, _ = await play(faults, task, wait(100))
        assert trajectory.status is not None and trajectory.status.reason == "wall_s"


async def test_fired_faults_are_evidence_with_the_clock() -> None:
    faults = Faults()
    (task,) = drawn(faults, "limit-twice", 1)
    _, evidence = await play(faults, task, faults.oracle(task))
    assert [e.data["fault"] for e in evidence.faults] == ["rate_limit", "rate_limit"]
    assert evidence.faults[0].clock == 0.0
    assert evidence.faults[1].clock == task.setup["faults"][0]["retry_after"]


async def test_wrong_keys_and_sources() -> None:
    faults = Faults()
    (task,) = drawn(faults, "calm", 1)
    world = FaultyWorld(task.setup)
    source = task.setup["sources"][0]
    for arguments in ({"source": "x", "key": "lamp"}, {"source": source, "key": "nobody"}):
        assert (await world.act(ToolCall("get", arguments))).error == "not_found"
    for seconds in (-1, 101):
        assert (await world.act(ToolCall("wait", {"seconds": seconds}))).error == "malformed"
    assert world.clock == 0.0


async def test_answers() -> None:
    faults = Faults()
    for task in drawn(faults, "calm"):
        gold = task.secret["gold"]
        others = {v for pairs in task.setup["records"].values() for _, v in pairs} - {gold}
        other = next(o for o in sorted(others) if o not in task.prompt[0].content)
        assert await told(faults, task, f"The answer is {gold}.", other, f"{gold} {other}") == [1.0, 0.0, 0.0]
