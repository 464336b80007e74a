"""The agent loop: every way in which an episode ends, and what the model is shown on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from burnish.agent.loop import run_episode
from burnish.agent.policy import ContextFull
from burnish.types import Budget, InfrastructureError, Message, Observation, Status, ToolCall, Trajectory

from .scripted import LOOK, Scripted, World, call, task, tool_events

DONE = Message("assistant", "done")


async def episode(
    moves: list[Any], answers: list[Any] | None = None, budget: Budget | None = None, **options: Any
) -> tuple[Trajectory, Scripted, World]:
    policy, world = Scripted(moves, **options), World(answers or [Observation("a wall")] * 20)
    made = await run_episode(policy, world, task(budget=budget), id="e", lineage={"seed": 3})
    return made, policy, world


async def test_an_answer_completes_it() -> None:
    made, policy, world = await episode([call("door"), call("window"), DONE])
    assert made.status == Status("completed")
    assert [c.arguments["at"] for c in world.acted] == ["door", "window"]
    assert policy.heard[0] == task().prompt
    assert policy.heard[1:] == [(Message("tool", "a wall", tool_call_id="call_0"),)] * 2
    assert made.tail_ids == ()
    assert made.lineage == {"seed": 3} and made.score is None
    assert made.costs == {
        "turns": 3, "tokens": 9, "tool_calls": 2, "tool_errors": 0, "timeouts": 0, "wall_s": 0.0, "money": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "reason", "turns", "acted"),
    [
        (Budget(turns=2), "turns", 2, 2),
        (Budget(tokens=7), "tokens", 3, 3),
        (Budget(tool_calls=1), "tool_calls", 2, 1),
        (Budget(wall_s=2.5), "wall_s", 3, 3),
        (Budget(money=0.3), "money", 2, 2),
    ],
    ids=lambda value: str(value),
)
async def test_every_budget_truncates_and_leaves_its_state(
    budget: Budget, reason: str, turns: int, acted: int
) -> None:
    seen = Observation("a wall", costs={"wall_s": 1.0, "money": 0.2})
    made, _, world = await episode([call()] * 9, [seen] * 9, budget)
    assert made.status == Status("truncated", reason)
    assert (len(made.turns), len(world.acted)) == (turns, acted)
    if reason == "tool_calls":
        assert made.tail_ids == ()  # nothing was observed after the last turn
    else:
        assert made.tail_ids == (len("a wall"),)


@pytest.mark.parametrize(("stop", "reason"), [("length", "turn_tokens"), ("cancelled", "cancelled")])
async def test_a_turn_that_was_cut_off_runs_no_tool(stop: Any, reason: str) -> None:
    made, _, world = await episode([call(), (call(), stop)])
    assert made.status == Status("truncated", reason)
    assert len(world.acted) == 1 and len(made.turns) == 2


async def test_a_full_context_truncates_with_what_was_to_be_said_as_tail() -> None:
    made, _, _ = await episode([call(), ContextFull()])
    assert made.status == Status("truncated", "context")
    assert made.tail_ids == (len("a wall"),)


@pytest.mark.parametrize("where", ["policy", "world"])
async def test_a_failure_of_ours_is_invalid_and_no_zero(where: str) -> None:
    failure = InfrastructureError("the sandbox died")
    moves = [call(), failure] if where == "policy" else [call(), DONE]
    made, _, _ = await episode(moves, [failure] if where == "world" else None)
    assert made.status == Status("invalid", "the sandbox died")
    assert made.score is None and len(made.turns) == 1 and made.tail_ids == ()


async def test_any_other_error_is_a_fault_and_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        await episode([ZeroDivisionError()])


async def test_a_malformed_call_comes_back_as_an_observation() -> None:
    broken = Message("assistant", "<tool_call>{</tool_call>", error="the tool call is no JSON")
    made, policy, world = await episode([broken, DONE])
    assert made.status == Status("completed") and world.acted == []
    assert policy.heard[1] == (Message("tool", "the tool call is no JSON"),)
    (event,) = tool_events(made)
    assert (event.turn, event.data["error"]) == (0, "malformed")
    assert made.costs["tool_errors"] == 1 and made.costs["tool_calls"] == 0


async def test_a_failing_tool_comes_back_and_is_counted_by_kind() -> None:
    answers = [
        Observation("no such tool", "unknown_tool"),
        Observation("too slow", "timeout", {"wall_s": 4.0}),
        Observation("fine"),
    ]
    made, policy, _ = await episode([call()] * 3 + [DONE], answers)
    assert made.status == Status("completed")
    assert [messages[0].content for messages in policy.heard[1:]] == ["no such tool", "too slow", "fine"]
    assert (made.costs["tool_errors"], made.costs["timeouts"], made.costs["wall_s"]) == (2, 1, 4.0)
    assert [event.clock for event in tool_events(made)] == [0.0, 4.0, 4.0]


async def test_several_calls_of_a_turn_are_answered_in_order_and_counted_against_the_budget() -> None:
    calls = tuple(ToolCall("look", {"at": str(i)}, f"call_{i}") for i in range(3))
    both = replace(call(), tool_calls=calls)
    made, policy, world = await episode([both, DONE], [Observation(str(i)) for i in range(3)])
    assert [m.tool_call_id for m in policy.heard[1]] == ["call_0", "call_1", "call_2"]
    assert [m.content for m in policy.heard[1]] == ["0", "1", "2"]
    made, _, world = await episode([both, DONE], budget=Budget(tool_calls=2))
    assert made.status == Status("truncated", "tool_calls")
    assert len(world.acted) == 2 and len(made.tail_ids) == 2


async def test_every_model_call_and_tool_call_is_an_event() -> None:
    logged: list[tuple[str, dict[str, Any]]] = []

    class Log:
        def append(self, kind: str, data: Any) -> None:
            logged.append((kind, dict(data)))

    world = World([Observation("a wall")])
    await run_episode(
        Scripted([call(), DONE]), world, task(), id="e", lineage={}, audit=Log()  # type: ignore[arg-type]
    )  # fmt: skip
    assert [kind for kind, _ in logged] == ["model_call", "tool_call", "model_call"]
    assert logged[0][1] == {
        "episode": "e", "turn": 0, "stop": "stop", "tokens": 3, "weights": 4, "content": call().content,
    }  # fmt: skip
    assert logged[1][1]["name"] == LOOK.name and logged[1][1]["content"] == "a wall"
