"""The embedded engine: continuous batching on this machine's processors.

What this file is: `interfaces.Engine` over `model.transformer`: a queue of requests, a step that mixes the next
token of every running sequence with a bounded chunk of prefill, and the loop that runs steps off the event loop.
What it is not: it knows no messages (the renderer does) and trains nothing. Speculation, quantization and paging
are other files' business, later, behind `_step`.

The same request gives the same tokens and log-probabilities whatever else runs beside it; the test suite
compares them bit for bit with the learner's recomputation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from burnish.engine.attention import CachedAttention, Span
from burnish.engine.cache import Slot, SlotCache
from burnish.engine.sampler import child_seed, draw, log_probabilities, uniform
from burnish.model.compute import compute_thread
from burnish.model.config import ModelConfig
from burnish.model.transformer import Transformer
from burnish.types import Completion, InfrastructureError, Sampling, StopReason, UsageError


@dataclass(eq=False, slots=True)
class _Request:
    index: int
    ids: list[int]
    sampling: Sampling
    queue: asyncio.Queue[Completion | BaseException]
    seed: int
    slot: Slot | None = None
    drawn: int = 0
    cancelled: bool = False


@dataclass(slots=True)
class EngineCounters:
    """Totals since the engine opened: tokens computed in prefill, tokens reused from the cache, tokens drawn,
    and steps."""

    prefilled: int = 0
    reused: int = 0
    sampled: int = 0
    steps: int = 0


@dataclass(eq=False)
class LocalEngine:
    """`slots` sequences at once of at most `context` tokens each; `chunk` bounds the prefill tokens of one
    step. `load` takes a state dict of `Transformer` (any float dtype; it is rounded to `dtype`)."""

    config: ModelConfig
    slots: int = 64
    context: int = 1024
    chunk: int = 512
    dtype: torch.dtype = torch.bfloat16
    counters: EngineCounters = field(default_factory=EngineCounters)

    def __post_init__(self) -> None:
        self._thread = compute_thread()
        with torch.device("meta"):
            model = Transformer(self.config)
        self.model = model.to(self.dtype).to_empty(device="cpu").requires_grad_(False)
        if self.config.tie_embeddings:  # `to_empty` makes two tensors of a shared one
            self.model.head.weight = self.model.embedding
        self.cache = SlotCache(self.config, self.slots, self.context, self.dtype)
        self.version: int | None = None
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._loop: asyncio.Task[None] | None = None
        self._gate = asyncio.Lock()
        self._closed = False

    @property
    def active(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + len(self._running)

    async def load(self, handle: Mapping[str, Tensor], version: int) -> None:
        """Swaps the weights between two steps. Running requests compute their context again under the new
        weights; nothing cached before survives."""
        async with self._gate:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._load, handle)
            self.version = version

    def _load(self, handle: Mapping[str, Tensor]) -> None:
        for linear in self.model.linears():
            linear.unpack()
        self.model.load_state_dict(handle)
        for linear in self.model.linears():
            linear.pack()
        self.cache.clear()

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, n: int = 1
    ) -> AsyncIterator[Completion]:
        """Streams the tokens of `n` continuations as they are drawn. Raises UsageError for a prompt that is
        empty, out of the vocabulary or too long for the context."""
        self._check(prompt_ids, sampling)
        queue: asyncio.Queue[Completion | BaseException] = asyncio.Queue()
        seeds = [child_seed(sampling.seed, i) for i in range(n)]
        requests = [_Request(i, list(prompt_ids), sampling, queue, s) for i, s in enumerate(seeds)]
        self._waiting.extend(requests)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._serve())
        unfinished = n
        try:
            while unfinished:
                piece = await queue.get()
                if isinstance(piece, BaseException):
                    raise piece
                unfinished -= piece.stop is not None
                yield piece
        finally:
            for request in requests:
                request.cancelled = True

    async def close(self) -> None:
        """Stops the loop and fails what still runs. Idempotent."""
        self._closed = True
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._fail(InfrastructureError("the engine was closed while this request ran"))

    def _check(self, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        if self.version is None or self._closed:
            raise InfrastructureError("the engine has no weights: call load first, and not after close")
        if not prompt_ids:
            raise UsageError("the prompt has no tokens")
        if len(prompt_ids) >= self.cache.context:
            raise UsageError(
                f"the prompt has {len(prompt_ids)} tokens; this engine's context holds "
                f"{self.cache.context}, the answer included"
            )
        if not (min(prompt_ids) >= 0 and max(prompt_ids) < self.config.vocab_size):
            raise UsageError(f"a prompt token is outside the vocabulary of {self.config.vocab_size}")
        if sampling.temperature < 0 or sampling.max_tokens < 1:
            raise UsageError("temperature must be at least 0 and max_tokens at least 1")

    def _fail(self, error: BaseException) -> None:
        for request in [*self._waiting, *self._running]:
            request.queue.put_nowait(error)
            if request.slot is not None:
                self.cache.release(request.slot)
        self._waiting.clear()
        self._running.clear()

    async def _serve(self) -> None:
        """Runs steps while there is work; a failing step fails its requests, never silently."""
        loop = asyncio.get_running_loop()
        while self._waiting or self._running:
            async with self._gate:
                self._sweep()
                self._admit()
                if not self._running:
                    continue
                try:
                    drawn = await loop.run_in_executor(self._thread, self._step)
                except Exception as error:
                    self._fail(InfrastructureError(f"the engine's step failed: {error!r}"))
                    continue
            for request, token, logprob in drawn:
                self._deliver(request, token, logprob)
            # Lets consumers that were woken submit their next turn before the next batch is formed.
            await asyncio.sleep(0)

    def _sweep(self) -> None:
        for request in [r for r in self._running if r.cancelled]:
            self._finish(request)
        self._waiting = deque(r for r in self._waiting if not r.cancelled)

    def _admit(self) -> None:
        for request in list(self._waiting):
            slot = self.cache.acquire(request.ids, self.counters.steps)
            if slot is not None:
                request.slot = slot
                self.counters.reused += slot.computed
                self._waiting.remove(request)
                self._running.append(request)

    def _finish(self, request: _Request) -> None:
        self._running.remove(request)
        if request.slot is not None:
            self.cache.release(request.slot)

    def _deliver(self, request: _Request, token: int, logprob: float) -> None:
        stop: StopReason | None = None
        if token in request.sampling.stop_ids:
            stop = "stop"
        elif request.drawn >= request.sampling.max_tokens or len(request.ids) >= self.cache.context:
            stop = "length"
        if stop is not None:
            self._finish(request)
        assert self.version is not None
        request.queue.put_nowait(Completion(request.index, (token,), (logprob,), self.version, stop))

    @torch.inference_mode()
    def _step(self) -> list[tuple[_Request, int, float]]:
        """One forward: the next token of every sequence whose context is computed but for its last token,
        and up to `chunk` tokens of the others' contexts, oldest first."""
        spans: list[tuple[_Request, Span]] = []
        budget = self.chunk
        for request in self._running:
            slot = request.slot
            assert slot is not None
            missing = len(request.ids) - slot.computed
            take = 1 if missing == 1 else min(missing, budget)
            if take:
                budget -= take if missing > 1 else 0
                spans.append((request, Span(slot.index, slot.computed, take)))
        spans.sort(key=lambda pair: (pair[1].count > 1, pair[1].slot))
        attention = CachedAttention(self.cache, [span for _, span in spans])
        ids = torch.tensor([t for r, s in spans for t in r.ids[s.start : s.start + s.count]])
        hidden = self.model(ids, attention.positions, attention)
        ends = np.cumsum([span.count for _, span in spans]) - 1
        for request, span in spans:
            assert request.slot is not None
            request.slot.computed += span.count
            request.slot.used = self.counters.steps
            self.counters.prefilled += span.count if span.count > 1 else 0
        self.counters.steps += 1
        ready = [
            (r, int(e)) for (r, s), e in zip(spans, ends, strict=True) if s.start + s.count == len(r.ids)
        ]
        return self._sample([r for r, _ in ready], hidden[[e for _, e in ready]]) if ready else []

    def _sample(self, requests: Sequence[_Request], hidden: Tensor) -> list[tuple[_Request, int, float]]:
        temperatures = torch.tensor([r.sampling.temperature for r in requests])
        logprobs = log_probabilities(self.model.logits(hidden), temperatures)
        tokens, chosen = draw(logprobs, temperatures, [uniform(r.seed, r.drawn) for r in requests])
        for request, token in zip(requests, tokens, strict=True):
            assert request.slot is not None
            request.ids.append(token)
            request.drawn += 1
            request.slot.ids = np.append(request.slot.ids, token)
        self.counters.sampled += len(requests)
        return list(zip(requests, tokens, chosen, strict=True))
