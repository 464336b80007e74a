"""Domain 6: admission; the right reaction succeeds and blind repetition fails, whichever source is asked."""

from __future__ import annotations

import pytest

from burnish.domains.faults import Faults, FaultyWorld
from burnish.domains.play import play, say
from burnish.interfaces import OracleScript
from burnish.types import Task, ToolCall
from tests.domains.admission import admit, drawn, outcome, told

REFUSED = ("refused", "refused-2", "refused-3")
LIMITED = ("limit", "limit-2", "limit-3")


async def test_admission() -> None:
    await admit(Faults())


def blind(task: Task, *sources: int) -> OracleScript:
    """Asks the sources in turn, whatever the error, until one answers; knows the answer."""
    turn = 0
    while True:
        source = task.setup["sources"][sources[turn % len(sources)]]
        seen = yield ToolCall("get", {"key": task.secret["key"], "source": source})
        if seen.error is None:
            yield task.secret["gold"]
        turn += 1


@pytest.mark.parametrize("template", [*LIMITED, *REFUSED])
async def test_blind_repetition_fails(template: str) -> None:
    faults = Faults()
    for task in drawn(faults, template):
        for source in (0, 1):
            assert await outcome(faults, task, blind(task, source)) == 0.0


@pytest.mark.parametrize("template", LIMITED)
async def test_another_source_does_not_end_a_limit(template: str) -> None:
    faults = Faults()
    for task in drawn(faults, template):
        assert await outcome(faults, task, blind(task, 0, 1)) == 0.0


@pytest.mark.parametrize("template", ["timeout", "timeout-2", "timeout-3"])
async def test_a_timeout_may_be_repeated(template: str) -> None:
    faults = Faults()
    for task in drawn(faults, template):
        assert await outcome(faults, task, blind(task, 0)) == 1.0


def test_refusals_are_of_both_kinds() -> None:
    faults = Faults()
    for template in REFUSED:
        kinds = {t.setup["faults"][0]["kind"] for t in drawn(faults, template, 12)}
        assert kinds == {"permission", "exception"}


@pytest.mark.parametrize("template", REFUSED)
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
    for task in drawn(faults, "limit"):
        retry = int(task.setup["faults"][0]["retry_after"])
        call = ToolCall("get", {"key": task.secret["key"], "source": task.setup["sources"][0]})

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
    (task,) = drawn(faults, "limit-3", 1)
    call = ToolCall("get", {"key": task.secret["key"], "source": task.setup["sources"][0]})
    _, evidence = await play(faults, task, say([call, ToolCall("wait", {"seconds": 1}), call, ""]))
    assert [e.data["fault"] for e in evidence.faults] == ["rate_limit", "rate_limit"]
    assert [e.clock for e in evidence.faults] == [0.0, 1.0]


async def test_wrong_keys_and_sources() -> None:
    faults = Faults()
    (task,) = drawn(faults, "refused", 1)
    world, (first, other) = FaultyWorld(task.setup), task.setup["sources"]
    key = task.secret["key"]
    # A source that does not exist is not the first one asked.
    assert (await world.act(ToolCall("get", {"key": key, "source": "x"}))).error == "not_found"
    assert (await world.act(ToolCall("get", {"key": key, "source": first}))).error in (
        "permission",
        "exception",
    )
    assert (await world.act(ToolCall("get", {"key": "nobody", "source": other}))).error == "not_found"
    for seconds in (-1, 101):
        assert (await world.act(ToolCall("wait", {"seconds": seconds}))).error == "malformed"
    assert world.clock == 0.0


async def test_answers() -> None:
    faults = Faults()
    for task in drawn(faults, "timeout"):
        gold = task.secret["gold"]
        others = {v for pairs in task.setup["records"].values() for _, v in pairs} - {gold}
        other = next(o for o in sorted(others) if o not in task.prompt[0].content)
        assert await told(faults, task, f"The answer is {gold}.", other, f"{gold} {other}") == [1.0, 0.0, 0.0]
