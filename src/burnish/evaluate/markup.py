"""HTML that cannot be injected into: every text is escaped by construction.

What this file is: `h`, which builds an element. A child or attribute that is a plain string is text and is
escaped; only what `h` itself returned goes in as it is. A template engine is not used: it would trust its
templates, and one forgotten filter would let a model's output run as a script.
What it is not: a document; `report.py` writes that.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = frozenset(("meta", "br", "hr", "link", "line", "path", "circle"))
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_DIRECTION = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Html(str):
    """Markup that is safe to put into a page. Only `h`, `join` and literals of this program make it."""

    __slots__ = ()


Child = str | Html | int | None | Iterable["Child"]


def h(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element. `class_` is `class`, other underscores are hyphens; an attribute of None or False is left
    out, one of True has no value."""
    opened = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID and not children:
        return Html(f"<{name}{opened}/>")
    return Html(f"<{name}{opened}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Children one after the other; None is nothing."""
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int):
        return escape(str(child))
    return join(child)


def _attribute(name: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(value if isinstance(value, str) else f"{value:g}")}"'


def escape(text: str) -> Html:
    """Text as HTML. Control characters become their pictures, characters that turn the direction of writing
    are named, and what no encoding can carry is replaced, so that a text looks like what it is."""
    text = _INVISIBLE.sub(lambda m: chr(0x2400 + ord(m[0])) if m[0] != "\x7f" else "\u2421", text)
    text = _DIRECTION.sub(lambda m: f"[U+{ord(m[0]):04X}]", text)
    return Html(html.escape(text.encode("utf-8", "replace").decode()))
