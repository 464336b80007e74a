"""Sources: which tasks come when, and that a resumed run sees the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from burnish.interfaces import Source
from burnish.rollout.group import Roller
from burnish.rollout.source import LiveSource, RecordedSource
from burnish.types import Message, Trajectory, UsageError
from tests.agent.scripted import Counting, Scripted, task

ANSWER = Message("assistant", "it is 0")


def live(domains: int = 3, **options: Any) -> LiveSource:
    names = [f"d{i}" for i in range(domains)]
    roller = Roller({name: Counting(name) for name in names})
    return LiveSource(roller, **({"steps": 4, "tasks": 2, "size": 2, "seed": 5} | options))


def recorded(count: int = 6, **options: Any) -> RecordedSource:
    episodes = [Trajectory(f"e{i}", task(i)) for i in range(count)]
    return RecordedSource(episodes, **({"steps": 6, "batch": 4, "seed": 5} | options))


async def drawn(source: Any, start: int = 0) -> list[tuple[int, list[str]]]:
    batches = source.batches(Scripted([ANSWER]), start)
    return [(step, [t.id for g in groups for t in g.trajectories]) async for step, groups in batches]


def test_both_are_sources() -> None:
    assert isinstance(live(), Source) and isinstance(recorded(), Source)


async def test_a_resumed_run_sees_the_same_tasks_and_seeds() -> None:
    def seeds(groups: Any) -> list[Any]:
        return [(t.id, t.lineage) for g in groups for t in g.trajectories]

    policy = Scripted([ANSWER])
    whole = [(step, seeds(groups)) async for step, groups in live().batches(policy, 0)]
    rest = [(step, seeds(groups)) async for step, groups in live().batches(policy, 2)]
    assert rest == whole[2:]
    assert len({lineage["seed"] for _, batch in whole for _, lineage in batch}) == 4 * 2 * 2


def test_domains_are_drawn_evenly_over_any_stretch() -> None:
    source = live(domains=3, tasks=2)
    names = [t.domain for step in range(30) for t in source.draw(step)]
    assert Counter(names) == {"d0": 20, "d1": 20, "d2": 20}
    for lap in range(0, 60, 3):
        assert len(set(names[lap : lap + 3])) == 3
    assert len({tuple(names[lap : lap + 3]) for lap in range(0, 60, 3)}) > 1, "the order changes"


def test_tasks_are_new_at_every_draw_and_others_with_another_seed() -> None:
    source, other = live(), live(seed=6)
    mine = [t.id for step in range(20) for t in source.draw(step)]
    theirs = [t.id for step in range(20) for t in other.draw(step)]
    assert len(set(mine)) > 35
    assert mine != theirs


async def test_groups_are_of_one_task_and_the_size_asked_for() -> None:
    async for step, groups in live().batches(Scripted([ANSWER]), 0):
        assert [len(g.trajectories) for g in groups] == [2, 2]
        for group in groups:
            assert {t.task.id for t in group.trajectories} == {group.task.id}
            assert {t.lineage["step"] for t in group.trajectories} == {step}


async def test_every_epoch_sees_every_recorded_episode_once_in_a_new_order() -> None:
    batches = await drawn(recorded())
    assert [step for step, _ in batches] == list(range(6))
    flat = [id for _, ids in batches for id in ids]
    epochs = [flat[i : i + 6] for i in range(0, 24, 6)]
    assert all(sorted(epoch) == [f"e{i}" for i in range(6)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert await drawn(recorded(), 4) == batches[4:]


async def test_recorded_groups_are_fresh_so_that_columns_of_one_step_do_not_leak() -> None:
    seen = [g async for _, groups in recorded().batches(Scripted([]), 0) for g in groups]
    assert len({id(group) for group in seen}) == len(seen)
    assert all(group.samples == [] for group in seen)


@pytest.mark.parametrize("make", [live, recorded], ids=["live", "recorded"])
def test_a_checkpoint_of_another_recipe_is_refused(make: Any) -> None:
    state = make().state_dict()
    make().load_state_dict(state)
    with pytest.raises(UsageError, match="resume with the recipe"):
        make(seed=6).load_state_dict(state)
