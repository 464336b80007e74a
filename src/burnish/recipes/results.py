"""What a run reached: `summary.json`, the page, and the lines that end a run.

What this file is: the writing of results from what a run directory holds, so that a page can be made again at any
time.
What it is not: it computes no statistics (`evaluate`) and runs no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from burnish.evaluate.headline import headline
from burnish.evaluate.report import ReportData, write_report
from burnish.observe.audit import read_events
from burnish.store.run import RunDirectory


def write_results(run: RunDirectory, titles: Mapping[str, str]) -> dict[str, Any]:
    """Writes `summary.json` and `report.html`; returns the summary. `titles` names the domains for people."""
    evaluations = run.evaluations()
    summary = headline(evaluations, minutes=minutes(run))
    run.write_json("summary.json", summary)
    data = ReportData(
        name=str(run.recipe.get("name", run.path.name)),
        evaluations=evaluations,
        metrics=run.metrics(),
        recipe=run.recipe,
        summary=summary,
        titles=titles,
        lineage=[asdict(checkpoint.lineage) for checkpoint in run.checkpoints()],
    )
    write_report(run.report_path, data)
    return summary


def minutes(run: RunDirectory) -> float:
    """How long the run was worked on: from each `run` event to the last event before the next one, so that the
    time between a kill and its resume does not count."""
    total, first, last = 0.0, None, None
    for event in read_events(run.events_path):
        at = datetime.fromisoformat(event["time"])
        if event["kind"] == "run" or first is None:
            total += (last - first).total_seconds() if first and last else 0.0
            first = at
        last = at
    total += (last - first).total_seconds() if first and last else 0.0
    return total / 60


def closing_lines(run: RunDirectory, summary: Mapping[str, Any]) -> list[str]:
    """What a person reads at the end: success by stage with intervals, the paired tests, and where to look."""
    lines = []
    for stage in ("base", "warmup", "trained"):
        if stage in summary:
            s = summary[stage]
            interval = f"[{s['low']:.1%}, {s['high']:.1%}]"
            lines.append(f"{stage:>8}: {s['success']:.1%} of {s['tasks']} held-out tasks  95 % {interval}")
    for key, against in (("gain", "base"), ("gain_over_warmup", "warm-up")):
        if key in summary:
            g = summary[key]
            lines.append(
                f"trained over {against}: {g['difference']:+.1%} [{g['low']:+.1%}, {g['high']:+.1%}], "
                f"paired p = {g['p_value']:.2g} (exact over tasks: {g['p_permutation']:.2g})"
            )
    lines.append(f"{summary['minutes']:.1f} minutes; the page: {run.report_path}")
    return lines
