"""The records that simulated services hold: kinds of thing, their fields, and seeded draws of them.

What this file is: pools of values by field, record kinds for train and held-out templates, and the comparison
of an answer with a field's value against everything else that the world holds.
What it is not: it is no service and holds no task.

No value of one pool is in another, so that an answer that copies the wrong field is seen to be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from burnish.domains.lexicon import PEOPLE, PROJECTS, THINGS, code, pick
from burnish.domains.toolkit import says, words

PLACES = (
    *("Oslo", "Paris", "Rome", "Berlin", "Madrid", "Lisbon", "Vienna", "Dublin", "Athens", "Cairo"),
    *("Lima", "Delhi", "Tokyo", "Boston", "Dallas", "Denver", "Austin", "London", "Milan", "Geneva"),
)
COLORS = ("red", "blue", "green", "black", "white", "brown", "pink", "gray", "gold", "silver")
STATUSES = ("paid", "sent", "late", "held", "packed", "closed", "new", "lost")
ANIMALS = (
    *("horse", "rabbit", "eagle", "turtle", "goat", "sheep", "wolf", "fox", "bear", "lion"),
    *("mouse", "duck", "otter", "camel", "zebra", "snake"),
)
SUBJECTS = (
    *("music", "history", "physics", "drawing", "dance", "chess", "French", "poetry", "biology", "sports"),
    *("Spanish", "English", "cooking", "painting"),
)
VESSELS = (
    *("Swan", "Pearl", "Dawn", "Storm", "Raven", "Phoenix", "Titan", "Viking", "Mercury", "Victory"),
    *("Liberty", "Pioneer", "Spirit", "Sunrise", "Crown", "Star"),
)
CODES = "codes"
POOLS: Mapping[str, Sequence[str] | str] = {
    **dict.fromkeys(("person", "owner", "lead", "chief", "guide", "driver", "buyer", "teacher"), PEOPLE),
    **dict.fromkeys(("city", "port", "town", "station"), PLACES),
    **dict.fromkeys(("thing", "item", "cargo", "prize"), THINGS),
    **dict.fromkeys(("team", "shop", "club", "firm", "farm"), PROJECTS),
    **dict.fromkeys(("ship", "train", "hotel"), VESSELS),
    **dict.fromkeys(("room", "gate", "shelf", "desk", "dock", "locker"), CODES),
    **dict.fromkeys(("animal",), ANIMALS),
    **dict.fromkeys(("subject",), SUBJECTS),
    **dict.fromkeys(("color",), COLORS),
    **dict.fromkeys(("status",), STATUSES),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record. `name` is the field that it is called by; the fields share no pool."""

    one: str
    many: str
    name: str
    fields: tuple[str, ...]


TRAIN_KINDS = (
    Kind("worker", "workers", "person", ("team", "city", "desk")),
    Kind("order", "orders", "item", ("buyer", "status", "shelf")),
    Kind("ship", "ships", "ship", ("port", "cargo", "dock")),
    Kind("pet", "pets", "animal", ("owner", "color", "town")),
    Kind("course", "courses", "subject", ("teacher", "room", "city")),
    Kind("product", "products", "thing", ("color", "shop", "shelf")),
)
HELDOUT_KINDS = (
    Kind("train", "trains", "train", ("driver", "station", "gate")),
    Kind("player", "players", "person", ("club", "locker", "color")),
    Kind("parcel", "parcels", "item", ("town", "driver", "status")),
    Kind("hotel", "hotels", "hotel", ("chief", "city", "color")),
)


def kinds(split: str) -> tuple[Kind, ...]:
    return TRAIN_KINDS if split == "train" else HELDOUT_KINDS


def values(rng: Random, field: str, count: int, without: Iterable[str] = ()) -> list[str]:
    """`count` different values of a field."""
    pool = POOLS[field]
    if isinstance(pool, str):
        drawn: dict[str, None] = {}
        while len(drawn) < count:
            drawn.setdefault(code(rng))
        return list(drawn)
    kept = set(without)
    return pick(rng, [value for value in pool if value not in kept], count)


def value(rng: Random, field: str, without: Iterable[str] = ()) -> str:
    return values(rng, field, 1, without)[0]


def records(rng: Random, kind: Kind, count: int) -> list[dict[str, str]]:
    """`count` records with different names. Other values may repeat, except codes."""
    columns = {kind.name: values(rng, kind.name, count)}
    for field in kind.fields:
        pool = POOLS[field]
        short = not isinstance(pool, str) and len(pool) < count + 3
        columns[field] = [value(rng, field) for _ in range(count)] if short else values(rng, field, count)
    return [{field: column[i] for field, column in columns.items()} for i in range(count)]


def only_one(rng: Random, rows: list[dict[str, str]], at: int, field: str) -> None:
    """Makes row `at` the only one with its value of `field`."""
    for index, row in enumerate(rows):
        if index != at and row[field] == rows[at][field]:
            row[field] = value(rng, field, [rows[at][field]])


def facts(data: Any) -> list[str]:
    """Every string and number anywhere in plain data, in order, each once: the candidates for an answer."""
    found: dict[str, None] = {}

    def walk(node: Any) -> None:
        if isinstance(node, Mapping):
            for item in node.values():
                walk(item)
        elif isinstance(node, (list, tuple)):
            for item in node:
                walk(item)
        elif isinstance(node, (str, int)) and not isinstance(node, bool):
            found.setdefault(str(node))

    walk(data)
    return list(found)


def states(answer: str, gold: str, world: Any, question: str) -> bool:
    """Whether an answer gives `gold` and no other value of the world, but those that the question names."""
    asked, wanted = f" {' '.join(words(question))} ", words(gold)
    others = [fact for fact in facts(world) if f" {' '.join(words(fact))} " not in asked]
    return says(answer, gold, [other for other in others if words(other) != wanted], question)
