"""Admission of a domain: its oracle succeeds always, and nothing cheap does.

What this file is: checks that a domain's tasks, verifier and oracle have to pass before a model is trained or
measured on them, each with a verdict and a reason.
What it is not: it says nothing of how hard a task is for a model.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from burnish.domains.play import play, say
from burnish.domains.records import facts
from burnish.interfaces import Domain, OracleScript
from burnish.rewards.compose import score
from burnish.rewards.outcome import final_answer
from burnish.types import Evidence, Task, Trajectory

FLOOR = 0.1
"""The largest share of tasks that may be solved by an answer that was not worked for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check of one domain. `reason` says what was seen; of a failure, on which task."""

    check: str
    passed: bool
    reason: str


@dataclass(slots=True)
class _Found:
    """What playing all tasks turned up, by check; each entry names a task."""

    oracle: list[str] = field(default_factory=list)
    clean: list[str] = field(default_factory=list)
    alike: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)


async def check_domain(domain: Domain, tasks: Sequence[Task], floor: float = FLOOR) -> list[Verdict]:
    """Runs all checks on `tasks`, which should come from both splits. A domain is admitted when every verdict
    has passed. InfrastructureError passes through: a broken sandbox says nothing of a domain."""
    found = _Found()
    for task in tasks:
        await _check_oracle(domain, task, found)
    return [
        _none("oracle", found.oracle, f"the oracle scores 1 on all {len(tasks)} tasks"),
        _none("repeatable", found.alike, "two oracles at the same time see and score the same"),
        _none("clean", found.clean, "no oracle meets an error that was not meant"),
        _leakage(tasks),
        *[await _cheap(domain, tasks, *row, floor) for row in _cheap_answers(tasks, found.answers)],
    ]


async def _check_oracle(domain: Domain, task: Task, found: _Found) -> None:
    """Plays the oracle twice at once: the second is to see exactly what the first does."""
    runs = await asyncio.gather(*[play(domain, task, domain.oracle(task)) for _ in range(2)])
    for trajectory, evidence in runs:
        value = await _outcome(domain, trajectory, evidence)
        if value != 1.0:
            found.oracle.append(f"{task.id} ({task.tags.get('template')}): {value}, {trajectory.status}")
        errors = [e.data for e in trajectory.events if e.data["error"] is not None]
        # A task may say how many calls of its shortest way are meant to fail.
        if len(errors) > len(evidence.faults) + int(task.secret.get("errors") or 0):
            found.clean.append(f"{task.id}: {errors[0]['name']}: {errors[0]['content'][:80]}")
    (first, _), (second, _) = runs
    if [e.data["content"] for e in first.events] != [e.data["content"] for e in second.events]:
        found.alike.append(task.id)
    found.answers.append(final_answer(first))


async def _outcome(domain: Domain, trajectory: Trajectory, evidence: Evidence) -> float | None:
    return (await score(trajectory, evidence, domain)).value


def _none(check: str, failures: list[str], good: str) -> Verdict:
    return Verdict(check, not failures, failures[0] if failures else good)


def _leakage(tasks: Sequence[Task]) -> Verdict:
    """No template, and no prompt with its world, is in two splits."""
    homes: dict[str, str] = {}
    for task in tasks:
        split = task.tags.get("split", "")
        prompt = " ".join(message.content for message in task.prompt)
        for what in (f"template {task.tags['template']}", f"prompt {prompt!r} with {task.setup}"):
            if homes.setdefault(what, split) != split:
                return Verdict("leakage", False, f"{what[:120]} is in both {homes[what]} and {split}")
    return Verdict("leakage", True, "train and held-out tasks share no template and no task")


def _cheap_answers(tasks: Sequence[Task], golds: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Answers that take no work: a name for each kind, and one answer for each task."""
    common = [answer for answer, _ in Counter(golds).most_common(3)]
    return [
        ("nothing", ["" for _ in tasks]),
        *[(f"constant {answer[:30]!r}", [answer for _ in tasks]) for answer in common],
        ("another task's answer", [*golds[1:], *golds[:1]]),
        ("the question", [" ".join(m.content for m in task.prompt) for task in tasks]),
        ("everything", [", ".join(facts(task.setup)) for task in tasks]),
    ]


async def _cheap(
    domain: Domain, tasks: Sequence[Task], name: str, answers: Sequence[str], floor: float
) -> Verdict:
    """Gives each task its answer at once. Doing nothing, repeating the question and telling everything must
    solve none; a constant or a random answer may solve a share of `floor`."""
    solved = []
    for task, answer in zip(tasks, answers, strict=True):
        script: OracleScript = say([answer])
        if (await _outcome(domain, *await play(domain, task, script))) != 0.0:
            solved.append(task.id)
    lucky = name.startswith(("constant", "another"))
    share = len(solved) / max(1, len(tasks))
    passed = share <= floor if lucky else not solved
    return Verdict(
        name, passed, f"solves {len(solved)} of {len(tasks)}" + ("" if passed else f": {solved[0]}")
    )
