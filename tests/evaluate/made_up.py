"""Trajectories made up for the tests of this package."""

from __future__ import annotations

from functools import cache

from burnish.store.codec import TASK_DIGEST
from burnish.types import Budget, Event, Message, Score, Status, Stream, Task, Trajectory


@cache
def task(number: int, domain: str = "files", template: str = "a") -> Task:
    return Task(
        f"{domain}-{number}", domain, (Message("user", "do it"),), (), Budget(), {}, {"n": number},
        tags={"template": template},
    )  # fmt: skip


@cache
def digest(number: int, domain: str, template: str) -> str:
    return task(number, domain, template).digest()


def episode(
    of: Task, success: float | None, ending: str = "completed", errors: tuple[str | None, ...] = (None,)
) -> Trajectory:
    score = None if success is None else Score(success, {"outcome": Stream(success)})
    events = [Event("tool", 0, {"name": "t", "error": error}) for error in errors]
    return Trajectory(f"{of.id}#0", of, events=events, status=Status(ending), score=score)  # type: ignore[arg-type]


def suite(outcomes: dict[str, list[int]]) -> list[Trajectory]:
    """One episode a task: by domain, whether each task was solved. As read from a run, without secrets."""
    episodes = []
    for domain, solved in outcomes.items():
        for i, won in enumerate(solved):
            key = i, domain, f"{domain}-{i % 3}"
            made = episode(task(*key), float(won))
            made.lineage[TASK_DIGEST] = digest(*key)
            episodes.append(made)
    return episodes
