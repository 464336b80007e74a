"""Domain 6, faults: an API that times out, limits rates, refuses or breaks, under a tight budget of calls.

What this file is: templates of one look-up whose first call fails in one way, and the world in which a rate
limit ends by waiting, a timeout by trying again, and a refusal or a broken source only by asking the other
source. One call more than needed is allowed, so repeating a refused or limited call runs out of budget.
What it is not: nothing here sleeps. `wait` moves the episode's clock, and the clock is limited too.

Faults follow the agent: "first" is the source that it happens to ask first, so that no fixed choice of source
avoids them. A limit is on the agent, at every source. Each reaction has two train templates and a held-out
one, which asks in other words for other kinds of record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from random import Random
from typing import Any

from burnish.domains.records import kinds, records, states
from burnish.domains.toolkit import BaseDomain, Drawn, Template
from burnish.interfaces import OracleScript
from burnish.tools.faults import Fault, FaultKind, FaultPlan, FaultState
from burnish.tools.tool import ToolFailure, tool, tools_of
from burnish.tools.world import World
from burnish.types import Budget, Evidence, Observation, Split, Task, ToolCall, Trajectory

FIRST, OTHER = "first", "other"
MAX_WAIT = 100.0
SLACK = 20.0  # seconds of the clock beyond those that the right reactions take


class FaultyWorld(World):
    """`setup`: `sources` (one or two names), `records` (key to pairs of field and value; every source has
    them all) and `faults` (a plan whose `where["source"]` is "first" or "other", as they are first asked)."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        super().__init__()
        self._sources: list[str] = list(setup["sources"])
        self._records = setup["records"]
        self._plan = FaultPlan.from_data(setup["faults"])
        self._asked = False

    @tool
    def get(self, key: str, source: str) -> str:
        """Look up a key in a source."""
        if source not in self._sources:
            raise ToolFailure("not_found", f"There is no source {source[:20]}.")
        found = self._records.get(key.strip())
        if found is None:
            raise ToolFailure("not_found", f"No record {key[:20]}.")
        return ", ".join(f"{field}: {cell}" for field, cell in found)

    @tool
    def wait(self, seconds: int) -> str:
        """Wait, no longer than needed."""
        if not 0 <= seconds <= MAX_WAIT:
            raise ToolFailure("malformed", f"seconds must be from 0 to {MAX_WAIT:g}.")
        self.charge(wall_s=float(seconds))
        return f"Waited {seconds} seconds."

    async def act(self, call: ToolCall) -> Observation:
        source = call.arguments.get("source")
        if call.name == "get" and source in self._sources and not self._asked:
            self._asked = True
            rest = [name for name in self._sources if name != source]
            names = {FIRST: source, OTHER: rest[0] if rest else source}
            bound = [replace(f, where={k: names[v] for k, v in f.where.items()}) for f in self._plan.faults]
            self._faults = FaultState(FaultPlan(tuple(bound)))
        return await super().act(call)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault, and how many calls the right reaction takes, the look-up included."""

    fault: Fault
    calls: int


def timeout(rng: Random) -> Trouble:
    """get → times out → the same call again."""
    return Trouble(Fault("get", "timeout", where={"source": FIRST}, wall_s=10.0), 2)


def limit(rng: Random) -> Trouble:
    """get → limited → wait as long as the message says → the same call again."""
    return Trouble(Fault("get", "rate_limit", retry_after=float(rng.choice(range(5, 40, 5)))), 3)


def refused(rng: Random) -> Trouble:
    """get → permission denied, or an internal error that stays → the other source."""
    kind: FaultKind = rng.choice(("permission", "exception"))
    return Trouble(Fault("get", kind, span=None, where={"source": FIRST}), 2)


SOURCES = (("main", "backup"), ("live", "mirror"), ("north", "south"), ("alpha", "beta"), ("east", "west"))


def _drawn(trouble: Callable[[Random], Trouble], split: Split, wording: str, rng: Random) -> Drawn:
    plan = trouble(rng)
    kind = rng.choice(kinds(split))
    shown = rng.sample(kind.fields, 2)
    rows = records(rng, kind, 3)
    sources = rng.sample(rng.choice(SOURCES), 2)
    name, field = rows[0][kind.name], rng.choice(shown)
    setup = {
        "sources": sources,
        "records": {row[kind.name]: [[f, row[f]] for f in shown] for row in rows},
        "faults": [asdict(plan.fault)],
    }
    secret = {"gold": rows[0][field], "key": name, "field": field}
    calls, needed = plan.calls + 1, plan.fault.retry_after + plan.fault.wall_s
    budget = Budget(turns=calls + 1, tokens=48 * (calls + 1), tool_calls=calls, wall_s=needed + SLACK)
    prompt = f"{wording.format(field=field, name=name)} Sources: {sources[0]} or {sources[1]}."
    return Drawn(prompt, setup, secret, budget=budget)


_TROUBLES = (timeout, limit, refused)
_WORDINGS: tuple[tuple[str, Split, str], ...] = (
    ("", "train", "Look up the {field} of {name}."),
    ("-2", "train", "What is the {field} of {name}?"),
    ("-3", "heldout", "Find the {field} of {name}."),
)


class Faults(BaseDomain):
    """Each task allows one call more than its right reactions take."""

    name = "faults"
    title = "React to a failing API"
    budget = Budget(turns=5, tokens=240, tool_calls=4, wall_s=60.0)
    tools = tools_of(FaultyWorld)
    templates = tuple(
        Template(f"{trouble.__name__}{number}", split, partial(_drawn, trouble, split, wording))
        for number, split, wording in _WORDINGS
        for trouble in _TROUBLES
    )

    async def open(self, task: Task) -> FaultyWorld:
        return FaultyWorld(task.setup)

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return float(states(answer, task.secret["gold"], task.setup["records"], task.prompt[0].content))

    def oracle(self, task: Task) -> OracleScript:
        (first, other), key = task.setup["sources"], task.secret["key"]
        seen = yield ToolCall("get", {"key": key, "source": first})
        source = first if seen.error in ("timeout", "rate_limit") else other
        if seen.error == "rate_limit":
            yield ToolCall("wait", {"seconds": int(seen.content.split()[-2])})
        seen = yield ToolCall("get", {"key": key, "source": source})
        yield next(part for part in seen.content.split(", ") if part.startswith(f"{task.secret['field']}: "))
