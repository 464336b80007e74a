"""The training loop: all of post-training goes through it.

What this file is: rollouts, credit, update, weights back to the policy, record; with another source and another
algorithm it is supervised fine-tuning, preference alignment or reinforcement learning.
What it is not: it knows no algorithm, no model and no domain. What does not fit credit plus loss gets a loop file
of its own rather than a switch here.
"""

from __future__ import annotations

from burnish.interfaces import Algorithm, Learner, Policy, Source
from burnish.train.journal import Journal


async def train(
    journal: Journal, source: Source, policy: Policy, learner: Learner, algorithm: Algorithm, start: int = 0
) -> None:
    """Trains from step `start` of the stage until the source ends. After every step the policy acts with the
    new weights; the journal records the step and keeps a checkpoint when one is due."""
    await policy.load(learner.export(), version=journal.version(start))
    async for step, groups in source.batches(policy, start=start):  # rolled out and scored
        learner.annotate(groups, algorithm.needs)  # reference, values: only what the algorithm needs
        credit = algorithm.credit(groups)
        metrics = learner.update(groups, algorithm)
        await policy.load(learner.export(), version=journal.version(step + 1))
        journal.record(step, {**credit, **metrics}, groups)
        if journal.due(step):
            journal.checkpoint(step, source, learner, algorithm)
