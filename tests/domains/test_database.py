"""Domain 4: admission, a database that only reads, and answers that are compared strictly."""

from __future__ import annotations

import pytest

from burnish.domains.database import Database, DatabaseWorld
from burnish.types import Observation, ToolCall
from tests.domains.admission import admit, drawn, told

SETUP = {
    "tables": {
        "teams": {"columns": ["id", "name"], "rows": [[i, f"team{i}"] for i in range(1, 8)]},
        "workers": {"columns": ["id", "name", "team_id"], "rows": [[50, "Anna", 3], [51, "Boris", 4]]},
    }
}

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT COUNT(*) FROM c"
SLOW = "SELECT COUNT(*) FROM teams, teams a, teams b, teams c, teams d, teams e, teams f, teams g"


async def ask(sql: str) -> Observation:
    world = DatabaseWorld(SETUP)
    try:
        return await world.act(ToolCall("query", {"sql": sql}))
    finally:
        await world.close()


async def test_admission() -> None:
    await admit(Database())


@pytest.mark.parametrize(
    ("sql", "content"),
    [
        ("SELECT team_id FROM workers WHERE name = 'Anna'", "3"),
        ("SELECT name, id FROM workers ORDER BY id", "Anna | 50\nBoris | 51"),
        ("select name from teams where id = '3';", "team3"),
        ("SELECT name FROM workers WHERE name = 'Zoe'", "0 rows"),
        ("SELECT COUNT(*) FROM teams", "7"),
        ("SELECT t.name FROM teams t JOIN workers w ON w.team_id = t.id WHERE w.name = 'Boris'", "team4"),
        ("SELECT name FROM teams WHERE id IN (SELECT team_id FROM workers WHERE id = 50)", "team3"),
        ("SELECT id FROM teams", "1\n2\n3\n4\nmore rows not shown"),
    ],
)
async def test_reading(sql: str, content: str) -> None:
    seen = await ask(sql)
    assert (seen.content, seen.error) == (content, None)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("DELETE FROM workers", "permission"),
        ("UPDATE workers SET name = 'x'", "permission"),
        ("DROP TABLE teams", "permission"),
        ("PRAGMA table_info(teams)", "permission"),
        ("ATTACH DATABASE '/tmp/x.db' AS x", "permission"),
        ("SELECT load_extension('x')", "permission"),
        ("SELECT hex(randomblob(9))", "permission"),
        (ENDLESS, "permission"),
        (SLOW, "resource"),
        ("SELECT nothing FROM teams", "exception"),
        ("SELEC name FROM teams", "exception"),
        ("SELECT 1; SELECT 2", "exception"),
        ("SELECT '" + "x" * 3000 + "'", "exception"),
        ("SELECT name FROM teams WHERE name = '\x00'", "exception"),
        ("SELECT '\ud800'", "malformed"),
    ],
)  # fmt: skip
async def test_everything_else_is_refused(sql: str, error: str) -> None:
    seen = await ask(sql)
    assert seen.error == error and 0 < len(seen.content) < 160
    assert (await ask("SELECT COUNT(*) FROM workers")).content == "2"


async def test_answers() -> None:
    database = Database()
    for task in drawn(database, "hop"):
        gold, wrong = task.secret["gold"], task.setup["tables"].values()
        facts = [str(cell) for table in wrong for row in table["rows"] for cell in row]
        other = next(f for f in facts if f != gold and f not in task.prompt[0].content)
        right = await told(database, task, gold, f"It is {gold}.", gold.upper())
        assert right == [1.0, 1.0, 1.0]
        assert await told(database, task, f"{gold}, {other}", other, f"not {gold}", "") == [0.0] * 4
