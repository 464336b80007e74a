"""The adaptive weight of the KL penalty. Numbers are those of Ziegler et al.'s released code."""

from __future__ import annotations

import math

import pytest

from burnish.train.control import KL
from burnish.types import BurnishError, UsageError


@pytest.mark.parametrize(
    ("measured", "expected"),
    [(9.0, 0.201024), (3.0, 0.198976), (6.6, 0.200512), (6.0, 0.2), (-1.0, 0.198976)],
)
def test_the_weight_follows_the_error_and_its_clip(measured: float, expected: float) -> None:
    controller = KL(coefficient=0.2, target=6.0, horizon=1e4).open()
    controller.update(measured, episodes=256)
    assert controller.coefficient == pytest.approx(expected, abs=1e-9)


def test_observing_takes_the_mean_over_episodes_and_counts_them() -> None:
    controller = KL(coefficient=0.2, target=6.0, horizon=100.0).open()
    figures = controller.observe([5.0, 8.2])  # mean 6.6: error 0.1, two of a hundred episodes
    assert figures["kl"] == pytest.approx(6.6)
    assert figures["beta"] == controller.coefficient == pytest.approx(0.2 * (1 + 0.1 * 2 / 100))


def test_without_a_target_the_weight_stays() -> None:
    controller = KL(coefficient=0.2).open()
    assert controller.observe([100.0]) == {"kl": 100.0, "beta": 0.2}


def test_an_empty_batch_changes_nothing() -> None:
    controller = KL(coefficient=0.2, target=1.0, horizon=1.0).open()
    assert controller.observe([]) == {"kl": 0.0, "beta": 0.2}


def test_a_batch_larger_than_the_horizon_keeps_the_weight_positive() -> None:
    controller = KL(coefficient=1.0, target=6.0, horizon=10.0).open()
    controller.update(0.0, episodes=1000)
    assert controller.coefficient == pytest.approx(0.8)


def test_it_holds_a_policy_whose_divergence_falls_with_the_weight() -> None:
    """A policy that answers weight b with a divergence of 3 / b settles at the target from either side."""
    for start in (0.05, 20.0):
        controller = KL(coefficient=start, target=6.0, horizon=64.0).open()
        for _ in range(200):
            controller.update(3.0 / controller.coefficient, episodes=32)
        assert 3.0 / controller.coefficient == pytest.approx(6.0, rel=1e-3)


def test_the_state_survives() -> None:
    first, second = (KL(coefficient=0.2, target=6.0, horizon=10.0).open() for _ in range(2))
    first.update(9.0, 5)
    second.load_state_dict(first.state_dict())
    first.update(7.0, 5)
    second.update(7.0, 5)
    assert second.coefficient == first.coefficient != 0.2


@pytest.mark.parametrize("measured", [math.nan, math.inf])
def test_a_divergence_that_is_no_number_stops_the_run(measured: float) -> None:
    controller = KL(coefficient=0.2, target=6.0).open()
    with pytest.raises(BurnishError, match="reference"):
        controller.update(measured, 1)
    assert controller.coefficient == 0.2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"coefficient": -0.1}, "coefficient"),
        ({"coefficient": math.nan}, "coefficient"),
        ({"coefficient": 0.1, "target": 0.0}, "target"),
        ({"coefficient": 0.1, "target": 1.0, "horizon": 0.0}, "horizon"),
        ({"target": 6.0}, "coefficient above 0"),
    ],
)
def test_impossible_values_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        KL(**fields)
