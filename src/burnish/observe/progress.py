"""The live view in the terminal: how far, how long still, and the latest figures.

What this file is: `LiveView`, with a progress bar where someone watches, plain lines where output goes to a
file, and nothing at all where a machine reads (`--json`).
What it is not: a log. What it shows is written elsewhere, in `metrics.jsonl` and `events.jsonl`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Mode = Literal["live", "plain", "silent"]

_PLAIN_LINES = 20
"""At most so many plain lines for one phase: a log is read afterwards, by people."""


class LiveView:
    """Shows the phases of a run, one after the other, each with its own length.

    with LiveView() as view:
        view.phase("warm-up", total=40)
        view.advance(success=0.31, loss=1.2)
    """

    def __init__(
        self,
        mode: Mode | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`mode` None: live on a terminal, plain elsewhere. Goes to standard error, so that what a command
        prints as its result stays clean."""
        self._console = console if console is not None else Console(file=sys.stderr, highlight=False)
        self._mode: Mode = mode or ("live" if self._console.is_terminal else "plain")
        self._clock = clock
        self._progress: Progress | None = None
        self._bar: TaskID | None = None
        self._title = ""
        self._total = 0
        self._done = 0
        self._first = 0
        self._started = 0.0
        self._figures: dict[str, float] = {}

    def __enter__(self) -> LiveView:
        if self._mode == "live":
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=28),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}", markup=False),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self._console,
                transient=False,
            )
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def phase(self, title: str, total: int, done: int = 0) -> None:
        """A new stretch of work of `total` steps, of which `done` are done already (after a resume)."""
        self._title, self._total, self._done, self._first = title, total, done, done
        self._started = self._clock()
        self._figures = {}
        if self._progress is not None:
            self._bar = self._progress.add_task(title, total=total, completed=done, figures="")
        elif self._mode == "plain":
            at = f", continuing at {done}" if done else ""
            self._print(f"{title}: {total} steps{at}")

    def advance(self, steps: int = 1, **figures: float | None) -> None:
        """`steps` more are done, and these are the latest figures; those of before stay shown."""
        before, self._done = self._done, self._done + steps
        self._figures |= {name: value for name, value in figures.items() if value is not None}
        text = format_figures(self._figures)
        if self._progress is not None and self._bar is not None:
            self._progress.update(self._bar, completed=self._done, figures=text)
        elif self._mode == "plain" and self._due(before):
            self._print(f"{self._title} {self._done}/{self._total}  {text}  {self._left()}".rstrip())

    def note(self, text: str) -> None:
        """A line that stays on the screen, above the bar."""
        if self._progress is not None:
            self._progress.console.print(Text(text))
        elif self._mode == "plain":
            self._print(text)

    def _due(self, before: int) -> bool:
        """Whether this step is one of the few that get a plain line; the last always is."""
        stride = max(1, -(-self._total // _PLAIN_LINES))
        return self._done >= self._total or before // stride != self._done // stride

    def _left(self) -> str:
        remaining = self._total - self._done
        here = self._done - self._first
        if remaining <= 0 or here <= 0:
            return ""
        seconds = (self._clock() - self._started) / here * remaining
        return f"{format_seconds(seconds)} left"

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def format_figures(figures: Mapping[str, float]) -> str:
    """Figures as `name 0.312`, in the order given; small numbers keep three significant digits."""
    return "  ".join(f"{name.replace('_', ' ')} {format_number(value)}" for name, value in figures.items())


def format_number(value: float) -> str:
    """Three significant digits, without an exponent where that stays readable."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.2e}"


def format_seconds(seconds: float) -> str:
    """A duration as `42 s`, `3 min 20 s` or `1 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
