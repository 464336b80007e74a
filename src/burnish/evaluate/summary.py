"""What a model reached: figures of a list of scored trajectories, overall and by domain.

What this file is: success with its interval, steps, tool calls and how they failed, and how episodes ended.
What it is not: it compares nothing (`comparison.py` does) and draws nothing (`report.py` does).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from burnish.evaluate.statistics import pass_all, pass_at, wilson
from burnish.store.codec import task_digest
from burnish.types import Stream, Trajectory

_SOLVED = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the valid episodes. `success` is the mean over tasks of the share of their episodes that
    solved them, with Wilson's 95 % interval over tasks (`low`, `high`; all None without episodes). `turns`,
    `tool_calls`, `tool_failures` and `timeouts` are means per episode; the two rates are shares of tool
    calls. `pass_at` and `pass_all` map k to pass@k and pass^k where every task was tried more than once."""

    tasks: int
    episodes: int
    success: float | None
    low: float | None
    high: float | None
    reward: float | None
    turns: float | None
    tool_calls: float | None
    tool_failures: float | None
    timeouts: float | None
    tool_failure_rate: float | None
    timeout_rate: float | None
    endings: Mapping[str, int]
    pass_at: Mapping[int, float] = field(default_factory=dict)
    pass_all: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summary:
    """`invalid` episodes (our machinery failed) and `unscored` ones are counted here and in no other
    figure."""

    overall: Figures
    domains: Mapping[str, Figures]
    invalid: int
    unscored: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def outcome(trajectory: Trajectory) -> float | None:
    """The outcome's value: the stream called `outcome`, else the first stream (a domain's first reward is its
    outcome), else the combined reward. None where nothing was scored."""
    score = trajectory.score
    if score is None:
        return None
    fallback = next(iter(score.parts.values()), Stream(score.value))
    return score.parts.get("outcome", fallback).value


def solved(trajectory: Trajectory) -> bool | None:
    """Whether the task was solved; None for an episode that says nothing about the agent (invalid, unscored).
    One that a budget cut off may have solved its task; one that attacked its grading has not."""
    kind = None if trajectory.status is None else trajectory.status.kind
    if kind == "tampered":
        return False
    value = outcome(trajectory)
    return None if kind == "invalid" or value is None else value >= _SOLVED


def summarize(trajectories: Sequence[Trajectory]) -> Summary:
    """The figures of an evaluation."""
    counted = [t for t in trajectories if solved(t) is not None]
    domains = sorted({t.task.domain for t in trajectories})
    invalid = sum(t.status is not None and t.status.kind == "invalid" for t in trajectories)
    return Summary(
        overall=_figures(counted),
        domains={d: _figures([t for t in counted if t.task.domain == d]) for d in domains},
        invalid=invalid,
        unscored=len(trajectories) - len(counted) - invalid,
    )


def trials(trajectories: Sequence[Trajectory]) -> dict[str, tuple[int, int]]:
    """For each task, by digest and in order: valid episodes and how many of them solved it."""
    counts: dict[str, tuple[int, int]] = {}
    for trajectory in trajectories:
        success, key = solved(trajectory), task_digest(trajectory)
        n, c = counts.get(key, (0, 0))
        counts[key] = (n, c) if success is None else (n + 1, c + success)
    return counts


def _figures(episodes: Sequence[Trajectory]) -> Figures:
    tasks = list(trials(episodes).values())
    rates = [c / n for n, c in tasks]
    interval = wilson(sum(rates), len(rates))
    calls = [event for t in episodes for event in t.events if event.kind == "tool"]
    failures = sum(event.data.get("error") is not None for event in calls)
    timeouts = sum(event.data.get("error") == "timeout" for event in calls)
    fewest = min((n for n, _ in tasks), default=0)
    several = range(1, fewest + 1) if fewest > 1 else range(0)
    return Figures(
        tasks=len(tasks),
        episodes=len(episodes),
        success=_mean(rates),
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        reward=_mean([t.reward for t in episodes if t.reward is not None]),
        turns=_mean([len(t.turns) for t in episodes]),
        tool_calls=_share(len(calls), len(episodes)),
        tool_failures=_share(failures, len(episodes)),
        timeouts=_share(timeouts, len(episodes)),
        tool_failure_rate=_share(failures, len(calls)),
        timeout_rate=_share(timeouts, len(calls)),
        endings=dict(sorted(Counter(_ending(t) for t in episodes).items())),
        pass_at=_repeated(pass_at, tasks, several),
        pass_all=_repeated(pass_all, tasks, several),
    )


def _repeated(
    estimate: Callable[[Sequence[tuple[int, int]], int], float | None],
    tasks: Sequence[tuple[int, int]],
    ks: range,
) -> dict[int, float]:
    return {k: value for k in ks if (value := estimate(tasks, k)) is not None}


def _ending(trajectory: Trajectory) -> str:
    return "unfinished" if trajectory.status is None else trajectory.status.kind


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
