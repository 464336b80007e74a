"""The report of a run: one HTML file that opens without a server and asks nothing of the network.

What this file is: what the page says and in which order: the finding, success by domain, learning curves,
behaviour, an episode of each domain before and after, figures as tables, recipe and lineage.
What it is not: it evaluates nothing, and no script runs in it (its content policy forbids any).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from burnish.evaluate.charts import Line, Mark, interval_chart, legend, line_chart, percent
from burnish.evaluate.conversation import conversation, prompt
from burnish.evaluate.headline import STAGES, headline
from burnish.evaluate.markup import Html, h
from burnish.evaluate.summary import Figures, Summary, solved, summarize
from burnish.store.codec import task_digest
from burnish.store.files import write_atomically
from burnish.types import Trajectory

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_IMITATION = ("warmup", "sft")
"""Stages of training whose steps learn from demonstrations: their episodes are not the model's."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """What a report is made from. `evaluations` maps a stage (`base`, `warmup`, `trained`; any may be
    missing) to its scored episodes; `metrics` are the run's rows, each with `step` and perhaps `stage`;
    `summary` may add `minutes`; `titles` maps a domain's name to its title; `lineage` are the checkpoints'
    records, first to last.
    """

    name: str
    evaluations: Mapping[str, Sequence[Trajectory]]
    metrics: Sequence[Mapping[str, Any]] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    lineage: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """One picture of the learning curves: the columns of the metrics rows that it draws, with their labels,
    from the steps that imitate demonstrations or from those that learn from episodes of their own. A column
    that no row has is left out, and so is a picture without columns. `share` is for values in 0 to 1."""

    title: str
    note: str
    columns: Mapping[str, str]
    imitation: bool = False
    share: bool = False


CURVES = (
    Curve("Warm-up loss", "nats per token of the demonstrations", {"loss": "loss"}, imitation=True),
    Curve(
        "Success and reward",
        "mean of a step's episodes",
        {"success": "success", "reward": "reward"},
        share=True,
    ),
    Curve("KL to the reference", "nats per episode", {"kl": "KL"}),
    Curve("Weight of the KL", "as the controller set it", {"beta": "weight"}),
    Curve("Steps of an episode", "mean number of turns", {"turns": "turns"}),
    Curve(
        "Tool failures and timeouts",
        "mean per episode",
        {"tool_errors": "failed calls", "timeouts": "timeouts"},
    ),
    Curve("Tokens of an episode", "sampled, mean", {"tokens": "tokens"}),
    Curve("Entropy", "nats per token", {"entropy": "entropy"}),
)

_TONES = ("trained", "warmup", "base")


def write_report(path: Path, data: ReportData) -> Path:
    """Writes the page. Raises UsageError when the stages were not evaluated on the same tasks."""
    write_atomically(path, render_report(data).encode())
    return path


def render_report(data: ReportData) -> str:
    """The page as text."""
    found = headline(data.evaluations, data.summary.get("minutes"))
    summaries = {stage: summarize(episodes) for stage, episodes in _ordered(data.evaluations).items()}
    sections = [
        ("success", "Success by domain", _success(summaries, data.titles)),
        ("learning", "Learning curves", _learning(data.metrics)),
        ("behaviour", "Behaviour", _behaviour(summaries)),
        ("episodes", "Before and after", _episodes(data)),
        ("figures", "All figures", _figures(summaries, data.titles)),
        ("lineage", "Recipe and lineage", _origin(data)),
    ]
    shown = [(key, title, body) for key, title, body in sections if body is not None]
    page = h(
        "html",
        h(
            "head",
            h("meta", charset="utf-8"),
            h("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            h("meta", name="viewport", content="width=device-width, initial-scale=1"),
            h("meta", name="color-scheme", content="light dark"),
            h("title", f"{data.name} – Burnish report"),
            h("style", _stylesheet()),
        ),
        h(
            "body",
            h("header", _opening(data, found), class_="wide"),
            h("nav", (h("a", title, href=f"#{key}") for key, title, _ in shown), class_="wide"),
            h(
                "main",
                (h("section", h("h2", title), body, id=key) for key, title, body in shown),
                class_="wide",
            ),
            h("footer", "Written by Burnish. This page needs no network and runs no script.", class_="wide"),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _stylesheet() -> Html:
    return Html(files("burnish.evaluate").joinpath("report.css").read_text(encoding="utf-8"))


def _ordered(evaluations: Mapping[str, Sequence[Trajectory]]) -> dict[str, Sequence[Trajectory]]:
    order = [*STAGES, *sorted(evaluations.keys() - STAGES.keys())]
    return {stage: evaluations[stage] for stage in order if stage in evaluations}


def _label(stage: str) -> str:
    return STAGES.get(stage, stage)


def _tone(stage: str) -> str:
    return stage if stage in STAGES else "other"


def _opening(data: ReportData, found: Mapping[str, Any]) -> list[Html]:
    stages = [stage for stage in _ordered(data.evaluations) if found[stage]["success"] is not None]
    tiles = [_stage_tile(stage, found[stage]) for stage in stages]
    tiles += [
        _gain_tile(name, found[key])
        for key, name in (("gain", "Gain over base"), ("gain_over_warmup", "Gain over warm-up"))
        if key in found
    ]
    if found["minutes"] is not None:
        tiles.append(_tile("Time", f"{found['minutes']:.1f} min", "from first rollout to this page", ""))
    return [
        h("p", h("b", "Burnish"), " report", class_="brand"),
        h("h1", data.name),
        h("p", _finding(found, len(found["domains"])), class_="finding"),
        h("div", tiles, class_="tiles"),
    ]


def _finding(found: Mapping[str, Any], domains: int) -> str:
    if "gain" not in found:
        return f"Evaluated on held-out tasks of {_counted(domains, 'domain')}."
    gain, over = found["gain"], found.get("gain_over_warmup")
    text = (
        f"On {_counted(gain['tasks'], 'task')} of {_counted(domains, 'domain')}, success went from "
        f"{percent(found['base']['success'])} to {percent(found['trained']['success'])}"
    )
    if over is not None:
        side = "above" if over["difference"] >= 0 else "below"
        text += f", {abs(100 * over['difference']):.1f} points {side} the supervised warm-up"
    return text + "."


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _tile(title: str, value: str, note: str, tone: str) -> Html:
    shown = h("div", value, class_="value")
    return h(
        "div", h("div", title, class_="label"), shown, h("div", note, class_="note"), class_=f"tile {tone}"
    )


def _stage_tile(stage: str, rate: Mapping[str, Any]) -> Html:
    note = f"95 % interval {percent(rate['low'])} to {percent(rate['high'])}"
    return _tile(_label(stage), percent(rate["success"]), note, f"tone-{_tone(stage)}")


def _gain_tile(title: str, gain: Mapping[str, Any]) -> Html:
    points = f"{100 * gain['difference']:+.1f} pts"
    note = (
        f"95 % interval {100 * gain['low']:+.1f} to {100 * gain['high']:+.1f}, {probability(gain['p_value'])}"
    )
    return _tile(title, points, note, "")


def probability(p: float) -> str:
    """A p value to three digits, or that it is below what is worth telling apart."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def _success(summaries: Mapping[str, Summary], titles: Mapping[str, str]) -> list[Html] | None:
    domains = sorted({name for summary in summaries.values() for name in summary.domains})
    if not domains:
        return None
    rows = {
        domain: [_mark(stage, s.domains[domain]) for stage, s in summaries.items() if domain in s.domains]
        for domain in domains
    }
    whole = {"": [_mark(stage, summary.overall) for stage, summary in summaries.items()]}
    keys = legend([(_tone(stage), _label(stage)) for stage in summaries])
    note = "Share of held-out tasks that were solved, with 95 % Wilson intervals."
    return [
        h("p", note, class_="lead"),
        keys,
        interval_chart({**whole, **rows}, {"": "All domains", **titles}),
    ]


def _mark(stage: str, figures: Figures) -> Mark:
    return Mark(_tone(stage), _label(stage), figures.success, figures.low, figures.high)


def _learning(metrics: Sequence[Mapping[str, Any]]) -> Html | None:
    charts = [chart for curve in CURVES if (chart := _curve(curve, metrics)) is not None]
    return h("div", charts, class_="charts") if charts else None


def _curve(curve: Curve, metrics: Sequence[Mapping[str, Any]]) -> Html | None:
    rows = [row for row in metrics if (row.get("stage") in _IMITATION) == curve.imitation]
    lines: list[Line] = []
    for column, label in curve.columns.items():
        points = [(float(row["step"]), float(row[column])) for row in rows if _number(row.get(column))]
        if points:
            lines.append(Line(label, _TONES[len(lines)], points))
    if not lines:
        return None
    within = all(0 <= y <= 1 for line in lines for _, y in line.points)
    return line_chart(curve.title, curve.note, lines, _phases(rows), curve.share and within)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _phases(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Steps at which another stage of training begins, where there is more than one."""
    starts: list[tuple[float, str]] = []
    for row in metrics:
        name = str(row.get("stage", ""))
        if name and (not starts or starts[-1][1] != name):
            starts.append((float(row["step"]), name))
    return starts if len(starts) > 1 else []


def _behaviour(summaries: Mapping[str, Summary]) -> list[Html] | None:
    if not summaries:
        return None
    head = h("tr", h("th"), (h("th", _label(stage), class_=f"ink-{_tone(stage)}") for stage in summaries))
    rows = [
        h("tr", h("th", title), (h("td", _shown(getattr(s.overall, name), kind)) for s in summaries.values()))
        for name, title, kind in _BEHAVIOUR
    ]
    rows += [
        h(
            "tr",
            h("th", title),
            (h("td", _shown(_ending_share(s, kind), "share")) for s in summaries.values()),
        )
        for kind, title in _ENDINGS.items()
        if any(s.overall.endings.get(kind) for s in summaries.values())
    ]
    note = "Means over the evaluated episodes of all domains."
    return [h("p", note, class_="lead"), _table(head, rows)]


_BEHAVIOUR = (
    ("turns", "Steps per episode", "number"),
    ("tool_calls", "Tool calls per episode", "number"),
    ("tool_failures", "Failed tool calls per episode", "number"),
    ("timeouts", "Timeouts per episode", "number"),
    ("tool_failure_rate", "Share of tool calls that failed", "share"),
    ("timeout_rate", "Share of tool calls that timed out", "share"),
    ("reward", "Reward", "number"),
)
_ENDINGS = {
    "completed": "Episodes that ended in an answer",
    "truncated": "Episodes cut off by a budget",
    "tampered": "Episodes that tampered with their grading",
}


def _ending_share(summary: Summary, kind: str) -> float | None:
    episodes = summary.overall.episodes
    return summary.overall.endings.get(kind, 0) / episodes if episodes else None


def _shown(value: float | None, kind: str) -> str:
    return percent(value) if kind == "share" else "–" if value is None else f"{value:.2f}"


def _table(head: Html, rows: Sequence[Html]) -> Html:
    return h("div", h("table", h("thead", head), h("tbody", rows)), class_="scroll")


def _episodes(data: ReportData) -> list[Html] | None:
    stages = list(_ordered(data.evaluations))
    if not stages:
        return None
    before, after = stages[0], stages[-1]
    domains = sorted({t.task.domain for t in data.evaluations[before]})
    cards = [_card(domain, before, after, data) for domain in domains]
    note = (
        f"One held-out task of each domain: the first that the {_label(after).lower()} model solved and the "
        f"{_label(before).lower()} model did not, or the first of all where there is none."
    )
    return [h("p", note, class_="lead"), *cards]


def _card(domain: str, before: str, after: str, data: ReportData) -> Html:
    first, second = _chosen(domain, data.evaluations[before], data.evaluations[after])
    sides = [(before, first)] + ([(after, second)] if second is not None and after != before else [])
    columns = [
        h("div", h("h4", _label(stage), class_=f"ink-{_tone(stage)}"), conversation(episode), class_="side")
        for stage, episode in sides
    ]
    return h(
        "details",
        h("summary", h("h3", data.titles.get(domain, domain)), _marks([episode for _, episode in sides])),
        prompt(first.task.prompt),
        h("div", columns, class_="sides"),
        class_="card",
        id=f"episode-{domain}",
    )


def _marks(episodes: Sequence[Trajectory]) -> Html:
    signs = {True: ("solved", "good"), False: ("not solved", "bad"), None: ("not scored", "warn")}
    flags = [h("span", signs[solved(e)][0], class_=f"flag {signs[solved(e)][1]}") for e in episodes]
    arrow = [h("span", "→", class_="quiet")] if len(flags) == 2 else []
    return h("span", flags[:1], arrow, flags[1:], class_="marks")


def _chosen(
    domain: str, before: Sequence[Trajectory], after: Sequence[Trajectory]
) -> tuple[Trajectory, Trajectory | None]:
    later: dict[str, Trajectory] = {}
    for trajectory in after:
        later.setdefault(task_digest(trajectory), trajectory)
    own = [t for t in before if t.task.domain == domain]
    pairs = [(t, later.get(task_digest(t))) for t in own]
    turned = [(a, b) for a, b in pairs if b is not None and solved(b) and not solved(a)]
    return (turned or pairs)[0]


def _figures(summaries: Mapping[str, Summary], titles: Mapping[str, str]) -> Html | None:
    if not summaries:
        return None
    names = (
        "Domain",
        "Stage",
        "Tasks",
        "Success",
        "95 % interval",
        "Steps",
        "Tool calls",
        "Failed",
        "Timeouts",
    )
    head = h("tr", (h("th", name) for name in names))
    rows = []
    for domain in ["", *sorted({name for s in summaries.values() for name in s.domains})]:
        for stage, summary in summaries.items():
            figures = summary.domains.get(domain) if domain else summary.overall
            if figures is not None:
                rows.append(_figure_row(titles.get(domain, domain) or "All domains", stage, figures))
    counted = [
        f"{_label(stage)}: {s.invalid} invalid, {s.unscored} unscored"
        for stage, s in summaries.items()
        if s.invalid or s.unscored
    ]
    left_out = (
        h("p", "Left out of every figure. " + "; ".join(counted) + ".", class_="quiet") if counted else None
    )
    return h("div", _table(head, rows), left_out)


def _figure_row(domain: str, stage: str, figures: Figures) -> Html:
    interval = f"{percent(figures.low)} – {percent(figures.high)}"
    numbers = (figures.turns, figures.tool_calls, figures.tool_failure_rate, figures.timeout_rate)
    kinds = ("number", "number", "share", "share")
    shown = [_shown(value, kind) for value, kind in zip(numbers, kinds, strict=True)]
    cells = [str(figures.tasks), percent(figures.success), interval, *shown]
    stage_cell = h("td", _label(stage), class_=f"ink-{_tone(stage)}")
    return h("tr", h("th", domain), stage_cell, (h("td", cell) for cell in cells))


def _origin(data: ReportData) -> list[Html] | None:
    parts = []
    if data.lineage:
        head = h("tr", (h("th", name) for name in ("Step", "Parent", "Weights (SHA-256)", "Audit event")))
        parts.append(_table(head, [_lineage_row(record) for record in data.lineage]))
    if data.recipe:
        text = json.dumps(data.recipe, indent=2, ensure_ascii=False, default=str)
        parts.append(h("details", h("summary", "The recipe as it was resolved"), h("pre", text)))
    return parts or None


def _lineage_row(record: Mapping[str, Any]) -> Html:
    audit = record.get("audit") or {}
    weights = str(record.get("weights", ""))
    cells = (str(record.get("step", "")), str(record.get("parent") or "–"), str(audit.get("seq", "–")))
    return h(
        "tr",
        h("th", cells[0]),
        h("td", cells[1]),
        h("td", h("code", weights[:16], title=weights)),
        h("td", cells[2]),
    )
