"""GRPO: baselines of groups, what leaves them, and the loss in each of its forms."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from burnish.interfaces import Algorithm
from burnish.train.control import KL
from burnish.train.grpo import GRPO
from burnish.types import Group, UsageError

from .episodes import annotate, annotate_randomly, at_tokens, batch, episode, group, output, task


def of_rewards(*rewards: float | None, sampled: int = 2) -> Group:
    return group(*[episode([(2, sampled)], reward) for reward in rewards])


def advantages(made: Group) -> list[float]:
    """Each sample's advantage, which must be the same at all its tokens and 0 elsewhere."""
    found = []
    for sample in made.samples:
        column = sample.columns["advantages"]
        assert not column[:2].any() and len(set(column[2:].tolist())) == 1
        found.append(round(float(column[2]), 5))
    return found


def test_it_is_an_algorithm() -> None:
    assert isinstance(GRPO().open(), Algorithm)
    assert GRPO().open().needs == ()
    assert GRPO(kl=KL(coefficient=0.1)).open().needs == ("reference",)
    assert GRPO(surrogate="gspo").open().unit == "sequence"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (GRPO(), [0.25, 0.25, 0.25, -0.75]),
        (GRPO(divide_by_std=True), [0.5, 0.5, 0.5, -1.5]),
        (GRPO(baseline="leave_one_out"), [0.33333, 0.33333, 0.33333, -1.0]),
    ],
    ids=["dr. grpo", "grpo", "rloo"],
)
def test_baselines(settings: GRPO, expected: list[float]) -> None:
    made = of_rewards(1, 1, 1, 0)
    settings.open().credit([made])
    assert advantages(made) == expected


def test_an_invalid_episode_leaves_batch_and_baseline() -> None:
    made = group(*[episode([(2, 2)], r) for r in (1.0, 3.0, 2.0)], episode([(2, 2)], 0.0, ending="invalid"))
    GRPO().open().credit([made])
    assert advantages(made) == [-1.0, 1.0, 0.0]


def test_an_unscored_episode_leaves_batch_and_baseline() -> None:
    made = of_rewards(1, None, 3)
    running = GRPO().open()
    metrics = running.credit([made])
    assert [at_tokens(s, "advantages") for s in made.samples] == [[-1.0, -1.0], [], [1.0, 1.0]]
    assert metrics["unscored"] == 1 and running.normalizer([made]) == 4


def test_an_attempt_without_a_token_is_in_the_baseline_all_the_same() -> None:
    made = group(episode([(2, 2)], 1.0), episode([(2, 2)], 0.0), episode([], 0.2, ending="truncated"))
    GRPO().open().credit([made])
    assert len(made.samples) == 2
    assert advantages(made) == [0.6, -0.4]


def test_long_episodes_weigh_no_more_in_the_baseline() -> None:
    made = group(episode([(2, 100)], 1.0), episode([(2, 1)], 0.0))
    GRPO().open().credit([made])
    assert advantages(made) == [0.5, -0.5]


def test_turn_rewards_count_in_the_episode() -> None:
    made = group(episode([(2, 2)], 1.0, streams={"process": [0.5]}), episode([(2, 2)], 1.0))
    GRPO(turn_scale=2.0).open().credit([made])
    assert advantages(made) == [0.5, -0.5]


def test_overlong_episodes_are_charged_by_their_tasks_budget() -> None:
    limited = task(tokens=20)
    made = group(*[episode([(2, n)], 1.0, of=limited) for n in (16, 18, 20)])
    GRPO(overlong_cache=4).open().credit([made])
    assert advantages(made) == [0.5, 0.0, -0.5]
    free = group(*[episode([(2, n)], 1.0) for n in (16, 20)])
    GRPO(overlong_cache=4).open().credit([free])
    assert advantages(free) == [0.0, 0.0]


def test_flat_groups_have_no_advantage_and_are_counted() -> None:
    groups = [of_rewards(*[0.3] * 6), of_rewards(0, 1)]
    running = GRPO(drop_flat=False, divide_by_std=True).open()
    metrics = running.credit(groups)
    assert advantages(groups[0]) == [0.0] * 6
    assert metrics["flat_groups"] == 1 and metrics["groups"] == 2
    assert running.normalizer(groups) == 16


def test_flat_groups_leave_the_update_but_not_the_kl_that_the_controller_sees() -> None:
    seen = []
    for settings, left in (
        (GRPO(), 4),
        (GRPO(kl=KL(coefficient=0.1)), 4),
        (GRPO(kl=KL(coefficient=0.1), drop_flat=False), 16),
        (GRPO(entropy_coefficient=0.1, drop_flat=False), 16),
    ):
        groups = [of_rewards(*[0.3] * 6), of_rewards(0, 1)]
        annotate_randomly(groups, seed=1)
        running = settings.open()
        seen.append(running.credit(groups).get("kl"))
        assert running.normalizer(groups) == left
        assert not groups[0].samples[0].columns["advantages"].any()
    assert seen[1] == seen[2] is not None


def test_a_group_of_one_is_refused_but_not_one_that_failures_made() -> None:
    with pytest.raises(UsageError, match="at least 2"):
        GRPO().open().credit([of_rewards(1.0)])
    made = group(episode([(2, 2)], 1.0), episode([(2, 2)], 0.0, ending="invalid"))
    metrics = GRPO().open().credit([made])
    assert advantages(made) == [0.0]
    assert metrics["lonely_groups"] == 1 and metrics["flat_groups"] == 0


SETTINGS = GRPO(
    kl=KL(coefficient=0.2, target=1.0, horizon=10.0), entropy_coefficient=0.05, normalization="sequences"
)


def make_groups(seed: int, observed: int = 2) -> list[Group]:
    groups = [
        group(
            episode([(3, 2), (observed, 4)], 1.0),
            episode([(3, 1)], 0.0),
            episode([(3, 3)], 7.0, ending="invalid"),
        ),
        group(episode([(2, 5)], 0.5), episode([(2, 2), (observed, 2)], 0.9)),
    ]
    annotate_randomly(groups, seed)
    return groups


def total(groups: list[Group], settings: GRPO) -> tuple[float, dict[str, float]]:
    running = settings.open()
    metrics = running.credit(groups)
    columns = batch(groups)
    loss, _ = running.loss(output(columns), columns)
    return float(loss.detach()) / running.normalizer(groups), metrics


@pytest.mark.parametrize("surrogate", ["clip", "gspo", "cispo"])
def test_what_must_not_move_the_loss(surrogate: Any) -> None:
    settings = GRPO(kl=SETTINGS.kl, entropy_coefficient=0.05, surrogate=surrogate, normalization="sequences")
    loss, metrics = total(make_groups(1), settings)
    assert total(make_groups(1, observed=9), settings) == (loss, metrics)

    permuted = make_groups(1)
    for made in permuted:
        places = list(range(len(made.trajectories)))[::-1]
        made.trajectories = [made.trajectories[i] for i in places]
        for sample in made.samples:
            sample.trajectory = places.index(sample.trajectory)
    again, measured = total(permuted, settings)
    assert again == pytest.approx(loss, rel=1e-5) and measured == pytest.approx(metrics)
    assert abs(loss) > 1e-3


@pytest.mark.parametrize("surrogate", ["clip", "gspo", "cispo"])
@pytest.mark.parametrize("normalization", ["tokens", "sequences", "constant"])
def test_micro_batches_add_up(surrogate: Any, normalization: Any) -> None:
    groups = make_groups(2)
    running = GRPO(surrogate=surrogate, normalization=normalization, constant_length=50).open()
    running.credit(groups)
    columns = batch(groups)
    whole, metrics = running.loss(output(columns), columns)
    losses = [running.loss(output(part), part) for part in (batch([g]) for g in groups)]
    assert float(sum(part.detach() for part, _ in losses)) == pytest.approx(float(whole.detach()), rel=1e-5)
    for name, value in metrics.items():
        assert float(sum(m[name] for _, m in losses)) == pytest.approx(float(value), rel=1e-4)
    expected = {"tokens": 16, "sequences": 4, "constant": 200}[normalization]
    assert running.normalizer(groups) == expected == sum(running.normalizer([g]) for g in groups)


def test_normalizations_weigh_a_long_episode_differently() -> None:
    """Gradients at the weights that sampled, of a good episode of 2 tokens and a bad one of 8."""

    def gradient(settings: GRPO) -> list[float]:
        made = group(episode([(1, 2)], 1.0), episode([(1, 8)], 0.0))
        annotate_randomly([made], seed=3)
        running = settings.open()
        running.credit([made])
        columns = batch([made])
        out = output(columns, shift=0.0)
        loss, _ = running.loss(out, columns)
        (slope,) = torch.autograd.grad(loss / running.normalizer([made]), out["logprobs"])
        return [round(float(slope[:2].sum()), 5), round(float(slope[2:].sum()), 5)]

    assert gradient(GRPO()) == [-0.1, 0.4]
    assert gradient(GRPO(normalization="sequences")) == [-0.25, 0.25]
    assert gradient(GRPO(normalization="constant", constant_length=20)) == [-0.025, 0.1]


@pytest.mark.parametrize("surrogate", ["clip", "gspo", "cispo"])
def test_at_the_weights_that_sampled_every_surrogate_is_the_policy_gradient(surrogate: Any) -> None:
    groups = make_groups(4)
    running = GRPO(surrogate=surrogate).open()
    running.credit(groups)
    columns = batch(groups)
    out = output(columns, shift=0.0)
    loss, _ = running.loss(out, columns)
    (slope,) = torch.autograd.grad(loss, out["logprobs"])
    assert torch.allclose(slope, -columns["advantages"])


def test_the_entropy_bonus_makes_likely_tokens_less_likely() -> None:
    """Its gradient is coefficient x (log pi + H): downhill for a token that is likelier than usual."""
    slopes = []
    for coefficient in (0.0, 0.1):
        groups = make_groups(4)
        running = GRPO(entropy_coefficient=coefficient).open()
        running.credit(groups)
        columns = batch(groups)
        out = output(columns, shift=0.0)
        loss, _ = running.loss(out, columns)
        slopes.append(torch.autograd.grad(loss, out["logprobs"])[0])
    assert torch.allclose(slopes[1] - slopes[0], 0.1 * (columns["logprobs"] + 0.7), atol=1e-6)


def kl_only(estimator: Any) -> tuple[float, list[float]]:
    """The KL part of the loss and its gradient, of two flat episodes whose policy has moved."""
    made = of_rewards(1.0, 1.0, sampled=1)
    for sample, old, reference in zip(made.samples, (0.5, 0.5), (0.25, 0.8), strict=True):
        annotate(sample, "logprobs", [math.log(old)])
        annotate(sample, "reference", [math.log(reference)])
    running = GRPO(kl=KL(coefficient=2.0), kl_estimator=estimator, drop_flat=False).open()
    running.credit([made])
    new = torch.tensor([0.5, 0.4]).log().requires_grad_()
    loss, metrics = running.loss({"logprobs": new, "entropy": torch.zeros(2)}, batch([made]))
    assert float(loss.detach()) == pytest.approx(2 * float(metrics["kl_loss"]))
    (slope,) = torch.autograd.grad(loss, new)
    return float(metrics["kl_loss"]), slope.tolist()


def test_the_kl_loss_pulls_towards_the_reference() -> None:
    half, double = math.log(2), math.log(0.5)
    value, slope = kl_only("k2")
    assert value == pytest.approx((half**2 + double**2) / 2, rel=1e-5)
    assert slope == pytest.approx([2 * half, 2 * double], rel=1e-5)
    value, slope = kl_only("ratio_k3")
    assert value == pytest.approx((0.5 - 1 + half) + 0.8 * (2 - 1 + double), rel=1e-5)
    assert slope == pytest.approx([2 * half, 2 * 0.8 * double], rel=1e-5)


def test_the_kl_weight_adapts_and_survives() -> None:
    first, second = SETTINGS.open(), SETTINGS.open()
    groups = make_groups(5)
    for sample in (s for g in groups for s in g.samples):
        sample.columns["reference"] = sample.columns["logprobs"] - 1  # 16 nats over 4 episodes
    metrics = first.credit(groups)
    assert metrics["kl"] == pytest.approx(4.0)
    assert metrics["beta"] == pytest.approx(0.2 * (1 + 0.2 * 4 / 10))
    second.load_state_dict(first.state_dict())
    assert second.credit(make_groups(6)) == first.credit(make_groups(6))
    assert second.state_dict() == first.state_dict()


def test_the_same_numbers_from_a_copy() -> None:
    groups = make_groups(7)
    assert total(copy.deepcopy(groups), SETTINGS) == total(groups, SETTINGS)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"clip_high": 0.0}, "clip_high"),
        ({"baseline": "median"}, "baseline"),
        ({"surrogate": "ppo"}, "surrogate"),
        ({"normalization": "none"}, "normalization"),
        ({"kl_estimator": "k3"}, "kl_estimator"),
        ({"constant_length": 0}, "constant_length"),
        ({"overlong_cache": -1}, "overlong_cache"),
        ({"entropy_coefficient": -1.0}, "entropy_coefficient"),
    ],
)
def test_impossible_values_are_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match=field):
        GRPO(**fields)
