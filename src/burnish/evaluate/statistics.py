"""The statistics by which evaluations are judged.

What this file is: intervals, paired tests, repeated-trial estimators and corrections, as pure functions of
numbers. What is not defined for the numbers given comes back as None, never as 0 or 1.
What it is not: it knows nothing of trajectories, and it decides nothing (`comparison.py` does).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

Alternative = Literal["two-sided", "less"]

_LARGEST_EXACT = 200_000
_DRAWS = 100_000


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MeanTest:
    """A mean, its standard error, and the t test of it being 0 (two-sided; None where the error is 0)."""

    mean: float
    error: float
    df: int
    t: float | None
    p: float | None


def wilson(successes: float, n: int, confidence: float = 0.95) -> Interval | None:
    """Wilson's score interval of a proportion (JASA 22:209, 1927). `successes` may be fractional: of n tasks
    tried several times each, the sum of their success rates."""
    if n == 0:
        return None
    z, p = float(special.ndtri(0.5 + confidence / 2)), successes / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    # At the ends the bound is exact, and rounding would leave it a hair off.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return Interval(low, 1.0 if successes == n else min(1.0, centre + half))


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Interval | None:
    """The exact interval of a proportion (Biometrika 26:404, 1934), which never covers less than it says."""
    if n == 0:
        return None
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(special.betaincinv(successes + 1, n - successes, 1 - tail))
    return Interval(low, high)


def pass_at(trials: Sequence[tuple[int, int]], k: int) -> float | None:
    """pass@k over tasks given as (n trials, c successes): the chance that one of k trials succeeds, unbiased
    (arXiv 2107.03374). None where any task has fewer than k trials."""
    if not trials or any(n < k for n, _ in trials):
        return None
    return _mean([1 - math.comb(n - c, k) / math.comb(n, k) for n, c in trials])


def pass_all(trials: Sequence[tuple[int, int]], k: int) -> float | None:
    """pass^k over tasks: the chance that all of k trials succeed, unbiased (arXiv 2406.12045)."""
    if not trials or any(n < k for n, _ in trials):
        return None
    return _mean([math.comb(c, k) / math.comb(n, k) for n, c in trials])


def paired_test(differences: Sequence[float]) -> MeanTest | None:
    """The mean of per-task differences and its t test. None for fewer than two tasks."""
    n = len(differences)
    if n < 2:
        return None
    d = np.asarray(differences, float)
    return _mean_test(float(d.mean()), float(d.std(ddof=1)) / math.sqrt(n), n - 1)


def clustered_test(differences: Sequence[float], clusters: Sequence[Hashable]) -> MeanTest | None:
    """As `paired_test`, with tasks that share a cluster allowed to move together: the cluster-robust error of
    Miller (arXiv 2411.00640) with the small-sample factor G/(G-1), and t with G-1 degrees of freedom. Wants
    ten clusters or more; None for fewer than two."""
    sums, groups = _cluster_sums(_centred(differences), clusters)
    if groups < 2:
        return None
    error = math.sqrt(groups / (groups - 1) * float(sums @ sums)) / len(differences)
    return _mean_test(_mean(differences), error, groups - 1)


def clustered_error(differences: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """Miller's clustered standard error as published, without the small-sample factor."""
    n = len(differences)
    if n < 2:
        return None
    r = _centred(differences)
    sums, _ = _cluster_sums(r, clusters)
    own = float(r @ r)
    between = (float(sums @ sums) - own) / (n * n)
    return math.sqrt(max(0.0, own / (n - 1) / n + between))


def sign_test(up: int, down: int) -> float | None:
    """Exact two-sided sign test: p that ups and downs are equally likely. None without any."""
    if up + down == 0:
        return None
    tail = _binomial_half_cdf(min(up, down), up + down)
    return min(1.0, 2 * tail)


@dataclass(frozen=True, slots=True)
class McNemar:
    """Exact two-sided p of McNemar's test, and its less conservative mid-p."""

    p: float
    mid_p: float


def mcnemar(only_first: int, only_second: int) -> McNemar | None:
    """Exact test of two success rates on the same tasks, from those that only one of the two solved."""
    p = sign_test(only_first, only_second)
    if p is None:
        return None
    n, k = only_first + only_second, min(only_first, only_second)
    if only_first == only_second:
        return McNemar(p, 1 - math.comb(n, k) / 2**n)
    return McNemar(p, p - math.comb(n, k) / 2**n)


def sign_flip(
    values: Sequence[Fraction | int], alternative: Alternative = "two-sided", seed: int = 0
) -> float | None:
    """Permutation test that the mean of paired differences is 0, by flipping their signs (or those of whole
    clusters, given as sums). Exact, by counting all 2^n flips at once; where the exact count is too large,
    from 100,000 flips drawn with `seed`. None without values; 1 where all are 0."""
    if not values:
        return None
    scale = math.lcm(*(Fraction(v).denominator for v in values))
    whole = [int(Fraction(v) * scale) for v in values if v != 0]
    observed = sum(whole)
    if sum(map(abs, whole)) > _LARGEST_EXACT:
        return _sampled_flips(whole, observed, alternative, seed)
    chances, reach = np.ones(1), 0
    for step in map(abs, whole):
        wider = np.zeros(len(chances) + 2 * step)
        wider[: len(chances)] += chances / 2
        wider[2 * step :] += chances / 2
        chances, reach = wider, reach + step
    sums = np.arange(-reach, reach + 1)
    return min(1.0, float(chances[_as_extreme(sums, observed, alternative)].sum()))


def bootstrap(
    differences: Sequence[float],
    clusters: Sequence[Hashable],
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> Interval | None:
    """Percentile interval of the mean, drawing whole clusters with replacement. None for fewer than two."""
    sums, groups = _cluster_sums(np.asarray(differences, float), clusters)
    sizes, _ = _cluster_sums(np.ones(len(differences)), clusters)
    if groups < 2:
        return None
    picks = np.random.default_rng(seed).integers(0, groups, (draws, groups))
    means = sums[picks].sum(1) / sizes[picks].sum(1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high))


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction (Scand. J. Statist. 6:65, 1979): adjusted p values in the order given."""
    adjusted, running = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        running = max(running, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = running
    return adjusted


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the variance of paired differences comes from: `between` tasks (omega^2), and the trials of each
    side within a task (sigma^2)."""

    between: float
    first: float
    second: float

    def error(self, tasks: int, first_trials: int, second_trials: int) -> float:
        """Standard error of the mean difference with so many tasks and trials of each."""
        trials = self.first / first_trials + self.second / second_trials
        return math.sqrt((self.between + trials) / tasks)


def spread(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> Spread | None:
    """Estimates a `Spread` from (n trials, c successes) of the same tasks. None below two tasks or trials."""
    if len(first) < 2 or any(n < 2 for n, _ in (*first, *second)):
        return None
    a, b = (_mean([c * (n - c) / (n * (n - 1)) for n, c in side]) for side in (first, second))
    d = np.asarray([c2 / n2 - c1 / n1 for (n1, c1), (n2, c2) in zip(first, second, strict=True)])
    noise = _mean([a / n1 + b / n2 for (n1, _), (n2, _) in zip(first, second, strict=True)])
    return Spread(max(0.0, float(d.var(ddof=1)) - noise), a, b)


def detectable(error: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest true difference that a two-sided test with this standard error finds with `power`."""
    return _z_sum(alpha, power) * error


def tasks_needed(
    spread: Spread, difference: float, trials: int, alpha: float = 0.05, power: float = 0.8
) -> int:
    """How many tasks, each tried `trials` times by both sides, find a true `difference` with `power`."""
    variance = spread.error(1, trials, trials) ** 2
    return math.ceil((_z_sum(alpha, power) / difference) ** 2 * variance)


def _z_sum(alpha: float, power: float) -> float:
    return float(special.ndtri(1 - alpha / 2) + special.ndtri(power))


def t_quantile(df: int, probability: float) -> float:
    """The quantile of Student's t with `df` degrees of freedom."""
    return float(special.stdtrit(df, probability))


def t_two_sided(df: int, t: float) -> float:
    """How probable a t at least this far from 0 is, to either side."""
    return float(2 * special.stdtr(df, -abs(t)))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _centred(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    return array - array.mean() if len(array) else array


def _cluster_sums(
    values: NDArray[np.float64], clusters: Sequence[Hashable]
) -> tuple[NDArray[np.float64], int]:
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values but {len(clusters)} clusters")
    numbers: dict[Hashable, int] = {}
    index = [numbers.setdefault(cluster, len(numbers)) for cluster in clusters]
    return np.bincount(index, values, len(numbers)).astype(np.float64), len(numbers)


def _mean_test(mean: float, error: float, df: int) -> MeanTest:
    if error == 0:
        return MeanTest(mean, 0.0, df, None, None)
    t = mean / error
    return MeanTest(mean, error, df, t, t_two_sided(df, t))


def _binomial_half_cdf(k: int, n: int) -> float:
    return float(sum(math.comb(n, i) for i in range(k + 1)) / 2**n)


def _as_extreme(sums: NDArray[np.int64], observed: int, alternative: Alternative) -> NDArray[np.bool_]:
    return sums <= observed if alternative == "less" else np.abs(sums) >= abs(observed)


def _sampled_flips(whole: Sequence[int], observed: int, alternative: Alternative, seed: int) -> float:
    generator = np.random.default_rng(seed)
    values = np.asarray(whole, np.int64)
    extreme, block = 0, 1000
    for _ in range(_DRAWS // block):
        signs = generator.integers(0, 2, (block, len(values))) * 2 - 1
        extreme += int(_as_extreme(signs @ values, observed, alternative).sum())
    return (extreme + 1) / (_DRAWS + 1)
