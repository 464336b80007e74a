"""The few figures that a run is quoted by: what goes into `summary.json` and to the top of the report.

What this file is: each stage's success with its interval, overall and by domain, and the paired gains.
What it is not: the whole evaluation (`summary.py`), or a new way to compare (`comparison.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnish.evaluate.comparison import Comparison, compare
from burnish.evaluate.summary import Figures, Summary, summarize
from burnish.types import Trajectory

STAGES = {"base": "Base", "warmup": "Warm-up", "trained": "Trained"}
"""The stages of a run in their order, as people read them."""


def headline(evaluations: Mapping[str, Sequence[Trajectory]], minutes: float | None = None) -> dict[str, Any]:
    """Figures of the evaluated stages: for each stage `success`, `low`, `high` (95 %) and `tasks`;
    `domains` the same by domain and stage; `p_value` of trained against base and `p_value_over_warmup`
    (two-sided, paired, clustered), with the whole comparisons under `gain` and `gain_over_warmup`;
    `minutes` that the run took. Raises UsageError when two stages were not evaluated on the same tasks."""
    summaries = {stage: summarize(episodes) for stage, episodes in evaluations.items()}
    found: dict[str, Any] = {stage: _rate(summary.overall) for stage, summary in summaries.items()}
    for name, before in (("gain", "base"), ("gain_over_warmup", "warmup")):
        if all(found.get(stage, {}).get("success") is not None for stage in (before, "trained")):
            comparison = compare(evaluations[before], evaluations["trained"])
            found[name.replace("gain", "p_value")] = comparison.p_value
            found[name] = _gain(comparison)
    return {**found, "domains": _by_domain(summaries), "minutes": minutes}


def _rate(figures: Figures) -> dict[str, Any]:
    return {
        "success": figures.success,
        "low": figures.low,
        "high": figures.high,
        "tasks": figures.tasks,
    }


def _by_domain(summaries: Mapping[str, Summary]) -> dict[str, dict[str, Any]]:
    names = sorted({name for summary in summaries.values() for name in summary.domains})
    return {
        name: {stage: _rate(s.domains[name]) for stage, s in summaries.items() if name in s.domains}
        for name in names
    }


def _gain(comparison: Comparison) -> dict[str, Any]:
    return {
        "difference": comparison.difference,
        "low": comparison.low,
        "high": comparison.high,
        "p_value": comparison.p_value,
        "p_permutation": comparison.p_permutation,
        "gained": comparison.gained,
        "lost": comparison.lost,
        "tasks": comparison.tasks,
        "clustering": comparison.clustering,
        "clusters": comparison.clusters,
        "verdict": comparison.verdict,
    }
