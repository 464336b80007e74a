"""The toolkit: seeded tasks from templates, answers compared in words, scripts driven under the budget."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.domains.play import play, say
from burnish.domains.toolkit import BaseDomain, Drawn, Template, says, words
from burnish.interfaces import Domain, OracleScript
from burnish.rewards.compose import score
from burnish.tools.tool import tool, tools_of
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Status, Task, ToolCall, Trajectory, UsageError


class Echo(World):
    @tool
    def echo(self, text: str) -> str:
        """Say it."""
        self.charge(wall_s=5.0)
        return text


def draw(rng: Random) -> Drawn:
    gold = str(rng.randint(1000, 9999))
    return Drawn(f"Echo {gold}.", {}, {"gold": gold})


class Toy(BaseDomain):
    name, title = "toy", "Toy"
    budget = Budget(turns=4, tool_calls=2, wall_s=12.0)
    tools = tools_of(Echo)
    templates = (
        *(Template(f"t{i}", "train", draw) for i in range(3)),
        Template("h", "heldout", draw),
    )

    async def open(self, task: Task) -> Echo:
        return Echo()

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return float(says(answer, task.secret["gold"]))

    def oracle(self, task: Task) -> OracleScript:
        seen = yield ToolCall("echo", {"text": task.secret["gold"]})
        yield seen.content


def test_tasks_are_deterministic_and_prefix_stable() -> None:
    toy = Toy()
    assert isinstance(toy, Domain)
    tasks = toy.tasks("train", 3, 9)
    assert [t.digest() for t in toy.tasks("train", 3, 4)] == [t.digest() for t in tasks[:4]]
    assert [t.id for t in tasks[:2]] == ["toy/train/s3/0", "toy/train/s3/1"]
    assert tasks[0].prompt[0].content == "Echo 5011."  # the same on every machine
    assert {t.digest() for t in toy.tasks("train", 4, 9)}.isdisjoint(t.digest() for t in tasks)
    for start in (0, 3, 6):
        assert {t.tags["template"] for t in tasks[start : start + 3]} == {"t0", "t1", "t2"}
    assert {t.tags["template"] for t in toy.tasks("heldout", 3, 5)} == {"h"}


def test_a_split_without_templates_is_refused() -> None:
    class Empty(Toy):
        templates = (Template("t", "train", draw),)

    with pytest.raises(UsageError, match="heldout"):
        Empty().tasks("heldout", 0, 1)


async def run(*moves: ToolCall | str) -> tuple[Trajectory, float | None]:
    toy = Toy()
    task = toy.task("train", 0, 0)
    filled = [task.secret["gold"] if move == "gold" else move for move in moves]
    trajectory, evidence = await play(toy, task, say(filled))
    return trajectory, (await score(trajectory, evidence, toy)).value


CALL = ToolCall("echo", {"text": "x"}, "c")


async def test_play_keeps_the_events_and_the_budget() -> None:
    trajectory, value = await run(CALL, "gold")
    assert (trajectory.status, value) == (Status("completed"), 1.0)
    assert trajectory.costs == {
        "turns": 2, "tool_calls": 1, "tool_errors": 0, "timeouts": 0, "wall_s": 5.0,
    }  # fmt: skip
    (event,) = trajectory.events
    assert event.kind == "tool" and event.turn == 0 and event.clock == 5.0
    assert event.data["content"] == "x" and event.data["call_id"] == "c"
    assert [t.message.tool_calls for t in trajectory.turns] == [(CALL,), ()]
    assert (await run("no"))[1] == 0.0
    assert (await run())[1] == 0.0
    trajectory, value = await run(CALL, CALL, CALL, "gold")
    assert (trajectory.status, value) == (Status("truncated", "tool_calls"), 0.0)


async def test_play_ends_on_the_clock_and_on_turns() -> None:
    class Slow(Toy):
        budget = Budget(wall_s=9.0)

    slow = Slow()
    task = slow.task("train", 0, 0)
    trajectory, _ = await play(slow, task, say([CALL, CALL, "x"]))
    assert trajectory.status == Status("truncated", "wall_s")

    class Short(Toy):
        budget = Budget(turns=1)

    trajectory, _ = await play(Short(), Short().task("train", 0, 0), say([CALL, "x"]))
    assert trajectory.status == Status("truncated", "turns")


def test_words() -> None:
    assert words("The owner:  Dana  REYES.") == ("the", "owner", "dana", "reyes")
    assert words("dir/f.txt, 'a-b' (k482)!") == ("dir/f.txt", "a-b", "k482")
    assert words(" .,;: ") == ()


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Dana Reyes", True),
        ("dana reyes.", True),
        ("The owner is Dana Reyes.", True),
        ('"Dana Reyes"', True),
        ("**Dana Reyes**", True),
        ("Dana", False),
        ("Dana Reyesa", False),
        ("Dana Reyes or Omar Diaz", False),
        ("Dana Reyes, Omar Diaz", False),
        ("Dana Reyes, not Omar", False),
        ("It is not Dana Reyes", False),
        ("Dana Reyes or somebody else", False),
        ("Dana Reyes 1 2 3", False),
        ("Dana Reyes " + "and " * 13, False),
        ("", False),
    ],
)
def test_says(answer: str, right: bool) -> None:
    assert says(answer, "Dana Reyes", ["Omar Diaz", "Dana"]) is right


def test_says_numbers() -> None:
    assert says("There are 4 rows.", "4")
    assert not says("There are 14 rows.", "4")
    assert not says("There are 3, 4, 5 rows.", "4")
    assert says("Room 12 has 4 rows.", "4", question="How many rows has room 12?")
    assert not says("anything", "")


@given(st.text(max_size=60), st.sampled_from(["k482", "Oslo", "Dana Reyes"]))
def test_says_needs_the_gold(text: str, gold: str) -> None:
    if says(text, gold):
        assert words(gold)[0] in words(text)
