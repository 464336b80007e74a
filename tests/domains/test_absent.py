"""Domain 8: admission; saying that nothing was found is right only when it is so and was looked up."""

from __future__ import annotations

from burnish.domains.absent import NOTHING, Absent, SearchWorld
from burnish.domains.play import say
from burnish.types import ToolCall
from tests.domains.admission import admit, outcome, told

ROWS = [
    {"id": f"x{i}", "item": "lamp", "buyer": f"Anna{i % 2}", "city": "Oslo", "shelf": "" if i else "k4"}
    for i in range(6)
]
SETUP = {"rows": ROWS, "fields": ["item", "buyer", "city", "shelf"], "shown": ["id", "buyer", "item"]}


async def test_admission() -> None:
    await admit(Absent())


def test_about_half_has_an_answer_in_every_template() -> None:
    absent = Absent()
    for split in ("train", "heldout"):
        tasks = absent.tasks("train" if split == "train" else "heldout", 1, 600)
        for template in absent.templates:
            kin = [t.secret["gold"] is None for t in tasks if t.tags["template"] == template.name]
            assert not kin or 0.35 < sum(kin) / len(kin) < 0.65


async def test_both_answers_need_the_look_ups() -> None:
    absent = Absent()
    for split in ("train", "heldout"):
        for task in absent.tasks("train" if split == "train" else "heldout", 2, 20):
            gold = task.secret["gold"] or NOTHING
            calls = [
                ToolCall(name, {"text" if name == "search" else "id": text})
                for name, text in task.secret["looks"]
            ]
            assert await outcome(absent, task, say([*calls, gold])) == 1.0
            assert await outcome(absent, task, say([*calls[:-1], gold])) == 0.0


async def test_answers() -> None:
    absent = Absent()
    for task in absent.tasks("train", 3, 24):
        gold, row = task.secret["gold"], task.setup["rows"][0]
        spoken = f" {task.prompt[0].content} "
        invented = next(v for v in row.values() if v and v not in spoken and v != gold)
        if gold is None:
            answers = [
                NOTHING,
                "Nothing found.",
                "There is none.",
                "No results",
                invented,
                f"{NOTHING}: {invented}",
            ]
            right = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
        else:
            answers = [gold, f"It is {gold}.", NOTHING, f"{gold}, or {NOTHING}", f"{gold} none", invented]
            right = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
        assert await told(absent, task, *answers) == right


async def test_the_search() -> None:
    world = SearchWorld(SETUP)
    assert (await world.act(ToolCall("search", {"text": "anna0"}))).content.split("\n") == [
        f"id: x{i}, buyer: Anna0, item: lamp" for i in (0, 2, 4)
    ]  # fmt: skip
    assert (await world.act(ToolCall("search", {"text": "lamp"}))).content.endswith("\nmore not shown")
    # Neither a part of a value nor a field that results do not show is found.
    for text in ("Anna", "k4", "Oslo", ""):
        seen = await world.act(ToolCall("search", {"text": text}))
        assert (seen.content, seen.error) == ("0 results", None)
    assert (await world.act(ToolCall("get", {"id": "x1"}))).content.endswith("shelf: -")
    assert (await world.act(ToolCall("get", {"id": "x7"}))).error == "not_found"
    assert (await world.evidence()).state["looked"][-1] == "get x1"
