"""Stop strings in a stream of text pieces that are cut anywhere.

What this file is: `StopMatcher`, which gives out text up to the first stop string and holds back what may be
the beginning of one (vllm-project/vllm#3574, ggml-org/llama.cpp#9867).
What it is not: stop tokens are the engine's business.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """`matched` is set to the stop string that ended the text. That is the one whose end comes first (of two
    that end together, the longer), so that the result does not depend on how the text was cut."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.matched: str | None = None
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def feed(self, text: str) -> str:
        """What may be shown now. Nothing once a stop string was found."""
        if self.matched is not None:
            return ""
        self._held += text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            shown, self._held = self._held[:at], ""
            return shown
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop` without being all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
