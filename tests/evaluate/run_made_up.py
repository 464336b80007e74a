"""A whole run made up, for looking at the report and for testing it.

`python -m tests.evaluate.run_made_up PAGE.html` writes the page.
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path
from typing import Any

from burnish.evaluate.report import ReportData, write_report
from burnish.types import (
    Budget,
    Event,
    Message,
    Sampling,
    Score,
    Status,
    Stream,
    Task,
    Tool,
    ToolCall,
    Trajectory,
    Turn,
)

TITLES = {
    "api_pages": "An answer that is not on page one",
    "api_faults": "An API that times out and refuses",
    "bounded": "A terminal with few calls",
    "database": "Questions to a database",
    "empty": "Nothing found, said so",
    "files": "Facts about files",
    "iterate": "Read, write, run, revise",
    "private": "Records that hold secrets",
    "repair": "Repair a function",
    "transform": "Transform text files",
}
REACHED = {"base": 0.05, "warmup": 0.58, "trained": 0.78}
SYSTEM = 'You act through tools. Call one as <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'


def task(domain: str, number: int) -> Task:
    question = (
        f"How many orders of customer C-{1000 + 37 * number} are still open? Answer with the number alone."
    )
    return Task(
        id=f"{domain}-{number}",
        domain=domain,
        prompt=(Message("system", SYSTEM), Message("user", question)),
        tools=(Tool("orders", "List orders", {"type": "object"}),),
        budget=Budget(turns=8),
        setup={"seed": number},
        secret={"answer": 6 + number},
        tags={"template": f"{domain}-{number % 3}"},
    )


def turn(index: int, content: str, *calls: ToolCall) -> Turn:
    before = index - 1 if index else None
    return Turn(
        before, before, "main", (1, 2), (3, 4), (-0.1, -0.2), (True, True),
        Message("assistant", content, calls), "stop", Sampling(),
    )  # fmt: skip


def called(content: str, error: str | None = None, of: int = 0, **arguments: Any) -> Event:
    data = {"name": "orders", "arguments": arguments, "content": content, "error": error, "call_id": ""}
    return Event("tool", of, data, 1.5 * of)


def solved_episode(of: Task, stage: str) -> Trajectory:
    first = ToolCall("orders", {"customer": "C-1037", "page": 1, "status": "open"})
    second = ToolCall("orders", {"customer": "C-1037", "page": 2, "status": "open"})
    said = '<tool_call>{"name": "orders", "arguments": {"customer": "C-1037", "page": 1}}</tool_call>'
    page = '{"orders": ["A-1", "A-7", "A-9", "B-2"], "page": 1, "pages": 2}'
    return Trajectory(
        f"{of.id}#{stage}",
        of,
        turns=[
            turn(0, said, first),
            turn(1, "The first call timed out. I try once more." + said, first),
            turn(2, said, second),
            turn(3, "6"),
        ],
        events=[
            Event("fault", 0, {"kind": "timeout", "after": "10 s"}),
            called("The request timed out after 10 s.", "timeout", 0),
            called(page, None, 1),
            called('{"orders": ["B-5", "C-3"], "page": 2, "pages": 2}', None, 2),
        ],
        status=Status("completed"),
        score=Score(
            0.97,
            {"outcome": Stream(1.0), "path": Stream(0.1, (0.0, 0.05, 0.05, None)), "cost": Stream(-0.13)},
        ),
    )


def failed_episode(of: Task, stage: str, variant: int) -> Trajectory:
    if variant % 3 == 0:
        turns = [
            turn(0, "There are 4 open orders for this customer, as far as I can tell from the question.")
        ]
        return Trajectory(
            f"{of.id}#{stage}",
            of,
            turns,
            status=Status("completed"),
            score=Score(0.0, {"outcome": Stream(0.0)}),
        )
    call = ToolCall("orders", {"customer": "C-1037"})
    turns = [turn(i, '<tool_call>{"name": "orders"', call) for i in range(5)]
    events = [called("Too many requests. Retry after 30 s.", "rate_limit", i) for i in range(5)]
    return Trajectory(
        f"{of.id}#{stage}", of, turns, events=events, status=Status("truncated", "turns"),
        score=Score(-0.1, {"outcome": Stream(0.0), "path": Stream(-0.1), "review": Stream(None)}),
    )  # fmt: skip


def evaluation(stage: str, per_domain: int) -> list[Trajectory]:
    draw = random.Random(f"evaluation {stage}")
    episodes = []
    for place, domain in enumerate(TITLES):
        rate = min(
            0.98, max(0.0, REACHED[stage] + (0.03 if stage == "base" else 0.25) * math.sin(2.3 * place))
        )
        for number in range(per_domain):
            won = draw.random() < rate
            made = task(domain, number)
            episodes.append(solved_episode(made, stage) if won else failed_episode(made, stage, number))
    return episodes


def metrics(warmup: int = 30, steps: int = 40) -> list[dict[str, Any]]:
    draw = random.Random("metrics")
    rows: list[dict[str, Any]] = [
        {"step": s, "stage": "warmup", "loss": 0.2 + 2.4 * math.exp(-s / 8) + draw.uniform(-0.05, 0.05)}
        for s in range(warmup)
    ]
    for s in range(steps):
        success = 0.55 + 0.3 * (1 - math.exp(-s / 15)) + draw.uniform(-0.06, 0.06)
        rows.append(
            {
                "step": warmup + s, "stage": "rl", "success": success, "reward": success - 0.07,
                "loss": draw.uniform(-0.02, 0.02), "kl": 0.002 + 0.03 * (1 - math.exp(-s / 10)),
                "beta": 0.05 * 1.05**s, "turns": 4.6 - s / 30 + draw.uniform(-0.2, 0.2),
                "tool_errors": 1.1 * math.exp(-s / 20) + draw.uniform(0, 0.1), "timeouts": 0.2,
                "tokens": 160 - s,
            }
        )  # fmt: skip
    return rows


def made_up_run(per_domain: int = 20) -> ReportData:
    base = "SmolLM2-135M-Instruct"
    lineage = [
        {"step": 29, "parent": base, "weights": "9f" * 32, "audit": {"seq": 4211}},
        {"step": 69, "parent": "step-000029", "weights": "b3" * 32, "audit": {"seq": 61250}},
    ]
    recipe = {"name": "quickstart", "seed": 0, "model": base, "algorithm": {"clip_high": 0.28}}
    return ReportData(
        name="quickstart",
        evaluations={stage: evaluation(stage, per_domain) for stage in REACHED},
        metrics=metrics(),
        recipe=recipe,
        summary={"minutes": 13.4},
        titles=TITLES,
        lineage=lineage,
    )


if __name__ == "__main__":
    write_report(Path(sys.argv[1]), made_up_run())
