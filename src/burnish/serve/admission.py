"""Who may generate now, who waits, and who is turned away.

What this file is: `Admission`, a bounded queue in front of a model: so many requests generate, so many more
wait in order of arrival, and the rest are refused at once with the time after which to try again.
What it is not: it does not batch (the engine does), and it knows no users and no budgets.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from burnish.serve.errors import Refusal, shutting_down

_LONGEST_RETRY = 60


class Admission:
    """`running` requests at once and `waiting` more. A request that is cancelled while it waits or generates
    gives its place back."""

    def __init__(
        self, running: int = 64, waiting: int = 256, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = running + waiting
        self.inside = 0
        self.draining = False
        self._running = running
        self._places = asyncio.Semaphore(running)
        self._clock = clock
        self._mean_seconds = 1.0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place while the block lasts. Raises Refusal: 429 when the queue is full, 503 when draining."""
        if self.draining:
            raise shutting_down()
        if self.inside >= self.limit:
            message = f"All {self.limit} places of this model are taken. Try again later."
            raise Refusal(429, message, code="overloaded", retry_after=self.retry_after)
        self.inside += 1
        try:
            async with self._places:
                begun = self._clock()
                yield
                self._mean_seconds += 0.1 * (self._clock() - begun - self._mean_seconds)
        finally:
            self.inside -= 1

    @property
    def retry_after(self) -> int:
        """Whole seconds until a place is likely free: the queue's length in rounds of the usual duration."""
        rounds = max(1, self.inside - self._running) / self._running
        return min(_LONGEST_RETRY, max(1, math.ceil(rounds * self._mean_seconds)))

    def drain(self) -> None:
        """Those inside finish; nobody comes in any more."""
        self.draining = True
