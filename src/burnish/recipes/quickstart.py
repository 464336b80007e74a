"""Quickstart: SmolLM2-135M-Instruct becomes an agent on ten domains, on two cores, in minutes.

What this file is: the recipe of `make quickstart`. Copy it to start an experiment of your own.
What it is not: the longer run, `quickstart_long`, or the one with a critic, `quickstart_ppo`.
"""

from __future__ import annotations

from burnish.evaluate.suite import Suite
from burnish.recipes.road import Road, Rollouts, WarmUp
from burnish.train.control import KL
from burnish.train.grpo import GRPO
from burnish.train.learner import Optimization

recipe = Road(
    name="quickstart",
    warmup=WarmUp(demonstrations=100, steps=40, batch=10, optimization=Optimization(rate=2e-4, warmup=5)),
    algorithm=GRPO(kl=KL(coefficient=0.01, target=2.0, horizon=200)),
    optimization=Optimization(rate=5e-5, warmup=2, minibatches=2),
    rollouts=Rollouts(steps=8, tasks=10, size=8, turn_tokens=72),
    suite=Suite(per_domain=20),
)
