"""Every noun survives being written and read, and nothing else is read."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from burnish.store.codec import decode, decode_lines, encode, encode_lines, task_digest, without_secret
from burnish.types import BurnishError, Event, Evidence, Group, Sample, Score, Task, Trajectory
from tests.store import cases


@given(cases.trajectories)
def test_a_trajectory_comes_back_as_it_was(trajectory: Trajectory) -> None:
    raw = encode(trajectory)
    assert b"\n" not in raw
    assert decode(Trajectory, raw) == trajectory


@given(cases.tasks)
def test_a_task_comes_back_with_its_digest(task: Task) -> None:
    again = decode(Task, encode(task))
    assert again == task and again.digest() == task.digest()


@given(cases.trajectories)
def test_without_its_secret_a_trajectory_is_still_known(trajectory: Trajectory) -> None:
    (again,) = decode_lines(encode_lines([trajectory]).split(b"\n")[:-1])
    assert again.task.secret == {}
    assert task_digest(again) == trajectory.task.digest()
    assert encode_lines([again]) == encode_lines([trajectory])


def test_the_secret_is_not_in_what_is_written() -> None:
    kept = cases.trajectory()
    assert b"the-answer" in encode(kept)
    assert b"the-answer" not in encode_lines([kept])
    assert without_secret(kept) is not kept and kept.task.secret == {"answer": "the-answer"}


def test_a_group_keeps_its_trajectories_and_leaves_its_columns() -> None:
    group = Group(
        cases.task(), [cases.trajectory("a"), cases.trajectory("b")], [Sample(0, {"ids": np.arange(3)})]
    )
    again = decode(Group, encode(group))
    assert again == Group(group.task, group.trajectories)


def test_bytes_and_numbers_of_numpy() -> None:
    evidence = Evidence({"out": b"\xff\x00"}, {"n": np.int64(3), "x": np.arange(2)})
    again = decode(Evidence, encode(evidence))
    assert again == Evidence({"out": b"\xff\x00"}, {"n": 3, "x": [0, 1]})


def test_infinite_and_missing_numbers() -> None:
    again = decode(Score, encode(Score(float("-inf"))))
    assert again == Score(float("-inf")) and json.loads(encode(Score(None)))["value"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d | {"rank": 1}, "rank"),
        (lambda d: {k: v for k, v in d.items() if k != "task"}, "task"),
        (lambda d: d | {"task": d["task"] | {"hint": 1}}, "task.hint"),
        (lambda d: d | {"status": {"kind": "won", "reason": ""}}, "status.kind"),
        (lambda d: [], "the whole"),
    ],
)
def test_what_is_not_a_trajectory_is_refused_by_name(change, message: str) -> None:
    raw = json.dumps(change(json.loads(encode(cases.trajectory())))).encode()
    with pytest.raises(BurnishError, match=message):
        decode(Trajectory, raw)


def test_a_torn_line_is_refused_with_its_place() -> None:
    lines = encode_lines([cases.trajectory("a"), cases.trajectory("b")]).splitlines()
    with pytest.raises(BurnishError, match=r"step-000001\.jsonl line 2: not a Trajectory"):
        decode_lines([lines[0], lines[1][:-9]], "step-000001.jsonl")


def test_half_a_surrogate_pair_does_not_stop_a_run() -> None:
    trajectory = cases.trajectory()
    trajectory.events.append(Event("tool", 0, {"arguments": {"q\ud800": ["a\ud800", 1, float("inf")]}}))
    again = decode(Trajectory, encode(trajectory))
    key, value = next(iter(again.events[0].data["arguments"].items()))
    assert key[0] == "q" and "\ufffd" in key and value[0][0] == "a" and value[1] == 1
    assert replace(again, events=[]) == replace(trajectory, events=[])


def test_an_object_is_no_part_of_a_trajectory() -> None:
    trajectory = cases.trajectory()
    trajectory.lineage["policy"] = object()
    with pytest.raises(Exception, match="no place in a trajectory"):
        encode(trajectory)
