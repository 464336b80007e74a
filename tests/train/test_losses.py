"""Loss formulas against numbers worked out by hand, and their gradients against exact ones.

Each input is chosen so that the wrong sign, mask or direction of a divergence gives another number.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from burnish.train import losses
from burnish.train.logprobs import token_logprobs
from burnish.types import UsageError

POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REFERENCE = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)


def close(tensor: Tensor, expected: list[float], places: float = 1e-5) -> None:
    assert tensor.tolist() == pytest.approx(expected, abs=places)


def clipped(ratio: float, advantage: float, dual: float | None = None) -> tuple[float, float, bool]:
    """(loss, gradient in the log ratio, cut)."""
    log_ratio = torch.tensor([ratio], dtype=torch.float64).log().requires_grad_()
    loss, cut = losses.clipped(log_ratio, torch.tensor([advantage], dtype=torch.float64), 0.2, 0.28, dual)
    (gradient,) = torch.autograd.grad(loss.sum(), log_ratio)
    return float(loss.detach()), float(gradient), bool(cut)


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "cut"),
    [
        (1.25, 1.0, 1.25, False),
        (1.5, 1.0, 1.28, True),
        (0.5, -1.0, -0.8, True),
        (1.5, -1.0, -1.5, False),
        (0.5, 1.0, 0.5, False),
        (1.0, 2.0, 2.0, False),
    ],
)
def test_clipping_with_a_higher_upper_bound(
    ratio: float, advantage: float, objective: float, cut: bool
) -> None:
    loss, gradient, was_cut = clipped(ratio, advantage)
    assert loss == pytest.approx(-objective)
    assert was_cut is cut
    assert gradient == pytest.approx(0.0 if cut else -ratio * advantage)


def test_dual_clip_bounds_only_bad_tokens_that_became_likely() -> None:
    assert clipped(10.0, -1.0) == pytest.approx((10.0, 10.0, False))
    assert clipped(10.0, -1.0, dual=3.0) == pytest.approx((3.0, 0.0, True))
    assert clipped(2.0, -1.0, dual=3.0) == pytest.approx((2.0, 2.0, False))
    assert clipped(0.5, -1.0, dual=3.0) == pytest.approx((0.8, 0.0, True))
    assert clipped(10.0, 1.0, dual=3.0) == pytest.approx((-1.28, 0.0, True))


def test_a_far_ratio_stays_finite() -> None:
    new = torch.tensor([-1.0, -200.0], requires_grad=True)
    old = torch.tensor([-200.0, -1.0])
    loss, _ = losses.clipped(losses.log_ratio(new, old), torch.tensor([0.0, -1.0]), 0.2, 0.28)
    loss.sum().backward()
    assert new.grad is not None
    assert torch.isfinite(loss).all() and torch.isfinite(new.grad).all()


def test_the_ratio_is_one_only_at_the_temperature_that_sampled() -> None:
    hidden, weight = torch.tensor([[2.0, 1.0, 0.0]]), torch.eye(3)
    place, token = torch.tensor([0, 0]), torch.tensor([0, 0])
    logprobs, entropy = token_logprobs(hidden, weight, place, token, torch.tensor([1.0, 0.5]))
    close(logprobs, [-0.40761, -0.14293])
    close(entropy, [0.83240, 0.44106])
    close(losses.log_ratio(logprobs[:1], logprobs[1:]).exp(), [0.76746])
    close(losses.log_ratio(logprobs[:1], logprobs[:1]).exp(), [1.0])


def test_the_three_estimators_of_a_divergence() -> None:
    half, quarter = torch.tensor([0.5]).log(), torch.tensor([0.25]).log()
    for estimator, forward, backward in (
        (losses.k1, 0.69315, -0.69315),
        (losses.k2, 0.24023, 0.24023),
        (losses.k3, 0.19315, 0.30685),
    ):
        close(estimator(half, quarter), [forward])
        close(estimator(quarter, half), [backward])


def logit_gradient(loss_of: Callable[[Tensor], Tensor]) -> tuple[float, list[float]]:
    """Mean under the policy, and mean gradient in its logits, of a loss of `new` [3]; samples' weights are
    held fixed, as they are when tokens have already been drawn."""
    logits = POLICY.log().requires_grad_()
    value = (POLICY * loss_of(torch.log_softmax(logits, 0))).sum()
    (gradient,) = torch.autograd.grad(value, logits)
    return float(value.detach()), gradient.tolist()


EXACT_KL = 0.21801
EXACT_GRADIENT = [0.23757, -0.01071, -0.22686]


@pytest.mark.parametrize(
    ("loss_of", "value", "gradient"),
    [
        (lambda new: losses.k1(new, REFERENCE.log()), EXACT_KL, [0.0, 0.0, 0.0]),
        (lambda new: losses.k2(new, REFERENCE.log()), None, EXACT_GRADIENT),
        (lambda new: losses.k3(new, REFERENCE.log()), EXACT_KL, [0.25, 0.05, -0.3]),
        (lambda new: losses.ratio_k3(new, POLICY.log(), REFERENCE.log()), EXACT_KL, EXACT_GRADIENT),
    ],
    ids=["k1 pushes nowhere", "k2 pushes right", "k3 pushes towards another divergence", "ratio k3 is exact"],
)
def test_which_estimator_may_be_a_loss(
    loss_of: Callable[[Tensor], Tensor], value: float | None, gradient: list[float]
) -> None:
    found, slope = logit_gradient(loss_of)
    assert slope == pytest.approx(gradient, abs=1e-5)
    if value is not None:
        assert found == pytest.approx(value, abs=1e-5)


def test_ratio_k3_is_exact_on_samples_of_other_weights_too() -> None:
    behaviour = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    logits = POLICY.log().requires_grad_()
    terms = losses.ratio_k3(torch.log_softmax(logits, 0), behaviour.log(), REFERENCE.log())
    value = (behaviour * terms).sum()
    (gradient,) = torch.autograd.grad(value, logits)
    assert float(value.detach()) == pytest.approx(EXACT_KL, abs=1e-5)
    close(gradient, EXACT_GRADIENT)


@pytest.mark.parametrize("behaviour", [POLICY, torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)])
def test_the_entropy_surrogate_climbs_the_entropy(behaviour: Tensor) -> None:
    logits = POLICY.log().requires_grad_()
    new = torch.log_softmax(logits, 0)
    entropy = -(new.exp() * new).sum()
    (exact,) = torch.autograd.grad(entropy, logits, retain_graph=True)
    surrogate = losses.entropy_surrogate(new, behaviour.log(), entropy.detach())
    (found,) = torch.autograd.grad((behaviour * surrogate).sum(), logits)
    close(found, exact.tolist(), 1e-9)
    assert exact.abs().max() > 0.05


def test_a_sequence_ratio_is_the_geometric_mean() -> None:
    old = torch.tensor([-1.0, -2.0, -3.0, -4.0, -1.0])
    new = (old + torch.tensor([0.1, -0.2, 0.3, 0.0, 0.5])).requires_grad_()
    ratio = losses.sequence_log_ratio(new, old, torch.tensor([0, 0, 0, 0, 1])).exp()
    close(ratio, [1.05127] * 4 + [1.64872])
    ratio[:4].sum().backward()
    assert new.grad is not None
    close(new.grad, [1.05127] * 4 + [0.0])


def test_cispo_keeps_the_gradient_of_every_token() -> None:
    old = torch.tensor([-2.0, -2.0, -2.0])
    new = (old + torch.tensor([3.0, 0.5, 0.5]).log()).requires_grad_()
    loss, cut = losses.cispo(new, old, torch.tensor([1.0, 1.0, -1.0]), high=1.0)
    loss.sum().backward()
    assert new.grad is not None
    close(new.grad, [-2.0, -0.5, 0.5])
    assert cut.tolist() == [True, False, False]


def test_value_loss_and_its_clip() -> None:
    values = torch.tensor([1.0, 1.0, 0.1], requires_grad=True)
    old, returns = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([2.0, 0.5, 2.0])
    close(losses.value_loss(values, old, returns), [0.5, 0.125, 1.805])
    # The first moved further than 0.2 towards its return and is held; the second is the worse error as is.
    loss = losses.value_loss(values, old, returns, clip=0.2)
    close(loss, [1.62, 0.125, 1.805])
    loss.sum().backward()
    assert values.grad is not None
    close(values.grad, [0.0, 0.5, -1.9])


def test_metrics_are_sums_over_tokens() -> None:
    new, old = torch.tensor([0.5, 0.25]).log().requires_grad_(), torch.tensor([0.25, 0.5]).log()
    metrics = losses.policy_metrics(new, old, torch.tensor([True, False]), torch.tensor([0.5, 0.25]))
    assert not any(m.requires_grad for m in metrics.values())
    assert {n: pytest.approx(float(m), abs=1e-5) for n, m in metrics.items()} == {
        "count": 2.0,
        "approx_kl": (2 - 1 - 0.69315) + (0.5 - 1 + 0.69315),
        "clip_fraction": 1.0,
        "entropy": 0.75,
    }


@pytest.mark.parametrize(
    ("bounds", "field"),
    [
        ((0.0, 0.2, None), "clip_low"),
        ((1.0, 0.2, None), "clip_low"),
        ((0.2, 0.0, None), "clip_high"),
        ((0.2, float("nan"), None), "clip_high"),
        ((0.2, 0.2, 1.0), "dual_clip"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds: tuple[float, float, float | None], field: str) -> None:
    with pytest.raises(UsageError, match=f"PPO: {field}"):
        losses.check_clip("PPO", *bounds)
