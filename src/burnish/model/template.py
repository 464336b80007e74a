"""A model's chat template: messages to text, in which only the template itself can write special tokens.

What this file is: it finds the template of a model directory and renders it in minijinja, where data is plain
(no Python attributes, no code) and work is bounded by fuel.
What it is not: it knows no token ids, and nothing of tool calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import minijinja

from burnish.types import UsageError

FUEL = 10_000_000  # instructions; a conversation of a thousand messages takes far less
DEFAULT_DATE = date(2024, 7, 26)  # what Llama's own templates fall back to: prompts must not follow the clock


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises UsageError that names the file and what is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: the file is missing; a model directory needs it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a JSON object was expected, not {type(data).__name__}")
    return data


def read_template(directory: Path, tokenizer_config: Mapping[str, Any]) -> str:
    """The chat template's source: `chat_template.jinja`, else in tokenizer_config.json (where several are
    named, the one named `default`). Raises UsageError when there is none."""
    separate = directory / "chat_template.jinja"
    if separate.is_file():
        return separate.read_text(encoding="utf-8")
    found = tokenizer_config.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default")
    if not isinstance(found, str) or not found:
        raise UsageError(
            f"{directory}: the tokenizer has no chat template, so messages cannot be turned into a prompt; "
            "use the instruction-tuned variant of the model, or add a chat_template.jinja to the directory"
        )
    return found


class TemplateRefusal(UsageError):
    """The template itself rejected the conversation, or failed on it."""


class ChatTemplate:
    """Renders conversations. `tokens` are the named special tokens that templates may refer to (`bos_token`);
    `specials` the texts of all special tokens, which a message must not be able to write."""

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, str],
        specials: Sequence[str],
        today: date = DEFAULT_DATE,
    ) -> None:
        self.source = source
        self._tokens = dict(tokens)
        longest_first = sorted((s for s in specials if s), key=lambda s: (-len(s), s))
        self._specials = re.compile("|".join(map(re.escape, longest_first)) if longest_first else r"(?!)")
        # `generation` only marks what the assistant wrote; minijinja does not know it
        plain = re.sub(r"(\{%-?\s*)generation(\s*-?%\})", r"\1if true\2", source)
        plain = re.sub(r"(\{%-?\s*)endgeneration(\s*-?%\})", r"\1endif\2", plain)
        try:
            # the block settings are those that Hugging Face templates are written for
            self._environment = minijinja.Environment(
                templates={"chat": plain}, fuel=FUEL, trim_blocks=True, lstrip_blocks=True
            )
            self._environment.add_filter("tojson", _to_json)
            self._environment.add_global("raise_exception", _refuse)
            self._environment.add_global("strftime_now", lambda form: today.strftime(form))
            self._environment.undeclared_variables_in_template("chat")
        except minijinja.TemplateError as error:
            raise UsageError(f"the chat template cannot be compiled: {_first_line(error)}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        generate: bool = True,
        guards: Mapping[str, str] | None = None,
    ) -> str:
        """The text of a conversation. With `guards` (from `guards_for`), special tokens that stand in the
        data are replaced by their guards, so that those in the result are the template's own; `split` puts
        them back. Raises TemplateRefusal when the template rejects the messages."""
        data: dict[str, Any] = json.loads(json.dumps({"messages": messages, "tools": tools}))
        if guards:
            data = self._protected(data, guards)
        try:
            return self._environment.render_template(
                "chat", **self._tokens, **data, add_generation_prompt=generate
            )
        except minijinja.TemplateError as error:
            raise TemplateRefusal(f"the chat template failed: {_first_line(error)}") from None

    def guards_for(self, data: Any) -> dict[str, str]:
        """For every special token that stands in a string of `data`, a private-use character that occurs
        nowhere in `data` or the template. Usually empty: then there is nothing to guard against."""
        strings = list(_strings(data))
        found = sorted({match for s in strings for match in self._specials.findall(s)})
        if not found:
            return {}
        taken = set(self.source).union(*strings)
        free = (chr(c) for c in [*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE)] if chr(c) not in taken)
        return dict(zip(found, free, strict=False))

    def protect(self, text: str, guards: Mapping[str, str]) -> str:
        """`text` with its special tokens replaced by their guards."""
        return self._specials.sub(lambda match: guards[match.group()], text) if guards else text

    def split(self, text: str, guards: Mapping[str, str]) -> list[tuple[str, bool]]:
        """Cuts rendered text into ordinary pieces, guarded text put back, and special tokens (True)."""
        back = str.maketrans({character: special for special, character in guards.items()})
        pieces: list[tuple[str, bool]] = []
        at = 0
        for match in self._specials.finditer(text):
            pieces += [(text[at : match.start()].translate(back), False), (match.group(), True)]
            at = match.end()
        return [*pieces, (text[at:].translate(back), False)]

    def _protected(self, data: Any, guards: Mapping[str, str]) -> Any:
        if isinstance(data, str):
            return self.protect(data, guards)
        if isinstance(data, list):
            return [self._protected(item, guards) for item in data]
        if isinstance(data, dict):
            return {self.protect(key, guards): self._protected(value, guards) for key, value in data.items()}
        return data


def _strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for pair in data.items():
            yield from _strings(pair)
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _strings(item)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """transformers' `tojson`, which, unlike Jinja's, does not escape for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> str:
    raise TemplateRefusal(f"the chat template rejects this conversation: {message}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
