"""Group-relative policy optimization: no critic, a baseline from the other episodes of the same task.

What this file is: `GRPO`, the configuration, and `RunningGRPO`, the live algorithm. It differs from PPO in
its credit (one advantage for a whole episode) and its loss (no value, KL as a loss); with its settings it is
GRPO, Dr.GRPO, RLOO, DAPO, GSPO or CISPO.
What it is not: it holds no formula of its own (`credit.py`, `losses.py`, `control.py`), computes no logprobs
and takes no optimizer step (`learner.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from burnish.train import credit, losses
from burnish.train.control import KL
from burnish.train.credit import Baseline
from burnish.types import Group, Trajectory, UsageError

Surrogate = Literal["clip", "gspo", "cispo"]
Normalization = Literal["tokens", "sequences", "constant"]
Estimator = Literal["ratio_k3", "k2"]


@dataclass(frozen=True, slots=True)
class GRPO:
    """How GRPO is configured.

    `baseline` and `divide_by_std` make the advantage: group mean without the deviation is Dr.GRPO's default.
    `surrogate`: `clip` per token, `gspo` by the ratio of the whole sequence (with bounds near 3e-4), `cispo`.
    `normalization` of the summed loss: by `tokens`, by `sequences` (each episode weighs the same), or by a
    `constant`, episodes times `constant_length` tokens (Dr.GRPO).
    `kl` is a loss here, by an estimator whose gradient is right. `overlong_cache` > 0 charges an episode for
    coming within that many tokens of its task's token budget. `turn_scale` multiplies per-turn rewards.
    `drop_flat`: a group whose rewards are all equal has no advantage; it leaves the update, with its KL and
    entropy terms, which saves its computation and keeps it out of the normalizer (DAPO filters so)."""

    baseline: Baseline = "mean"
    divide_by_std: bool = False
    surrogate: Surrogate = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = 3.0
    normalization: Normalization = "tokens"
    constant_length: int = 1024
    kl: KL = field(default_factory=KL)
    kl_estimator: Estimator = "ratio_k3"
    entropy_coefficient: float = 0.0
    overlong_cache: int = 0
    turn_scale: float = 1.0
    drop_flat: bool = True

    def __post_init__(self) -> None:
        losses.check_clip("GRPO", self.clip_low, self.clip_high, self.dual_clip)
        choices = {
            "baseline": Baseline, "surrogate": Surrogate,
            "normalization": Normalization, "kl_estimator": Estimator,
        }  # fmt: skip
        for name, literal in choices.items():
            if getattr(self, name) not in get_args(literal):
                raise UsageError(
                    f"GRPO: {name} must be one of {get_args(literal)}, not {getattr(self, name)!r}"
                )
        if not self.entropy_coefficient >= 0:
            raise UsageError(
                f"GRPO: entropy_coefficient must not be negative, not {self.entropy_coefficient}"
            )
        if self.overlong_cache < 0 or self.constant_length < 1:
            raise UsageError("GRPO: overlong_cache must be at least 0 and constant_length at least 1")

    def open(self) -> RunningGRPO:
        return RunningGRPO(self)


class RunningGRPO:
    """`interfaces.Algorithm`. Its state is the KL weight."""

    def __init__(self, settings: GRPO) -> None:
        self.settings = settings
        self.kl = settings.kl.open()
        self.needs: tuple[str, ...] = ("reference",) if settings.kl.coefficient > 0 else ()
        self.unit: Literal["token", "sequence", "pair", "group"] = (
            "sequence" if settings.surrogate == "gspo" else "token"
        )

    def credit(self, groups: Sequence[Group]) -> dict[str, float]:
        """Writes `advantages`, the same for every token of an episode, and `weight`, one over its length.
        Then moves the KL weight. Raises UsageError for a group that was sampled as one episode; a group of
        which our infrastructure left fewer than two has advantages of zero and counts as `lonely_groups`."""
        metrics = credit.summary(groups, self.settings.turn_scale)
        entries = credit.lines(groups)
        if "reference" in self.needs:
            metrics |= self.kl.observe([entry.kl() for entry in entries])
        tables = [self._advantages(group) for group in groups]
        for group, table in zip(groups, tables, strict=True):
            for sample in group.samples:
                chosen = sample.columns["trainable"]
                value, length = table.get(sample.trajectory, 0.0), max(int(chosen.sum()), 1)
                sample.columns["advantages"] = np.where(chosen, value, 0.0).astype(np.float32)
                sample.columns["weight"] = np.where(chosen, 1.0 / length, 0.0).astype(np.float32)
                if self.settings.drop_flat and not any(table.values()):
                    credit.set_aside(sample)
        lonely = sum(len(table) < 2 for table in tables)
        flat = sum(len(table) >= 2 and not any(table.values()) for table in tables)
        return metrics | {"groups": len(groups), "flat_groups": flat, "lonely_groups": lonely}

    def _advantages(self, group: Group) -> dict[int, float]:
        """Index of each trajectory that counts -> its advantage. Trajectories make the baseline, not samples:
        an episode that ended before its first token is an attempt too."""
        if len(group.trajectories) < 2:
            raise UsageError(
                f"task {group.task.id} was sampled once: GRPO compares episodes of one task, so set the "
                "group size to at least 2, or use PPO"
            )
        counted = [i for i, t in enumerate(group.trajectories) if credit.usable(t)]
        if len(counted) < 2:
            return dict.fromkeys(counted, 0.0)
        rewards = np.array([self._reward(group.trajectories[i]) for i in counted], np.float64)
        advantages = credit.group_advantages(rewards, self.settings.baseline, self.settings.divide_by_std)
        return dict(zip(counted, advantages.tolist(), strict=True))

    def _reward(self, trajectory: Trajectory) -> float:
        """A truncated episode is handled here, by its reward: there is no critic to say what would follow."""
        reward = credit.episode_reward(trajectory, self.settings.turn_scale) or 0.0
        limit = trajectory.task.budget.tokens
        if self.settings.overlong_cache > 0 and limit is not None:
            length = sum(len(turn.output_ids) for turn in trajectory.turns)
            reward += credit.overlong_penalty(length, limit, self.settings.overlong_cache)
        return reward

    def loss(
        self, output: Mapping[str, Tensor], batch: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Sums over the N tokens: surrogate + KL weight x KL - entropy bonus, each token by its weight."""
        s = self.settings
        new, old, entropy = output["logprobs"], batch["logprobs"], output["entropy"]
        policy, cut = self._surrogate(new, batch)
        total = policy
        metrics = losses.policy_metrics(new, old, cut, entropy) | {"policy_loss": policy.detach().sum()}
        if "reference" in self.needs:
            reference = batch["reference"]
            kl = (
                losses.ratio_k3(new, old, reference)
                if s.kl_estimator == "ratio_k3"
                else losses.k2(new, reference)
            )
            total = total + self.kl.coefficient * kl
            metrics["kl_loss"] = kl.detach().sum()
        if s.entropy_coefficient > 0:
            total = total - s.entropy_coefficient * losses.entropy_surrogate(new, old, entropy)
        if s.normalization == "sequences":
            total = total * batch["weight"]
        loss = total.sum()
        return loss, metrics | {"loss": loss.detach()}

    def _surrogate(self, new: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        s = self.settings
        old, advantages = batch["logprobs"], batch["advantages"]
        if s.surrogate == "cispo":
            return losses.cispo(new, old, advantages, s.clip_high)
        if s.surrogate == "gspo":
            ratio = losses.sequence_log_ratio(new, old, batch["sequence"])
        else:
            ratio = losses.log_ratio(new, old)
        return losses.clipped(ratio, advantages, s.clip_low, s.clip_high, s.dual_clip)

    def normalizer(self, groups: Sequence[Group]) -> float:
        """What the summed loss is divided by, for all the groups of one optimizer step."""
        s = self.settings
        learning = [x for group in groups for x in group.samples if x.columns["trainable"].any()]
        if s.normalization == "tokens":
            return float(max(credit.trainable_tokens(groups), 1))
        if s.normalization == "sequences":
            return float(max(len(learning), 1))
        return float(max(len(learning), 1) * s.constant_length)

    def state_dict(self) -> dict[str, Any]:
        return {"kl": self.kl.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kl.load_state_dict(state["kl"])
