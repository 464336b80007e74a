"""Quickstart by PPO: the same road with a critic and the KL penalty in the reward.

What this file is: the recipe to compare the two algorithms by; only credit and loss differ.
What it is not: the faster one. The critic starts from nothing, and in a run of minutes a group's own mean is the
better baseline.
"""

from __future__ import annotations

from dataclasses import replace

from burnish.recipes import quickstart
from burnish.train.control import KL
from burnish.train.ppo import PPO

recipe = replace(
    quickstart.recipe,
    name="quickstart-ppo",
    algorithm=PPO(kl=KL(coefficient=0.01, target=2.0, horizon=200), lam_actor=1.0, critic_warmup=1),
    optimization=replace(quickstart.recipe.optimization, value_rate=5e-3),
)
