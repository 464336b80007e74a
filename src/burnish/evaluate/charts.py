"""Pictures of figures, as SVG inside the page.

What this file is: success with intervals by domain, and curves over steps. Positions are percentages and
strokes do not scale, so that one picture is sharp and legible on a wide screen and on a phone; words stay
HTML.
What it is not: it computes no figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from burnish.evaluate.markup import Html, h
from burnish.observe.progress import format_number

_LANE = 15.0
"""Pixels of height that one stage takes in a row of the interval picture."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A share with its interval, as one stage reached it; None where nothing is known."""

    stage: str
    label: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: points (step, value) in the order of steps, drawn in the colour of `tone`."""

    label: str
    tone: str
    points: Sequence[tuple[float, float]]


def percent(value: float | None) -> str:
    """A share as people read it, or a dash."""
    return "–" if value is None else f"{100 * value:.1f} %".replace(".0 %", " %")


def legend(items: Sequence[tuple[str, str]]) -> Html:
    """Tones and what they stand for."""
    return h("ul", (h("li", h("i", class_=f"tone-{tone}"), label) for tone, label in items), class_="legend")


def interval_chart(rows: Mapping[str, Sequence[Mark]], labels: Mapping[str, str]) -> Html:
    """A row for each name: one lane for each mark, on a scale from 0 to 100 %."""
    scale = h("div", (h("span", f"{x} %", style=f"left:{x}%") for x in (0, 25, 50, 75, 100)), class_="scale")
    lines = [h("div", h("div"), h("div", scale), h("div"), class_="row head", aria_hidden="true")]
    for name, marks in rows.items():
        lines.append(
            h(
                "div",
                h("div", labels.get(name, name), class_="name"),
                h("div", _strip(marks), class_="strip"),
                h("div", _values(marks), class_="values"),
                class_="row",
            )
        )
    return h("div", lines, class_="intervals")


def _values(marks: Sequence[Mark]) -> list[Html]:
    return [h("span", percent(mark.value), class_=f"ink-{mark.stage}") for mark in marks]


def _strip(marks: Sequence[Mark]) -> Html:
    height = _LANE * len(marks) + 6
    parts = [
        h("line", x1=f"{x}%", x2=f"{x}%", y1="0", y2=height, class_="grid") for x in (0, 25, 50, 75, 100)
    ]
    for lane, mark in enumerate(marks):
        if mark.value is not None and mark.low is not None and mark.high is not None:
            parts.append(_interval(mark, 3 + _LANE * (lane + 0.5)))
    described = "; ".join(f"{m.label} {percent(m.value)}" for m in marks)
    return h("svg", parts, width="100%", height=height, role="img", aria_label=described)


def _interval(mark: Mark, y: float) -> Html:
    title = f"{mark.label}: {percent(mark.value)} (95 % interval {percent(mark.low)} to {percent(mark.high)})"
    low, high, value = (f"{100 * (x or 0.0):.2f}%" for x in (mark.low, mark.high, mark.value))
    return h(
        "g",
        h("title", title),
        h("line", x1=low, x2=high, y1=y, y2=y, class_="span"),
        h("circle", cx=value, cy=y, r=4.5),
        class_=f"mark tone-{mark.stage}",
    )


def line_chart(
    title: str,
    note: str,
    lines: Sequence[Line],
    boundaries: Sequence[tuple[float, str]] = (),
    share: bool = False,
) -> Html:
    """Curves over steps. `boundaries` are steps at which a phase begins, with its name; `share` fixes the
    scale to 0 to 100 %."""
    every = [point for line in lines for point in line.points]
    left, right = _range([x for x, _ in every])
    bottom, top, ticks = (0.0, 1.0, [0.0, 0.5, 1.0]) if share else _scale([y for _, y in every])

    def place(x: float, y: float) -> tuple[float, float]:
        return 100 * (x - left) / (right - left), 100 * (top - y) / (top - bottom)

    labels = [
        h(
            "span",
            percent(t) if share else format_number(t),
            style=f"top:{place(left, t)[1]:.2f}%",
            class_="y",
        )
        for t in ticks
    ]
    phases = [
        h("span", name, style=f"left:{place(max(step, left), top)[0]:.2f}%", class_="phase")
        for step, name in boundaries
    ]
    ends = [
        h("span", f"step {format_number(x)}", class_=f"x {side}")
        for x, side in ((left, "from"), (right, "to"))
    ]
    drawn = [_grid(place(left, t)[1]) for t in ticks]
    drawn += [_boundary(place(step, top)[0]) for step, _ in boundaries if step > left]
    drawn += [_curve(line, [place(x, y) for x, y in line.points]) for line in lines]
    spoken = "; ".join(f"{line.label} ends at {format_number(line.points[-1][1])}" for line in lines)
    picture = h(
        "svg", drawn, viewBox="0 0 100 100", preserveAspectRatio="none", role="img", aria_label=spoken
    )
    keys = legend([(line.tone, line.label) for line in lines]) if len(lines) > 1 else None
    return h(
        "figure",
        h("figcaption", h("b", title), h("span", note)),
        keys,
        h("div", picture, labels, phases, ends, class_="plot"),
        class_="chart",
    )


def _grid(y: float) -> Html:
    return h("line", x1="0", x2="100", y1=f"{y:.2f}", y2=f"{y:.2f}", class_="grid")


def _boundary(x: float) -> Html:
    return h("line", x1=f"{x:.2f}", x2=f"{x:.2f}", y1="0", y2="100", class_="boundary")


def _curve(line: Line, places: Sequence[tuple[float, float]]) -> Html:
    course = " ".join(f"{'L' if i else 'M'}{x:.2f} {y:.2f}" for i, (x, y) in enumerate(places))
    # A line of no length with round ends is a dot that stays round when the picture is stretched.
    dots = " ".join(f"M{x:.2f} {y:.2f}h0" for x, y in places) if len(places) <= 24 else ""
    return h("g", h("path", d=course), h("path", d=dots, class_="dots"), class_=f"curve tone-{line.tone}")


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _scale(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Bottom, top and ticks at round numbers; 0 is shown when it is near."""
    low, high = min(values), max(values)
    if low >= 0 and low < 0.6 * high:
        low = 0.0
    span = (high - low) or abs(high) or 1.0
    step = _round_step(span / 3)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return first * step, last * step, [i * step for i in range(first, last + 1)]


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
