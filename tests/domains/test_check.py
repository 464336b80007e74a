"""The admission checks: each finds the flaw that it is there for, and only that."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from burnish.domains.check import Verdict, check_domain
from burnish.domains.toolkit import BaseDomain, Drawn, Template, says
from burnish.interfaces import OracleScript
from burnish.tools.tool import ToolFailure, tool, tools_of
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Task, ToolCall, Trajectory

opened = [0]


class Vault(World):
    def __init__(self, gold: str) -> None:
        super().__init__()
        self.gold = gold
        opened[0] += 1
        self.number = opened[0]

    @tool
    def look(self) -> str:
        """Look."""
        return self.gold

    @tool
    def number_of(self) -> str:
        """Differs between instances."""
        return str(self.number)

    @tool
    def locked(self) -> str:
        """Fails."""
        raise ToolFailure("permission", "Locked.")


def code(rng: Random) -> Drawn:
    gold = f"k{rng.randint(1000, 9999)}"
    setup = {"gold": gold, "other": f"x{rng.randint(1000, 9999)}"}
    return Drawn(f"Which code? Case {rng.randint(0, 10**6)}.", setup, {"gold": gold})


def yes(rng: Random) -> Drawn:
    return Drawn(f"Yes or no? Case {rng.random()}.", {"gold": "yes", "other": "x1"}, {"gold": "yes"})


class Good(BaseDomain):
    name, title = "good", "Good"
    budget = Budget(turns=4, tool_calls=3)
    tools = tools_of(Vault)
    templates: tuple[Template, ...] = (Template("a", "train", code), Template("b", "heldout", code))

    async def open(self, task: Task) -> Vault:
        return Vault(task.setup["gold"])

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return float(says(answer, task.secret["gold"]))

    def oracle(self, task: Task) -> OracleScript:
        seen = yield ToolCall("look", {})
        yield seen.content


class WrongOracle(Good):
    def oracle(self, task: Task) -> OracleScript:
        yield "k1"


class Clumsy(Good):
    def oracle(self, task: Task) -> OracleScript:
        yield ToolCall("locked", {})
        yield from super().oracle(task)


class Fickle(Good):
    def oracle(self, task: Task) -> OracleScript:
        yield ToolCall("number_of", {})
        yield from super().oracle(task)


class Generous(Good):
    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return 1.0


class Containing(Good):
    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return float(task.secret["gold"] in answer)


class Guessable(Good):
    templates = (
        Template("a", "train", yes),
        Template("b", "heldout", code),
    )


class Leaking(Good):
    templates = (Template("a", "train", code), Template("a", "heldout", code))


async def verdicts(domain: BaseDomain) -> Sequence[Verdict]:
    return await check_domain(domain, [*domain.tasks("train", 0, 8), *domain.tasks("heldout", 0, 8)])


@pytest.mark.parametrize(
    ("domain", "failed"),
    [
        (Good(), []),
        (WrongOracle(), ["oracle"]),
        (Clumsy(), ["clean"]),
        (Fickle(), ["repeatable"]),
        (Containing(), ["everything"]),
        (Guessable(), ["constant 'yes'"]),
        (Leaking(), ["leakage"]),
    ],
)
async def test_each_flaw_is_found(domain: BaseDomain, failed: list[str]) -> None:
    found = [v for v in await verdicts(domain) if not v.passed]
    # A guessable answer is right for the neighbour's task too.
    assert [v.check for v in found if v.check != "another task's answer"] == failed
    assert all(v.reason for v in found)


async def test_a_verifier_that_accepts_all_fails_every_cheap_answer() -> None:
    failed = {v.check for v in await verdicts(Generous()) if not v.passed}
    assert {"nothing", "another task's answer", "the question", "everything"} <= failed


def clumsy(rng: Random) -> Drawn:
    drawn = code(rng)
    return Drawn(drawn.prompt, drawn.setup, {**drawn.secret, "errors": 1})


async def test_expected_errors_are_declared() -> None:
    class Declared(Clumsy):
        templates = (Template("a", "train", clumsy), Template("b", "heldout", clumsy))

    assert all(v.passed for v in await verdicts(Declared()))
