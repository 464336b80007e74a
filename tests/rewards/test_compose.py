"""Scores: the outcome gates the rest, None is not zero, what we broke is not scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.interfaces import Reward
from burnish.rewards.compose import combine, score
from burnish.rewards.cost import Cost
from burnish.rewards.outcome import Outcome, final_answer
from burnish.types import (
    Budget,
    Evidence,
    InfrastructureError,
    Message,
    Sampling,
    Score,
    Status,
    Stream,
    Task,
    Trajectory,
    Turn,
    UsageError,
)

unit = st.floats(0, 1)


def trajectory(status: Status | None, answer: str = " 42\n", **costs: float) -> Trajectory:
    task = Task("t", "d", (), (), Budget(turns=4, tool_calls=2), {}, {"gold": "42"})
    message = Message("assistant", answer)
    turn = Turn(None, None, "a", (), (), (), (), message, "stop", Sampling())
    return Trajectory("e", task, [turn], status=status, costs=costs)


class Fixed:
    """Stands for a domain: only its rewards are asked for."""

    name = "fixed"

    def __init__(self, *rewards: Reward) -> None:
        self.rewards: Sequence[Reward] = rewards


async def scored(status: Status | None, verify: Any, **weights: float) -> Score:
    domain: Any = Fixed(Outcome(verify), Cost())
    return await score(trajectory(status, turns=1.0, tool_calls=1.0), Evidence(), domain, weights)


def right(task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
    return float(answer == task.secret["gold"])


async def test_completed() -> None:
    done = await scored(Status("completed"), right)
    assert done.value == 1.0
    assert done.parts["outcome"] == Stream(1.0) and done.parts["cost"] == Stream(0.625)
    assert (await scored(Status("completed"), right, cost=0.4)).value == pytest.approx(1 - 0.4 * 0.375)


async def test_verify_may_be_async() -> None:
    async def later(task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return 0.5

    assert (await scored(Status("completed"), later)).value == 0.5


@pytest.mark.parametrize("kind", ["truncated", "tampered"])
async def test_what_was_not_completed_solves_nothing(kind: Any) -> None:
    assert (await scored(Status(kind, "x"), right)).value == 0.0
    assert final_answer(trajectory(Status(kind, "x"))) == ""


async def test_invalid_is_not_scored() -> None:
    assert await scored(Status("invalid", "disk"), right) == Score(None)
    assert await scored(None, right) == Score(None)


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
async def test_a_verifier_out_of_range_is_our_failure(value: float) -> None:
    with pytest.raises(InfrastructureError, match="not in"):
        await scored(Status("completed"), lambda *_: value)


async def test_a_weight_without_its_reward_is_refused() -> None:
    with pytest.raises(UsageError, match='no reward "style"'):
        await scored(Status("completed"), right, style=0.1)


async def test_cost_without_limits_is_not_scored() -> None:
    free = trajectory(Status("completed"))
    free.task = Task("t", "d", (), (), Budget(), {}, {})
    assert await Cost()(free, Evidence()) == Stream(None)


def test_none_is_not_zero() -> None:
    weights = {"style": 0.5}
    assert combine({"outcome": Stream(1.0), "style": Stream(None)}, weights) == 1.0
    assert combine({"outcome": Stream(1.0), "style": Stream(0.0)}, weights) == 0.5
    assert combine({"outcome": Stream(None), "style": Stream(1.0)}, weights) is None
    assert combine({"style": Stream(1.0)}, weights) is None
    assert combine({"outcome": Stream(0.75), "style": Stream(0.0)}) == 0.75


@pytest.mark.parametrize("weights", [{"style": -0.1}, {"style": 0.8, "cost": 0.3}, {"outcome": 0.5}])
def test_bad_weights_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        combine({"outcome": Stream(1.0)}, weights)


@given(unit, unit, unit, unit, unit, st.floats(0, 0.5), st.floats(0, 0.5))
def test_monotone_gated_and_bounded(
    gate: float, more: float, style: float, better: float, cost: float, w1: float, w2: float
) -> None:
    def value(o: float, s: float) -> float:
        streams = {"outcome": Stream(o), "style": Stream(s), "cost": Stream(cost)}
        found = combine(streams, {"style": w1, "cost": w2})
        assert found is not None
        return found

    base = value(gate, style)
    assert -1e-9 <= base <= gate + 1e-9
    assert value(0.0, style) == 0.0
    assert value(max(gate, more), style) >= base - 1e-9
    assert value(gate, max(style, better)) >= base - 1e-9
