"""Rolling out: graded trajectories, invalid ones that score nothing, and sessions that are always closed."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.rollout.group import Roller, derive
from burnish.types import InfrastructureError, Message, Status, Trajectory
from tests.agent.scripted import Counting, Scripted, call, task

GONE = InfrastructureError("the sandbox died")


def answer(number: int) -> Message:
    return Message("assistant", f"it is {number}")


async def run(domain: Counting, policy: Scripted, **options: Any) -> Trajectory:
    roller = Roller({domain.name: domain}, **options)
    return await roller.episode(policy, task(5), "e", {"seed": 1})


@pytest.mark.parametrize(("said", "reward"), [(5, 1.0), (6, 0.0)])
async def test_an_episode_comes_back_graded_and_its_world_closed(said: int, reward: float) -> None:
    domain = Counting()
    made = await run(domain, Scripted([call(), answer(said)]))
    assert made.status == Status("completed") and made.reward == reward
    assert made.score is not None and made.score.parts["outcome"].value == reward
    assert [world.closed for world in domain.worlds] == [1]


@pytest.mark.parametrize("where", ["opening", "acting", "grading"])
async def test_a_failure_of_ours_is_invalid_and_unscored_wherever_it_is(where: str) -> None:
    domain = Counting(broken={task(5).id: GONE} if where == "opening" else {}, lost=where == "grading")
    made = await run(domain, Scripted([GONE if where == "acting" else answer(5)]))
    assert made.status is not None and made.status.kind == "invalid"
    assert made.reward is None
    assert all(world.closed == 1 for world in domain.worlds)
    assert made.lineage == {"seed": 1}


async def test_a_fault_of_the_program_is_raised_and_still_closes_the_world() -> None:
    domain = Counting()
    with pytest.raises(ZeroDivisionError):
        await run(domain, Scripted([ZeroDivisionError()]))
    assert [world.closed for world in domain.worlds] == [1]


async def test_no_more_run_at_once_than_the_limit() -> None:
    domain, most = Counting(), 0

    class Watching(Scripted):
        async def respond(self, trajectory: Trajectory, messages: Any) -> Any:
            nonlocal most
            most = max(most, sum(not world.closed for world in domain.worlds))
            return await super().respond(trajectory, messages)

    roller = Roller({"counting": domain}, concurrency=3)
    groups = await roller.groups(Watching([answer(1)]), [task(i) for i in range(4)], 4, 0, {})
    assert 1 <= most <= 3 and len(domain.worlds) == 16
    assert [len(group.trajectories) for group in groups] == [4] * 4


async def test_finished_hears_of_every_trajectory_and_the_audit_of_every_verdict() -> None:
    heard: list[str] = []
    logged: list[tuple[str, Any]] = []

    class Log:
        def append(self, kind: str, data: Any) -> None:
            logged.append((kind, data))

    domain = Counting(broken={task(1).id: GONE})
    roller = Roller({"counting": domain}, finished=lambda t: heard.append(t.id), audit=Log())  # type: ignore[arg-type]
    groups = await roller.groups(Scripted([answer(0)]), [task(0), task(1)], 2, 0, {"step": 3})
    assert sorted(heard) == sorted(t.id for g in groups for t in g.trajectories)
    verdicts = [data for kind, data in logged if kind == "verdict"]
    assert sorted(v["status"] for v in verdicts) == ["completed", "completed", "invalid", "invalid"]
    assert sorted(str(v["reward"]) for v in verdicts) == ["1.0", "1.0", "None", "None"]


async def test_an_episodes_seed_is_its_tasks_and_its_members_own() -> None:
    roller, policy = Roller({"counting": Counting()}), Scripted([answer(0)])
    both = await roller.groups(policy, [task(0), task(1)], 2, 9, {})
    seeds = [t.lineage["seed"] for g in both for t in g.trajectories]
    assert len(set(seeds)) == 4
    (alone,) = await roller.groups(policy, [task(1)], 2, 9, {})
    assert [t.lineage["seed"] for t in alone.trajectories] == seeds[2:]
    (other,) = await roller.groups(policy, [task(1)], 2, 10, {})
    assert [t.lineage["seed"] for t in other.trajectories] != seeds[2:]


def test_purposes_have_seeds_of_their_own() -> None:
    """Written down once: a change here changes what every recorded seed means."""
    assert derive(0, "task", 1) == 4597904833595650797
    made = [derive(0, "task", 1), derive(0, "task", 2), derive(0, "episode", 1), derive(1, "task", 1)]
    assert len(set(made)) == 4 and all(0 <= seed < 1 << 63 for seed in made)
    assert derive(0, "a", "b") != derive(0, "ab") and derive(0, "task", 1) == derive(0, "task", "1")
