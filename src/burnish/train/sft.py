"""Supervised fine-tuning on recorded trajectories.

What this file is: `SFT`, cross entropy on the trainable tokens of demonstrations: no reward, no reference.
What it is not: it chooses no demonstrations (the source does) and takes no optimizer step (`learner.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from burnish.train.credit import trainable_tokens
from burnish.types import Group


class SFT:
    """`interfaces.Algorithm`, with no settings and no state."""

    needs: tuple[str, ...] = ()
    unit: Literal["token", "sequence", "pair", "group"] = "token"

    def credit(self, groups: Sequence[Group]) -> dict[str, float]:
        """Demonstrations need no credit: counts them."""
        return {
            "episodes": float(sum(len(group.samples) for group in groups)),
            "tokens": float(trainable_tokens(groups)),
        }

    def loss(
        self, output: Mapping[str, Tensor], batch: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum over the N tokens of -log pi, in nats."""
        total = -output["logprobs"].sum()
        return total, {
            "count": torch.tensor(float(len(output["logprobs"]))),
            "loss": total.detach(),
            "entropy": output["entropy"].detach().sum(),
        }

    def normalizer(self, groups: Sequence[Group]) -> float:
        """The number of trainable tokens."""
        return float(max(trainable_tokens(groups), 1))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            raise ValueError(f"SFT has no state, and was given {sorted(state)}")
