"""Quickstart: SmolLM2-135M-Instruct becomes an agent on ten domains, on two cores, in minutes.

What this file is: the recipe of `make quickstart`. Copy it to start an experiment of your own.
What it is not: the longer run whose result is recorded; that is `quickstart_long`.
"""

from __future__ import annotations

from burnish.evaluate.suite import Suite
from burnish.recipes.road import Road, Rollouts, WarmUp
from burnish.train.control import KL
from burnish.train.learner import Optimization
from burnish.train.ppo import PPO

recipe = Road(
    name="quickstart",
    warmup=WarmUp(demonstrations=100, steps=30, batch=20, optimization=Optimization(rate=1e-4, warmup=5)),
    algorithm=PPO(kl=KL(coefficient=0.02, target=2.0, horizon=200)),
    optimization=Optimization(rate=2e-5, warmup=2, minibatches=2),
    rollouts=Rollouts(steps=10, tasks=10, size=8),
    suite=Suite(per_domain=20),
)
