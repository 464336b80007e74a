"""Domain 5: admission, the two ways of paging, and that the first page never has the answer."""

from __future__ import annotations

from burnish.domains.pages import Pages, PagesWorld
from burnish.types import ToolCall
from tests.domains.admission import admit, drawn, told

ROWS = [
    {"id": f"x{i}", "item": item, "buyer": "Anna", "shelf": f"k{i}"}
    for i, item in enumerate(("lamp", "chair", "stone", "bread", "wheel"))
]
SETUP = {"rows": ROWS, "fields": ["item", "buyer", "shelf"], "shown": ["id", "item"], "size": 2}


async def test_admission() -> None:
    await admit(Pages())


async def test_by_number() -> None:
    world = PagesWorld({**SETUP, "cursors": []})
    assert [t.name for t in world.tools] == ["page", "get"]
    seen = await world.act(ToolCall("page", {"number": 3}))
    assert seen.content == "x4 | wheel\npage 3 of 3"
    for number in (0, 4, -1):
        seen = await world.act(ToolCall("page", {"number": number}))
        assert seen.error == "not_found" and "last is 3" in seen.content
    assert (await world.act(ToolCall("follow", {"cursor": "start"}))).error == "unknown_tool"
    assert (await world.act(ToolCall("get", {"id": "x4"}))).content == "item: wheel\nbuyer: Anna\nshelf: k4"
    assert (await world.act(ToolCall("get", {"id": "x9"}))).error == "not_found"


async def test_by_cursor() -> None:
    world = PagesWorld({**SETUP, "cursors": ["start", "h1", "h2"]})
    pages = [(await world.act(ToolCall("follow", {"cursor": c}))).content for c in ("start", "h1", "h2")]
    assert pages == [
        "x0 | lamp\nx1 | chair\nnext: h1", "x2 | stone\nx3 | bread\nnext: h2", "x4 | wheel\nlast page",
    ]  # fmt: skip
    assert (await world.act(ToolCall("follow", {"cursor": "h3"}))).error == "not_found"


def test_the_answer_is_not_on_the_first_page() -> None:
    for split in ("train", "heldout"):
        for task in Pages().tasks("train" if split == "train" else "heldout", 5, 60):
            first = task.setup["rows"][: task.setup["size"]]
            assert task.secret["id"] not in [row["id"] for row in first]


def test_filters_single_out_one_row_and_each_alone_does_not() -> None:
    for task in drawn(Pages(), "both", 6) + drawn(Pages(), "both-hidden", 6):
        row = next(r for r in task.setup["rows"] if r["id"] == task.secret["id"])
        named = [f for f in row if f"{row[f]}" in task.prompt[0].content.split(": A page")[0]]
        hits = [r for r in task.setup["rows"] if all(r[f] == row[f] for f in named)]
        assert hits == [row]
        assert all(sum(r[f] == row[f] for r in task.setup["rows"]) > 1 for f in named)


async def test_answers() -> None:
    pages = Pages()
    for task in drawn(pages, "name-of") + drawn(pages, "last-hidden"):
        gold = task.secret["gold"]
        facts = {v for r in task.setup["rows"] for v in r.values()} - {gold}
        other = next(f for f in sorted(facts) if f not in task.prompt[0].content)
        assert await told(pages, task, gold, f"The answer is {gold}.") == [1.0, 1.0]
        assert await told(pages, task, other, f"{gold} {other}", "") == [0.0] * 3
