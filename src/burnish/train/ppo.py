"""Proximal policy optimization for agents that act over many turns, with a critic.

What this file is: `PPO`, the configuration, and `RunningPPO`, the live algorithm: credit (rewards, KL
penalty, GAE over sampled tokens) and loss (clipped policy, value).
What it is not: it computes no logprobs and takes no optimizer step (`learner.py`), and holds no formula of
its own (`credit.py`, `losses.py`, `control.py`).

Source: Schulman et al. 2017, arXiv 1707.06347; the KL penalty in the reward, Ziegler et al. 2019, arXiv
1909.08593; separate lambdas for actor and critic, VAPO, arXiv 2504.05118.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from burnish.train import credit, losses
from burnish.train.control import KL
from burnish.train.credit import Floats, Line
from burnish.types import Group, UsageError

Whitening = Literal["batch", "domain", "none"]


@dataclass(frozen=True, slots=True)
class PPO:
    """How PPO is configured. `clip_low`, `clip_high` bound the ratio to [1 - low, 1 + high]; `dual_clip`
    bounds how much one unlikely bad token may weigh. `gamma` and the lambdas count sampled tokens, not turns.
    `whiten` advantages over the whole `batch`, within each `domain` (so that an easy domain's scale does not
    drown a hard one's), or not at all. `value_clip` is in units of reward. `turn_scale` multiplies per-turn
    rewards. During the first `critic_warmup` batches only the critic learns."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = 3.0
    gamma: float = 1.0
    lam_actor: float = 0.99
    lam_critic: float = 1.0
    whiten: Whitening = "batch"
    value_coefficient: float = 1.0
    value_clip: float | None = None
    kl: KL = field(default_factory=KL)
    entropy_coefficient: float = 0.0
    turn_scale: float = 1.0
    critic_warmup: int = 0

    def __post_init__(self) -> None:
        losses.check_clip("PPO", self.clip_low, self.clip_high, self.dual_clip)
        for name in ("gamma", "lam_actor", "lam_critic"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"PPO: {name} must be between 0 and 1, not {getattr(self, name)}")
        if self.whiten not in get_args(Whitening):
            raise UsageError(f"PPO: whiten must be one of {get_args(Whitening)}, not {self.whiten!r}")
        if self.value_clip is not None and not self.value_clip > 0:
            raise UsageError(f"PPO: value_clip must be positive, or none, not {self.value_clip}")
        for name in ("value_coefficient", "entropy_coefficient", "critic_warmup"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"PPO: {name} must not be negative, and is {getattr(self, name)}")

    def open(self) -> RunningPPO:
        return RunningPPO(self)


class RunningPPO:
    """`interfaces.Algorithm`. Its state is the KL weight and the number of batches that were credited."""

    unit: Literal["token", "sequence", "pair", "group"] = "token"

    def __init__(self, settings: PPO) -> None:
        self.settings = settings
        self.kl = settings.kl.open()
        self.batches = 0
        self.needs: tuple[str, ...] = ("values", "reference") if settings.kl.coefficient > 0 else ("values",)

    def credit(self, groups: Sequence[Group]) -> dict[str, float]:
        """Writes `advantages` and `returns`. Then moves the KL weight, so that what was measured in this
        batch sets the penalty of the next."""
        s = self.settings
        metrics = credit.summary(groups, s.turn_scale)
        entries = credit.lines(groups)
        rewards = [self._rewards(entry) for entry in entries]
        values = [entry.column("values") for entry in entries]
        after = [_value_after(entry) for entry in entries]
        made = list(zip(rewards, values, after, strict=True))
        advantages = [credit.gae(r, v, end, s.gamma, s.lam_actor) for r, v, end in made]
        returns = [credit.gae(r, v, end, s.gamma, s.lam_critic) + v for r, v, end in made]
        if advantages:
            flat = np.concatenate(advantages)
            metrics["advantage_mean"] = float(flat.mean()) if len(flat) else 0.0
            metrics["advantage_std"] = float(flat.std()) if len(flat) else 0.0
            metrics["explained_variance"] = credit.explained_variance(
                np.concatenate(values), np.concatenate(returns)
            )
        if s.whiten != "none":
            labels = [entry.group.task.domain if s.whiten == "domain" else "" for entry in entries]
            advantages = credit.whiten(advantages, labels)
        credit.write(groups, entries, "advantages", advantages)
        credit.write(groups, entries, "returns", returns)
        self.batches += 1
        if "reference" in self.needs:
            metrics |= self.kl.observe([entry.kl() for entry in entries])
        return metrics

    def _rewards(self, entry: Line) -> Floats:
        rewards = entry.rewards(self.settings.turn_scale)
        if "reference" in self.needs:
            penalty = entry.column("logprobs") - entry.column("reference")
            rewards = rewards - self.kl.coefficient * penalty
        return rewards

    def loss(
        self, output: Mapping[str, Tensor], batch: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Sums over the N tokens: clipped policy loss + value_coefficient x value loss - entropy bonus."""
        s = self.settings
        new, old, entropy = output["logprobs"], batch["logprobs"], output["entropy"]
        policy, cut = losses.clipped(
            losses.log_ratio(new, old), batch["advantages"], s.clip_low, s.clip_high, s.dual_clip
        )
        value = losses.value_loss(output["values"], batch["values"], batch["returns"], s.value_clip)
        total = s.value_coefficient * value.sum()
        if self.batches > s.critic_warmup:
            total = total + policy.sum()
            if s.entropy_coefficient > 0:
                bonus = losses.entropy_surrogate(new, old, entropy)
                total = total - s.entropy_coefficient * bonus.sum()
        return total, losses.policy_metrics(new, old, cut, entropy) | {
            "loss": total.detach(),
            "policy_loss": policy.detach().sum(),
            "value_loss": value.detach().sum(),
        }

    def normalizer(self, groups: Sequence[Group]) -> float:
        """The number of trainable tokens: every token weighs the same wherever it was computed."""
        return float(max(credit.trainable_tokens(groups), 1))

    def state_dict(self) -> dict[str, Any]:
        return {"kl": self.kl.state_dict(), "batches": self.batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kl.load_state_dict(state["kl"])
        self.batches = int(state["batches"])


def _value_after(entry: Line) -> float:
    """V of the state in which a truncated episode was left; nothing follows one that ended."""
    return float(entry.sample.columns["tail_value"][0]) if credit.truncated(entry.trajectory) else 0.0
