"""The paired comparison and its gate, on made-up evaluations and on simulated ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from burnish.evaluate.comparison import Comparison, compare
from burnish.evaluate.statistics import mcnemar
from burnish.types import Trajectory, UsageError
from tests.evaluate.made_up import episode, suite, task

DOMAINS = [f"d{i}" for i in range(10)]


def drawn(rates: np.ndarray, seed: int, per_domain: int = 20) -> list[Trajectory]:
    draw = np.random.default_rng(seed)
    return suite(
        {d: list((draw.random(per_domain) < r).astype(int)) for d, r in zip(DOMAINS, rates, strict=True)}
    )


def test_a_clear_gain() -> None:
    found = compare(drawn(np.full(10, 0.05), 1), drawn(np.full(10, 0.75), 2))
    assert found.verdict == "pass" and found.difference > 0.6 and found.low > 0.5
    assert found.p_value < 1e-6 and found.p_permutation < 1e-9
    assert (found.clustering, found.clusters, found.tasks) == ("domain", 10, 200)
    assert found.gained > 100 and found.detectable < 0.2
    assert json.loads(json.dumps(found.to_json()))["second"]["overall"]["tasks"] == 200


def test_the_same_twice() -> None:
    same = drawn(np.full(10, 0.5), 1)
    found = compare(same, same)
    assert found.difference == 0 and found.p_value == found.p_permutation == 1.0
    assert found.verdict == "pass" and found.low < 0 < found.high


def test_few_tasks_prove_nothing_even_when_equal() -> None:
    same = suite({"files": [1, 1, 0]})
    found = compare(same, same)
    assert found.verdict == "inconclusive" and "more tasks" in found.reasons[0]
    assert compare(same[:1], same[:1]).verdict == "inconclusive"


def test_a_loss_overall_is_a_regression() -> None:
    found = compare(drawn(np.full(10, 0.8), 1), drawn(np.full(10, 0.5), 2))
    assert found.verdict == "regression" and found.upper < 0 and "fell by" in found.reasons[0]


def test_a_loss_in_one_domain_is_a_regression_though_the_whole_gained() -> None:
    before = suite({d: [1] * 20 if d == "d3" else [0] * 20 for d in DOMAINS})
    after = suite({d: [0] * 20 if d == "d3" else [1] * 20 for d in DOMAINS})
    found = compare(before, after)
    assert found.difference > 0.7 and found.verdict == "regression"
    assert [r for r in found.reasons if r.startswith("d3 fell")]
    worst = min(found.domains, key=lambda d: d.difference)
    assert worst.p_worse == pytest.approx(2**-20) and worst.p_worse_holm == pytest.approx(10 * 2**-20)


def test_with_one_episode_a_task_the_permutation_test_is_mcnemars() -> None:
    before = suite({"files": [0] * 9 + [1] * 2 + [1] * 9})
    after = suite({"files": [1] * 9 + [0] * 2 + [1] * 9})
    found, exact = compare(before, after), mcnemar(2, 9)
    assert exact is not None and found.p_permutation == pytest.approx(exact.p)
    assert (found.gained, found.lost) == (9, 2)


@pytest.mark.parametrize(
    ("outcomes", "clustering", "clusters"),
    [
        ({d: [0, 1] for d in DOMAINS}, "domain", 10),
        ({d: [0, 1, 0] for d in DOMAINS[:4]}, "template", 12),
        ({"files": [0, 1, 0, 1]}, "task", 4),
    ],
)
def test_the_coarsest_clustering_with_ten_clusters(outcomes, clustering: str, clusters: int) -> None:
    found = compare(suite(outcomes), suite(outcomes))
    assert (found.clustering, found.clusters) == (clustering, clusters)


def test_tasks_that_move_together_widen_the_interval() -> None:
    before = suite({d: [0] * 20 for d in DOMAINS})
    after = suite({d: [int(i % 2 == 0)] * 20 for i, d in enumerate(DOMAINS)})
    together, apart = compare(before, after), compare(before, after, clustering="task")
    assert together.high - together.low > 3 * (apart.high - apart.low)
    assert together.p_value > 0.01 > apart.p_value


def test_invalid_episodes_leave_the_pairs_and_too_many_spoil_the_evaluation() -> None:
    same = drawn(np.full(10, 0.5), 1)
    few = [episode(t.task, None, "invalid") if i < 5 else t for i, t in enumerate(same)]
    many = [episode(t.task, None, "invalid") if i < 15 else t for i, t in enumerate(same)]
    found = compare(same, few)
    assert (found.tasks, found.excluded, found.verdict) == (195, 5, "pass")
    spoilt = compare(same, many)
    assert spoilt.verdict == "inconclusive" and "8% of the second" in spoilt.reasons[0]


def test_other_tasks_are_refused() -> None:
    with pytest.raises(UsageError, match="1 tasks were run only by the first and 2 only by the second"):
        compare(suite({"files": [1, 1, 1]})[:2], suite({"files": [1, 1, 1, 1]})[1:])
    once, twice = suite({"files": [1]}), suite({"files": [1]}) * 2
    with pytest.raises(UsageError, match="more often"):
        compare(once, twice)
    with pytest.raises(UsageError, match="nothing to compare"):
        compare([], [])
    with pytest.raises(UsageError, match="nothing to compare"):
        compare([episode(task(1), 1.0)], [episode(task(1), None)])


@pytest.mark.parametrize(("margin", "alpha"), [(-0.1, 0.05), (1.0, 0.05), (0.03, 0.0), (0.03, 0.5)])
def test_impossible_margins_are_refused(margin: float, alpha: float) -> None:
    with pytest.raises(UsageError, match=r"margin|alpha"):
        compare(suite({"files": [1]}), suite({"files": [1]}), margin, alpha)


def simulated(drop: float, seeds: range) -> list[Comparison]:
    """Evaluations of 400 tasks whose difficulty varies, by two models that differ by `drop`."""
    found = []
    for seed in seeds:
        rates = np.random.default_rng(seed).uniform(0.4, 0.95, 10)
        found.append(compare(drawn(rates, 2 * seed + 1, 40), drawn(rates - drop, 2 * seed + 2, 40)))
    return found


def test_the_gate_is_right_about_as_often_as_it_says() -> None:
    alarms = sum(c.verdict == "regression" for c in simulated(0.0, range(60)))
    caught = sum(c.verdict == "regression" for c in simulated(0.15, range(30)))
    waved = sum(c.verdict == "pass" for c in simulated(0.15, range(30)))
    assert alarms <= 6 and caught >= 27 and waved == 0
