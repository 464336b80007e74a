"""Token losses of policies and critics: pure functions of tensors.

What this file is: the formulas, each over the N trainable tokens of a micro-batch, each with its source.
What it is not: it sums nothing and normalizes nothing (the learner divides once, by a global count), and it
computes no advantage (`credit.py` does).

Names: `new` [N] are log-probabilities under the weights being trained (differentiable), `old` [N] under the
weights that sampled, `reference` [N] under the frozen reference model. All in nats, fp32.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from burnish.types import UsageError

_FAR = 20.0
"""Log ratios are clamped here: exp(20) is already far out of any trust region, and exp(89) is infinite."""


def check_clip(owner: str, low: float, high: float, dual: float | None) -> None:
    """Refuses clipping bounds that make no sense, naming the field of `owner`."""
    if not 0 < low < 1:
        raise UsageError(f"{owner}: clip_low must be between 0 and 1, not {low}")
    if not 0 < high < math.inf:
        raise UsageError(f"{owner}: clip_high must be a positive number, not {high}")
    if dual is not None and not 1 < dual < math.inf:
        raise UsageError(f"{owner}: dual_clip must be greater than 1, or none, not {dual}")


def log_ratio(new: Tensor, old: Tensor) -> Tensor:
    """log(pi / mu) [N], clamped to +-20."""
    return (new - old).clamp(-_FAR, _FAR)


def sequence_log_ratio(new: Tensor, old: Tensor, sequence: Tensor) -> Tensor:
    """GSPO's ratio in its token form [N]: `sg(s) pi / sg(pi)` with `s = exp(mean of log(pi / mu) over the
    sequence)`. `sequence` [N] holds the number of the sequence that each token belongs to; a sequence must
    not be split between micro-batches. Source: Zheng et al. 2025, arXiv 2507.18071 (GSPO-token)."""
    difference = (new - old).detach()
    count = torch.bincount(sequence).clamp(min=1)
    total = torch.zeros(len(count), dtype=difference.dtype).index_add_(0, sequence, difference)
    mean = (total / count)[sequence]
    return mean.clamp(-_FAR, _FAR) + new - new.detach()


def clipped(
    log_ratio: Tensor, advantages: Tensor, low: float, high: float, dual: float | None = None
) -> tuple[Tensor, Tensor]:
    """The clipped surrogate [N] and which tokens it cut off from the gradient [N] (bool):

        -min(r A, clip(r, 1 - low, 1 + high) A),   and for A < 0 with `dual` c:  -max(that minimum, c A)

    with r = exp(log_ratio). Sources: Schulman et al. 2017, arXiv 1707.06347, equation 7; asymmetric bounds
    from DAPO, arXiv 2503.14476; dual clip from Ye et al. 2020, arXiv 1912.09729."""
    ratio = log_ratio.exp()
    free = ratio * advantages
    bound = ratio.clamp(1 - low, 1 + high) * advantages
    objective = torch.minimum(free, bound)
    cut = bound < free
    if dual is not None:
        floor = dual * advantages
        lifted = (advantages < 0) & (objective < floor)
        objective = torch.where(lifted, floor, objective)
        cut = cut | lifted
    return -objective, cut


def cispo(new: Tensor, old: Tensor, advantages: Tensor, high: float) -> tuple[Tensor, Tensor]:
    """-sg(min(r, 1 + high)) A log pi [N], and which tokens had their weight truncated [N] (bool). No token
    loses its gradient. Source: MiniMax-M1, arXiv 2506.13585, without its lower bound."""
    ratio = log_ratio(new, old).detach().exp()
    return -ratio.clamp(max=1 + high) * advantages * new, ratio > 1 + high


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None = None) -> Tensor:
    """Half the squared error [N] of `values` [N] (differentiable) against `returns` [N]. With `clip` e it is
    the worse of that and the error of `old + clip(values - old, -e, e)`, where `old` [N] are the values that
    the returns were made with. Source: Schulman et al., openai/baselines ppo2."""
    error = (values - returns) ** 2
    if clip is not None:
        near = old + (values - old).clamp(-clip, clip)
        error = torch.maximum(error, (near - returns) ** 2)
    return 0.5 * error


def k1(new: Tensor, reference: Tensor) -> Tensor:
    """log(pi / ref) [N]: unbiased for KL(pi || ref) over tokens sampled from pi, can be negative. Its own
    gradient has zero mean: use it as a reward, never as a loss. Source: Schulman 2020,
    http://joschu.net/blog/kl-approx.html."""
    return new - reference


def k2(new: Tensor, reference: Tensor) -> Tensor:
    """log(pi / ref)^2 / 2 [N]. On samples from pi its gradient is exactly that of KL(pi || ref), its value is
    biased. Sources: Schulman 2020; the gradient, arXiv 2512.21852."""
    return 0.5 * (new - reference) ** 2


def k3(new: Tensor, reference: Tensor) -> Tensor:
    """exp(-d) - 1 + d with d = log(pi / ref) [N]: unbiased and never negative, but its own gradient is
    pi - ref in the logits, that of another divergence. Source: Schulman 2020."""
    difference = (new - reference).clamp(-_FAR, _FAR)
    return torch.expm1(-difference) + difference


def ratio_k3(new: Tensor, old: Tensor, reference: Tensor) -> Tensor:
    """(pi / mu) k3 [N]: on samples from mu, value and gradient are those of KL(pi || ref) in expectation.
    Source: DeepSeek-V3.2, arXiv 2512.02556; see also arXiv 2512.21852."""
    return log_ratio(new, old).exp() * k3(new, reference)


def entropy_surrogate(new: Tensor, old: Tensor, entropy: Tensor) -> Tensor:
    """Something whose gradient, in expectation over tokens sampled from mu, is that of the entropy [N]:
    `-sg((pi / mu)(log pi + H)) log pi`. `entropy` [N] is H in nats and may be detached: it only serves as a
    baseline, so no gradient ever flows through the whole vocabulary. Its value means nothing: report H.
    Derivation: grad H = -E[(log pi + 1) grad log pi], and E[grad log pi] = 0 allows any baseline."""
    weight = log_ratio(new, old).exp() * (new + entropy)
    return -weight.detach() * new


def policy_metrics(new: Tensor, old: Tensor, cut: Tensor, entropy: Tensor) -> dict[str, Tensor]:
    """Sums over tokens, with `count`: `approx_kl` estimates KL(mu || pi) from samples of mu by r - 1 - log r,
    `clip_fraction` counts the tokens that the surrogate cut, `entropy` is in nats."""
    difference = log_ratio(new, old).detach()
    return {
        "count": torch.tensor(float(len(new))),
        "approx_kl": (torch.expm1(difference) - difference).sum(),
        "clip_fraction": cut.float().sum(),
        "entropy": entropy.detach().sum(),
    }
