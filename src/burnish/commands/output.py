"""What commands print: results on standard output, everything else on standard error.

What this file is: one JSON object for machines, tables for people, and text that a model or a program wrote
made safe to show.
What it is not: the live progress of long work; that is `observe.progress`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.store.files import to_json
from burnish.types import BurnishError

# Control characters but for tab and newline, and those that change the direction of writing: a terminal obeys
# them, and what a model or a tool wrote must not command it.
_COMMANDING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Stopped(BurnishError):
    """Somebody pressed Ctrl-C. The message says what was kept and how to go on."""

    exit_code = 130


def emit(value: Mapping[str, Any]) -> None:
    """The one JSON object of `--json`."""
    sys.stdout.write(to_json(value).decode() + "\n")
    sys.stdout.flush()


def say(text: str = "", end: str = "\n") -> None:
    """A result for people, safe for a terminal."""
    sys.stdout.write(visible(text) + end)
    sys.stdout.flush()


def note(text: str) -> None:
    """Something beside the result."""
    sys.stderr.write(visible(text) + "\n")
    sys.stderr.flush()


def visible(text: str) -> str:
    """`text` with what a terminal would obey written out, and half surrogates as question marks."""
    shown = _COMMANDING.sub(lambda m: f"\\x{ord(m[0]):02x}", text.replace("\r\n", "\n"))
    return shown.encode("utf-8", "replace").decode()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 1) -> None:
    """A table on standard output. Columns from `numbers_from` on are set to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(Text(column), justify="right" if index >= numbers_from else "left", overflow="fold")
    for row in rows:
        made.add_row(*[Text(visible(cell)) for cell in row])
    # In a pipe nobody's screen is narrow.
    width = None if sys.stdout.isatty() else 200
    Console(file=sys.stdout, highlight=False, width=width).print(made)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
