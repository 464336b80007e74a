"""Quickstart, longer: the same road with more of both trainings, within an hour on two cores.

What this file is: the recipe for an hour, in which reinforcement has the time that the quickstart lacks, on top of a
warm-up that more steps hardly improve.
What it is not: another method. It differs from `quickstart` in the numbers of steps and the size of the suite.
"""

from __future__ import annotations

from dataclasses import replace

from burnish.evaluate.suite import Suite
from burnish.recipes import quickstart

recipe = replace(
    quickstart.recipe,
    name="quickstart-long",
    warmup=replace(quickstart.recipe.warmup, steps=100),
    rollouts=replace(quickstart.recipe.rollouts, steps=50),
    suite=Suite(per_domain=30),
)
