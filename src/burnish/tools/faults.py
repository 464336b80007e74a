"""Faults of simulated tools: a seeded plan of which call fails, how, and before or after it took effect.

What this file is: the plan, as plain data that a task carries in its setup, and the state of one episode's
faults, which `World` asks at every call. Time is the world's virtual clock.
What it is not: it never sleeps and never draws at random while an episode runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Literal

from burnish.types import ErrorKind, Event, Observation

FaultKind = Literal["exception", "timeout", "rate_limit", "permission", "empty"]

_ERRORS: Mapping[FaultKind, ErrorKind | None] = {
    "exception": "exception",
    "timeout": "timeout",
    "rate_limit": "rate_limit",
    "permission": "permission",
    "empty": None,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Fails calls `call` to `call + span - 1` (0-based; `span` None: for ever) among those calls of `tool`
    whose arguments contain `where`. `when="after"`: the tool takes effect and only its result is lost.
    A `rate_limit` then also fails every matching call until `retry_after` seconds of the virtual clock have
    passed. `wall_s` is charged to the clock. `message` replaces the standard wording."""

    tool: str
    kind: FaultKind
    call: int = 0
    span: int | None = 1
    when: Literal["before", "after"] = "before"
    where: Mapping[str, Any] = field(default_factory=dict)
    retry_after: float = 0.0
    wall_s: float = 0.0
    message: str = ""

    def matches(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        return tool == self.tool and all(k in arguments and arguments[k] == v for k, v in self.where.items())

    def observation(self, wait: float) -> Observation:
        """What the agent sees; `wait` is the number of seconds that a rate limit still lasts."""
        standard = {
            "exception": "Error 500: internal error.",
            "timeout": "Error: the request timed out.",
            "rate_limit": f"Error 429: too many requests. Retry after {wait:g} seconds.",
            "permission": "Error 403: permission denied.",
            "empty": "[]",
        }
        costs = {"wall_s": self.wall_s} if self.wall_s else {}
        return Observation(self.message or standard[self.kind], _ERRORS[self.kind], costs)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The faults of one episode. The first one that matches a call fires."""

    faults: tuple[Fault, ...] = ()

    def to_data(self) -> list[dict[str, Any]]:
        """Plain data, for `Task.setup`."""
        return [asdict(fault) for fault in self.faults]

    @classmethod
    def from_data(cls, data: Sequence[Mapping[str, Any]]) -> FaultPlan:
        return cls(tuple(Fault(**item) for item in data))

    @classmethod
    def draw(
        cls,
        seed: int,
        tools: Sequence[str],
        calls: int,
        rate: float,
        kinds: Sequence[FaultKind] = ("exception", "timeout", "rate_limit"),
    ) -> FaultPlan:
        """Fails each of the first `calls` calls of each tool with probability `rate`, in a kind and phase
        drawn uniformly. The same seed gives the same plan on every machine."""
        faults = []
        for name in tools:
            digest = hashlib.sha256(f"burnish.faults\x1f{name}\x1f{seed}".encode()).digest()
            rng = Random(int.from_bytes(digest, "big"))
            for call in range(calls):
                hit, kind, when = rng.random() < rate, rng.choice(kinds), rng.choice(("before", "after"))
                seconds = float(rng.choice((5, 10, 20, 30)))
                if hit:
                    faults.append(
                        Fault(
                            name,
                            kind,
                            call,
                            when="after"
                            if when == "after" and kind in ("exception", "timeout")
                            else "before",
                            retry_after=seconds if kind == "rate_limit" else 0.0,
                            wall_s=seconds if kind == "timeout" else 0.0,
                        )
                    )
        return cls(tuple(faults))


@dataclass(slots=True)
class FaultState:
    """The faults of one running episode: how often each has been met, and what fired."""

    plan: FaultPlan
    fired: list[Event] = field(default_factory=list)
    _met: dict[int, int] = field(default_factory=dict)
    _until: dict[int, float] = field(default_factory=dict)

    def meet(
        self, tool: str, arguments: Mapping[str, Any], call_id: str, clock: float
    ) -> tuple[Fault, Observation] | None:
        """Counts the call, and gives the fault that fails it and what the agent is to see, if one does."""
        hit: tuple[Fault, float] | None = None
        for index, fault in enumerate(self.plan.faults):
            if not fault.matches(tool, arguments):
                continue
            seen = self._met.get(index, 0)
            self._met[index] = seen + 1
            due = seen >= fault.call and (fault.span is None or seen < fault.call + fault.span)
            if due and fault.kind == "rate_limit" and index not in self._until:
                self._until[index] = clock + fault.retry_after
            wait = self._until.get(index, clock) - clock
            if hit is None and (wait > 0 if fault.kind == "rate_limit" else due):
                hit = (fault, wait)
        if hit is None:
            return None
        fault, wait = hit
        data = {"tool": tool, "fault": fault.kind, "when": fault.when, "call_id": call_id, "wait_s": wait}
        # A world does not know of turns; the call's id ties this event to its `tool` event.
        self.fired.append(Event("fault", -1, data, clock))
        return fault, fault.observation(wait)
