"""The text form of tool calls: how a model is told of its tools, and how its calls are written and read.

What this file is: the one convention of docs/tool-calls.md, used where a chat template has no tools of its
own: a listing of the tools, the canonical text of a call, and one parser for whole answers and for streams.
What it is not: it knows no tokens and no template, and it does not check arguments against a tool's schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from burnish.types import Tool, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"

PREAMBLE = (
    'To use a tool, write <tool_call>{"name": "tool", "arguments": {"key": "value"}}</tool_call> and wait '
    "for its result. When done, answer in plain text. Tools:\n"
)

_TYPES = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "null",
}


def call_text(call: ToolCall) -> str:
    """The canonical text of a call, as oracles write it. The id is not part of it."""
    body = {"name": call.name, "arguments": dict(call.arguments)}
    return OPEN + json.dumps(body, ensure_ascii=False) + CLOSE


def listing(tools: Sequence[Tool]) -> str:
    """The part of the system message that tells a model of its tools: how to call, then one line for each,
    `name(required, optional?, n: int): Description.`"""
    return PREAMBLE + "\n".join(
        f"{tool.name}({', '.join(_parameters(tool.parameters))}): {' '.join(tool.description.split())}"
        for tool in tools
    )


def _parameters(schema: Mapping[str, Any]) -> Iterable[str]:
    required = schema.get("required", ())
    for name, what in schema.get("properties", {}).items():
        kind = _type_name(what)
        yield name + ("" if name in required else "?") + (f": {kind}" if kind else "")


def _type_name(schema: Any) -> str:
    """A short type name; empty for strings, which are what a reader expects anyway."""
    if not isinstance(schema, Mapping):
        return ""
    if "enum" in schema:
        return "|".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    kind = schema.get("type", "")
    kinds = kind if isinstance(kind, list) else [kind]
    names = [_TYPES.get(k, "str") for k in kinds if k]
    return "" if names in ([], ["str"]) else "|".join(names)


class _Malformed(Exception):
    """A call that cannot be read; the text is what the model is told."""


def _read_call(text: str, number: int) -> ToolCall:
    """The call in `text`, a JSON object and nothing else."""
    try:
        body = json.loads(text, parse_constant=_no_constant)
        text.encode()
        json.dumps(body, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _Malformed(f"The tool call is not valid JSON: {error.msg} at character {error.pos}.") from None
    except UnicodeEncodeError:
        raise _Malformed("The tool call holds half a surrogate pair, which is not text.") from None
    except RecursionError:
        raise _Malformed("The tool call is nested too deeply.") from None
    except ValueError as error:  # NaN and Infinity, or an integer of thousands of digits
        raise _Malformed(f"The tool call is not valid JSON: {str(error).split(';')[0]}.") from None
    if not isinstance(body, dict):
        raise _Malformed("The tool call is not a JSON object.")
    extra = [key for key in body if key not in ("name", "arguments")]
    if not isinstance(body.get("name"), str) or not body["name"]:
        raise _Malformed('The tool call has no "name".')
    if not isinstance(body.get("arguments"), dict):
        raise _Malformed('The tool call needs "arguments", a JSON object.')
    if extra:
        raise _Malformed(f'The tool call has an unknown key "{extra[0]}"; it takes "name" and "arguments".')
    return ToolCall(name=body["name"], arguments=body["arguments"], id=f"call_{number}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


@dataclass(frozen=True, slots=True)
class ParsedText:
    """An answer taken apart. `text` is what lies outside the calls. A malformed call leaves `error` (a
    sentence for the model), and then none of the calls may be executed: `calls` is empty."""

    text: str
    calls: tuple[ToolCall, ...]
    error: str | None


def parse_calls(text: str, first_call: int = 0) -> ParsedText:
    """Reads a whole answer. Call ids count from `first_call`: `call_0`, `call_1`, ..."""
    parser = CallParser(first_call)
    pieces = [*parser.feed(text), *parser.finish()]
    calls = tuple(piece for piece in pieces if isinstance(piece, ToolCall))
    if parser.error is not None:
        return ParsedText(text=text, calls=(), error=parser.error)
    return ParsedText("".join(p for p in pieces if isinstance(p, str)), calls, None)


class CallParser:
    """Reads a stream of text pieces, cut anywhere, into content (str) and whole calls (ToolCall), in order.

    Content that may be the beginning of a tag is held back until that is decided, so half a tag is never
    shown. The end of a call's JSON is found by counting brackets outside strings, so an argument may contain
    the closing tag. At a malformed call `error` is set, and the call and all that follows it come out as
    content, for the reader to see. Joining the content gives the same text for every way of cutting."""

    def __init__(self, first_call: int = 0) -> None:
        self.error: str | None = None
        self._number = first_call
        self._state: Literal["content", "object", "close", "faulty"] = "content"
        self._held = ""  # in content: a possible beginning of OPEN; in a call: all of it since OPEN
        self._scanned = 0  # how much of a held call has been scanned
        self._end = 0  # where its JSON object ends
        self._depth = 0
        self._quoted = self._escaped = False

    def feed(self, text: str) -> list[str | ToolCall]:
        """What this piece completes; may be empty."""
        out: list[str | ToolCall] = []
        self._held += text
        while self._step(out):
            pass
        return out

    def finish(self) -> list[str | ToolCall]:
        """What was held back, when no more text comes. An open call becomes an error."""
        if self._state in ("object", "close"):
            try:
                _read_call(self._held.removeprefix(OPEN).partition(CLOSE)[0], self._number)
                self.error = f"The tool call is not closed with {CLOSE}."
            except _Malformed as error:
                unclosed = CLOSE not in self._held and self._state == "object"
                self.error = f"The tool call is not closed with {CLOSE}." if unclosed else str(error)
        rest, self._held, self._state = self._held, "", "faulty"
        return [rest] if rest else []

    def _step(self, out: list[str | ToolCall]) -> bool:
        """One transition; False when the held text decides nothing more."""
        if self._state == "content":
            return self._content(out)
        if self._state == "object":
            return self._object()
        if self._state == "close":
            return self._close(out)
        if self._held:
            out.append(self._held)
            self._held = ""
        return False

    def _content(self, out: list[str | ToolCall]) -> bool:
        before, tag, _ = self._held.partition(OPEN)
        keep = 0 if tag else _beginning(before, OPEN)
        ready = before[: len(before) - keep]
        if ready:
            out.append(ready)
        self._held = self._held[len(ready) :]
        if not tag:
            return False
        self._state, self._scanned, self._depth = "object", len(OPEN), 0
        self._quoted = self._escaped = False
        return True

    def _object(self) -> bool:
        while self._scanned < len(self._held):
            character = self._held[self._scanned]
            self._scanned += 1
            if self._quoted:
                self._quoted = self._escaped or character != '"'
                self._escaped = not self._escaped and character == "\\"
            elif self._depth == 0 and character != "{":
                if character not in " \t\r\n":
                    return self._fault("The tool call is not a JSON object.")
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._state, self._end = "close", self._scanned
                    return True
            else:
                self._quoted = character == '"'
        return False

    def _close(self, out: list[str | ToolCall]) -> bool:
        rest = self._held[self._end :].lstrip(" \t\r\n")
        if len(rest) < len(CLOSE) and CLOSE.startswith(rest):
            return False
        if not rest.startswith(CLOSE):
            return self._fault(f"The tool call is not closed with {CLOSE} after its JSON object.")
        try:
            out.append(_read_call(self._held[len(OPEN) : self._end], self._number))
        except _Malformed as error:
            return self._fault(str(error))
        self._number += 1
        self._state, self._held = "content", rest[len(CLOSE) :]
        return True

    def _fault(self, error: str) -> bool:
        self.error, self._state = error, "faulty"
        return True


def _beginning(text: str, tag: str) -> int:
    """The length of the longest end of `text` that begins `tag`."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)
