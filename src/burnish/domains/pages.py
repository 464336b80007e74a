"""Domain 5, pages: an API that answers in pages, where what is asked is never on the first.

What this file is: templates over a listing that is walked page by page, and the world of it.
What it is not: it has no search, and says nothing of how far to walk but where the next page is.

Three plans, each in two train wordings and a held-out one: from a name to a field, from a value to a name, and
from a value to another field. Held-out templates ask in other words, over other kinds of record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from burnish.domains.records import Kind, kinds, only_one, records, states
from burnish.domains.toolkit import BaseDomain, Drawn, Template
from burnish.interfaces import OracleScript
from burnish.tools.tool import ToolFailure, tool, tools_of
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Split, Task, ToolCall, Trajectory

SIZE, PAGES = 1, 4


class PagesWorld(World):
    """`setup`: `rows` (records), `fields` (what a page shows of each, in order) and `size` (rows on a page)."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        super().__init__()
        self._rows, self._fields, self._size = setup["rows"], setup["fields"], setup["size"]
        self._count = -(-len(self._rows) // self._size)

    @tool
    def page(self, number: int) -> str:
        """Read one page of the list."""
        if not 1 <= number <= self._count:
            raise ToolFailure("not_found", f"There is no page {number}; the last is {self._count}.")
        rows = self._rows[(number - 1) * self._size : number * self._size]
        lines = [", ".join(f"{field}: {row[field]}" for field in self._fields) for row in rows]
        lines.append("last page" if number == self._count else f"next page: {number + 1}")
        return "\n".join(lines)


Ask = tuple[str, str]
"""The field that the row is found by, and the field that is the answer."""
Structure = Callable[[Random, Kind], Ask]


def field_of(rng: Random, kind: Kind) -> Ask:
    """row by name → a field."""
    return kind.name, rng.choice(kind.fields)


def name_of(rng: Random, kind: Kind) -> Ask:
    """row by a field → its name."""
    return rng.choice(kind.fields), kind.name


def field_by_field(rng: Random, kind: Kind) -> Ask:
    """row by a field → another field."""
    by, asked = rng.sample(kind.fields, 2)
    return by, asked


def _drawn(structure: Structure, split: Split, wording: str, rng: Random) -> Drawn:
    """A listing of a few pages, and a row that is not on the first."""
    kind = rng.choice(kinds(split))
    rows = records(rng, kind, PAGES * SIZE)
    at = rng.randrange(SIZE, len(rows))
    by, asked = structure(rng, kind)
    only_one(rng, rows, at, by)
    shown = [by, asked]
    setup = {"rows": [{f: row[f] for f in shown} for row in rows], "fields": shown, "size": SIZE}
    secret = {"gold": rows[at][asked], "row": f"{by}: {rows[at][by]}, {asked}: {rows[at][asked]}"}
    return Drawn(wording.format(asked=asked, by=by, value=rows[at][by]), setup, secret)


_WORDINGS: tuple[tuple[str, Structure, Split, str], ...] = (
    ("field", field_of, "train", "Read the pages until you see {by} {value}. What is the {asked}?"),
    ("field-2", field_of, "train", "Look for {by} {value}, page after page, and give the {asked}."),
    ("name", name_of, "train", "Read the pages until you see {by} {value}. What is the {asked}?"),
    ("name-2", name_of, "train", "Look for {by} {value}, page after page, and give the {asked}."),
    ("other", field_by_field, "train", "Read the pages until you see {by} {value}. What is the {asked}?"),
    ("other-2", field_by_field, "train", "Look for {by} {value}, page after page, and give the {asked}."),
    ("field-3", field_of, "heldout", "Find the {by} {value} in the pages and tell me the {asked}."),
    ("name-3", name_of, "heldout", "One page has {by} {value}. Find it and give the {asked}."),
    ("other-3", field_by_field, "heldout", "Search all pages for {by} {value}. What is the {asked}?"),
)


class Pages(BaseDomain):
    """At most four pages have to be read; five calls are allowed."""

    name = "pages"
    title = "Find a record in a paginated API"
    budget = Budget(turns=6, tokens=256, tool_calls=5)
    tools = tools_of(PagesWorld)
    templates = tuple(
        Template(name, split, partial(_drawn, structure, split, wording))
        for name, structure, split, wording in _WORDINGS
    )

    async def open(self, task: Task) -> PagesWorld:
        return PagesWorld(task.setup)

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return float(states(answer, task.secret["gold"], task.setup["rows"], task.prompt[0].content))

    def oracle(self, task: Task) -> OracleScript:
        number, found = 1, False
        while not found:
            seen = yield ToolCall("page", {"number": number})
            found = task.secret["row"] in seen.content.split("\n")
            number += 1
        yield task.secret["row"]
