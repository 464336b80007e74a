"""Prometheus metrics of agents and of the server.

What this file is: `Metrics`, one registry with the counters and histograms that every part reports to, and
the text that `/metrics` serves. Each instance has a registry of its own, so that nothing here is global.
What it is not: it holds no history and draws no conclusions; alerts are Prometheus rules over these names.
Names follow https://prometheus.io/docs/practices/naming (base units, `_total` for counters).
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from burnish.types import Trajectory

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TURNS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


class Metrics:
    """The measured quantities. Seconds and tokens; a label never holds text that a model made up."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.requests = Counter("burnish_requests", "Requests answered.", ("route", "status"), registry=r)
        self.request_seconds = Histogram(
            "burnish_request_seconds", "Time to answer a request.", ("route",), buckets=_SECONDS, registry=r
        )
        self.first_token_seconds = Histogram(
            "burnish_first_token_seconds",
            "Time to the first token of an answer.",
            buckets=_SECONDS,
            registry=r,
        )
        self.in_flight = Gauge("burnish_requests_in_flight", "Requests being answered.", registry=r)
        self.tokens = Counter(
            "burnish_tokens", "Tokens read (prompt) and sampled (completion).", ("direction",), registry=r
        )
        self.tool_calls = Counter("burnish_tool_calls", "Tool calls made.", ("tool",), registry=r)
        self.tool_errors = Counter(
            "burnish_tool_errors", "Tool calls that came back with an error.", ("tool", "error"), registry=r
        )
        self.tool_timeouts = Counter(
            "burnish_tool_timeouts", "Tool calls that timed out.", ("tool",), registry=r
        )
        self.tool_seconds = Histogram(
            "burnish_tool_seconds", "Time that a tool call took.", ("tool",), buckets=_SECONDS, registry=r
        )
        self.episodes = Counter("burnish_episodes", "Episodes by ending.", ("domain", "ending"), registry=r)
        self.episode_turns = Histogram(
            "burnish_episode_turns", "Turns of an episode.", ("domain",), buckets=_TURNS, registry=r
        )

    def request(self, route: str, status: int, seconds: float) -> None:
        """One answered request; `route` is the pattern that matched, never the raw path."""
        self.requests.labels(route, str(status)).inc()
        self.request_seconds.labels(route).observe(seconds)

    def used(self, prompt: int, completion: int) -> None:
        """Tokens of one model call."""
        self.tokens.labels("prompt").inc(prompt)
        self.tokens.labels("completion").inc(completion)

    def tool(self, name: str, error: str | None = None, seconds: float | None = None) -> None:
        """One tool call. What names no tool is counted as `(unknown)`: models invent names without end."""
        name = "(unknown)" if error in ("unknown_tool", "malformed") else name
        self.tool_calls.labels(name).inc()
        if error is not None:
            self.tool_errors.labels(name, error).inc()
        if error == "timeout":
            self.tool_timeouts.labels(name).inc()
        if seconds is not None:
            self.tool_seconds.labels(name).observe(seconds)

    def episode(self, trajectory: Trajectory) -> None:
        """A finished episode: its ending, its length, and the tool calls among its events."""
        domain = trajectory.task.domain
        ending = "unfinished" if trajectory.status is None else trajectory.status.kind
        self.episodes.labels(domain, ending).inc()
        self.episode_turns.labels(domain).observe(len(trajectory.turns))
        for event in trajectory.events:
            if event.kind == "tool":
                self.tool(str(event.data["name"]), event.data.get("error"))

    def exposition(self) -> bytes:
        """The text that a scrape of `/metrics` gets; its type is `CONTENT_TYPE`."""
        return generate_latest(self.registry)
