"""Is the second model better or worse than the first? A paired comparison on the same tasks, and the gate.

What this file is: the difference of success with its interval and p values, domain by domain too, and the
verdict `pass`, `regression` or `inconclusive` by a rule that is fixed before looking.
What it is not: it runs nothing; absolute figures are in `summary.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from burnish.evaluate.statistics import (
    Alternative,
    clustered_test,
    detectable,
    holm,
    sign_flip,
    t_quantile,
    t_two_sided,
)
from burnish.evaluate.summary import Summary, summarize, trials
from burnish.store.codec import task_digest
from burnish.types import Task, Trajectory, UsageError

Verdict = Literal["pass", "regression", "inconclusive"]
Clustering = Literal["domain", "template", "task"]

FEWEST_CLUSTERS = 10
"""Below this the cluster-robust t test is not to be trusted (Miller, arXiv 2411.00640)."""

LARGEST_INVALID_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class DomainChange:
    """`p_worse` is the exact one-sided paired permutation test that the domain got worse, `p_worse_holm` the
    same corrected for the number of domains."""

    domain: str
    tasks: int
    difference: float
    p_worse: float
    p_worse_holm: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """`difference` is second minus first, in mean success over the paired tasks. `low` and `high` are its
    two-sided interval at 1 - alpha; `lower` and `upper` are the one-sided bounds that the verdict uses.
    `p_value` is two-sided and of the same clustered t test as the interval; `p_permutation` is the exact
    sign-flip test over single tasks, which for one episode a task is McNemar's exact test. `gained` and
    `lost` count tasks whose success rate rose or fell. `detectable` is the true difference that tasks and
    noise like these would show with 80 % power."""

    tasks: int
    excluded: int
    difference: float
    low: float
    high: float
    lower: float
    upper: float
    p_value: float
    p_permutation: float
    clustering: Clustering
    clusters: int
    gained: int
    lost: int
    detectable: float
    margin: float
    alpha: float
    domains: tuple[DomainChange, ...]
    verdict: Verdict
    reasons: tuple[str, ...]
    first: Summary
    second: Summary

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Pair:
    task: Task
    digest: str
    difference: Fraction


def compare(
    first: Sequence[Trajectory],
    second: Sequence[Trajectory],
    margin: float = 0.03,
    alpha: float = 0.05,
    clustering: Clustering | None = None,
) -> Comparison:
    """Compares two evaluations of the same tasks. `clustering` None takes the coarsest of domain, template
    and task that gives at least ten clusters. Raises UsageError when the two did not run the same tasks
    equally often, or when nothing is left to compare."""
    _check(margin, alpha)
    pairs, excluded = _pair(first, second)
    clustering = clustering or _coarsest(pairs)
    keys = [_cluster(pair, clustering) for pair in pairs]
    differences = [float(pair.difference) for pair in pairs]
    error, df = _error(differences, keys)
    exact = sum((pair.difference for pair in pairs), Fraction(0)) / len(pairs)
    difference = float(exact)
    summaries = summarize(first), summarize(second)
    both, one = (t_quantile(df, 1 - tail) * error for tail in (alpha / 2, alpha))
    lower, upper = max(-1.0, difference - one), min(1.0, difference + one)
    domains = _domain_changes(pairs)
    verdict, reasons = _judge(exact, lower, upper, domains, margin, alpha, summaries)
    return Comparison(
        tasks=len(pairs),
        excluded=excluded,
        difference=difference,
        low=max(-1.0, difference - both),
        high=min(1.0, difference + both),
        lower=lower,
        upper=upper,
        p_value=t_two_sided(df, difference / error),
        p_permutation=_flip_test(pairs),
        clustering=clustering,
        clusters=len(set(keys)),
        gained=sum(d > 0 for d in differences),
        lost=sum(d < 0 for d in differences),
        detectable=detectable(error, alpha),
        margin=margin,
        alpha=alpha,
        domains=domains,
        verdict=verdict,
        reasons=reasons,
        first=summaries[0],
        second=summaries[1],
    )


def _check(margin: float, alpha: float) -> None:
    if not 0 <= margin < 1:
        raise UsageError(f"The margin is a share of tasks from 0 to below 1, not {margin}.")
    if not 0 < alpha < 0.5:
        raise UsageError(f"alpha is a probability above 0 and below 0.5, not {alpha}.")


def _pair(first: Sequence[Trajectory], second: Sequence[Trajectory]) -> tuple[list[_Pair], int]:
    """The tasks with a valid episode on both sides, in the first's order, and how many have none."""
    planned = [_planned(side) for side in (first, second)]
    if planned[0] != planned[1]:
        raise UsageError(_mismatch(planned[0], planned[1]))
    tasks = {task_digest(t): t.task for t in first}
    before, after = trials(first), trials(second)
    pairs = [
        _Pair(task, key, Fraction(after[key][1], after[key][0]) - Fraction(before[key][1], before[key][0]))
        for key, task in tasks.items()
        if before[key][0] and after[key][0]
    ]
    if not pairs:
        raise UsageError("There is nothing to compare: no task has a valid, scored episode on both sides.")
    return pairs, len(tasks) - len(pairs)


def _planned(trajectories: Sequence[Trajectory]) -> Counter[str]:
    return Counter(task_digest(t) for t in trajectories)


def _mismatch(first: Counter[str], second: Counter[str]) -> str:
    only_first, only_second = len(first.keys() - second.keys()), len(second.keys() - first.keys())
    if only_first or only_second:
        what = f"{only_first} tasks were run only by the first and {only_second} only by the second"
    else:
        what = "some tasks were tried more often by one than by the other"
    return f"The two evaluations did not run the same tasks: {what}. Evaluate both on one suite and seed."


def _cluster(pair: _Pair, clustering: Clustering) -> Hashable:
    if clustering == "task":
        return pair.digest
    template = pair.task.tags.get("template", "") if clustering == "template" else ""
    return pair.task.domain, template


def _coarsest(pairs: Sequence[_Pair]) -> Clustering:
    choices: tuple[Clustering, ...] = ("domain", "template")
    for choice in choices:
        if len({_cluster(pair, choice) for pair in pairs}) >= FEWEST_CLUSTERS:
            return choice
    return "task"


def _error(differences: Sequence[float], clusters: Sequence[Hashable]) -> tuple[float, int]:
    """Standard error of the mean difference, and its degrees of freedom. Never below that of Bonett and Price
    (J. Educ. Behav. Stat. 37:479, 2012), which adds one task to either side of the disagreements: a few
    tasks on which nobody disagreed are no proof that nobody ever would."""
    n = len(differences)
    up = (sum(max(d, 0.0) for d in differences) + 1) / (n + 2)
    down = (sum(max(-d, 0.0) for d in differences) + 1) / (n + 2)
    floor = math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    robust = clustered_test(differences, clusters)
    return (floor, max(1, n - 1)) if robust is None else (max(floor, robust.error), robust.df)


def _flip_test(pairs: Sequence[_Pair], alternative: Alternative = "two-sided") -> float:
    p = sign_flip([pair.difference for pair in pairs], alternative)
    return 1.0 if p is None else p


def _domain_changes(pairs: Sequence[_Pair]) -> tuple[DomainChange, ...]:
    names = sorted({pair.task.domain for pair in pairs})
    members = [[pair for pair in pairs if pair.task.domain == name] for name in names]
    worse = [_flip_test(group, "less") for group in members]
    return tuple(
        DomainChange(name, len(group), float(sum(p.difference for p in group) / len(group)), p, corrected)
        for name, group, p, corrected in zip(names, members, worse, holm(worse), strict=True)
    )


def _judge(
    difference: Fraction,
    lower: float,
    upper: float,
    domains: Sequence[DomainChange],
    margin: float,
    alpha: float,
    summaries: tuple[Summary, Summary],
) -> tuple[Verdict, tuple[str, ...]]:
    """The gate: a regression overall or in a domain; a pass only where a loss as large as the margin is
    ruled out; everything else is not enough evidence."""
    reasons = []
    if upper < 0 and difference <= -Fraction(str(margin)):
        reasons.append(
            f"success fell by {-float(difference):.3f}, and the loss is beyond chance (alpha {alpha:g})"
        )
    reasons += [
        f"{d.domain} fell by {-d.difference:.3f} (p {d.p_worse_holm:.4f} among {len(domains)} domains)"
        for d in domains
        if d.p_worse_holm <= alpha and d.difference <= -2 * margin and d.difference < 0
    ]
    if reasons:
        return "regression", tuple(reasons)
    spoilt = [
        f"{share:.0%} of the {name} evaluation's episodes are invalid (allowed: {LARGEST_INVALID_SHARE:.0%})"
        for name, share in zip(("first", "second"), map(_invalid_share, summaries), strict=True)
        if share > LARGEST_INVALID_SHARE
    ]
    if spoilt:
        return "inconclusive", tuple(spoilt)
    if lower > -margin:
        small = "; a smaller loss is beyond chance" if upper < 0 else ""
        return "pass", (f"a loss of {margin:g} or more is ruled out (alpha {alpha:g}){small}",)
    return "inconclusive", (
        f"a loss of {margin:g} is neither shown nor ruled out (bounds {lower:+.3f} and {upper:+.3f}); "
        "evaluate more tasks, or each task more often",
    )


def _invalid_share(summary: Summary) -> float:
    episodes = summary.overall.episodes + summary.invalid + summary.unscored
    return summary.invalid / episodes if episodes else 0.0
