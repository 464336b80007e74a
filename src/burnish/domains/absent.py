"""Domain 8, absent: searches that find nothing in about half of the tasks, where saying so is right.

What this file is: templates in which the answer is there or is missing: no such record, no record with a
value, or an empty field; and the world that is searched. Each way to look has two train templates and a
held-out one, which asks in other words for other kinds of record.
What it is not: neither answer can be guessed. A task is solved only by an agent that made the look-ups which
decide it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from burnish.domains.records import Kind, facts, records, states
from burnish.domains.toolkit import BaseDomain, Drawn, Template, words
from burnish.interfaces import OracleScript
from burnish.tools.tool import ToolFailure, tool, tools_of
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Split, Task, ToolCall, Trajectory

NOTHING = "nothing found"
_SAYINGS = tuple(map(words, (NOTHING, "none", "not found", "no result", "no results", "nothing")))
MAX_ROWS = 4


class SearchWorld(World):
    """`setup`: `rows` (records with an `id`; an empty string is an empty field), `fields` (what `get` shows,
    in order) and `shown` (what a search result lists)."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        super().__init__()
        self._rows, self._fields, self._shown = setup["rows"], setup["fields"], setup["shown"]
        self.looked: list[str] = []

    @tool
    def search(self, text: str) -> str:
        """Find records with a word."""
        self.looked.append(f"search {text.casefold()}")
        hits = [row for row in self._rows if text.casefold() in (row[f].casefold() for f in self._shown)]
        if not hits:
            return "0 results"
        lines = [", ".join(f"{field}: {row[field]}" for field in self._shown) for row in hits[:MAX_ROWS]]
        return "\n".join(lines + ["more not shown"] * (len(hits) > MAX_ROWS))

    @tool
    def get(self, id: str) -> str:
        """Read one record whole."""
        for row in self._rows:
            if row["id"] == id:
                self.looked.append(f"get {id}")
                return "\n".join(f"{field}: {row[field] or '-'}" for field in self._fields)
        raise ToolFailure("not_found", f"There is no record {id[:20]}.")

    def state(self) -> Mapping[str, Any]:
        return {"looked": list(self.looked)}


@dataclass(frozen=True, slots=True)
class Case:
    """What a structure draws. `looks` are the oracle's calls, each of which is needed to decide the task;
    `asked` is the field of the answer; `gold` is None where nothing is to be found."""

    asked: str
    words: Mapping[str, str]
    looks: tuple[tuple[str, str], ...]
    gold: str | None


Rows = list[dict[str, str]]
Structure = Callable[[Random, Kind, Rows, bool], Case]


def by_name(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """the record with a name → a shown field; or no such record."""
    field, row = rng.choice(kind.fields[:2]), rows[0]
    if not there:
        rows.remove(row)
    name = row[kind.name]
    return Case(field, {"name": name, "field": field}, (("search", name),), row[field] if there else None)


def by_value(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """the record with a value → its name; or no such record."""
    field, row = rng.choice(kind.fields[:2]), rows[0]
    if not there:
        rows.remove(row)
    words = {"label": kind.name, "field": field, "value": row[field]}
    return Case(kind.name, words, (("search", row[field]),), row[kind.name] if there else None)


def hidden(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """the record with a name → its id → its field that no search shows; or that field is empty."""
    field, row = kind.fields[2], rows[0]
    if not there:
        row[field] = ""
    looks = (("search", row[kind.name]), ("get", row["id"]))
    return Case(field, {"name": row[kind.name], "field": field}, looks, row[field] or None)


KINDS: Mapping[Split, tuple[Kind, ...]] = {
    "train": (
        Kind("order", "orders", "item", ("buyer", "city", "shelf")),
        Kind("worker", "workers", "person", ("team", "city", "desk")),
        Kind("pet", "pets", "animal", ("owner", "color", "town")),
        Kind("course", "courses", "subject", ("teacher", "room", "city")),
        Kind("product", "products", "thing", ("shop", "color", "shelf")),
    ),
    "heldout": (
        Kind("parcel", "parcels", "item", ("driver", "station", "locker")),
        Kind("player", "players", "person", ("club", "color", "locker")),
        Kind("train", "trains", "train", ("chief", "station", "gate")),
    ),
}


def _drawn(structure: Structure, split: Split, wording: str, rng: Random) -> Drawn:
    kind = rng.choice(KINDS[split])
    rows = [
        {"id": f"x{number}", **row}
        for number, row in zip(rng.sample(range(100, 999), 4), records(rng, kind, 4), strict=True)
    ]
    case = structure(rng, kind, rows, rng.random() < 0.5)
    rng.shuffle(rows)
    shown = [kind.name, *kind.fields[:2]]
    rng.shuffle(shown)
    secret = {"asked": case.asked, "gold": case.gold, "looks": [list(look) for look in case.looks]}
    setup = {"rows": rows, "fields": [kind.name, *kind.fields], "shown": ["id", *shown]}
    prompt = f"{wording.format(**case.words)} If there is none, answer: {NOTHING}."
    return Drawn(prompt, setup, secret)


_WORDINGS: tuple[tuple[Structure, tuple[str, str, str]], ...] = (
    (by_name, (
        "What is the {field} of {name}?",
        "Give the {field} of {name}.",
        "Tell me the {field} of {name}.",
    )),
    (by_value, (
        "Which {label} has the {field} {value}?",
        "Give the {label} with the {field} {value}.",
        "Tell me the {label} with the {field} {value}.",
    )),
    (hidden, (
        "Search for {name}, get the id and give the {field}.",
        "Find {name}, get the id and tell the {field}.",
        "Search for {name}, get the id and tell me the {field}.",
    )),
)  # fmt: skip
_NUMBERS: tuple[tuple[str, Split], ...] = (("", "train"), ("-2", "train"), ("-3", "heldout"))


class Absent(BaseDomain):
    """Two calls are enough; four are allowed."""

    name = "absent"
    title = "Say so when nothing is found"
    budget = Budget(turns=5, tokens=240, tool_calls=4)
    tools = tools_of(SearchWorld)
    templates = tuple(
        Template(
            f"{structure.__name__.replace('_', '-')}{number}",
            split,
            partial(_drawn, structure, split, wording),
        )
        for structure, wordings in _WORDINGS
        for (number, split), wording in zip(_NUMBERS, wordings, strict=True)
    )

    async def open(self, task: Task) -> SearchWorld:
        return SearchWorld(task.setup)

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        gold, looked, question = task.secret["gold"], evidence.state["looked"], task.prompt[0].content
        if not all(f"{name} {text.casefold()}" in looked for name, text in task.secret["looks"]):
            return 0.0
        if gold is None:
            return float(says_nothing(answer, [*facts(task.setup["rows"])], question))
        return float(not _saying(words(answer)) and states(answer, gold, task.setup["rows"], question))

    def oracle(self, task: Task) -> OracleScript:
        for name, text in task.secret["looks"]:
            yield ToolCall(name, {"text" if name == "search" else "id": text})
        gold = task.secret["gold"]
        yield f"{task.secret['asked']}: {gold}" if gold else NOTHING


def _saying(said: tuple[str, ...]) -> bool:
    return any(said[i : i + len(s)] == s for s in _SAYINGS for i in range(len(said)))


def says_nothing(answer: str, candidates: list[str], question: str) -> bool:
    """Whether an answer says that nothing was found and names no candidate but those of the question."""
    said, asked = words(answer), f" {' '.join(words(question))} "
    text = f" {' '.join(said)} "
    named = [f" {' '.join(words(c))} " for c in candidates if words(c)]
    return _saying(said) and len(said) <= 20 and not any(n in text and n not in asked for n in named)
