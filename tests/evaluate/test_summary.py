"""Figures of an evaluation: what counts, what does not, and what is undefined."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from burnish.evaluate.summary import outcome, solved, summarize, trials
from burnish.store.codec import without_secret
from burnish.types import Score, Status, Stream, Trajectory
from tests.evaluate.made_up import episode, suite, task


def test_success_has_its_interval_overall_and_by_domain() -> None:
    found = summarize(suite({"api": [1] * 17 + [0] * 3, "files": [1, 1]}))
    api = found.domains["api"]
    assert api.success == pytest.approx(0.85)
    assert (api.low, api.high) == pytest.approx((0.6396, 0.9476), abs=5e-5)
    assert found.overall.tasks == 22 and found.overall.success == pytest.approx(19 / 22)
    assert json.loads(json.dumps(found.to_json()))["domains"]["files"]["success"] == 1.0


def test_invalid_and_unscored_episodes_are_counted_apart() -> None:
    found = summarize(
        [
            episode(task(1), 1.0),
            episode(task(2), 0.0, "truncated"),
            episode(task(3), 1.0, "invalid"),
            episode(task(4), None),
            episode(task(5), 1.0, "tampered"),
        ]
    )
    assert (found.invalid, found.unscored, found.overall.episodes) == (1, 1, 3)
    assert found.overall.success == pytest.approx(1 / 3)
    assert found.overall.endings == {"completed": 1, "tampered": 1, "truncated": 1}


def test_tools_and_their_failures() -> None:
    found = summarize(
        [
            episode(task(1), 1.0, errors=(None, "timeout", None)),
            episode(task(2), 1.0, errors=("not_found",)),
            episode(task(3), 0.0, errors=()),
        ]
    ).overall
    assert found.tool_calls == pytest.approx(4 / 3) and found.tool_failures == pytest.approx(2 / 3)
    assert (found.tool_failure_rate, found.timeout_rate) == (0.5, 0.25)
    assert found.timeouts == pytest.approx(1 / 3) and found.turns == 0


def test_nothing_is_undefined_not_zero() -> None:
    found = summarize([]).overall
    assert found.success is found.low is found.high is found.reward is found.tool_failure_rate is None
    only_invalid = summarize([episode(task(1), None, "invalid")])
    assert only_invalid.domains["files"].success is None and only_invalid.invalid == 1


def test_several_trials_of_a_task_are_one_task() -> None:
    found = summarize(
        [episode(task(i), float(j < c)) for i, c in enumerate([4, 2, 0]) for j in range(4)]
    ).overall
    assert (found.tasks, found.episodes, found.success) == (3, 12, 0.5)
    assert found.pass_at[1] == pytest.approx(0.5) and found.pass_all[4] == pytest.approx(1 / 3)
    assert sorted(found.pass_at) == [1, 2, 3, 4]
    assert found.high is not None and found.low is not None and found.high - found.low > 0.6
    assert summarize([episode(task(1), 1.0)]).overall.pass_at == {}


def test_a_task_is_known_without_its_secret() -> None:
    whole = episode(task(1), 1.0)
    assert trials([whole, without_secret(whole)]) == {task(1).digest(): (2, 2)}


@pytest.mark.parametrize(
    ("score", "value"),
    [
        (None, None),
        (Score(0.7), 0.7),
        (Score(0.7, {"tests": Stream(1.0), "style": Stream(0.2)}), 1.0),
        (Score(0.7, {"style": Stream(0.2), "outcome": Stream(1.0)}), 1.0),
        (Score(0.7, {"tests": Stream(None)}), None),
    ],
)
def test_the_outcome_is_the_outcome_stream_or_the_first(score: Score | None, value: float | None) -> None:
    assert outcome(replace(episode(task(1), 1.0), score=score)) == value


def test_almost_is_not_solved() -> None:
    assert solved(episode(task(1), 0.99)) is False and solved(episode(task(1), 1.0)) is True
    assert solved(Trajectory("x", task(1), status=Status("completed"))) is None
