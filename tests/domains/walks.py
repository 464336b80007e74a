"""What every domain on files is held to, with the real sandbox."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from burnish.domains.play import play, say
from burnish.domains.workspace import FileDomain
from burnish.rewards.compose import score
from burnish.types import Split, Task, ToolCall, Trajectory

TASKS_PER_TEMPLATE = 5


def drawn(domain: FileDomain, split: Split, per_template: int = TASKS_PER_TEMPLATE) -> list[Task]:
    """Tasks of a split, `per_template` of each of its templates."""
    count = per_template * sum(template.split == split for template in domain.templates)
    tasks = domain.tasks(split, seed=7, count=count)
    assert set(Counter(task.tags["template"] for task in tasks).values()) == {per_template}
    return tasks


async def plays(domain: FileDomain, task: Task, moves: Sequence[ToolCall | str]) -> tuple[float, Trajectory]:
    """The reward of an episode with these moves, and the episode."""
    trajectory, evidence = await play(domain, task, say(moves))
    value = (await score(trajectory, evidence, domain)).value
    assert value is not None
    return value, trajectory


async def solves(domain: FileDomain, task: Task) -> Trajectory:
    """The oracle's episode, which scores 1 within the budget that a small model can pay."""
    trajectory, evidence = await play(domain, task, domain.oracle(task))
    assert (await score(trajectory, evidence, domain)).value == 1.0, (task.id, task.tags, trajectory.events)
    assert 1 <= len(trajectory.events) <= 5
    assert all(len(event.data["content"]) <= 360 for event in trajectory.events)
    assert len(task.prompt[0].content) <= 140
    return trajectory


async def hold_to_bounds(domain: FileDomain, split: Split) -> None:
    """The oracle scores 1, doing nothing 0, on every task, whether it says so or says something likely."""
    for task in drawn(domain, split):
        await solves(domain, task)
        for answer in ("done", "", "I could not do it."):
            assert (await plays(domain, task, [answer]))[0] == 0.0, task.id


def hold_to_splits(domain: FileDomain) -> None:
    """Enough templates, apart by split, and tasks that are the same whenever they are drawn."""
    names: dict[str, list[str]] = {"train": [], "heldout": []}
    for template in domain.templates:
        names[template.split].append(template.name)
    assert len(names["train"]) >= 6 and len(names["heldout"]) >= 3
    assert len({*names["train"], *names["heldout"]}) == len(domain.templates)
    texts: dict[str, set[str]] = {}
    for split in ("train", "heldout"):
        tasks = domain.tasks(split, 3, 60)
        assert [t.digest() for t in tasks[:20]] == [t.digest() for t in domain.tasks(split, 3, 20)]
        assert [t.digest() for t in tasks] != [t.digest() for t in domain.tasks(split, 4, 60)]
        texts[split] = {task.prompt[0].content for task in tasks}
        assert len({f"{task.prompt[0].content} {task.setup}" for task in tasks}) >= 57
    assert not texts["train"] & texts["heldout"]


def hold_to_no_constant(domain: FileDomain) -> None:
    """No one answer is right for more than a fifth of the tasks of any template."""
    for template in domain.templates:
        tasks = [t for t in domain.tasks(template.split, 5, 600) if t.tags["template"] == template.name]
        answers = Counter(task.secret["answer"] for task in tasks)
        assert answers.most_common(1)[0][1] <= len(tasks) / 5, (template.name, answers.most_common(3))
