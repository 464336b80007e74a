"""PPO: what reaches the columns, what reaches the loss, and what must not move either."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from burnish.interfaces import Algorithm
from burnish.train.control import KL
from burnish.train.ppo import PPO, RunningPPO
from burnish.types import Group, Trajectory, UsageError

from .episodes import annotate, annotate_randomly, at_tokens, batch, episode, group, output, task

TEXTBOOK: dict[str, Any] = {"gamma": 0.99, "lam_actor": 0.95, "lam_critic": 0.95, "whiten": "none"}
PLAIN: dict[str, Any] = {"gamma": 1.0, "lam_actor": 1.0, "lam_critic": 1.0, "whiten": "none"}


def credited(trajectory: Trajectory, values: list[float], settings: PPO, tail: float = 9.0) -> Group:
    made = group(trajectory)
    annotate(made.samples[0], "values", values, elsewhere=9.0)
    made.samples[0].columns["tail_value"] = np.array([tail], np.float32)
    settings.open().credit([made])
    return made


def test_it_is_an_algorithm() -> None:
    running = PPO(kl=KL(coefficient=0.1)).open()
    assert isinstance(running, Algorithm)
    assert running.needs == ("values", "reference")
    assert PPO().open().needs == ("values",)


@pytest.mark.parametrize("observed", [1, 10])
def test_gae_steps_over_observations(observed: int) -> None:
    """Two actions with an observation between, of any length, on which the critic says 9."""
    made = credited(episode([(2, 1), (observed, 1)]), [0.5, 0.6], PPO(**TEXTBOOK))
    sample = made.samples[0]
    assert at_tokens(sample, "advantages") == [0.4702, 0.4]
    assert at_tokens(sample, "returns") == [0.9702, 1.0]
    assert not sample.columns["advantages"][~sample.columns["trainable"]].any()


def test_the_outcome_does_not_get_lost_on_a_masked_tail() -> None:
    made = credited(episode([(0, 2)], tail=2), [0.0, 0.0], PPO(**PLAIN))
    assert at_tokens(made.samples[0], "advantages") == [1.0, 1.0]


def test_returns_do_not_restart_at_an_observation() -> None:
    made = credited(episode([(0, 1), (1, 1)]), [0.0, 0.0], PPO(**PLAIN | {"gamma": 0.5}))
    assert at_tokens(made.samples[0], "advantages") == [0.5, 1.0]


@pytest.mark.parametrize(
    ("ending", "expected"), [("truncated", [0.27458, 0.192]), ("completed", [-0.4703, -0.6])]
)
def test_only_a_truncated_episode_goes_on_from_the_critic(ending: Any, expected: list[float]) -> None:
    made = credited(
        episode([(1, 2)], reward=0.0, ending=ending, tail=3), [0.5, 0.6], PPO(**TEXTBOOK), tail=0.8
    )
    assert at_tokens(made.samples[0], "advantages") == expected


def test_actor_and_critic_have_lambdas_of_their_own() -> None:
    made = credited(episode([(1, 3)]), [0.5, 0.4, 0.6], PPO(**TEXTBOOK | {"lam_critic": 1.0, "gamma": 1.0}))
    assert at_tokens(made.samples[0], "returns") == [1.0, 1.0, 1.0]
    # delta = [-.1, .2, .4]; A1 = .2 + .95 x .4, A0 = -.1 + .95 x A1
    assert at_tokens(made.samples[0], "advantages") == [0.451, 0.58, 0.4]


def test_turn_rewards_enter_at_their_turn() -> None:
    trajectory = episode([(1, 2), (1, 2)], reward=1.0, streams={"process": [0.5, None]})
    made = credited(trajectory, [0.0] * 4, PPO(**PLAIN, turn_scale=2.0))
    assert at_tokens(made.samples[0], "advantages") == [2.0, 2.0, 1.0, 1.0]


def with_kl(target: float | None, horizon: float = 8.0) -> RunningPPO:
    return PPO(**PLAIN, kl=KL(coefficient=0.5, target=target, horizon=horizon)).open()


def kl_group() -> Group:
    """One episode whose tokens are, together, 0.7 nats likelier than under the reference."""
    made = group(episode([(1, 2), (2, 1)], reward=1.0))
    sample = made.samples[0]
    annotate(sample, "values", [0.0] * 3)
    annotate(sample, "logprobs", [-1.0, -0.5, -2.0], elsewhere=-7.0)
    annotate(sample, "reference", [-1.4, -1.0, -1.8], elsewhere=-99.0)
    return made


def test_the_kl_penalty_is_a_reward_at_every_sampled_token() -> None:
    running, made = with_kl(target=None), kl_group()
    metrics = running.credit([made])
    # Penalties .5 x [.4, .5, -.2], then the outcome: returns to go.
    assert at_tokens(made.samples[0], "advantages") == [0.65, 0.85, 1.1]
    assert metrics["kl"] == pytest.approx(0.7)
    assert metrics["beta"] == 0.5


def test_the_kl_weight_moves_after_the_batch_that_was_measured() -> None:
    running, first, second = with_kl(target=0.5), kl_group(), kl_group()
    running.credit([first])
    assert at_tokens(first.samples[0], "advantages") == [0.65, 0.85, 1.1]
    assert running.kl.coefficient == pytest.approx(0.5 * (1 + 0.2 * 1 / 8))
    running.credit([second])
    assert at_tokens(second.samples[0], "advantages") == [0.64125, 0.84625, 1.1025]


def test_an_invalid_episode_is_absent_everywhere() -> None:
    settings = PPO(kl=KL(coefficient=0.1, target=1.0, horizon=10.0))
    plain = [group(episode([(1, 2)]), episode([(1, 3)], reward=0.0))]
    mixed = [
        group(
            episode([(1, 2)]),
            episode([(1, 5)], reward=-50.0, ending="invalid"),
            episode([(1, 3)], reward=0.0),
        )
    ]
    found = []
    for groups in (plain, mixed):
        annotate_randomly(groups, seed=3)
        running = settings.open()
        metrics = running.credit(groups)
        found.append((metrics, [at_tokens(s, "advantages") for s in groups[0].samples], running.state_dict()))
    assert found[0] == found[1]
    assert [s.trajectory for s in mixed[0].samples] == [0, 2]


def test_whitening_spans_the_batch_or_each_domain() -> None:
    def advantages(whiten: Any) -> list[list[float]]:
        hard, easy = task("a", "hard"), task("b", "easy")
        groups = [
            group(episode([(1, 1)], 0.0, of=hard), episode([(1, 1)], 100.0, of=hard)),
            group(episode([(1, 1)], 1.0, of=easy), episode([(1, 1)], 2.0, of=easy)),
        ]
        for sample in (s for g in groups for s in g.samples):
            annotate(sample, "values", [0.0])
        PPO(gamma=1.0, lam_actor=1.0, whiten=whiten).open().credit(groups)
        return [[at_tokens(s, "advantages")[0] for s in g.samples] for g in groups]

    assert advantages("domain") == [[-1.0, 1.0], [-1.0, 1.0]]
    together = [x for part in advantages("batch") for x in part]
    assert np.mean(together) == pytest.approx(0, abs=1e-4) and np.std(together) == pytest.approx(1, abs=1e-4)
    assert together[1] > 1.7 and together[2] < -0.5


def make_groups(seed: int, observed: int = 2) -> list[Group]:
    groups = [
        group(
            episode([(3, 2), (observed, 4)], reward=1.0),
            episode([(3, 1)], reward=0.0),
            episode([(3, 2), (observed, 1), (observed, 2)], 0.3, "truncated", tail=observed),
        ),
        group(episode([(2, 5)], reward=0.5), episode([(2, 2), (observed, 2)], reward=0.9)),
    ]
    annotate_randomly(groups, seed)
    return groups


SETTINGS = PPO(
    lam_actor=0.9,
    value_clip=0.2,
    value_coefficient=0.7,
    entropy_coefficient=0.05,
    kl=KL(coefficient=0.1, target=1.0, horizon=20.0),
)


def total(groups: list[Group]) -> tuple[float, dict[str, float], dict[str, float]]:
    """Loss over everything, metrics of credit, and metrics of the loss."""
    running = SETTINGS.open()
    credit = running.credit(groups)
    columns = batch(groups)
    loss, metrics = running.loss(output(columns), columns)
    return float(loss.detach()), credit, {n: float(m) for n, m in metrics.items()}


def test_observation_tokens_change_nothing() -> None:
    short, long = total(make_groups(1, observed=1)), total(make_groups(1, observed=7))
    assert short[0] == long[0] and short[1] == long[1]
    assert abs(short[0]) > 1e-3


def test_the_order_of_episodes_changes_nothing() -> None:
    groups = make_groups(2)
    loss, credit, metrics = total(copy.deepcopy(groups))
    for made in groups:
        made.samples.reverse()
    groups.reverse()
    again = total(groups)
    assert again[0] == pytest.approx(loss, rel=1e-5)
    assert again[1] == pytest.approx(credit) and again[2] == pytest.approx(metrics, rel=1e-5)


def test_micro_batches_add_up() -> None:
    groups = make_groups(3)
    running = SETTINGS.open()
    running.credit(groups)
    columns = batch(groups)
    whole, metrics = running.loss(output(columns), columns)
    parts = [batch([g]) for g in groups]
    losses = [running.loss(output(part), part) for part in parts]
    assert float(sum(part.detach() for part, _ in losses)) == pytest.approx(float(whole.detach()), rel=1e-5)
    for name, value in metrics.items():
        assert float(sum(m[name] for _, m in losses)) == pytest.approx(float(value), rel=1e-4)
    assert running.normalizer(groups) == sum(running.normalizer([g]) for g in groups) == 21


def test_the_first_step_follows_the_advantages() -> None:
    """At the weights that sampled, the policy gradient of every token is minus its advantage."""
    groups = make_groups(4)
    running = PPO(entropy_coefficient=0.0).open()
    running.credit(groups)
    columns = batch(groups)
    out = output(columns, shift=0.0)
    loss, metrics = running.loss(out, columns)
    by_logprob, by_value = torch.autograd.grad(loss, [out["logprobs"], out["values"]])
    assert torch.allclose(by_logprob, -columns["advantages"])
    assert torch.allclose(by_value, columns["values"] + 0.3 - columns["returns"])
    assert float(metrics["approx_kl"]) == 0.0 and float(metrics["clip_fraction"]) == 0.0


def test_a_value_that_moved_too_far_is_held() -> None:
    """Every value moved by 0.3 where 0.2 is allowed: only those that moved away from their return learn."""
    groups = make_groups(4)
    running = PPO(value_clip=0.2).open()
    running.credit(groups)
    columns = batch(groups)
    out = output(columns, shift=0.0)
    loss, _ = running.loss(out, columns)
    (slope,) = torch.autograd.grad(loss, out["values"])
    above = columns["returns"] > columns["values"] + 0.3
    assert above.any() and not above.all()
    assert not slope[above].any() and bool((slope[~above] > 0).all())


def test_the_entropy_bonus_makes_likely_tokens_less_likely() -> None:
    """Its gradient is coefficient x (log pi + H): downhill for a token that is likelier than usual."""
    slopes = []
    for coefficient in (0.0, 0.1):
        groups = make_groups(4)
        running = PPO(entropy_coefficient=coefficient).open()
        running.credit(groups)
        columns = batch(groups)
        out = output(columns, shift=0.0)
        loss, _ = running.loss(out, columns)
        slopes.append(torch.autograd.grad(loss, out["logprobs"])[0])
    assert torch.allclose(slopes[1] - slopes[0], 0.1 * (columns["logprobs"] + 0.7), atol=1e-6)


def test_during_critic_warmup_only_the_critic_learns() -> None:
    running = PPO(critic_warmup=1, entropy_coefficient=0.1).open()
    reached = []
    for _ in range(2):
        groups = make_groups(5)
        running.credit(groups)
        columns = batch(groups)
        out = output(columns)
        loss, _ = running.loss(out, columns)
        grads = torch.autograd.grad(loss, [out["logprobs"], out["values"]], allow_unused=True)
        reached.append([g is not None and bool(g.any()) for g in grads])
    assert reached == [[False, True], [True, True]]


def test_the_state_survives() -> None:
    first, second = SETTINGS.open(), SETTINGS.open()
    first.credit(make_groups(6))
    second.load_state_dict(first.state_dict())
    here, there = make_groups(7), make_groups(7)
    assert first.credit(here) == second.credit(there)
    assert first.state_dict() == second.state_dict() != SETTINGS.open().state_dict()
    assert [at_tokens(s, "advantages") for g in here for s in g.samples] == [
        at_tokens(s, "advantages") for g in there for s in g.samples
    ]


def test_a_batch_with_nothing_to_learn_from_is_no_error() -> None:
    groups = [group(episode([(1, 2)], reward=None)), group(episode([(1, 2)], ending="invalid"))]
    annotate_randomly(groups, seed=8)
    running = SETTINGS.open()
    metrics = running.credit(groups)
    assert metrics["learnt_from"] == 0 and metrics["unscored"] == 1
    assert running.normalizer(groups) == 1 and running.kl.coefficient == 0.1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"clip_low": 1.5}, "clip_low"),
        ({"gamma": 1.1}, "gamma"),
        ({"lam_actor": -0.1}, "lam_actor"),
        ({"lam_critic": float("nan")}, "lam_critic"),
        ({"whiten": "all"}, "whiten"),
        ({"value_clip": 0.0}, "value_clip"),
        ({"critic_warmup": -1}, "critic_warmup"),
        ({"entropy_coefficient": -0.1}, "entropy_coefficient"),
    ],
)
def test_impossible_values_are_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match=field):
        PPO(**fields)
