"""The words that workspace tasks are made of: names of people, things, folders and files.

What this file is: fixed pools of short, common words and seeded draws from them.
What it is not: it holds no task and no answer; every draw comes from the generator that is passed in.

The words are ones that a small tokenizer keeps whole, since a policy pays for every token that it copies.
No two words of a pool contain one another, so that a search for one never finds another.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

THINGS = (
    *("lamp", "river", "stone", "bread", "chair", "wheel", "paper", "garden", "bridge", "window"),
    *("bottle", "candle", "mirror", "basket", "engine", "ladder", "pencil", "button", "carpet", "hammer"),
    *("island", "jacket", "kettle", "lemon", "market", "needle", "orange", "pillow", "rocket", "saddle"),
    *("tunnel", "violin", "wallet", "blanket", "camera", "desert", "forest", "helmet", "planet", "ticket"),
    *("tower", "valley", "temple", "spider", "piano", "tiger", "honey", "cloud", "flame", "grape"),
)
PEOPLE = (
    *("Anna", "Boris", "Clara", "David", "Elena", "Frank", "Grace", "Henry", "Irene", "Jacob"),
    *("Karen", "Louis", "Maria", "Nadia", "Oscar", "Peter", "Rosa", "Simon", "Tara", "Victor"),
)
FOLDERS = ("data", "notes", "docs", "work", "store", "files", "input", "stock", "items", "parts")
STEMS = (
    *("first", "blue", "north", "spring", "small", "monday", "green", "west", "winter", "large", "june"),
    *("black", "south", "summer", "friday", "gold", "april", "silver", "east", "autumn", "white", "red"),
)
PROJECTS = (
    *("atlas", "delta", "falcon", "comet", "harbor", "meadow", "nova", "orbit", "prism", "quartz"),
    *("canyon", "ember", "glacier", "indigo", "jungle", "lagoon", "marble", "oasis", "pepper", "sierra"),
)
STATES = ("full", "empty", "open", "closed", "late", "ready", "broken", "clean", "lost", "sold")


def pick(rng: Random, pool: Sequence[T], count: int) -> list[T]:
    """`count` different items of `pool`, in random order."""
    return rng.sample(list(pool), count)


def code(rng: Random) -> str:
    """A short code that cannot be guessed, such as `k482`."""
    return f"{rng.choice('bcdfghkmnprstv')}{rng.randint(100, 999)}"


def text(lines: Sequence[str]) -> str:
    """Lines as the content of a file, with a newline at the end."""
    return "".join(line + "\n" for line in lines)
