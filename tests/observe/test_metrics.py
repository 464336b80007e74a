"""The exposition that Prometheus scrapes."""

from __future__ import annotations

from burnish.observe.metrics import Metrics
from burnish.types import Budget, Event, Message, Status, Task, Trajectory


def lines(metrics: Metrics) -> set[str]:
    return set(metrics.exposition().decode().splitlines())


def test_requests_tokens_and_tools_are_counted() -> None:
    metrics = Metrics()
    metrics.request("/v1/chat/completions", 200, 0.3)
    metrics.used(prompt=100, completion=20)
    metrics.tool("shell", seconds=0.01)
    metrics.tool("shell", error="timeout", seconds=9.0)
    metrics.tool("rm -rf / #1", error="unknown_tool")
    metrics.tool("", error="malformed")
    found = lines(metrics)
    assert 'burnish_requests_total{route="/v1/chat/completions",status="200"} 1.0' in found
    assert 'burnish_request_seconds_bucket{le="0.5",route="/v1/chat/completions"} 1.0' in found
    assert 'burnish_tokens_total{direction="completion"} 20.0' in found
    assert 'burnish_tool_calls_total{tool="shell"} 2.0' in found
    assert 'burnish_tool_timeouts_total{tool="shell"} 1.0' in found
    assert 'burnish_tool_errors_total{error="unknown_tool",tool="(unknown)"} 1.0' in found
    assert 'burnish_tool_calls_total{tool="(unknown)"} 2.0' in found
    assert not any("rm -rf" in line for line in found)


def test_an_episode_counts_its_ending_and_its_tools() -> None:
    metrics = Metrics()
    task = Task("t", "files", (Message("user", "x"),), (), Budget(), {}, {})
    events = [
        Event("tool", 0, {"name": "read", "error": None}),
        Event("tool", 0, {"name": "read", "error": "not_found"}),
        Event("fault", 0, {"kind": "timeout"}),
    ]
    metrics.episode(Trajectory("a", task, events=events, status=Status("truncated", "turns")))
    metrics.episode(Trajectory("b", task))
    found = lines(metrics)
    assert 'burnish_episodes_total{domain="files",ending="truncated"} 1.0' in found
    assert 'burnish_episodes_total{domain="files",ending="unfinished"} 1.0' in found
    assert 'burnish_tool_calls_total{tool="read"} 2.0' in found
    assert 'burnish_tool_errors_total{error="not_found",tool="read"} 1.0' in found


def test_instances_share_nothing() -> None:
    first, second = Metrics(), Metrics()
    first.tool("shell")
    assert not any(line.startswith("burnish_tool_calls_total{") for line in lines(second))
