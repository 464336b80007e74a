"""Domain 4, database: answer a question from a small SQLite database through a read-only query tool.

What this file is: templates over pairs of tables (a parent and its children) whose answer takes an id looked
up by name and then a second query by that id; the world that runs the SQL.
What it is not: it grades no SQL. Any query that leads to the right answer is right.

Train templates teach the steps (follow a reference forwards, backwards, to a sibling; filter; highest and
lowest; count); held-out templates chain them otherwise, over other tables, in other words.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from burnish.domains.records import states, value, values
from burnish.domains.toolkit import BaseDomain, Drawn, Template
from burnish.interfaces import OracleScript
from burnish.tools.tool import ToolFailure, tool, tools_of
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Split, Task, ToolCall, Trajectory

MAX_ROWS = 4
MAX_FAMILY = 7
MAX_STEPS = 200_000  # SQLite virtual machine instructions of one query
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}
_FUNCTIONS = {
    "count",
    "max",
    "min",
    "sum",
    "avg",
    "lower",
    "upper",
    "length",
    "like",
    "abs",
    "round",
    "total",
}


class DatabaseWorld(World):
    """`setup["tables"]`: name to `{"columns": [...], "rows": [[...], ...]}`. Strings and integers only, at
    least one row."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        super().__init__()
        self.queries = 0
        self._db = sqlite3.connect(":memory:")
        for name, table in setup["tables"].items():
            columns, first = table["columns"], table["rows"][0]
            types = ["INTEGER" if isinstance(cell, int) else "TEXT" for cell in first]
            typed = ", ".join(f'"{column}" {kind}' for column, kind in zip(columns, types, strict=True))
            self._db.execute(f'CREATE TABLE "{name}" ({typed})')
            marks = ", ".join("?" * len(columns))
            self._db.executemany(f'INSERT INTO "{name}" VALUES ({marks})', table["rows"])
        self._db.commit()
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        self._db.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2_000)
        self._db.set_authorizer(_authorize)
        self._db.set_progress_handler(self._tick, 1_000)
        self._ticks = 0

    def _tick(self) -> int:
        self._ticks += 1
        return int(self._ticks * 1_000 > MAX_STEPS)

    @tool
    def query(self, sql: str) -> str:
        """Run one SQL SELECT."""
        self.queries += 1
        self._ticks = 0
        try:
            cursor = self._db.execute(sql)
            rows = cursor.fetchmany(MAX_ROWS + 1)
        except (sqlite3.DatabaseError, sqlite3.Warning) as error:
            if "interrupted" in str(error):
                raise ToolFailure("resource", "The query takes too long.") from None
            if "prohibited" in str(error) or "not authorized" in str(error):
                raise ToolFailure("permission", "Only SELECT on the tables is allowed.") from None
            raise ToolFailure("exception", f"SQL error: {str(error)[:120]}") from None
        except ValueError:  # text that SQLite cannot take: a null character, half a surrogate pair
            raise ToolFailure("malformed", "The query is not valid text.") from None
        if not rows:
            return "0 rows"
        lines = [" | ".join(str(cell)[:60] for cell in row) for row in rows[:MAX_ROWS]]
        if len(rows) > MAX_ROWS:
            lines.append("more rows not shown")
        return "\n".join(lines)

    def state(self) -> Mapping[str, Any]:
        return {"queries": self.queries}

    async def release(self) -> None:
        self._db.close()


def _authorize(action: int, first: str | None, second: str | None, *rest: str | None) -> int:
    allowed = action in _ALLOWED
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = (second or "").lower() in _FUNCTIONS
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


@dataclass(frozen=True, slots=True)
class Pair:
    """A parent table and its children: table, pool of names and text field of each, the children's number."""

    parent: str
    parents: str
    parent_name: str
    parent_field: str
    child: str
    children: str
    child_name: str
    child_field: str
    number: str


TRAIN_PAIRS = (
    Pair("team", "teams", "team", "room", "worker", "workers", "person", "city", "score"),
    Pair("shop", "shops", "shop", "owner", "product", "products", "thing", "color", "price"),
    Pair("port", "ports", "city", "chief", "crate", "crates", "thing", "status", "weight"),
    Pair("course", "courses", "subject", "room", "pupil", "pupils", "person", "town", "points"),
    Pair("farm", "farms", "farm", "lead", "animal", "animals", "animal", "color", "weight"),
)
HELDOUT_PAIRS = (
    Pair("club", "clubs", "club", "gate", "player", "players", "person", "city", "goals"),
    Pair("hotel", "hotels", "hotel", "chief", "bag", "bags", "thing", "color", "size"),
    Pair("driver", "drivers", "person", "locker", "parcel", "parcels", "item", "town", "weight"),
)


@dataclass(frozen=True, slots=True)
class Data:
    """Two drawn tables. Children of parent 0, the one that most structures are about, come first."""

    pair: Pair
    parents: list[dict[str, Any]]
    children: list[dict[str, Any]]
    family: int

    @property
    def key(self) -> str:
        return f"{self.pair.parent}_id"

    def kin(self) -> list[dict[str, Any]]:
        return self.children[: self.family]


def _draw(rng: Random, pair: Pair, family: int) -> Data:
    """Three or four parents; `family` children of the first, and two or three of each other."""
    count = rng.randint(3, 4)
    sizes = [family] + [rng.randint(2, 3) for _ in range(count - 1)]
    ids = rng.sample(range(11, 99), count + sum(sizes))
    names, infos = values(rng, pair.parent_name, count), values(rng, pair.parent_field, count)
    parents = [{"id": ids[i], "name": names[i], pair.parent_field: infos[i]} for i in range(count)]
    total = sum(sizes)
    owner = [i for i, size in enumerate(sizes) for _ in range(size)]
    labels = values(rng, pair.child_name, total, names)
    infos = [value(rng, pair.child_field) for _ in range(total)]
    # Siblings differ in the text field, so that it tells them apart; cousins may share it.
    infos[:family] = values(rng, pair.child_field, family)
    numbers = rng.sample(range(101, 999), total)
    children = [
        {
            "id": ids[count + i],
            "name": labels[i],
            f"{pair.parent}_id": ids[owner[i]],
            pair.child_field: infos[i],
            pair.number: numbers[i],
        }
        for i in range(total)
    ]
    return Data(pair, parents, children, family)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a structure makes of the data: words for the wording, the queries (`{}` takes the last result),
    and the answer."""

    words: Mapping[str, str]
    queries: tuple[str, ...]
    gold: str


def _id_of_parent(d: Data) -> str:
    return f"SELECT id FROM {d.pair.parents} WHERE name = '{d.parents[0]['name']}'"


def _key_of_child(d: Data, where: str) -> str:
    return f"SELECT {d.key} FROM {d.pair.children} {where}"


def _named(row: Mapping[str, Any]) -> str:
    return f"WHERE name = '{row['name']}'"


def _top(rng: Random, d: Data, rows: list[dict[str, Any]]) -> tuple[dict[str, Any], str, str]:
    """The row with the highest or lowest number, the word for it, and the SQL that finds it."""
    high = rng.random() < 0.5
    row = (max if high else min)(rows, key=lambda r: int(r[d.pair.number]))
    order = f"ORDER BY {d.pair.number}{' DESC' if high else ''} LIMIT 1"
    return row, "highest" if high else "lowest", order


def forward(rng: Random, d: Data) -> Plan:
    """child's name → its parent's id → the parent's field."""
    field = d.pair.parent_field
    ask = f"SELECT {field} FROM {d.pair.parents} WHERE id = {{}}"
    words = {"name": d.children[0]["name"], "field": field}
    return Plan(words, (_key_of_child(d, _named(d.children[0])), ask), d.parents[0][field])


def reverse(rng: Random, d: Data) -> Plan:
    """parent's name → its id → the child with that parent and a given text."""
    field, row = d.pair.child_field, d.children[0]
    ask = f"SELECT name FROM {d.pair.children} WHERE {d.key} = {{}} AND {field} = '{row[field]}'"
    words = {"name": d.parents[0]["name"], "field": field, "value": row[field]}
    return Plan(words, (_id_of_parent(d), ask), row["name"])


def field_of(rng: Random, d: Data) -> Plan:
    """parent's field → its id → the text of the child with a given number."""
    up, down, row = d.pair.parent_field, d.pair.child_field, d.children[0]
    first = f"SELECT id FROM {d.pair.parents} WHERE {up} = '{d.parents[0][up]}'"
    n = row[d.pair.number]
    ask = f"SELECT {down} FROM {d.pair.children} WHERE {d.key} = {{}} AND {d.pair.number} = {n}"
    words = {"field": up, "value": d.parents[0][up], "other": down, "n": str(n)}
    return Plan(words, (first, ask), row[down])


def top(rng: Random, d: Data) -> Plan:
    """parent's name → its id → its child with the highest or lowest number."""
    row, word, order = _top(rng, d, d.kin())
    ask = f"SELECT name FROM {d.pair.children} WHERE {d.key} = {{}} {order}"
    return Plan({"name": d.parents[0]["name"], "most": word}, (_id_of_parent(d), ask), row["name"])


def count(rng: Random, d: Data) -> Plan:
    """parent's name → its id → how many children."""
    ask = f"SELECT COUNT(*) FROM {d.pair.children} WHERE {d.key} = {{}}"
    return Plan({"name": d.parents[0]["name"]}, (_id_of_parent(d), ask), str(d.family))


def sibling(rng: Random, d: Data) -> Plan:
    """child's name → its parent's id → the other child with a given text."""
    field, row = d.pair.child_field, d.children[1]
    ask = f"SELECT name FROM {d.pair.children} WHERE {d.key} = {{}} AND {field} = '{row[field]}'"
    words = {"name": d.children[0]["name"], "field": field, "value": row[field]}
    return Plan(words, (_key_of_child(d, _named(d.children[0])), ask), row["name"])


def number_of(rng: Random, d: Data) -> Plan:
    """parent's name → its id → the number of the child with a given text."""
    field, row = d.pair.child_field, d.children[0]
    ask = f"SELECT {d.pair.number} FROM {d.pair.children} WHERE {d.key} = {{}} AND {field} = '{row[field]}'"
    words = {"name": d.parents[0]["name"], "field": field, "value": row[field]}
    return Plan(words, (_id_of_parent(d), ask), str(row[d.pair.number]))


def top_forward(rng: Random, d: Data) -> Plan:
    """the child with the highest or lowest number of all → its parent's id → the parent's field."""
    row, word, order = _top(rng, d, d.children)
    parent = next(p for p in d.parents if p["id"] == row[d.key])
    ask = f"SELECT {d.pair.parent_field} FROM {d.pair.parents} WHERE id = {{}}"
    words = {"most": word, "field": d.pair.parent_field}
    return Plan(words, (_key_of_child(d, order), ask), parent[d.pair.parent_field])


def sibling_count(rng: Random, d: Data) -> Plan:
    """child's name → its parent's id → how many children."""
    ask = f"SELECT COUNT(*) FROM {d.pair.children} WHERE {d.key} = {{}}"
    return Plan(
        {"name": d.children[0]["name"]}, (_key_of_child(d, _named(d.children[0])), ask), str(d.family)
    )


def sibling_top(rng: Random, d: Data) -> Plan:
    """child's name → its parent's id → the child of that parent with the highest or lowest number."""
    row, word, order = _top(rng, d, d.kin())
    other = next(r for r in d.kin() if r is not row)
    ask = f"SELECT name FROM {d.pair.children} WHERE {d.key} = {{}} {order}"
    words = {"name": other["name"], "most": word}
    return Plan(words, (_key_of_child(d, _named(other)), ask), row["name"])


def field_top(rng: Random, d: Data) -> Plan:
    """parent's field → its id → the text of its child with the highest or lowest number."""
    row, word, order = _top(rng, d, d.kin())
    up, down = d.pair.parent_field, d.pair.child_field
    first = f"SELECT id FROM {d.pair.parents} WHERE {up} = '{d.parents[0][up]}'"
    ask = f"SELECT {down} FROM {d.pair.children} WHERE {d.key} = {{}} {order}"
    words = {"field": up, "value": d.parents[0][up], "other": down, "most": word}
    return Plan(words, (first, ask), row[down])


Structure = Callable[[Random, Data], Plan]


def _drawn(structure: Structure, split: Split, wordings: tuple[str, ...], rng: Random) -> Drawn:
    pair = rng.choice(TRAIN_PAIRS if split == "train" else HELDOUT_PAIRS)
    data = _draw(
        rng, pair, rng.randint(2, MAX_FAMILY) if "count" in structure.__name__ else rng.randint(2, 4)
    )
    plan = structure(rng, data)
    tables = {
        name: _table(rng, rows)
        for name, rows in ((pair.parents, data.parents), (pair.children, data.children))
    }
    schema = ", ".join(f"{name}({', '.join(table['columns'])})" for name, table in tables.items())
    nouns = {"parent": pair.parent, "child": pair.child, "children": pair.children, "number": pair.number}
    question = rng.choice(wordings).format(**nouns, **plan.words)
    secret = {"gold": plan.gold, "queries": list(plan.queries)}
    return Drawn(f"{question} Tables: {schema}.", {"tables": tables}, secret)


def _table(rng: Random, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows in random order, the columns too, but `id` first."""
    columns = [column for column in rows[0] if column != "id"]
    rng.shuffle(columns)
    columns = ["id", *columns]
    order = rng.sample(rows, len(rows))
    return {"columns": columns, "rows": [[row[column] for column in columns] for row in order]}


_WORDINGS: tuple[tuple[Structure, Split, tuple[str, ...]], ...] = (
    (forward, "train", (
        "What is the {field} of the {parent} that {name} belongs to?",
        "{name} is one of the {children}. Which {field} does its {parent} have?",
    )),
    (reverse, "train", (
        "Which {child} of the {parent} {name} has {field} {value}?",
        "Name the {child} with {field} {value} in the {parent} {name}.",
    )),
    (field_of, "train", (
        "A {parent} has {field} {value}. Which {other} does its {child} with {number} {n} have?",
        "Find the {parent} with {field} {value}: what is the {other} of its {child} with {number} {n}?",
    )),
    (top, "train", (
        "Which {child} of the {parent} {name} has the {most} {number}?",
        "In the {parent} {name}, who or what has the {most} {number}?",
    )),
    (count, "train", (
        "How many {children} does the {parent} {name} have?",
        "Count the {children} of the {parent} {name}.",
    )),
    (sibling, "train", (
        "Which {child} is in the same {parent} as {name} and has {field} {value}?",
        "{name} and another {child} share a {parent}. The other one's {field} is {value}. What is its name?",
    )),
    (number_of, "train", (
        "What {number} does the {child} with {field} {value} of the {parent} {name} have?",
        "Give the {number} of the {child} in {parent} {name} whose {field} is {value}.",
    )),
    (top_forward, "heldout", (
        "Take the {child} with the {most} {number} of all. Tell me the {field} of its {parent}.",
        "Of all {children}, one has the {most} {number}. I need its {parent}'s {field}.",
    )),
    (sibling_count, "heldout", (
        "Including {name}, what is the count of {children} in the {parent} of {name}?",
        "Look at the {parent} of {name}: how many {children} are in it?",
    )),
    (sibling_top, "heldout", (
        "Within the {parent} of {name}, tell me the {child} whose {number} is the {most}.",
        "Who has the {most} {number} among the {children} in {name}'s {parent}?",
    )),
    (field_top, "heldout", (
        "In the {parent} whose {field} is {value}, one {child} has the {most} {number}. Tell me its {other}.",
        "One {parent} has {value} as its {field}. Of its {children}, take that with the {most} {number}. "
        "Its {other}?",
    )),
)  # fmt: skip


class Database(BaseDomain):
    """Two queries are enough; four are allowed."""

    name = "database"
    title = "Answer a question from a database"
    budget = Budget(turns=5, tokens=320, tool_calls=4)
    tools = tools_of(DatabaseWorld)
    templates = tuple(
        Template(structure.__name__.replace("_", "-"), split, partial(_drawn, structure, split, wordings))
        for structure, split, wordings in _WORDINGS
    )

    async def open(self, task: Task) -> DatabaseWorld:
        return DatabaseWorld(task.setup)

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return float(states(answer, task.secret["gold"], task.setup, task.prompt[0].content))

    def oracle(self, task: Task) -> OracleScript:
        last = ""
        for sql in task.secret["queries"]:
            seen = yield ToolCall("query", {"sql": sql.format(last)})
            last = seen.content
        yield last
