"""What a domain is built from: templates, the seeded generator of tasks, and the comparison of answers.

What this file is: `BaseDomain`, whose subclass gives templates, world, verifier and oracle, and then is
a `Domain`; `says`, which compares an answer in words with the gold.
What it is not: it holds no task of its own and no list of domains (`catalogue.py` does).

    class Shop(BaseDomain):
        name, title = "shop", "Find the price"
        budget = Budget(turns=6, tool_calls=5)
        tools = tools_of(ShopWorld)
        templates = (Template("by-name", "train", by_name), Template("by-owner", "heldout", by_owner))

        async def open(self, task): return ShopWorld(task.setup)
        def verify(self, task, answer, evidence, trajectory): return float(says(answer, task.secret["gold"]))
        def oracle(self, task):
            seen = yield ToolCall("find", {"item": task.secret["item"]})
            yield seen.content
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, ClassVar

from burnish.interfaces import OracleScript, Reward, Session
from burnish.rewards.cost import Cost
from burnish.rewards.outcome import Outcome
from burnish.types import Budget, Evidence, Message, Split, Task, Tool, Trajectory, UsageError


@dataclass(frozen=True, slots=True)
class Drawn:
    """The parts of a task that a template draws. `prompt` is the user's message. `setup` builds the world,
    `secret` grades and feeds the oracle; both are JSON data. `tools` and `budget` replace the domain's."""

    prompt: str
    setup: Mapping[str, Any] = field(default_factory=dict)
    secret: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] | None = None
    budget: Budget | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Template:
    """A wording and a structure of task. `draw` takes every choice from the generator that it is given."""

    name: str
    split: Split
    draw: Callable[[Random], Drawn]


def seeded(*purpose: object) -> Random:
    """A generator for a purpose, independent of every other purpose's and the same on every machine."""
    digest = hashlib.sha256("\x1f".join(map(str, ("burnish.domains", *purpose))).encode()).digest()
    return Random(int.from_bytes(digest, "big"))


class BaseDomain(ABC):
    """A `Domain` from templates. A subclass sets the class attributes and the three abstract methods;
    `verify` may be async. `rewards` are the outcome (from `verify`) and the cost, which is recorded only."""

    name: str
    title: str
    budget: ClassVar[Budget]
    tools: ClassVar[tuple[Tool, ...]] = ()
    templates: ClassVar[tuple[Template, ...]]

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """The first `count` tasks of a split and seed. Templates come in shuffled rounds, so that each is
        drawn equally often; task i does not depend on `count`."""
        return [self.task(split, seed, index) for index in range(count)]

    def task(self, split: Split, seed: int, index: int) -> Task:
        """Task `index` of a split and seed. UsageError if the split has no templates."""
        pool = [template for template in self.templates if template.split == split]
        if not pool:
            raise UsageError(f"domain {self.name} has no templates for split {split!r}")
        turn, place = divmod(index, len(pool))
        seeded(self.name, split, seed, "round", turn).shuffle(pool)
        template = pool[place]
        drawn = template.draw(seeded(self.name, split, seed, index))
        return Task(
            id=f"{self.name}/{split}/s{seed}/{index}",
            domain=self.name,
            prompt=(Message("user", drawn.prompt),),
            tools=self.tools if drawn.tools is None else drawn.tools,
            budget=drawn.budget or self.budget,
            setup=drawn.setup,
            secret=drawn.secret,
            tags={"template": template.name, "split": split, **drawn.tags},
        )

    @cached_property
    def rewards(self) -> Sequence[Reward]:
        return (Outcome(self.verify), Cost())

    @abstractmethod
    async def open(self, task: Task) -> Session: ...

    @abstractmethod
    def verify(
        self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory
    ) -> float | Awaitable[float]:
        """How well the task was done, in [0, 1]. `answer` is the stripped final message, never a tool call;
        only completed episodes get here."""

    @abstractmethod
    def oracle(self, task: Task) -> OracleScript:
        """A natural, short solution: calls as a sensible agent makes them, then the answer."""


_WORD = re.compile(r"[^\s,;!?()\[\]{}\"“”*`|<>=]+")
_NEGATIONS = frozenset(("not", "no", "never", "neither", "nor", "or", "isn't", "cannot", "either", "unknown"))
EXTRA_WORDS = 12


def words(text: str) -> tuple[str, ...]:
    """A text as compared: case folded, cut at spaces and punctuation, points and quotes at the ends of words
    removed. `3.50`, `a-b`, `x@y.org` and `dir/f.txt` stay whole."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return tuple(word for raw in _WORD.findall(folded) if (word := raw.strip(".:'’‘-_$#€")))


def says(
    answer: str, gold: str, others: Iterable[str] = (), question: str = "", extra: int = EXTRA_WORDS
) -> bool:
    """Whether an answer says `gold` and nothing else: the gold, or a short sentence around it. False if it
    holds one of the `others` (the wrong candidates), a negation or alternative, a number that is neither
    in the gold nor in the `question`, or more than `extra` words beside the gold."""
    said, wanted = words(answer), words(gold)
    places = _places(said, wanted)
    if not wanted or not places or len(said) > len(wanted) + extra:
        return False
    taken = {i for place in places for i in range(place, place + len(wanted))}
    rest = [word for i, word in enumerate(said) if i not in taken]
    if _NEGATIONS.intersection(rest):
        return False
    known = set(words(question))
    if any(any(c.isdigit() for c in word) and word not in known for word in rest):
        return False
    # A break where the gold stood, so that words on its two sides do not form a candidate together.
    broken = tuple(word if i not in taken else "" for i, word in enumerate(said))
    return not any(_places(broken, words(other)) for other in others if words(other) != wanted)


def _places(text: tuple[str, ...], part: tuple[str, ...]) -> list[int]:
    """Where `part` occurs in `text`, word by word; nowhere if it is empty."""
    if not part:
        return []
    return [i for i in range(len(text) - len(part) + 1) if text[i : i + len(part)] == part]
