"""Domain 6, faults: an API that times out, limits rates, refuses or breaks, under a tight budget of calls.

What this file is: templates of two dependent look-ups with a seeded script of faults, and the world in which
a rate limit ends by waiting, a timeout by trying again, and a refusal or a broken source only by asking the
other source. A call or two more than needed are allowed, so repeating blindly runs out of budget.
What it is not: nothing here sleeps. `wait` moves the episode's clock, and the clock is limited too.

Faults follow the agent: "first" is the source that it happens to ask first, so that no fixed choice of source
avoids them. Train templates show each kind of fault, at either step; held-out templates combine two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from random import Random
from typing import Any

from burnish.domains.records import states, value, values
from burnish.domains.toolkit import BaseDomain, Drawn, Template
from burnish.interfaces import OracleScript
from burnish.tools.faults import Fault, FaultPlan, FaultState
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
    def get(self, source: str, key: str) -> str:
        """Look up a key in a source."""
        if source not in self._sources:
            raise ToolFailure("not_found", f"There is no source {source[:20]}.")
        if key not in self._records:
            raise ToolFailure("not_found", f"No record {key[:20]}.")
        return ", ".join(f"{field}: {cell}" for field, cell in self._records[key])

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
class Chain:
    """A first kind of record, the field that refers to a second, and the second's two other fields."""

    one: str
    name: str
    link: str
    beside: str
    fields: tuple[str, str]


TRAIN_CHAINS = (
    Chain("order", "item", "buyer", "status", ("city", "desk")),
    Chain("ship", "ship", "port", "cargo", ("chief", "gate")),
    Chain("pet", "animal", "owner", "color", ("town", "shop")),
    Chain("course", "subject", "teacher", "room", ("city", "club")),
    Chain("product", "thing", "shop", "color", ("lead", "town")),
)
HELDOUT_CHAINS = (
    Chain("train", "train", "driver", "gate", ("city", "locker")),
    Chain("player", "person", "club", "color", ("town", "room")),
    Chain("parcel", "item", "station", "status", ("guide", "desk")),
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A script of faults and how many calls the right reactions take, the two look-ups included."""

    faults: tuple[Fault, ...]
    calls: int
    sources: int = 2


def _limit(rng: Random, step: int = 0) -> Fault:
    """A limit on the agent, so that no other source avoids it."""
    return Fault("get", "rate_limit", step, retry_after=float(rng.choice(range(5, 40, 5))))


def _timeout(step: int = 0, source: str = FIRST) -> Fault:
    return Fault("get", "timeout", step, where={"source": source}, wall_s=10.0)


def _refuse(step: int = 0, source: str = FIRST) -> Fault:
    return Fault("get", "permission", step, span=None, where={"source": source})


def _broken(step: int = 0, source: str = FIRST) -> Fault:
    return Fault("get", "exception", step, span=None, where={"source": source})


def calm(rng: Random) -> Trouble:
    return Trouble((), 2, rng.randint(1, 2))


def limit_first(rng: Random) -> Trouble:
    return Trouble((_limit(rng),), 4, 1)


def limit_second(rng: Random) -> Trouble:
    return Trouble((_limit(rng, 1),), 4, 1)


def timeout_once(rng: Random) -> Trouble:
    return Trouble((_timeout(rng.randint(0, 1)),), 3, 1)


def refused(rng: Random) -> Trouble:
    return Trouble((_refuse(),), 3)


def refused_second(rng: Random) -> Trouble:
    return Trouble((_refuse(1),), 3)


def broken(rng: Random) -> Trouble:
    return Trouble((_broken(),), 3)


def broken_second(rng: Random) -> Trouble:
    return Trouble((_broken(1),), 3)


def refused_then_limit(rng: Random) -> Trouble:
    return Trouble((_refuse(), _limit(rng, 1)), 5)


def limit_twice(rng: Random) -> Trouble:
    """The retried call is the source's second, so the limit at its third is on the second look-up."""
    return Trouble((_limit(rng), _limit(rng, 2)), 6, 1)


def timeout_then_broken(rng: Random) -> Trouble:
    return Trouble((_timeout(), _broken(2)), 4)


def broken_then_timeout(rng: Random) -> Trouble:
    return Trouble((_broken(), _timeout(1, OTHER)), 4)


def limit_then_refused(rng: Random) -> Trouble:
    return Trouble((_limit(rng), _refuse(2)), 5)


def _records(rng: Random, chain: Chain) -> tuple[dict[str, list[list[str]]], str, str, str]:
    """Three records of each kind, in two layers; a name, what it refers to, and the asked field."""
    names = values(rng, chain.name, 3)
    links = values(rng, chain.link, 3, names)
    records = {
        name: _shuffled(rng, {chain.link: link, chain.beside: value(rng, chain.beside)})
        for name, link in zip(names, links, strict=True)
    }
    columns = {field: values(rng, field, 3, [*names, *links]) for field in chain.fields}
    for i, link in enumerate(links):
        records[link] = _shuffled(rng, {field: columns[field][i] for field in chain.fields})
    return records, names[0], links[0], rng.choice(chain.fields)


def _shuffled(rng: Random, fields: dict[str, str]) -> list[list[str]]:
    return [list(pair) for pair in rng.sample(list(fields.items()), len(fields))]


SOURCES = (("main", "backup"), ("live", "mirror"), ("north", "south"), ("alpha", "beta"), ("east", "west"))

_TRAIN_WORDINGS = (
    "What is the {field} of the {link} of the {one} {name}?",
    "Take the {link} of the {one} {name} and give its {field}.",
    "Look up the {one} {name}, then its {link}, and give the {field}.",
)
_HELDOUT_WORDINGS = (
    "I need to know the {field}: it belongs to the {link} of {name}, a {one}.",
    "Starting from the {one} {name}, go to the {link} and tell me the {field} there.",
)


def _drawn(trouble: Any, split: Split, rng: Random) -> Drawn:
    plan: Trouble = trouble(rng)
    chain = rng.choice(TRAIN_CHAINS if split == "train" else HELDOUT_CHAINS)
    records, name, link, field = _records(rng, chain)
    pair = rng.choice(SOURCES)
    sources = rng.sample(pair, plan.sources)
    wordings = _TRAIN_WORDINGS if split == "train" else _HELDOUT_WORDINGS
    question = rng.choice(wordings).format(field=field, link=chain.link, one=chain.one, name=name)
    where = f"Sources: {sources[0]} or {sources[1]}." if plan.sources == 2 else f"Source: {sources[0]}."
    setup = {"sources": sources, "records": records, "faults": [asdict(f) for f in plan.faults]}
    secret = {
        "gold": next(v for f, v in records[link] if f == field),
        "keys": [name, link],
        "link": chain.link,
        "field": field,
    }
    calls, needed = plan.calls + 1, sum(f.retry_after + f.wall_s for f in plan.faults)
    budget = Budget(turns=calls + 1, tokens=48 * (calls + 1), tool_calls=calls, wall_s=needed + SLACK)
    return Drawn(f"{question} {where}", setup, secret, budget=budget)


_TROUBLES: tuple[tuple[Any, Split], ...] = (
    (calm, "train"),
    (limit_first, "train"),
    (limit_second, "train"),
    (timeout_once, "train"),
    (refused, "train"),
    (refused_second, "train"),
    (broken, "train"),
    (broken_second, "train"),
    (refused_then_limit, "heldout"),
    (limit_twice, "heldout"),
    (timeout_then_broken, "heldout"),
    (broken_then_timeout, "heldout"),
    (limit_then_refused, "heldout"),
)


class Faults(BaseDomain):
    """Each task allows one call more than its right reactions take."""

    name = "faults"
    title = "React to a failing API"
    budget = Budget(turns=8, tokens=384, tool_calls=7, wall_s=150.0)
    tools = tools_of(FaultyWorld)
    templates = tuple(
        Template(trouble.__name__.replace("_", "-"), split, partial(_drawn, trouble, split))
        for trouble, split in _TROUBLES
    )

    async def open(self, task: Task) -> FaultyWorld:
        return FaultyWorld(task.setup)

    def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        return float(states(answer, task.secret["gold"], task.setup["records"], task.prompt[0].content))

    def oracle(self, task: Task) -> OracleScript:
        sources, secret = list(task.setup["sources"]), task.secret
        fields: dict[str, str] = {}
        for key in secret["keys"]:
            seen = yield ToolCall("get", {"source": sources[0], "key": key})
            while seen.error is not None:
                if seen.error == "rate_limit":
                    yield ToolCall("wait", {"seconds": int(seen.content.split()[-2])})
                elif seen.error != "timeout":
                    sources.reverse()
                seen = yield ToolCall("get", {"source": sources[0], "key": key})
            fields = dict(part.split(": ", 1) for part in seen.content.split(", "))
        yield fields[secret["field"]]
