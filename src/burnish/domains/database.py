"""Domain 4, database: answer a question from a small SQLite database through a read-only query tool.

What this file is: templates of three plans (select by a value, count, and a second query by what the first
one found), each in two train wordings and held-out ones; the world that runs the SQL.
What it is not: it grades no SQL. Any query that leads to the right answer is right.

Held-out templates ask in other words, over other tables, also for one plain field by another. The questions
name the table and the columns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from burnish.domains.records import CODES, POOLS, Kind, kinds, only_one, records, states, value, values
from burnish.domains.toolkit import BaseDomain, Drawn, Template
from burnish.interfaces import OracleScript
from burnish.tools.tool import ToolFailure, tool, tools_of
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Split, Task, ToolCall, Trajectory

MAX_ROWS = 4
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


Rows = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a structure makes of a table: words for the wording, the queries (`{}` takes the last result), the
    answer, and the tables that it adds."""

    words: Mapping[str, str]
    queries: tuple[str, ...]
    gold: str
    more: Mapping[str, Rows] = field(default_factory=dict)


def value_of(rng: Random, kind: Kind, rows: Rows) -> Plan:
    """the row with a name → its field."""
    asked, row = rng.choice(kind.fields), rows[0]
    return _select(kind, row, asked, kind.name)


def name_of(rng: Random, kind: Kind, rows: Rows) -> Plan:
    """the row with a value → its name."""
    by = rng.choice(kind.fields)
    only_one(rng, rows, 0, by)
    return _select(kind, rows[0], kind.name, by)


def field_by_field(rng: Random, kind: Kind, rows: Rows) -> Plan:
    """the row with a value → another field of it."""
    asked, by = rng.sample(kind.fields, 2)
    only_one(rng, rows, 0, by)
    return _select(kind, rows[0], asked, by)


def _select(kind: Kind, row: Mapping[str, str], asked: str, by: str) -> Plan:
    words = {"asked": asked, "by": by, "value": row[by]}
    query = f"SELECT {asked} FROM {kind.many} WHERE {by} = '{row[by]}'"
    return Plan(words, (query,), row[asked])


def count(rng: Random, kind: Kind, rows: Rows) -> Plan:
    """the rows with a value → how many there are, from two to six of eight."""
    by = rng.choice([f for f in kind.fields if POOLS[f] != CODES])
    shared, number = rows[0][by], rng.randint(2, len(rows) - 2)
    for index, row in enumerate(rows):
        row[by] = shared if index < number else value(rng, by, [shared])
    query = f"SELECT COUNT(*) FROM {kind.many} WHERE {by} = '{shared}'"
    return Plan({"by": by, "value": shared}, (query,), str(number))


def hop(rng: Random, kind: Kind, rows: Rows) -> Plan:
    """the row with a name → its field → the sign of that in a table of signs."""
    via = rng.choice([f for f in kind.fields if POOLS[f] != CODES])
    via_values = list(dict.fromkeys(row[via] for row in rows))
    codes = values(rng, "shelf", len(via_values))
    signs = [{via: v, "sign": code} for v, code in zip(via_values, codes, strict=True)]
    name, seen = rows[0][kind.name], rows[0][via]
    queries = (
        f"SELECT {via} FROM {kind.many} WHERE {kind.name} = '{name}'",
        f"SELECT sign FROM signs WHERE {via} = '{{}}'",
    )
    gold = next(sign["sign"] for sign in signs if sign[via] == seen)
    return Plan({"asked": via, "by": kind.name, "value": name}, queries, gold, {"signs": signs})


Structure = Callable[[Random, Kind, Rows], Plan]


def _drawn(structure: Structure, split: Split, wording: str, rng: Random) -> Drawn:
    kind = rng.choice(kinds(split))
    rows = records(rng, kind, 8)
    plan = structure(rng, kind, rows)
    tables = {name: _table(rng, table) for name, table in {kind.many: rows, **plan.more}.items()}
    secret = {"gold": plan.gold, "queries": list(plan.queries)}
    return Drawn(wording.format(table=kind.many, **plan.words), {"tables": tables}, secret)


def _table(rng: Random, rows: Rows) -> dict[str, Any]:
    """The rows and the columns in random order."""
    columns = rng.sample(list(rows[0]), len(rows[0]))
    order = rng.sample(rows, len(rows))
    return {"columns": columns, "rows": [[row[column] for column in columns] for row in order]}


_WORDINGS: tuple[tuple[str, Structure, Split, str], ...] = (
    ("value", value_of, "train", "What is the {asked} in table {table} where {by} is {value}?"),
    ("name", name_of, "train", "Find the {asked} in table {table} with {by} {value}."),
    ("count", count, "train", "How many rows in table {table} where {by} is {value}?"),
    ("count-2", count, "train", "Count the rows in table {table} with {by} {value}."),
    ("hop", hop, "train",
     "What is the {asked} in table {table} where {by} is {value}? Give the sign in table signs of this {asked}."),
    ("hop-2", hop, "train",
     "Find the {asked} in table {table} with {by} {value}, then the sign in table signs with this {asked}."),
    ("value-3", value_of, "heldout", "Give the {asked} in table {table} whose {by} is {value}."),
    ("field", field_by_field, "heldout", "Look up the {asked} in table {table} that has {by} {value}."),
    ("count-3", count, "heldout", "Tell me how many rows in table {table} have {by} {value}."),
    ("hop-3", hop, "heldout",
     "Look up the {asked} in table {table} with {by} {value} and give the sign in table signs for this {asked}."),
)  # fmt: skip


class Database(BaseDomain):
    """Two queries are enough; four are allowed."""

    name = "database"
    title = "Answer a question from a database"
    budget = Budget(turns=5, tokens=320, tool_calls=4)
    tools = tools_of(DatabaseWorld)
    templates = tuple(
        Template(name, split, partial(_drawn, structure, split, wording))
        for name, structure, split, wording in _WORDINGS
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
