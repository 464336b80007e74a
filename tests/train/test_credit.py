"""Advantages against numbers worked out by hand, and against a slow definition on random episodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.train import credit
from burnish.types import BurnishError, UsageError

from .episodes import annotate, episode, group


def array(*values: float) -> credit.Floats:
    return np.array(values, np.float64)


def close(found: credit.Floats, *expected: float) -> None:
    assert found.tolist() == pytest.approx(list(expected), abs=1e-5)


def test_gae_of_an_episode_that_ended() -> None:
    close(credit.gae(array(0, 0, 1), array(0.5, 0.4, 0.6), 0.0, 0.99, 0.95), 0.43227, 0.5702, 0.4)


def test_gae_of_an_episode_that_was_cut_off_goes_on_from_the_critic() -> None:
    rewards, values = array(0, 0), array(0.5, 0.6)
    close(credit.gae(rewards, values, 0.8, 0.99, 0.95), 0.27458, 0.192)
    close(credit.gae(rewards, values, 0.0, 0.99, 0.95), -0.4703, -0.6)


def test_gae_with_no_critic_is_the_discounted_return() -> None:
    close(credit.gae(array(0, 1), array(0, 0), 0.0, 0.5, 1.0), 0.5, 1.0)


def test_gae_of_nothing_is_nothing() -> None:
    assert len(credit.gae(array(), array(), 0.7, 0.99, 0.95)) == 0


def slow_gae(
    rewards: list[float], values: list[float], after: float, gamma: float, lam: float
) -> list[float]:
    """The definition: the exponentially weighted mean of all n-step advantages, written as a double sum."""
    states = [*values, after]
    deltas = [r + gamma * states[t + 1] - states[t] for t, r in enumerate(rewards)]
    return [
        math.fsum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas)))
        for t in range(len(deltas))
    ]


number = st.floats(-3, 3)


@given(
    st.lists(st.tuples(st.booleans(), number, number), max_size=12),
    number,
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_gae_on_random_masks_equals_the_definition(
    tokens: list[tuple[bool, float, float]], after: float, gamma: float, lam: float
) -> None:
    """One turn a token, sampled or observed; what is written on observed tokens is garbage."""
    shape = [(0, 1) if sampled else (1, 0) for sampled, _, _ in tokens]
    made = group(episode(shape or [(1, 0)]))
    acts = [(reward, value) for sampled, reward, value in tokens if sampled]
    sample = made.samples[0]
    annotate(sample, "rewards", [r for r, _ in acts], elsewhere=1e6)
    annotate(sample, "values", [v for _, v in acts], elsewhere=1e6)
    line = credit.line(made, sample)
    found = credit.gae(line.column("rewards"), line.column("values"), after, gamma, lam)
    expected = slow_gae(line.column("rewards").tolist(), line.column("values").tolist(), after, gamma, lam)
    assert len(line) == len(acts)
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


def test_a_turns_reward_falls_on_its_last_sampled_token() -> None:
    shape = [(2, 2), (3, 0), (1, 3), (4, 1)]
    streams = {"process": [0.1, 0.2, None, 0.4], "style": [None, None, 0.01, None]}
    made = group(episode(shape, reward=1.0, streams=streams))
    line = credit.line(made, made.samples[0])
    # Turn 1 sampled nothing: what it earned belongs to the action that led to it.
    close(line.rewards(), 0, 0.3, 0, 0, 0.01, 1.4)
    close(line.rewards(turn_scale=10), 0, 3.0, 0, 0, 0.1, 5.0)
    assert credit.episode_reward(made.trajectories[0]) == pytest.approx(1.71)


def test_what_was_earned_before_the_first_action_is_nobodys() -> None:
    made = group(episode([(2, 0), (0, 2)], reward=1.0, streams={"process": [5.0, None]}))
    close(credit.line(made, made.samples[0]).rewards(), 0, 1)


def test_time_follows_after_and_not_storage() -> None:
    """Turn 2 came first, then 0, then 1: the outcome belongs to turn 1."""
    made = group(episode([(1, 2), (0, 1), (0, 2)], reward=1.0, after=[2, 0, None]))
    line = credit.line(made, made.samples[0])
    assert line.order == (2, 0, 1)
    assert line.positions.tolist() == [4, 5, 1, 2, 3]
    close(line.rewards(), 0, 0, 0, 0, 1)
    credit.write([made], [line], "advantages", [array(1, 2, 3, 4, 5)])
    column = made.samples[0].columns["advantages"]
    assert column.tolist() == [0, 3, 4, 5, 1, 2]
    assert column.dtype == np.float32


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ([None, 0, 0], "1 and 2 both come after turn 0"),
        ([None, None, 1], "both come first"),
        ([1, 0, 1], "0 and 2 both come after turn 1"),
        ([None, 2, 1], r"\[1, 2\] cannot be reached"),
    ],
)
def test_turns_that_are_not_one_line_of_time_are_refused(after: list[int | None], message: str) -> None:
    with pytest.raises(BurnishError, match=message):
        credit.timeline(episode([(1, 1)] * 3, after=after))


def test_an_unscored_episode_leaves_the_update_but_keeps_its_columns() -> None:
    made = group(episode([(1, 2)], reward=None), episode([(1, 2)], reward=0.0))
    entries = credit.lines([made])
    assert [e.sample.trajectory for e in entries] == [1]
    assert credit.trainable_tokens([made]) == 2
    credit.write([made], entries, "advantages", [array(3, 4)])
    assert [s.columns["advantages"].tolist() for s in made.samples] == [[0, 0, 0], [0, 3, 4]]


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused(reward: float) -> None:
    with pytest.raises(BurnishError, match="finite"):
        credit.lines([group(episode([(1, 1)], reward=reward))])


def test_a_stream_longer_than_the_episode_is_refused() -> None:
    with pytest.raises(BurnishError, match="'process' scored 2 turns"):
        credit.turn_rewards(episode([(1, 1)], streams={"process": [0.1, 0.2]}))


def test_whitening_counts_tokens_and_not_episodes() -> None:
    white = credit.whiten([array(3), array(1, 1, 1)], ["", ""])
    close(white[0], 1.5 / math.sqrt(0.75))
    close(white[1], *[-0.5 / math.sqrt(0.75)] * 3)


def test_whitening_within_labels_keeps_them_apart() -> None:
    parts = [array(0, 100), array(1, 3), array(200)]
    white = credit.whiten(parts, ["hard", "easy", "hard"])
    close(white[1], -1, 1)
    close(np.concatenate([white[0], white[2]]), -1.22474, 0, 1.22474)


def test_whitening_equal_values_gives_zero() -> None:
    white = credit.whiten([np.full(6, np.float64(np.float32(0.3))), array()], ["", ""])
    assert white[0].tolist() == [0.0] * 6 and len(white[1]) == 0


@pytest.mark.parametrize(
    ("baseline", "divide", "expected"),
    [
        ("mean", False, [0.25, 0.25, 0.25, -0.75]),
        ("mean", True, [0.5, 0.5, 0.5, -1.5]),
        ("leave_one_out", False, [1 / 3, 1 / 3, 1 / 3, -1.0]),
    ],
)
def test_group_baselines(baseline: credit.Baseline, divide: bool, expected: list[float]) -> None:
    close(credit.group_advantages(array(1, 1, 1, 0), baseline, divide), *expected)


def test_leaving_one_out_is_what_it_says() -> None:
    rewards = array(0.3, 2.0, -1.0)
    close(credit.group_advantages(rewards, "leave_one_out"), -0.2, 2.35, -2.15)


@pytest.mark.parametrize("divide", [False, True])
def test_a_group_of_equal_rewards_teaches_nothing(divide: bool) -> None:
    rewards = np.full(6, 0.3, np.float32)
    assert rewards.std() > 0  # rounding alone would be divided by
    assert not credit.group_advantages(rewards.astype(np.float64), "mean", divide).any()
    rewards[0] += np.float32(1e-7)
    assert not credit.group_advantages(rewards.astype(np.float64), "mean", divide).any()
    rewards[0] += np.float32(1e-4)
    assert credit.group_advantages(rewards.astype(np.float64), "mean", divide).all()


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least two"):
        credit.group_advantages(array(1.0))


@pytest.mark.parametrize(("length", "penalty"), [(3, 0), (16, 0), (18, -0.5), (20, -1), (21, -1)])
def test_overlong_shaping(length: int, penalty: float) -> None:
    assert credit.overlong_penalty(length, limit=20, cache=4) == penalty


def test_overlong_shaping_without_a_ramp_is_a_step() -> None:
    assert [credit.overlong_penalty(n, limit=20, cache=0) for n in (20, 21)] == [0, -1]


def test_explained_variance() -> None:
    returns = array(0, 1, 2)
    assert credit.explained_variance(returns, returns) == 1.0
    assert credit.explained_variance(array(5, 5, 5), returns) == pytest.approx(0.0)
    assert credit.explained_variance(array(2, 1, 0), returns) == pytest.approx(-3.0)
    assert credit.explained_variance(array(0, 1), array(1, 1)) == 0.0
