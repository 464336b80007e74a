"""The live view: lines in a file, a bar on a terminal, silence for machines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from burnish.observe.progress import LiveView, Mode, format_number, format_seconds


def view_of(mode: Mode | None, terminal: bool = False) -> tuple[LiveView, io.StringIO]:
    out = io.StringIO()
    ticks = iter(range(10_000))
    console = Console(file=out, force_terminal=terminal, width=120, highlight=False, color_system=None)
    return LiveView(mode, console, clock=lambda: float(next(ticks))), out


def test_plain_lines_tell_steps_figures_and_time_left() -> None:
    view, out = view_of(None)
    with view:
        view.phase("training", total=4)
        view.advance(success=0.25, loss=None)
        view.advance(loss=2.0)
        view.advance(2, success=0.5)
        view.note("[bold]not markup[/bold]")
    assert out.getvalue().splitlines() == [
        "training: 4 steps",
        "training 1/4  success 0.25  3 s left",
        "training 2/4  success 0.25  loss 2  2 s left",
        "training 4/4  success 0.5  loss 2",
        "[bold]not markup[/bold]",
    ]


def test_a_long_phase_prints_few_lines_and_always_the_last() -> None:
    view, out = view_of("plain")
    with view:
        view.phase("evaluation", total=1007)
        for _ in range(1007):
            view.advance()
    shown = out.getvalue().splitlines()
    assert len(shown) <= 22 and shown[-1].startswith("evaluation 1007/1007")


def test_a_resumed_phase_counts_only_its_own_time() -> None:
    view, out = view_of("plain")
    with view:
        view.phase("training", total=10, done=8)
        view.advance()
    assert out.getvalue().splitlines() == ["training: 10 steps, continuing at 8", "training 9/10    1 s left"]


def test_silent_prints_nothing() -> None:
    view, out = view_of("silent", terminal=True)
    with view:
        view.phase("training", total=2)
        view.advance(success=1.0)
        view.note("done")
    assert out.getvalue() == ""


def test_a_terminal_gets_a_bar_with_the_figures() -> None:
    view, out = view_of(None, terminal=True)
    with view:
        view.phase("training [x]", total=2)
        view.advance(2, success=0.5)
        view.note("kept [above]")
    text = out.getvalue()
    assert "training [x]" in text and "2/2" in text and "success 0.5" in text and "kept [above]" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.12345, "0.123"), (12345.6, "12,346"), (1e12, "1.00e+12"), (0.0000012, "1.20e-06")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(41.6, "42 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")])
def test_durations_are_read_by_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
