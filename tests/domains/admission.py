"""What every simulated domain has to pass, for the tests of each of them."""

from __future__ import annotations

from burnish.domains.check import check_domain
from burnish.domains.play import play, say
from burnish.domains.toolkit import BaseDomain
from burnish.interfaces import OracleScript
from burnish.rewards.compose import score
from burnish.types import Task, ToolCall

COUNT = 44
MAX_PROMPT = 360  # characters; about 90 tokens
MAX_SEEN = 320


async def admit(domain: BaseDomain) -> None:
    """All admission checks on both splits and two seeds, and the limits that keep an episode short."""
    tasks = [t for split in ("train", "heldout") for seed in (0, 1) for t in _tasks(domain, split, seed)]
    failed = [v for v in await check_domain(domain, tasks) if not v.passed]
    assert failed == []
    names = {s: {t.name for t in domain.templates if t.split == s} for s in ("train", "heldout")}
    assert len(names["train"]) >= 6 and len(names["heldout"]) >= 3
    assert {t.tags["template"] for t in tasks} == names["train"] | names["heldout"]
    assert len({t.prompt[0].content + str(t.setup) for t in tasks}) == len(tasks)
    for task in tasks:
        trajectory, _ = await play(domain, task, domain.oracle(task))
        assert len(task.prompt[0].content) <= MAX_PROMPT and "{" not in task.prompt[0].content
        assert all(len(e.data["content"]) <= MAX_SEEN for e in trajectory.events)
        assert len(task.tools) <= 3 and 1 <= len(trajectory.events) <= 6
        assert trajectory.turns[-1].message.content and task.budget.tool_calls is not None
        assert len(trajectory.events) < task.budget.tool_calls


def _tasks(domain: BaseDomain, split: str, seed: int) -> list[Task]:
    return domain.tasks("train" if split == "train" else "heldout", seed, COUNT)


async def outcome(domain: BaseDomain, task: Task, script: OracleScript) -> float | None:
    return (await score(*await play(domain, task, script), domain)).value


async def told(domain: BaseDomain, task: Task, *answers: str) -> list[float | None]:
    """The outcome of each answer after the oracle's own calls."""
    trajectory, _ = await play(domain, task, domain.oracle(task))
    calls: list[ToolCall] = [c for t in trajectory.turns for c in t.message.tool_calls]
    return [await outcome(domain, task, say([*calls, answer])) for answer in answers]


def drawn(domain: BaseDomain, template: str, count: int = 3) -> list[Task]:
    """The first `count` tasks of seed 0 from one template."""
    split = next(t.split for t in domain.templates if t.name == template)
    return [t for t in domain.tasks(split, 0, 20 * count) if t.tags["template"] == template][:count]
