"""Output of an untrusted program, kept within a bound.

What this file is: the first and the last bytes of a stream, and a count of what lay between.
What it is not: it reads nothing and decides nothing; see `execution`.
"""

from __future__ import annotations


class Capture:
    """Feed it pieces of any size; it holds about `cap` bytes however much comes."""

    def __init__(self, cap: int) -> None:
        self._room = cap - cap // 2
        self._tail_room = cap // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, piece: bytes) -> None:
        self.total += len(piece)
        missing = self._room - len(self._head)
        if missing > 0:
            self._head += piece[:missing]
            piece = piece[missing:]
        self._tail += piece
        if len(self._tail) > 4 * self._tail_room + 4096:
            self._shorten()

    def finish(self, limit: int) -> tuple[bytes, int]:
        """(what is shown, how many bytes were left out). A cut is marked in place, so that nobody reads the
        two ends as one text; the mark comes on top of `limit`, which is at most the `cap` given before."""
        if self.total <= limit:
            return bytes(self._head + self._tail), 0
        self._shorten()
        dropped = self.total - limit
        end = limit // 2
        tail = (self._head + self._tail)[-end:] if end else b""
        mark = b"\n[... %d bytes left out ...]\n" % dropped
        return bytes(self._head[: limit - end]) + mark + bytes(tail), dropped

    def _shorten(self) -> None:
        if len(self._tail) > self._tail_room:
            self._tail = self._tail[len(self._tail) - self._tail_room :]


def share(cap: int, stdout: int, stderr: int) -> tuple[int, int]:
    """How many bytes of each stream are kept, of `cap` together: half each, and what one does not need goes
    to the other."""
    errors = min(stderr, max(cap // 2, cap - stdout))
    return min(stdout, cap - errors), errors
