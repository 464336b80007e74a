"""Domain 5, pages: an API that answers in pages, where what is asked is never on the first.

What this file is: templates over a listing that is walked by page number or by cursor, and the world of it.
What it is not: it has no search. What a row does not show has to be fetched by the row's id.

Train templates teach walking on, matching one field or two, the row after a row, the last row, and fetching
the rest of a record; held-out templates chain them otherwise, over other kinds of record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from burnish.domains.records import Kind, kinds, records, states, value, values
from burnish.domains.toolkit import BaseDomain, Drawn, Template
from burnish.interfaces import OracleScript
from burnish.tools.tool import ToolFailure, tool, tools_of
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Split, Task, ToolCall, Trajectory


class PagesWorld(World):
    """`setup`: `rows` (records with an `id`), `fields` (what `get` shows, in order), `shown` (what a page
    lists), `size` (rows on a page) and `cursors` (one for each page, or empty for page numbers)."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        super().__init__(only=_tool_names(bool(setup["cursors"])))
        self._rows, self._fields, self._shown = setup["rows"], setup["fields"], setup["shown"]
        self._size, self._cursors = setup["size"], setup["cursors"]
        self._count = -(-len(self._rows) // self._size)

    @tool
    def page(self, number: int) -> str:
        """Read one page of the list, from 1."""
        if not 1 <= number <= self._count:
            raise ToolFailure("not_found", f"There is no page {number}; the last is {self._count}.")
        return f"{self._listing(number - 1)}\npage {number} of {self._count}"

    @tool
    def follow(self, cursor: str) -> str:
        """Read the page at a cursor; the first is "start"."""
        if cursor not in self._cursors:
            raise ToolFailure("not_found", "There is no such cursor.")
        index = self._cursors.index(cursor)
        last = index + 1 == self._count
        return f"{self._listing(index)}\n" + ("last page" if last else f"next: {self._cursors[index + 1]}")

    @tool
    def get(self, id: str) -> str:
        """Read one record whole."""
        for row in self._rows:
            if row["id"] == id:
                return "\n".join(f"{field}: {row[field]}" for field in self._fields)
        raise ToolFailure("not_found", f"There is no record {id[:20]}.")

    def _listing(self, index: int) -> str:
        rows = self._rows[index * self._size : (index + 1) * self._size]
        return "\n".join(" | ".join(row[field] for field in self._shown) for row in rows)


def _tool_names(by_cursor: bool) -> tuple[str, str]:
    return ("follow" if by_cursor else "page", "get")


def _listed(rng: Random, kind: Kind) -> tuple[dict[str, Any], int]:
    """A drawn listing of three or four pages, and the index of a row beyond the first page. Of the kind's
    fields, pages show all but the last one in random order."""
    size, pages = rng.randint(2, 3), rng.randint(3, 4)
    rows = records(rng, kind, size * (pages - 1) + rng.randint(1, size))
    # An id is taken from other letters than the codes of fields are.
    numbers = rng.sample(range(100, 999), len(rows))
    rows = [{"id": f"x{n}", **row} for n, row in zip(numbers, rows, strict=True)]
    shown = [kind.name, *kind.fields[:-1]]
    rng.shuffle(shown)
    cursors = ["start", *values(rng, "gate", pages - 1)] if rng.random() < 0.5 else []
    setup = {
        "rows": rows,
        "fields": [kind.name, *kind.fields],
        "shown": ["id", *shown],
        "size": size,
        "cursors": cursors,
    }
    return setup, rng.randrange(size, len(rows))


def _only_one(rng: Random, rows: list[dict[str, str]], at: int, field: str) -> None:
    """Makes row `at` the only one with its value of `field`."""
    for index, row in enumerate(rows):
        if index != at and row[field] == rows[at][field]:
            row[field] = value(rng, field, [rows[at][field]])


def _hidden(kind: Kind) -> str:
    return kind.fields[-1]


Ask = tuple[dict[str, str], int, str]
"""Words for the wording, the index of the row that has the answer, and the field that is the answer."""
Structure = Callable[[Random, Kind, dict[str, Any], int], Ask]


def shown_field(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by name → a field that the page shows."""
    field = rng.choice(kind.fields[:-1])
    return {"name": setup["rows"][at][kind.name], "field": field}, at, field


def id_of(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by a shown field → its id."""
    field = rng.choice(kind.fields[:-1])
    _only_one(rng, setup["rows"], at, field)
    return {"field": field, "value": setup["rows"][at][field]}, at, "id"


def name_of(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by a shown field → its name."""
    return id_of(rng, kind, setup, at)[0], at, kind.name


def hidden_field(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by name → its id → the record → a field that pages do not show."""
    return {"name": setup["rows"][at][kind.name], "field": _hidden(kind)}, at, _hidden(kind)


def both(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by two shown fields, each of which an earlier row shares → its name."""
    rows, (one, two) = setup["rows"], kind.fields[:2]
    other, another = rng.sample([i for i in range(len(rows)) if i != at], 2)
    for index, row in enumerate(rows):
        if index != at and row[one] == rows[at][one]:
            row[one] = value(rng, one, [rows[at][one]])
    rows[other][one], rows[another][two] = rows[at][one], rows[at][two]
    if rows[other][two] == rows[at][two]:
        rows[other][two] = value(rng, two, [rows[at][two]])
    words = {"field": one, "value": rows[at][one], "field2": two, "value2": rows[at][two]}
    return words, at, kind.name


def after(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by name → the next row, maybe on the next page → its name."""
    return {"name": setup["rows"][at - 1][kind.name]}, at, kind.name


def last(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """the last row of the last page → its name."""
    return {}, len(setup["rows"]) - 1, kind.name


def last_hidden(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """the last row of the last page → its id → the record → a field that pages do not show."""
    return {"field": _hidden(kind)}, len(setup["rows"]) - 1, _hidden(kind)


def after_hidden(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by name → the next row → its id → the record → a field that pages do not show."""
    return {"name": setup["rows"][at - 1][kind.name], "field": _hidden(kind)}, at, _hidden(kind)


def both_hidden(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by two shown fields → its id → the record → a field that pages do not show."""
    words, at, _ = both(rng, kind, setup, at)
    return {**words, "hidden": _hidden(kind)}, at, _hidden(kind)


def value_hidden(rng: Random, kind: Kind, setup: dict[str, Any], at: int) -> Ask:
    """row by a shown field → its id → the record → a field that pages do not show."""
    words, at, _ = id_of(rng, kind, setup, at)
    return {**words, "hidden": _hidden(kind)}, at, _hidden(kind)


def _drawn(structure: Structure, split: Split, wordings: tuple[str, ...], rng: Random) -> Drawn:
    kind = rng.choice(kinds(split))
    setup, at = _listed(rng, kind)
    words, at, field = structure(rng, kind, setup, at)
    nouns = {"one": kind.one, "many": kind.many, "label": kind.name}
    question = rng.choice(wordings).format(**nouns, **words)
    columns = ", ".join(setup["shown"])
    row = setup["rows"][at]
    secret = {
        "gold": row[field],
        "id": row["id"],
        "get": field in kind.fields[-1:],
        "last": "last" in structure.__name__,
    }
    names = _tool_names(bool(setup["cursors"]))
    tools = tuple(t for t in tools_of(PagesWorld) if t.name in names)
    return Drawn(f"{question} A page lists {columns}.", setup, secret, tools)


_WORDINGS: tuple[tuple[Structure, Split, tuple[str, ...]], ...] = (
    (shown_field, "train", (
        "What is the {field} of the {one} {name}?",
        "Look through the {many} for {name} and give its {field}.",
    )),
    (id_of, "train", (
        "Give the id of the {one} with {field} {value}.",
        "Which id does the {one} have whose {field} is {value}?",
    )),
    (name_of, "train", (
        "Which {one} has {field} {value}? Give the {label}.",
        "Name the {label} of the {one} with {field} {value}.",
    )),
    (hidden_field, "train", (
        "What is the {field} of the {one} {name}? Only its record tells.",
        "Find the {one} {name}, read its record and give the {field}.",
    )),
    (both, "train", (
        "Which {one} has {field} {value} and {field2} {value2}? Give the {label}.",
        "Give the {label} of the {one} with {field2} {value2} and {field} {value}.",
    )),
    (after, "train", (
        "Which {one} comes right after {name} in the list? Give the {label}.",
        "Give the {label} in the row after {name}.",
    )),
    (last, "train", (
        "Which {one} is the very last in the list? Give the {label}.",
        "Give the {label} in the last row of the last page.",
    )),
    (last_hidden, "heldout", (
        "Go to the end of the {many}. What {field} does the record of the final one show?",
        "I need the {field} from the record of the {one} that ends the list.",
    )),
    (after_hidden, "heldout", (
        "One row below {name} stands another {one}. Open its record and tell me the {field}.",
        "Tell me the {field} in the record of the {one} that follows {name}.",
    )),
    (both_hidden, "heldout", (
        "Of all {many}, one is listed with {value} and {value2}. What {hidden} is in its record?",
        "Search for {field2} {value2} together with {field} {value}; its record's {hidden}, please.",
    )),
    (value_hidden, "heldout", (
        "Somewhere {value} is listed as {field}. Open that {one}'s record and tell me the {hidden}.",
        "I want the {hidden} from the record of the {one} that is listed with {value}.",
    )),
)  # fmt: skip


class Pages(BaseDomain):
    """At most four pages and one record have to be read; six calls are allowed."""

    name = "pages"
    title = "Find a record in a paginated API"
    budget = Budget(turns=7, tokens=320, tool_calls=6)
    tools = tools_of(PagesWorld)
    templates = tuple(
        Template(structure.__name__.replace("_", "-"), split, partial(_drawn, structure, split, wordings))
        for structure, split, wordings in _WORDINGS
    )

    async def open(self, task: Task) -> PagesWorld:
        return PagesWorld(task.setup)

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return float(states(answer, task.secret["gold"], task.setup["rows"], task.prompt[0].content))

    def oracle(self, task: Task) -> OracleScript:
        secret, by_cursor = task.secret, task.setup["cursors"]
        at: int | str = "start" if by_cursor else 1
        while True:
            seen = yield ToolCall("follow", {"cursor": at}) if by_cursor else ToolCall("page", {"number": at})
            if f"{secret['id']} |" in seen.content:
                break
            end = seen.content.rsplit(" ", 1)[1]
            jump = int(end) if secret["last"] and not by_cursor else at
            at = end if isinstance(at, str) else jump if jump != at else at + 1
        if secret["get"]:
            yield ToolCall("get", {"id": secret["id"]})
        yield secret["gold"]
