"""From streams to one score: the outcome gates the rest.

What this file is: the combination rule and the function that grades an episode with its domain's rewards.
What it is not: it assigns no credit to turns or tokens; per-turn values stay in the streams for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from burnish.interfaces import Domain
from burnish.types import Evidence, InfrastructureError, Score, Stream, Trajectory, UsageError


def combine(
    streams: Mapping[str, Stream], weights: Mapping[str, float] | None = None, outcome: str = "outcome"
) -> float | None:
    """outcome × (1 − Σ weight × (1 − stream)), over the streams that were scored. In [0, 1], and monotone in
    every stream: a side stream can only take away from a success, never make up for a failure. A stream of
    None takes nothing away (None is not zero); an outcome of None gives None. Streams without a weight only
    are recorded. Weights are not negative and sum to at most 1, else UsageError."""
    weights = dict(weights or {})
    if outcome in weights:
        raise UsageError(f'the stream "{outcome}" gates the others and takes no weight')
    if any(not w >= 0 for w in weights.values()) or sum(weights.values()) > 1:
        raise UsageError(f"reward weights must not be negative and must sum to at most 1, not {weights}")
    gate = streams[outcome].value if outcome in streams else None
    if gate is None:
        return None
    lost = 0.0
    for name, stream in streams.items():
        if stream.value is not None and name != outcome:
            lost += weights.get(name, 0.0) * (1.0 - stream.value)
    return gate * (1.0 - lost)


async def score(
    trajectory: Trajectory,
    evidence: Evidence,
    domain: Domain,
    weights: Mapping[str, float] | None = None,
) -> Score:
    """Grades an episode. An invalid one (our infrastructure failed) is not scored: value None, no parts. The
    outcome of a tampered one is 0. Raises InfrastructureError when a grader itself fails."""
    if trajectory.status is None or trajectory.status.kind == "invalid":
        return Score(None)
    rewards = list(domain.rewards)
    parts: dict[str, Stream] = {}
    for reward in rewards:
        stream = await reward(trajectory, evidence)
        if stream.value is not None and not (math.isfinite(stream.value) and 0.0 <= stream.value <= 1.0):
            raise InfrastructureError(f'reward "{reward.name}" gave {stream.value}, not in [0, 1]')
        parts[reward.name] = stream
    unknown = sorted(set(weights or {}) - set(parts))
    if unknown:
        raise UsageError(f'no reward "{unknown[0]}" in domain {domain.name}; there are: {", ".join(parts)}')
    return Score(combine(parts, weights, rewards[0].name), parts)
