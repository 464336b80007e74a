"""Domain 8, absent: searches that find nothing in about half of the tasks, where saying so is right.

What this file is: templates in which the answer is there or is missing at a step: no such record, no record
that fits, no related record, or an empty field; and the world that is searched.
What it is not: neither answer can be guessed. A task is solved only by an agent that made the look-ups which
decide it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from burnish.domains.records import Kind, facts, records, states, value
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
        lines = [" | ".join(row[field] for field in self._shown) for row in hits[:MAX_ROWS]]
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
    """What a structure draws. `looks` are the oracle's calls; `needs` are the look-ups that decide the task,
    in groups of which one member is enough; `gold` is None where nothing is to be found."""

    words: Mapping[str, str]
    looks: tuple[tuple[str, str], ...]
    needs: tuple[tuple[str, ...], ...]
    gold: str | None


Rows = list[dict[str, str]]
Structure = Callable[[Random, Kind, Rows, bool], Case]


def _search(*texts: str) -> tuple[str, ...]:
    return tuple(f"search {text.casefold()}" for text in texts)


def by_name(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """the record with a name → a shown field; or no such record."""
    field, row = rng.choice(kind.fields[:2]), rows[0]
    if not there:
        rows.remove(row)
    name = row[kind.name]
    words = {"name": name, "field": field}
    return Case(words, (("search", name),), (_search(name),), row[field] if there else None)


def by_value(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """the record with a value → its name; or no such record."""
    field, row = rng.choice(kind.fields[:2]), rows[0]
    if not there:
        rows.remove(row)
    words = {"field": field, "value": row[field]}
    return Case(words, (("search", row[field]),), (_search(row[field]),), row[kind.name] if there else None)


def both(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """among the records with one value, that with another → its name; or none fits."""
    (one, two), row = rng.sample(kind.fields[:2], 2), rows[0]
    wanted = row[two]
    rows[1][one] = row[one]
    rows[2][two] = wanted
    if not there:
        row[two] = value(rng, two, [r[two] for r in rows])
    words = {"field": one, "value": row[one], "field2": two, "value2": wanted}
    return Case(
        words, (("search", row[one]),), (_search(row[one], wanted),), row[kind.name] if there else None
    )


def id_of_both(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """as `both`, but the id is asked."""
    case = both(rng, kind, rows, there)
    return Case(case.words, case.looks, case.needs, rows[0]["id"] if there else None)


def hidden(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """the record with a name → its id → its hidden field, which no search shows; or an empty field."""
    return _opened(kind, rows, Case({}, (("search", rows[0][kind.name]),), (), None), there, kind.name)


def related(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """the record with a name → its first field → the other record with the same → its name; or no other."""
    link, row, other = kind.fields[0], rows[0], rows[1]
    if there:
        other[link] = row[link]
    words = {"name": row[kind.name], "link": link}
    looks = (("search", row[kind.name]), ("search", row[link]))
    return Case(words, looks, (_search(row[link]),), other[kind.name] if there else None)


def related_shown(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """as `related`, but the other's second field is asked."""
    case = related(rng, kind, rows, there)
    field = kind.fields[1]
    return Case({**case.words, "field": field}, case.looks, case.needs, rows[1][field] if there else None)


def related_hidden(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """as `related`, then the other's record → its hidden field; or no other, or an empty field."""
    missing = not there and rng.random() < 0.5
    case = related(rng, kind, rows, not missing)
    words = {**case.words, "hidden": kind.fields[2]}
    if missing:
        return Case(words, case.looks, case.needs, None)
    return _opened(kind, rows, Case(words, case.looks, case.needs, None), there, None, 1)


def both_hidden(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """as `both`, then the record → its hidden field; or none fits, or an empty field."""
    missing = not there and rng.random() < 0.5
    case = both(rng, kind, rows, not missing)
    words = {**case.words, "hidden": kind.fields[2]}
    if missing:
        return Case(words, case.looks, case.needs, None)
    return _opened(kind, rows, Case(words, case.looks, case.needs, None), there, None)


def value_hidden(rng: Random, kind: Kind, rows: Rows, there: bool) -> Case:
    """the record with a value → its id → its hidden field; or no record, or an empty field."""
    missing = not there and rng.random() < 0.5
    case = by_value(rng, kind, rows, not missing)
    words = {**case.words, "hidden": kind.fields[2]}
    if missing:
        return Case(words, case.looks, case.needs, None)
    return _opened(kind, rows, Case(words, case.looks, case.needs, None), there, None)


def _opened(kind: Kind, rows: Rows, case: Case, there: bool, name: str | None, at: int = 0) -> Case:
    """`case`, then the record of row `at` is read for the field that searches do not show."""
    row, field = rows[at], kind.fields[2]
    words = dict(case.words) if name is None else {"name": row[name], "field": field}
    if not there:
        row[field] = ""
    looks = (*case.looks, ("get", row["id"]))
    return Case(words, looks, (*case.needs, (f"get {row['id']}",)), row[field] or None)


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


def _drawn(structure: Structure, split: Split, wordings: tuple[str, ...], rng: Random) -> Drawn:
    kind = rng.choice(KINDS[split])
    rows = [
        {"id": f"x{number}", **row}
        for number, row in zip(rng.sample(range(100, 999), 6), records(rng, kind, 6), strict=True)
    ]
    case = structure(rng, kind, rows, rng.random() < 0.5)
    rng.shuffle(rows)
    shown = [kind.name, *kind.fields[:2]]
    rng.shuffle(shown)
    nouns = {"one": kind.one, "many": kind.many, "label": kind.name}
    question = rng.choice(wordings).format(**nouns, **case.words)
    secret = {
        "gold": case.gold,
        "looks": [list(x) for x in case.looks],
        "needs": [list(x) for x in case.needs],
    }
    setup = {"rows": rows, "fields": [kind.name, *kind.fields], "shown": ["id", *shown]}
    return Drawn(f"{question} If there is none, answer: {NOTHING}.", setup, secret)


_WORDINGS: tuple[tuple[Structure, Split, tuple[str, ...]], ...] = (
    (by_name, "train", (
        "What is the {field} of the {one} {name}?",
        "Search for the {one} {name} and give its {field}.",
    )),
    (by_value, "train", (
        "Which {one} has the {field} {value}? Give the {label}.",
        "Give the {label} of the {one} with {field} {value}.",
    )),
    (both, "train", (
        "Which {one} with {field} {value} has {field2} {value2}? Give the {label}.",
        "Give the {label} of the {one} with {field} {value} and {field2} {value2}.",
    )),
    (id_of_both, "train", (
        "Is there any {one} with {field} {value} and {field2} {value2}? Give its id.",
        "Give the id of the {one} whose {field} is {value} and whose {field2} is {value2}.",
    )),
    (hidden, "train", (
        "Which {field} does the record of the {one} {name} hold?",
        "Read the record of the {one} {name} and give the {field}.",
    )),
    (related, "train", (
        "Which other {one} has the same {link} as {name}? Give the {label}.",
        "Take the {link} of the {one} {name}. Give the {label} of another {one} with that {link}.",
    )),
    (related_shown, "heldout", (
        "Look for a second {one} that shares its {link} with {name} and tell me its {field}.",
        "Tell me the {field} of the {one}, besides {name}, that has {name}'s {link}.",
    )),
    (related_hidden, "heldout", (
        "A {one} other than {name} may have the same {link}. Tell me the {hidden} in its record.",
        "Look for one more {one} with the {link} of {name}. Its record's {hidden}?",
    )),
    (both_hidden, "heldout", (
        "I want the {hidden} from the record of the {one} with {field2} {value2} and {field} {value}.",
        "Look for {value} together with {value2} and tell me the {hidden} in that record.",
    )),
    (value_hidden, "heldout", (
        "I want the {hidden} from the record of the {one} that has {value} as {field}.",
        "Look for {value} among the {many} and tell me the {hidden} in that record.",
    )),
)  # fmt: skip


class Absent(BaseDomain):
    """Three calls are enough; five are allowed."""

    name = "absent"
    title = "Say so when nothing is found"
    budget = Budget(turns=6, tokens=320, tool_calls=5)
    tools = tools_of(SearchWorld)
    templates = tuple(
        Template(structure.__name__.replace("_", "-"), split, partial(_drawn, structure, split, wordings))
        for structure, split, wordings in _WORDINGS
    )

    async def open(self, task: Task) -> SearchWorld:
        return SearchWorld(task.setup)

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        gold, looked, question = task.secret["gold"], evidence.state["looked"], task.prompt[0].content
        if not all(any(look in looked for look in group) for group in task.secret["needs"]):
            return 0.0
        if gold is None:
            return float(says_nothing(answer, [*facts(task.setup["rows"])], question))
        return float(not _saying(words(answer)) and states(answer, gold, task.setup["rows"], question))

    def oracle(self, task: Task) -> OracleScript:
        for name, text in task.secret["looks"]:
            yield ToolCall(name, {"text" if name == "search" else "id": text})
        yield task.secret["gold"] or NOTHING


def _saying(said: tuple[str, ...]) -> bool:
    return any(said[i : i + len(s)] == s for s in _SAYINGS for i in range(len(said)))


def says_nothing(answer: str, candidates: list[str], question: str) -> bool:
    """Whether an answer says that nothing was found and names no candidate but those of the question."""
    said, asked = words(answer), f" {' '.join(words(question))} "
    text = f" {' '.join(said)} "
    named = [f" {' '.join(words(c))} " for c in candidates if words(c)]
    return _saying(said) and len(said) <= 20 and not any(n in text and n not in asked for n in named)
