"""The world: failures as observations, costs on the virtual clock, truncation, frozen evidence, faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from burnish.interfaces import Session
from burnish.tools.faults import Fault, FaultPlan
from burnish.tools.tool import ToolFailure, tool
from burnish.tools.world import World
from burnish.types import InfrastructureError, Observation, ToolCall

ADD = ToolCall("add", {"item": "tea"}, "call_0")


class Store(World):
    max_content = 90

    def __init__(self, plan: FaultPlan | None = None) -> None:
        super().__init__(plan)
        self.items: list[str] = []
        self.released = 0

    @tool
    def add(self, item: str) -> Observation:
        """Add an item."""
        self.items.append(item)
        self.charge(wall_s=1.0)
        return Observation(f"{len(self.items)} items", costs={"wall_s": 0.5, "money": 2.0})

    @tool
    async def fail(self) -> str:
        """Fails."""
        raise ToolFailure("permission", "Not yours.", {"wall_s": 3.0})

    @tool
    def crash(self) -> str:
        """Has a bug."""
        raise KeyError("ours")

    @tool
    def speak(self, count: int) -> str:
        """Long."""
        return "".join(chr(97 + i % 26) for i in range(count))

    @tool
    def wait(self, seconds: int) -> str:
        """Wait."""
        self.charge(wall_s=float(seconds))
        return "waited"

    def state(self) -> Mapping[str, Any]:
        return {"items": list(self.items)}

    async def release(self) -> None:
        self.released += 1


async def test_costs_add_up_and_move_the_clock() -> None:
    world = Store()
    assert isinstance(world, Session)
    seen = await world.act(ADD)
    assert seen == Observation("1 items", None, {"wall_s": 1.5, "money": 2.0}, "call_0")
    seen = await world.act(ToolCall("fail", {}))
    assert (seen.error, seen.content, seen.costs) == ("permission", "Not yours.", {"wall_s": 3.0})
    assert world.clock == 4.5


async def test_a_bug_of_ours_is_not_the_agents_failure() -> None:
    with pytest.raises(InfrastructureError, match="KeyError"):
        await Store().act(ToolCall("crash", {}))


async def test_long_content_says_how_much_was_cut() -> None:
    world = Store()
    assert len((await world.act(ToolCall("speak", {"count": 90}))).content) == 90
    content = (await world.act(ToolCall("speak", {"count": 1000}))).content
    head, note, tail = content.split("\n")
    assert note == "[910 characters cut]"
    assert head == "".join(chr(97 + i % 26) for i in range(60))
    assert len(tail) == 30 and tail[-1] == chr(97 + 999 % 26)


async def test_evidence_is_frozen_and_close_is_idempotent() -> None:
    world = Store()
    await world.act(ADD)
    first = await world.evidence()
    world.items.append("later")
    assert (await world.evidence()) is first and first.state == {"items": ["tea"]}
    with pytest.raises(InfrastructureError, match="ended"):
        await world.act(ADD)
    await world.close()
    await world.close()
    assert world.released == 1


async def play(world: World, *calls: ToolCall) -> list[str | None]:
    return [(await world.act(call)).error for call in calls]


async def test_timeout_hits_its_call_only_and_charges_the_clock() -> None:
    world = Store(FaultPlan((Fault("add", "timeout", 1, wall_s=30.0),)))
    assert await play(world, ADD, ADD, ADD) == [None, "timeout", None]
    assert world.items == ["tea", "tea"] and world.clock == 33.0
    (event,) = (await world.evidence()).faults
    assert event.kind == "fault" and event.clock == 1.5
    assert event.data == {
        "tool": "add", "fault": "timeout", "when": "before", "call_id": "call_0", "wait_s": 0.0,
    }  # fmt: skip


async def test_fault_after_commit_loses_only_the_result() -> None:
    world = Store(FaultPlan((Fault("add", "exception", when="after"),)))
    assert await play(world, ADD) == ["exception"]
    assert world.items == ["tea"] and world.clock == 1.0


async def test_rate_limit_lasts_until_the_clock_says_so() -> None:
    world = Store(FaultPlan((Fault("add", "rate_limit", 0, retry_after=10.0),)))
    first = await world.act(ADD)
    assert (first.error, first.content) == (
        "rate_limit",
        "Error 429: too many requests. Retry after 10 seconds.",
    )
    await world.act(ToolCall("wait", {"seconds": 4}))
    assert (await world.act(ADD)).content.endswith("Retry after 6 seconds.")
    await world.act(ToolCall("wait", {"seconds": 6}))
    assert await play(world, ADD, ADD) == [None, None]


async def test_permission_for_ever_on_matching_arguments_only() -> None:
    world = Store(FaultPlan((Fault("add", "permission", 1, span=None, where={"item": "tea"}),)))
    other = ToolCall("add", {"item": "milk"})
    assert await play(world, ADD, ADD, other, ADD) == [None, "permission", None, "permission"]


async def test_empty_is_no_error_and_malformed_calls_are_not_counted() -> None:
    world = Store(FaultPlan((Fault("add", "empty", 0, message="nothing here"),)))
    assert await play(world, ToolCall("add", {})) == ["malformed"]
    seen = await world.act(ADD)
    assert (seen.error, seen.content) == (None, "nothing here") and world.items == []


def test_plans_are_seeded_and_survive_as_data() -> None:
    plan = FaultPlan.draw(7, ("add", "wait"), 40, 0.3)
    assert plan == FaultPlan.draw(7, ("add", "wait"), 40, 0.3)
    assert plan != FaultPlan.draw(8, ("add", "wait"), 40, 0.3)
    assert FaultPlan.from_data(plan.to_data()) == plan
    # A tool's faults do not depend on which other tools there are.
    assert [f for f in plan.faults if f.tool == "wait"] == list(FaultPlan.draw(7, ("wait",), 40, 0.3).faults)
    assert 10 < len(plan.faults) < 40
    assert {f.kind for f in plan.faults} == {"exception", "timeout", "rate_limit"}
    assert FaultPlan.draw(7, ("add",), 40, 0.0) == FaultPlan()
