"""The seams: every part that can be replaced, as a Protocol.

What this file is: the contracts between packages, all of them, in one place. A user adds a domain, a reward,
an algorithm, a sandbox or an engine by writing a class of this shape and importing it in a recipe.
What it is not: it holds no implementation and no registry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from burnish.types import (
    Completion,
    Evidence,
    Group,
    Limits,
    Message,
    Observation,
    Result,
    Sampling,
    Split,
    Stream,
    Task,
    Tool,
    ToolCall,
    Trajectory,
    Turn,
)

OracleScript = Generator[ToolCall | str, Observation, None]
"""An oracle's side of an episode: it yields a tool call and is sent the observation, or yields the final
answer as a string and is finished."""


@runtime_checkable
class Sandbox(Protocol):
    """An isolated workspace that can run commands. One instance is one workspace; `close` is idempotent and
    leaves no process, mount or file behind. Paths are relative to the workspace and cannot leave it."""

    async def run(self, argv: Sequence[str], stdin: bytes = b"", limits: Limits | None = None) -> Result: ...

    async def read(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        """Raises FileNotFoundError, or PermissionError for anything but a regular file in the workspace."""
        ...

    async def write(self, path: str, data: bytes) -> None: ...

    async def files(self) -> Mapping[str, bytes]:
        """Every regular file of the workspace, by relative path; links and devices are left out."""
        ...

    async def shell(self) -> Shell:
        """A shell that lives on between commands, inside the same walls."""
        ...

    async def snapshot(self) -> Snapshot:
        """The workspace as it is now; this sandbox goes on. Raises UsageError while a command runs in it."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Shell(Protocol):
    """Commands one after the other in one process, which keeps its directory, variables and functions. `exit` of a
    result is the command's status; a command that exits ends the shell. `close` is idempotent."""

    async def run(self, text: str, wall_s: float = 10.0) -> Result: ...

    async def close(self) -> None: ...


@runtime_checkable
class Snapshot(Protocol):
    """A frozen workspace. Each fork is a sandbox that starts with what was frozen and shares no change with any
    other; it outlives the snapshot. `close` is idempotent."""

    async def fork(self) -> Sandbox: ...

    async def close(self) -> None: ...


@runtime_checkable
class Session(Protocol):
    """One episode's world: a fresh instance, no globals. `act` never raises for something that the agent did
    wrong (that is an Observation with an error); it raises InfrastructureError when our side failed."""

    tools: tuple[Tool, ...]

    async def act(self, call: ToolCall) -> Observation: ...

    async def evidence(self) -> Evidence: ...

    async def close(self) -> None: ...


@runtime_checkable
class Reward(Protocol):
    """Scores a finished episode. Runs where the agent never ran. `name` names the stream."""

    name: str

    def __call__(self, trajectory: Trajectory, evidence: Evidence) -> Awaitable[Stream]: ...


@runtime_checkable
class Domain(Protocol):
    """A kind of work: a task generator, a world, a verifier and an oracle. `tasks` is deterministic in
    (split, seed) and its first n tasks do not depend on `count`. The first reward is the outcome."""

    name: str
    title: str

    def tasks(self, split: Split, seed: int, count: int) -> Sequence[Task]: ...

    async def open(self, task: Task) -> Session: ...

    @property
    def rewards(self) -> Sequence[Reward]: ...

    def oracle(self, task: Task) -> OracleScript: ...


@runtime_checkable
class Judge(Protocol):
    """Scores turns of a trajectory with probabilities in [0, 1], one for each turn in `turns`."""

    async def score(self, trajectory: Trajectory, turns: Sequence[int]) -> list[float]: ...


@runtime_checkable
class Engine(Protocol):
    """Tokens in, tokens out. Knows nothing of messages. `generate` streams pieces of `n` continuations;
    closing the iterator cancels them and frees what they held. `load` swaps weights; everything generated
    afterwards is stamped with `version`."""

    def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, n: int = 1
    ) -> AsyncIterator[Completion]: ...

    async def load(self, handle: Any, version: int) -> None: ...

    async def close(self) -> None: ...


@runtime_checkable
class Policy(Protocol):
    """An engine and a renderer: answers messages with a turn. `messages` are those added since the last turn
    (at first: the task's prompt). The turn is not yet appended to the trajectory."""

    async def respond(self, trajectory: Trajectory, messages: Sequence[Message]) -> Turn: ...

    async def load(self, handle: Any, version: int) -> None: ...


@runtime_checkable
class Algorithm(Protocol):
    """Credit and loss; the rest of training is blind to it. `needs` names the columns that `Learner.annotate`
    must add first (`reference`, `values`). `credit` writes `advantages` (and `returns`) columns into the
    groups' samples. `loss` gets the learner's differentiable outputs for the trainable tokens of one
    micro-batch and the same tokens' columns, and returns the SUM of token losses and metrics as sums, `count`
    among them; the learner divides by `normalizer`, which is global over the whole update, so that nothing
    depends on how it was cut into micro-batches."""

    needs: tuple[str, ...]
    unit: Literal["token", "sequence", "pair", "group"]

    def credit(self, groups: Sequence[Group]) -> dict[str, float]: ...

    def normalizer(self, groups: Sequence[Group]) -> float: ...

    def loss(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Source(Protocol):
    """Where groups come from: rolled out and scored, recorded, or mixed. Owns concurrency and staleness."""

    def batches(self, policy: Policy, start: int) -> AsyncIterator[tuple[int, list[Group]]]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Learner(Protocol):
    """Owns the trained weights and the optimizer. `export` returns what `Engine.load` takes. `save` writes an
    ordinary Hugging Face directory and, when `resumable`, the state that `load` needs to go on."""

    def annotate(self, groups: Sequence[Group], needs: Sequence[str]) -> None: ...

    def update(self, groups: Sequence[Group], algorithm: Algorithm) -> dict[str, float]: ...

    def export(self) -> Any: ...

    def save(self, directory: Path, resumable: bool = True) -> None: ...

    def load(self, directory: Path) -> None: ...
