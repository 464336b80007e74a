"""The weight of the KL penalty, held so that the policy stays a chosen distance from its reference.

What this file is: `KL`, the configuration, and `KLController`, the weight that it opens into.
What it is not: it estimates no divergence (`losses.py` and `credit.py` do) and touches no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.types import BurnishError, UsageError

STEP = 0.2
"""The relative error beyond which the controller reacts no harder (Ziegler et al. 2019, section 2.2)."""


@dataclass(frozen=True, slots=True)
class KL:
    """How strongly the policy is tied to the reference model. `coefficient` is the weight beta, or its first
    value: 0 needs no reference at all. With a `target` (nats summed over an episode's trainable tokens, mean
    over episodes) the weight adapts; `horizon` is the number of episodes over which it reacts."""

    coefficient: float = 0.0
    target: float | None = None
    horizon: float = 10_000.0

    def __post_init__(self) -> None:
        if not 0 <= self.coefficient < math.inf:
            raise UsageError(f"KL: coefficient must be 0 or a positive number, not {self.coefficient}")
        if self.target is not None and not 0 < self.target < math.inf:
            raise UsageError(f"KL: target must be a positive number of nats per episode, not {self.target}")
        if not 0 < self.horizon < math.inf:
            raise UsageError(f"KL: horizon must be a positive number of episodes, not {self.horizon}")
        if self.target is not None and self.coefficient == 0:
            raise UsageError(
                "KL: a target needs a coefficient above 0 to start from, since it is scaled; for no penalty "
                "at all set the target to none as well"
            )

    def open(self) -> KLController:
        return KLController(self)


class KLController:
    """The live weight. `coefficient` is what the next penalty is multiplied by."""

    def __init__(self, kl: KL) -> None:
        self.kl = kl
        self.coefficient = kl.coefficient

    def update(self, measured: float, episodes: int) -> None:
        """Scales the weight by `1 + e n / H` with `e = clip(measured / target - 1, -0.2, 0.2)`, `n` episodes
        and horizon `H`. `measured` is KL(policy || reference) in nats summed over an episode, mean over the
        `episodes`. Without a target nothing changes. Source: Ziegler et al. 2019, arXiv 1909.08593, section
        2.2, as in its released code (the paper writes a constant 0.1 for n/H).

        More episodes than the horizon count as one horizon, so that the weight can never reach 0 or change
        sign. Raises BurnishError when `measured` is not finite."""
        if not math.isfinite(measured):
            raise BurnishError(
                f"the KL from the reference model is {measured}: the policy or the reference gives a sampled "
                "token no probability; check that both have one tokenizer, then resume from a checkpoint"
            )
        if self.kl.target is None or episodes == 0:
            return
        error = min(max(measured / self.kl.target - 1.0, -STEP), STEP)
        self.coefficient *= 1.0 + error * min(episodes / self.kl.horizon, 1.0)

    def observe(self, sums: Sequence[float]) -> dict[str, float]:
        """Updates from the KL of each episode (nats, summed over its tokens). Reports their mean as `kl`,
        and as `beta` the weight that the next penalty is multiplied by."""
        measured = math.fsum(sums) / len(sums) if sums else 0.0
        self.update(measured, len(sums))
        return {"kl": measured, "beta": self.coefficient}

    def state_dict(self) -> dict[str, Any]:
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.coefficient = float(state["coefficient"])
