"""Domain 5: admission, the walk, and that the first page never has the answer."""

from __future__ import annotations

from burnish.domains.pages import Pages, PagesWorld
from burnish.types import Split, ToolCall
from tests.domains.admission import admit, drawn, told

SPLITS: tuple[Split, Split] = ("train", "heldout")
ROWS = [
    {"item": item, "buyer": "Anna", "shelf": f"k{i}"}
    for i, item in enumerate(("lamp", "chair", "stone", "bread", "wheel"))
]
SETUP = {"rows": ROWS, "fields": ["shelf", "item"], "size": 2}


async def test_admission() -> None:
    await admit(Pages())


async def test_walking() -> None:
    world = PagesWorld(SETUP)
    pages = [(await world.act(ToolCall("page", {"number": n}))).content for n in (1, 2, 3)]
    assert pages == [
        "shelf: k0, item: lamp\nshelf: k1, item: chair\nnext page: 2",
        "shelf: k2, item: stone\nshelf: k3, item: bread\nnext page: 3",
        "shelf: k4, item: wheel\nlast page",
    ]
    for number in (0, 4, -1):
        seen = await world.act(ToolCall("page", {"number": number}))
        assert seen.error == "not_found" and "last is 3" in seen.content


def test_one_row_is_meant_and_it_is_not_on_the_first_page() -> None:
    for split in SPLITS:
        found = []
        for task in Pages().tasks(split, 5, 60):
            by, value = task.secret["row"].split(", ")[0].split(": ")
            (at,) = [i for i, row in enumerate(task.setup["rows"]) if row[by] == value]
            assert f"{by} {value}" in task.prompt[0].content
            found.append(at // task.setup["size"])
        assert set(found) == {1, 2, 3}


async def test_answers() -> None:
    pages = Pages()
    for task in drawn(pages, "name") + drawn(pages, "other-3"):
        gold = task.secret["gold"]
        facts = {v for r in task.setup["rows"] for v in r.values()} - {gold}
        other = next(f for f in sorted(facts) if f not in task.prompt[0].content)
        assert await told(pages, task, gold, f"The answer is {gold}.") == [1.0, 1.0]
        assert await told(pages, task, other, f"{gold} {other}", "") == [0.0] * 3
