"""The statistics against worked vectors and against scipy's own."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from burnish.evaluate import statistics as s

A = [4, 4, 3, 2, 4, 1, 0, 3, 2, 4, 0, 1]
B = [4, 3, 3, 1, 4, 0, 0, 3, 1, 4, 1, 0]
TRIALS_A = [(4, c) for c in A]
TRIALS_B = [(4, c) for c in B]
D = [(b - a) / 4 for a, b in zip(A, B, strict=True)]
CLUSTERS = [i // 3 for i in range(12)]


@pytest.mark.parametrize(
    ("trials", "at", "every"),
    [
        (TRIALS_A, {1: 0.583333, 2: 0.722222, 4: 0.833333}, {2: 0.444444, 4: 0.333333}),
        (TRIALS_B, {1: 0.5, 2: 0.625, 4: 0.75}, {2: 0.375, 4: 0.25}),
        ([(5, 2)], {3: 0.9}, {}),
        ([(5, 3)], {}, {2: 0.3}),
        ([(3, 2)], {}, {2: 1 / 3}),
    ],
)
def test_repeated_trials(trials, at: dict[int, float], every: dict[int, float]) -> None:
    for k, value in at.items():
        assert s.pass_at(trials, k) == pytest.approx(value, abs=1e-6)
    for k, value in every.items():
        assert s.pass_all(trials, k) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    ("trials", "k"), [([(2, 0)], 5), ([(1, 1)] * 164, 10), ([], 1), ([(4, 1), (3, 1)], 4)]
)
def test_fewer_trials_than_k_leave_it_undefined(trials, k: int) -> None:
    assert s.pass_at(trials, k) is None and s.pass_all(trials, k) is None


def test_intervals_of_a_proportion() -> None:
    for successes, n, low, high in ((17, 20, 0.6396, 0.9476), (20, 20, 0.8389, 1.0)):
        found = s.wilson(successes, n)
        assert found is not None and (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    exact = s.clopper_pearson(17, 20)
    assert exact is not None and (exact.low, exact.high) == pytest.approx((0.6211, 0.9679), abs=5e-5)
    assert s.wilson(0, 0) is None and s.clopper_pearson(0, 0) is None


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_intervals_equal_scipys(case: tuple[int, int]) -> None:
    c, n = case
    reference = stats.binomtest(c, n)
    for ours, method in ((s.wilson(c, n), "wilson"), (s.clopper_pearson(c, n), "exact")):
        theirs = reference.proportion_ci(0.95, method=method)
        assert ours is not None
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_paired_differences() -> None:
    found = s.paired_test(D)
    assert found is not None and found.t is not None and found.df == 11
    assert (found.mean, found.error) == pytest.approx((-0.083333, 0.047006), abs=1e-6)
    assert (found.t, found.p) == pytest.approx((-1.773, 0.104), abs=5e-4)
    reference = stats.ttest_1samp(D, 0)
    assert (found.t, found.p) == pytest.approx((reference.statistic, reference.pvalue), rel=1e-12)


def test_clustered_differences() -> None:
    assert s.clustered_error(D, CLUSTERS) == pytest.approx(0.032437, abs=1e-6)
    found = s.clustered_test(D, CLUSTERS)
    assert found is not None and found.df == 3
    assert (found.mean, found.error, found.p) == pytest.approx((-0.083333, 0.034021, 0.092), abs=5e-4)


@given(st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=3, max_size=12))
def test_clusters_of_one_are_no_clusters(differences: list[float]) -> None:
    clustered = s.clustered_test(differences, range(len(differences)))
    plain = s.paired_test(differences)
    assert clustered is not None and plain is not None
    assert clustered.error == pytest.approx(plain.error, rel=1e-9, abs=1e-12)
    assert s.clustered_error(differences, range(len(differences))) == pytest.approx(plain.error, abs=1e-9)


def test_too_little_is_undefined() -> None:
    assert s.paired_test([0.5]) is None and s.clustered_test([0.5, 0.1], ["a", "a"]) is None
    assert s.clustered_error([], []) is None and s.bootstrap([0.1, 0.2], ["a", "a"]) is None
    assert s.sign_test(0, 0) is None and s.mcnemar(0, 0) is None and s.sign_flip([]) is None
    assert s.spread([(1, 1), (1, 0)], [(1, 1), (1, 0)]) is None
    same = s.paired_test([0.25, 0.25])
    assert same is not None and same.p is None and same.t is None and same.error == 0
    with pytest.raises(ValueError, match="2 values but 1 clusters"):
        s.clustered_test([0.1, 0.2], ["a"])


def test_signs_and_flips() -> None:
    assert s.sign_test(1, 5) == pytest.approx(0.21875)
    assert s.sign_flip([b - a for a, b in zip(A, B, strict=True)]) == pytest.approx(0.21875)
    found = s.mcnemar(9, 2)
    assert found is not None and (found.p, found.mid_p) == pytest.approx((0.06543, 0.03857), abs=5e-6)
    balanced = s.mcnemar(1, 1)
    assert balanced is not None and (balanced.p, balanced.mid_p) == (1.0, 0.5)


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_sign_test_equals_scipys(up: int, down: int) -> None:
    if up + down:
        assert s.sign_test(up, down) == pytest.approx(stats.binomtest(up, up + down).pvalue)


@given(
    st.lists(st.fractions(-1, 1, max_denominator=6), min_size=1, max_size=8),
    st.sampled_from(["two-sided", "less"]),
)
def test_flips_equal_the_whole_enumeration(values: list[Fraction], alternative: s.Alternative) -> None:
    observed = sum(values)
    sums = [
        sum(f * v for f, v in zip(flips, values, strict=True))
        for flips in itertools.product((1, -1), repeat=len(values))
    ]
    extreme = [x <= observed if alternative == "less" else abs(x) >= abs(observed) for x in sums]
    assert s.sign_flip(values, alternative) == pytest.approx(np.mean(extreme))


def test_flips_too_many_to_count_are_drawn() -> None:
    values = [Fraction(k, 9973) for k in range(-40, 41) if k != 3]
    p = s.sign_flip([v + Fraction(1, 997) for v in values], seed=1)
    assert p is not None and 0 < p < 1
    assert p == s.sign_flip([v + Fraction(1, 997) for v in values], seed=1)
    reference = stats.permutation_test(
        ([float(v + Fraction(1, 997)) for v in values],),
        np.mean,
        permutation_type="samples",
        n_resamples=20_000,
        rng=1,
    )
    assert p == pytest.approx(reference.pvalue, abs=0.015)


def test_bootstrap_over_clusters() -> None:
    tasks = s.bootstrap(D, range(12))
    assert tasks is not None and (tasks.low, tasks.high) == pytest.approx((-0.1667, 0.0), abs=0.022)
    clusters = s.bootstrap(D, CLUSTERS)
    assert clusters is not None and (clusters.low, clusters.high) == pytest.approx((-0.1667, 0.0), abs=0.022)
    assert s.bootstrap(D, CLUSTERS) == clusters
    uneven = s.bootstrap([1.0, 1.0, 1.0, 0.0], ["a", "a", "a", "b"])
    assert uneven == s.Interval(0.0, 1.0)


def test_holm() -> None:
    assert s.holm([0.004, 0.011, 0.02, 0.04, 0.3]) == pytest.approx([0.02, 0.044, 0.06, 0.08, 0.3])
    assert s.holm([0.3, 0.004, 0.04, 0.011, 0.02]) == pytest.approx([0.3, 0.02, 0.08, 0.044, 0.06])
    assert s.holm([]) == [] and s.holm([0.6, 0.9]) == [1.0, 1.0]


def test_what_a_suite_can_detect() -> None:
    spread = s.Spread(1 / 9, 1 / 6, 1 / 6)
    for trials, effect in ((1, 0.187), (4, 0.124), (16, 0.102)):
        assert s.detectable(spread.error(100, trials, trials)) == pytest.approx(effect, abs=5e-4)
    assert s.tasks_needed(spread, 0.05, 4) == 611


def test_spread_is_taken_apart() -> None:
    found = s.spread(TRIALS_A, TRIALS_B)
    assert found is not None
    assert found.first == pytest.approx(np.mean([c * (4 - c) / 12 for c in A]))
    assert found.between == max(0.0, np.var(D, ddof=1) - (found.first + found.second) / 4)


@pytest.mark.parametrize("seed", [1, 2])
def test_equal_models_are_told_apart_as_often_as_alpha_says(seed: int) -> None:
    draw = np.random.default_rng(seed)
    alarms = 0
    for _ in range(400):
        chance = draw.beta(1, 1, 60)
        first, second = (draw.random(60) < chance for _ in range(2))
        p = s.sign_flip([int(d) for d in second.astype(int) - first])
        alarms += p is not None and p <= 0.05
    assert alarms / 400 <= 0.075
