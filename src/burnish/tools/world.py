"""The base of a session: a world whose tools are its methods.

What this file is: everything between a call and its observation: validation, faults, dispatch, failures as
observations, truncation, the virtual clock, and the frozen evidence at the end.
What it is not: it knows no domain. A subclass adds `@tool` methods, `state()` or `artifacts()` for grading,
and `release()` if it holds something.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from burnish.tools.faults import FaultPlan, FaultState
from burnish.tools.tool import ToolFailure, bound_tools
from burnish.types import Evidence, InfrastructureError, Observation, Tool, ToolCall


class World:
    """One episode's world (a `Session`). `max_content` is the longest observation in characters; more is cut
    from its middle, and the cut is told. `only` restricts the tools to those names."""

    max_content = 1200

    def __init__(self, faults: FaultPlan | None = None, only: Collection[str] | None = None) -> None:
        world: type = type(self)
        self._bound = {
            name: tool for name, tool in bound_tools(world).items() if only is None or name in only
        }
        self.tools: tuple[Tool, ...] = tuple(tool.spec for tool in self._bound.values())
        self.clock = 0.0
        self._faults = FaultState(faults or FaultPlan())
        self._costs: dict[str, float] = {}
        self._evidence: Evidence | None = None
        self._closed = False

    async def act(self, call: ToolCall) -> Observation:
        """Runs one call. What the agent did wrong comes back as an observation with an error; an exception
        that no tool meant to raise is ours and becomes an InfrastructureError."""
        if self._closed or self._evidence is not None:
            raise InfrastructureError(f"{type(self).__name__} was called after its episode had ended")
        self._costs = {}
        try:
            seen = await self._run(call)
        except ToolFailure as failure:
            seen = Observation(failure.message, failure.kind, failure.costs)
        except InfrastructureError:
            raise
        except Exception as error:
            raise InfrastructureError(f"tool {call.name} of {type(self).__name__}: {error!r}") from error
        costs = dict(self._costs)
        for name, amount in seen.costs.items():
            costs[name] = costs.get(name, 0.0) + amount
        self.clock += costs.get("wall_s", 0.0)
        return replace(seen, content=self._shortened(seen.content), costs=costs, call_id=call.id)

    async def _run(self, call: ToolCall) -> Observation:
        bound = self._bound.get(call.name)
        if bound is None:
            names = ", ".join(self._bound) or "none"
            raise ToolFailure("unknown_tool", f'There is no tool "{call.name[:40]}"; there are: {names}.')
        arguments = bound.validate(call.arguments)
        met = self._faults.meet(call.name, arguments, call.id, self.clock)
        if met is not None and met[0].when == "before":
            return met[1]
        result = getattr(self, call.name)(**arguments)
        result = await result if inspect.isawaitable(result) else result
        seen = result if isinstance(result, Observation) else Observation(str(result))
        return seen if met is None else met[1]

    def charge(self, **costs: float) -> None:
        """Called by a tool: adds to what this call costs, such as `wall_s` seconds of the virtual clock."""
        for name, amount in costs.items():
            self._costs[name] = self._costs.get(name, 0.0) + amount

    def _shortened(self, content: str) -> str:
        cut = len(content) - self.max_content
        if cut <= 0:
            return content
        head = self.max_content * 2 // 3
        return f"{content[:head]}\n[{cut} characters cut]\n{content[head + cut :]}"

    def state(self) -> Mapping[str, Any]:
        """The final state of the world as plain data, for grading."""
        return {}

    async def artifacts(self) -> Mapping[str, bytes]:
        """Named bytes for grading, such as the files of a workspace."""
        return {}

    async def evidence(self) -> Evidence:
        """What a grader may see, frozen at the first call; no tool runs afterwards."""
        if self._evidence is None:
            self._evidence = Evidence(await self.artifacts(), self.state(), tuple(self._faults.fired))
        return self._evidence

    async def release(self) -> None:
        """Gives back what the world holds; called once, at the end."""

    async def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            await self.release()
