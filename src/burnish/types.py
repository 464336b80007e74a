"""The nouns: plain data that every part of Burnish reads and writes.

What this file is: frozen or simple dataclasses with no behaviour beyond trivial derivations.
What it is not: it does no I/O, imports no torch, and knows nothing of models, sandboxes or files.

One artifact, the `Trajectory`, flows through everything. Each of its tokens is stored once: a `Turn` keeps
only the tokens that were added since its `parent`. Attention follows `parent`; time (credit, GAE) follows
`after`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Role = Literal["system", "user", "assistant", "tool"]
Split = Literal["train", "heldout"]
Ending = Literal["completed", "truncated", "invalid", "tampered"]
StopReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model asks for. `arguments` is decoded JSON; `id` links the observation to it."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. An assistant's `content` is the raw text that it sampled, tool calls
    included, so that rendering the history gives back exactly the tokens that were sampled; `error` says what
    was wrong with a call that it tried to write."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """What a model is told of a tool. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one episode; `None` is unlimited. `tokens` counts sampled tokens over all turns, `wall_s` is
    seconds on the episode's clock (virtual in simulated worlds), `money` is in the world's currency and
    `memory` in bytes."""

    turns: int | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    wall_s: float | None = None
    money: float | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One problem instance. `setup` builds the world and may be learned by acting in it; `secret` is for
    grading only and never reaches the agent. `tags` holds at least `template`, the wording and structure
    that the task was drawn from, by which splits are held apart."""

    id: str
    domain: str
    prompt: tuple[Message, ...]
    tools: tuple[Tool, ...]
    budget: Budget
    setup: Mapping[str, Any]
    secret: Mapping[str, Any]
    mode: str = "full"
    tags: Mapping[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        """SHA-256 (hex) of the whole task, by which two evaluations know that they ran the same thing."""
        text = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy. `seed` fixes the draw of every position whatever else
    is in the batch. `stop_ids` end the turn; the one that was sampled is kept in the output."""

    temperature: float = 1.0
    max_tokens: int = 128
    seed: int = 0
    stop_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which weights produced output tokens `start:stop` of a turn."""

    start: int
    stop: int
    version: int
    profile: str = "full"
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A piece of a sampled continuation, as an engine streams it. `stop` is None until the last piece.
    `logprobs` are of the distribution that was sampled from (temperature applied)."""

    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    stop: StopReason | None = None
    profile: str = "full"


@dataclass(slots=True)
class Turn:
    """One model call. `prompt_ids` are the tokens added since the end of turn `parent` (None: from nothing);
    `after` is the turn that came before this one in time. `trainable[i]` says that `output_ids[i]` was
    sampled here, by this policy, and not forced."""

    parent: int | None
    after: int | None
    agent: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    trainable: tuple[bool, ...]
    message: Message
    stop: StopReason
    sampling: Sampling
    stamps: tuple[Stamp, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in an episode, besides sampling. `kind` is for instance `tool`, `fault` or
    `budget`; `turn` is the index of the turn that caused it; `clock` is seconds on the episode's clock.
    A `tool` event's data has `name`, `arguments`, `content` (what the model was shown), `error` (None or one
    of the error kinds of `Observation`) and `call_id`."""

    kind: str
    turn: int
    data: Mapping[str, Any]
    clock: float = 0.0


ErrorKind = Literal[
    "malformed",  # the call could not be parsed, or its arguments do not fit the schema
    "unknown_tool",
    "timeout",
    "rate_limit",
    "permission",
    "not_found",
    "resource",  # a quota or a limit of the sandbox
    "exception",  # the tool itself failed
]


@dataclass(frozen=True, slots=True)
class Observation:
    """What a tool call returned. `content` is shown to the model; `error` types a failure that the *agent*
    is to see and react to (a failure of our infrastructure is raised as `InfrastructureError` instead).
    `costs` are charged to the budget by name (`wall_s`, `money`)."""

    content: str
    error: ErrorKind | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """How an episode ended. `completed`: the agent answered. `truncated(reason)`: a budget ran out, and the
    value of what would have followed is unknown. `invalid(reason)`: our infrastructure failed; the episode
    leaves the batch and the baseline. `tampered(reason)`: the agent attacked its grading."""

    kind: Ending
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """One named reward. `value` is for the episode, `turns` per turn; None means not scored, never zero."""

    value: float | None = None
    turns: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """The combined reward and the streams that it was made from."""

    value: float | None
    parts: Mapping[str, Stream] = field(default_factory=dict)


@dataclass(slots=True)
class Trajectory:
    """One episode, from task to score. `tail_ids` is the last observation when the agent never answered it,
    rendered, so that a critic can value the state in which a truncated episode was left. `costs` counts what
    was used (`turns`, `tokens`, `tool_calls`, `tool_errors`, `timeouts`, `wall_s`). `lineage` names what
    produced it (run, step, weights version, seed)."""

    id: str
    task: Task
    turns: list[Turn] = field(default_factory=list)
    tail_ids: tuple[int, ...] = ()
    events: list[Event] = field(default_factory=list)
    status: Status | None = None
    score: Score | None = None
    costs: dict[str, float] = field(default_factory=dict)
    lineage: dict[str, Any] = field(default_factory=dict)

    def path_ids(self, turn: int | None) -> list[int]:
        """All token ids from the root to the end of turn `turn`, following `parent`."""
        pieces: list[tuple[int, ...]] = []
        while turn is not None:
            node = self.turns[turn]
            pieces += [node.output_ids, node.prompt_ids]
            turn = node.parent
        return [i for piece in reversed(pieces) for i in piece]

    @property
    def reward(self) -> float | None:
        return None if self.score is None else self.score.value


@dataclass(slots=True)
class Group:
    """Trajectories of one task, sampled together, and the token columns that training adds to them."""

    task: Task
    trajectories: list[Trajectory]
    samples: list[Sample] = field(default_factory=list)


@dataclass(slots=True)
class Sample:
    """A trajectory as token-aligned columns. `columns` maps a name to an array over the trajectory's tokens
    in storage order (turn by turn, `prompt_ids` then `output_ids`, then `tail_ids`): always `ids`, `turn`,
    `trainable` and `logprobs`; annotators and algorithms add `reference`, `values`, `advantages`, `returns`.
    `trajectory` is its index in the group."""

    trajectory: int
    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["ids"])

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return self.columns[name]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a grader may see, frozen when the episode ended: named artifacts (bytes), the state difference or
    final state of the world as plain data, and the faults that fired."""

    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one sandboxed execution. Times in seconds, sizes in bytes."""

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory: int = 512 << 20
    processes: int = 32
    file_size: int = 16 << 20
    open_files: int = 128
    output: int = 64 << 10
    disk: int = 64 << 20


LimitReason = Literal["wall", "cpu", "memory", "processes", "file_size", "disk", "output", "signal"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a sandboxed command did. `exit` is None when it was killed; `reason` then says by what. `output`
    truncation keeps head and tail: `dropped` counts the bytes left out of stdout and stderr together."""

    stdout: bytes
    stderr: bytes
    exit: int | None
    reason: LimitReason | None = None
    dropped: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory: int = 0


class BurnishError(Exception):
    """A failure that a user can act on. The message says what was wrong, where, and what to do; the command
    line prints it without a traceback and exits with 2 (usage) or 1."""

    exit_code = 1


class UsageError(BurnishError):
    """The request itself was wrong: a misspelt field, a missing file, an impossible value."""

    exit_code = 2


class InfrastructureError(BurnishError):
    """Our machinery failed, not the agent: the episode becomes `invalid` and is never scored 0."""
