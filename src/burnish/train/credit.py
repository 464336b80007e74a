"""From rewards to advantages.

What this file is: an episode's trainable tokens laid out in time (`Line`), and what is computed on such
lines: generalized advantage estimation, whitening, group baselines, overlong shaping, the measured KL.
What it is not: no torch, no model, no loss. Everything is float64 on the way and float32 in the columns.

Observation tokens take no part: an action's next state is the one before the next *trainable* token. Time
follows `Turn.after`, never storage order and never `Turn.parent`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from burnish.types import BurnishError, Group, Sample, Trajectory, UsageError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FLAT = 1e-6
"""Rewards that differ by no more than this are equal: in float32 the standard deviation of six times 0.3 is
3e-8, and dividing by that turns rounding into advantages."""


def timeline(trajectory: Trajectory) -> list[int]:
    """The indices of the turns in the order of time. Raises BurnishError when `after` is not one line: two
    turns cannot both come next."""
    following: dict[int | None, int] = {}
    for index, turn in enumerate(trajectory.turns):
        if turn.after in following:
            where = "first" if turn.after is None else f"after turn {turn.after}"
            raise BurnishError(
                f"trajectory {trajectory.id}: turns {following[turn.after]} and {index} both come {where}; "
                "credit needs one order of time, so set Turn.after to the turn that came just before"
            )
        following[turn.after] = index
    order: list[int] = []
    here = following.get(None)
    while here is not None:
        order.append(here)
        here = following.get(here)
    if len(order) != len(trajectory.turns):
        lost = sorted(set(range(len(trajectory.turns))) - set(order))
        raise BurnishError(
            f"trajectory {trajectory.id}: turns {lost} cannot be reached from the first one by Turn.after"
        )
    return order


def episode_reward(trajectory: Trajectory, turn_scale: float = 1.0) -> float | None:
    """The reward of the whole episode: `score.value` plus `turn_scale` times every per-turn reward of every
    stream. None when nothing at all was scored."""
    turns = turn_rewards(trajectory)
    if trajectory.reward is None and not turns:
        return None
    return (trajectory.reward or 0.0) + turn_scale * sum(turns.values())


def turn_rewards(trajectory: Trajectory) -> dict[int, float]:
    """Turn index -> sum over the streams that scored this turn. Turns that none scored are absent."""
    totals: dict[int, float] = {}
    if trajectory.score is None:
        return totals
    for name in sorted(trajectory.score.parts):
        rewards = trajectory.score.parts[name].turns or ()
        if len(rewards) > len(trajectory.turns):
            raise BurnishError(
                f"trajectory {trajectory.id}: the reward {name!r} scored {len(rewards)} turns of an episode "
                f"that has {len(trajectory.turns)}; Stream.turns has one entry for each turn"
            )
        for turn, reward in enumerate(rewards):
            if reward is not None:
                totals[turn] = totals.get(turn, 0.0) + reward
    return totals


@dataclass(frozen=True, slots=True)
class Line:
    """One episode's trainable tokens in time. `positions` [N] are their places in the sample's columns and
    `ranks` [N], never falling, the place in time of the turn that each belongs to."""

    group: Group
    trajectory: Trajectory
    sample: Sample
    order: tuple[int, ...]
    positions: Integers
    ranks: Integers

    def __len__(self) -> int:
        return len(self.positions)

    def column(self, name: str) -> Floats:
        """The tokens' values of a column, [N]."""
        return np.asarray(self.sample.columns[name][self.positions], np.float64)

    def rewards(self, turn_scale: float = 1.0) -> Floats:
        """Rewards [N]. A turn's reward falls on its last trainable token, or on the last one before it when
        it has none; the episode's falls on the last of all. What came before the first is nobody's doing."""
        rewards = np.zeros(len(self))
        rank = {turn: place for place, turn in enumerate(self.order)}
        for turn, reward in turn_rewards(self.trajectory).items():
            place = int(np.searchsorted(self.ranks, rank[turn], side="right")) - 1
            if place >= 0:
                rewards[place] += turn_scale * reward
        if len(self):
            rewards[-1] += self.trajectory.reward or 0.0
        return rewards

    def kl(self) -> float:
        """The sum over the episode of log(mu / ref), the k1 estimate of KL(policy || reference), in nats."""
        return float((self.column("logprobs") - self.column("reference")).sum())


def line(group: Group, sample: Sample) -> Line:
    """Lays one sample out in time."""
    trajectory = group.trajectories[sample.trajectory]
    order = timeline(trajectory)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    chosen = np.flatnonzero(sample.columns["trainable"])
    ranks = rank[sample.columns["turn"][chosen]]
    in_time = np.argsort(ranks, kind="stable")
    return Line(group, trajectory, sample, tuple(order), chosen[in_time], ranks[in_time])


def lines(groups: Sequence[Group]) -> list[Line]:
    """Every sample that may be learnt from, laid out in time. A sample whose episode nobody scored is set
    aside: not scored is not zero. Raises BurnishError for a reward that is not a finite number."""
    out: list[Line] = []
    for group in groups:
        for sample in group.samples:
            entry = line(group, sample)
            if usable(entry.trajectory):
                out.append(entry)
            else:
                set_aside(entry.sample)
    return out


def write(groups: Sequence[Group], entries: Sequence[Line], name: str, parts: Sequence[Floats]) -> None:
    """Writes one part [N_i] for each line as column `name`, and zeros into every other sample: a column that
    one sample lacks, a batch lacks."""
    for group in groups:
        for sample in group.samples:
            sample.columns[name] = np.zeros(len(sample), np.float32)
    for entry, part in zip(entries, parts, strict=True):
        entry.sample.columns[name][entry.positions] = part


def usable(trajectory: Trajectory) -> bool:
    """Whether an episode counts in batch and baseline: it is not invalid, and something scored it. Raises
    BurnishError for a reward that is not a finite number."""
    if trajectory.status is not None and trajectory.status.kind == "invalid":
        return False
    reward = episode_reward(trajectory)
    if reward is not None and not math.isfinite(reward):
        raise BurnishError(
            f"trajectory {trajectory.id} of task {trajectory.task.id} was given the reward {reward}: it must "
            "be a finite number, or None where it could not be scored"
        )
    return reward is not None


def truncated(trajectory: Trajectory) -> bool:
    return trajectory.status is not None and trajectory.status.kind == "truncated"


def set_aside(sample: Sample) -> None:
    """Takes a sample out of the update: nothing of it is trainable any more."""
    sample.columns["trainable"] = np.zeros(len(sample), bool)


def trainable_tokens(groups: Sequence[Group]) -> int:
    return sum(int(sample.columns["trainable"].sum()) for group in groups for sample in group.samples)


def gae(rewards: Floats, values: Floats, after: float, gamma: float, lam: float) -> Floats:
    """Generalized advantage estimates [N] of N actions in time. `rewards` [N]; `values` [N] of the states
    before each action; `after` is the value of the state that the last action led to: 0 when the episode
    ended there, the critic's V when it was cut off.

        delta_t = r_t + gamma V_{t+1} - V_t        A_t = delta_t + gamma lam A_{t+1}

    Source: Schulman et al. 2015, arXiv 1506.02438, equation 16."""
    following = np.append(values[1:], after)
    deltas = rewards + gamma * following - values if len(values) else values
    advantages = np.zeros(len(values))
    running = 0.0
    for t in range(len(values) - 1, -1, -1):
        running = float(deltas[t]) + gamma * lam * running
        advantages[t] = running
    return advantages


def whiten(parts: Sequence[Floats], labels: Sequence[str]) -> list[Floats]:
    """Each part [N_i] shifted and scaled so that all values that share a label have mean 0 and standard
    deviation 1 together; zero where they are equal within `FLAT`. The statistics count values, not parts."""
    moments: dict[str, tuple[float, float]] = {}
    for label in dict.fromkeys(labels):
        values = np.concatenate([p for p, own in zip(parts, labels, strict=True) if own == label])
        if len(values):
            moments[label] = (float(values.mean()), float(values.std()))
    white: list[Floats] = []
    for part, label in zip(parts, labels, strict=True):
        mean, deviation = moments.get(label, (0.0, 0.0))
        white.append((part - mean) / deviation if deviation > FLAT else np.zeros(len(part)))
    return white


Baseline = Literal["mean", "leave_one_out"]


def group_advantages(rewards: Floats, baseline: Baseline = "mean", divide_by_std: bool = False) -> Floats:
    """Advantages [G] of G episodes of one task, from their rewards [G].

    `mean`: R - mean(R) (Dr.GRPO, Liu et al. 2025, arXiv 2503.20783). `leave_one_out`: R minus the mean of the
    others (RLOO, Ahmadian et al. 2024, arXiv 2402.14740). `divide_by_std` divides by the standard deviation
    with n - 1 (GRPO, Shao et al. 2024, arXiv 2402.03300). All zero when the rewards are equal within `FLAT`.
    Raises UsageError for a group of one, which has nothing to be compared with."""
    count = len(rewards)
    if count < 2:
        raise UsageError("a group of one has no baseline: sample at least two episodes of each task")
    if float(np.ptp(rewards)) <= FLAT:
        return np.zeros(count)
    advantages = rewards - rewards.mean()
    if baseline == "leave_one_out":
        advantages = advantages * (count / (count - 1))
    if divide_by_std:
        advantages = advantages / rewards.std(ddof=1)
    return np.asarray(advantages, np.float64)


def overlong_penalty(length: int, limit: int, cache: int) -> float:
    """What an episode of `length` sampled tokens is charged: 0 up to `limit - cache`, then falling linearly
    to -1 at `limit`, and -1 beyond. Source: DAPO, arXiv 2503.14476, soft overlong punishment."""
    if cache <= 0:
        return -1.0 if length > limit else 0.0
    return -min(max((length - (limit - cache)) / cache, 0.0), 1.0)


def explained_variance(values: Floats, returns: Floats) -> float:
    """1 - var(returns - values) / var(returns): 1 is a perfect critic, 0 one that knows only the mean. 0 when
    the returns are all equal."""
    spread = float(returns.var()) if len(returns) else 0.0
    return 0.0 if spread <= FLAT**2 else 1.0 - float((returns - values).var()) / spread


def summary(groups: Sequence[Group], turn_scale: float = 1.0) -> dict[str, float]:
    """Of the episodes that can be learnt from: their number, the standard deviation of their rewards, and how
    many others nobody scored (those that our infrastructure failed are not among them)."""
    valid = [
        t for group in groups for t in group.trajectories if t.status is None or t.status.kind != "invalid"
    ]
    rewards = [r for r in (episode_reward(t, turn_scale) for t in valid) if r is not None]
    return {
        "learnt_from": float(len(rewards)),
        "unscored": float(len(valid) - len(rewards)),
        "reward_std": float(np.std(rewards)) if rewards else 0.0,
    }
