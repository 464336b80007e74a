"""A peer of the real engine that needs no model: for tests of everything that talks to an engine.

What this file is: `FakeEngine`, an `interfaces.Engine` whose tokens come from a rule (prompt to output ids,
with probability one) or from a small random model with well-defined probabilities; it counts what runs.
What it is not: it knows no text and imports no torch. It refuses what the real engine refuses.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from burnish.types import Completion, InfrastructureError, Sampling, StopReason, UsageError

Rule = Callable[[Sequence[int]], Sequence[int]]
"""Prompt ids to output ids. It is called once for each continuation, in the order of their indices."""

Handle = Rule | int
"""What `FakeEngine.load` takes as weights: a rule, or the seed of a random model."""


class Script:
    """A rule that answers with the given outputs in order, whatever it is asked; `asked` keeps the
    prompts. Raises InfrastructureError when it is asked once too often."""

    def __init__(self, outputs: Iterable[Sequence[int]]) -> None:
        self._outputs = [tuple(output) for output in outputs]
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, prompt_ids: Sequence[int]) -> tuple[int, ...]:
        if len(self.asked) == len(self._outputs):
            raise InfrastructureError(
                f"the script has {len(self._outputs)} outputs and was asked for one more"
            )
        self.asked.append(tuple(prompt_ids))
        return self._outputs[len(self.asked) - 1]


class Gate:
    """Holds generation still at a chosen token, so that a test can act at exactly that moment.

    `after` is how many tokens each continuation may give out first. `reached` is set when one waits at the
    gate; `open` lets all pass from then on."""

    def __init__(self, after: int = 0) -> None:
        self.after = after
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def wait(self, given: int) -> None:
        """Returns when a continuation that has given out `given` tokens may give out the next."""
        if given >= self.after and not self._opened.is_set():
            self.reached.set()
            await self._opened.wait()


@dataclass(slots=True)
class FakeCounters:
    """Requests since the engine was made, by how they ended, and tokens given out."""

    started: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    sampled: int = 0


@dataclass(eq=False)
class FakeEngine:
    """Streams `piece` tokens at a time. `vocab_size` bounds prompts and random model, `context` prompt and
    output together. A rule's output ends with `stop` at a stop token, with `length` at `max_tokens` or at the
    end of what the rule gave; the random model samples until one of these."""

    vocab_size: int = 32
    context: int = 4096
    piece: int = 1
    gate: Gate | None = None
    counters: FakeCounters = field(default_factory=FakeCounters)
    active: int = 0
    version: int | None = None
    _weights: Handle = 0
    _closed: bool = False

    def __post_init__(self) -> None:
        # Set when the last request has gone, so that a test can wait for that without polling.
        self.idle = asyncio.Event()
        self.idle.set()

    async def load(self, handle: Handle, version: int) -> None:
        """Swaps rule or random weights. Running requests of a random model go on under the new ones; a rule's
        output was decided when its request began."""
        self._weights, self.version = handle, version

    async def close(self) -> None:
        """Refuses all that comes after; what runs is failed at its next token. Idempotent."""
        self._closed = True

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, n: int = 1
    ) -> AsyncIterator[Completion]:
        """Streams pieces of `n` continuations in turn. Raises UsageError for a prompt that is empty, too long
        or outside the vocabulary, InfrastructureError without weights or after `close`."""
        self._check(prompt_ids, sampling, n)
        self.counters.started += 1
        self.active += 1
        self.idle.clear()
        try:
            outputs = [_Continuation(self, prompt_ids, sampling, index) for index in range(n)]
            while running := [output for output in outputs if output.stop is None]:
                for output in running:
                    completion = await output.next_piece()
                    self.counters.sampled += len(completion.token_ids)
                    yield completion
            self.counters.finished += 1
        except (GeneratorExit, asyncio.CancelledError):
            self.counters.cancelled += 1
            raise
        except Exception:
            self.counters.failed += 1
            raise
        finally:
            self.active -= 1
            if self.active == 0:
                self.idle.set()

    def probabilities(self, context_ids: Sequence[int], temperature: float) -> NDArray[np.float64]:
        """The random model: a distribution over the vocabulary that follows from the last token and its
        position alone. Temperature 0 stands for 1, as engines report greedy sampling."""
        weights = self._weights
        if callable(weights):
            raise UsageError("a rule has no probabilities other than one")
        place = struct.pack("<qqq", weights, len(context_ids), context_ids[-1])
        bits = hashlib.blake2b(place, digest_size=8, person=b"fake weights").digest()
        logits = np.random.Generator(np.random.Philox(int.from_bytes(bits, "little"))).normal(
            size=self.vocab_size, scale=2.0
        )
        scaled = logits / (temperature if temperature > 0 else 1.0)
        mass = np.exp(scaled - scaled.max())
        return np.asarray(mass / mass.sum())

    @property
    def rule(self) -> Rule | None:
        """The loaded rule, if it is one."""
        return self._weights if callable(self._weights) else None

    def check_open(self) -> int:
        """The version to stamp with. Raises InfrastructureError when nothing may be generated."""
        if self.version is None or self._closed:
            raise InfrastructureError("the engine has no weights: call load first, and not after close")
        return self.version

    def _check(self, prompt_ids: Sequence[int], sampling: Sampling, n: int) -> None:
        self.check_open()
        if not prompt_ids:
            raise UsageError("the prompt has no tokens")
        if len(prompt_ids) >= self.context:
            raise UsageError(
                f"the prompt has {len(prompt_ids)} tokens; this engine's context holds {self.context}, "
                "the answer included"
            )
        if min(prompt_ids) < 0 or max(prompt_ids) >= self.vocab_size:
            raise UsageError(f"a prompt token is outside the vocabulary of {self.vocab_size}")
        if sampling.temperature < 0 or sampling.max_tokens < 1 or n < 1:
            raise UsageError("temperature must be at least 0, max_tokens and n at least 1")


class _Continuation:
    """One of the continuations of a request."""

    def __init__(self, engine: FakeEngine, prompt_ids: Sequence[int], sampling: Sampling, index: int) -> None:
        self._engine, self._sampling, self._index = engine, sampling, index
        self._ids = list(prompt_ids)
        self._prompt = len(prompt_ids)
        self._left = min(sampling.max_tokens, engine.context - len(prompt_ids))
        rule = engine.rule
        self._ruled = None if rule is None else tuple(rule(tuple(prompt_ids)))
        if self._ruled is not None:
            if not self._ruled:
                raise InfrastructureError("the rule gave no tokens; an engine gives at least one")
            self._left = min(self._left, len(self._ruled))
        self.stop: StopReason | None = None

    async def next_piece(self) -> Completion:
        """The next `piece` tokens, fewer at the end."""
        tokens: list[int] = []
        logprobs: list[float] = []
        while self.stop is None and len(tokens) < self._engine.piece:
            if self._engine.gate is not None:
                await self._engine.gate.wait(len(self._ids) - self._prompt)
            # A model's step is never instant: others run between two tokens here too.
            await asyncio.sleep(0)
            token, logprob = self._draw()
            self._ids.append(token)
            tokens.append(token)
            logprobs.append(logprob)
            self._left -= 1
            if token in self._sampling.stop_ids:
                self.stop = "stop"
            elif self._left == 0:
                self.stop = "length"
        version = self._engine.check_open()
        return Completion(self._index, tuple(tokens), tuple(logprobs), version, self.stop)

    def _draw(self) -> tuple[int, float]:
        self._engine.check_open()
        drawn = len(self._ids) - self._prompt
        if self._ruled is not None:
            return self._ruled[drawn], 0.0
        mass = self._engine.probabilities(self._ids, self._sampling.temperature)
        if self._sampling.temperature == 0:
            token = int(mass.argmax())
        else:
            edges = mass.cumsum()
            target = _uniform(self._sampling.seed, self._index, drawn) * edges[-1]
            token = min(int(np.searchsorted(edges, target, side="right")), len(mass) - 1)
        return token, float(np.log(mass[token]))


def _uniform(seed: int, index: int, position: int) -> float:
    """A number in [0, 1), a pure function of its arguments."""
    place = struct.pack("<qqq", seed, index, position)
    bits = hashlib.blake2b(place, digest_size=8, person=b"fake draws").digest()
    return float(int.from_bytes(bits, "little") >> 11) / float(1 << 53)
