"""Messages to tokens and back: the only place that knows both.

What this file is: prompts from a chat template, the tokens that continue a conversation without re-encoding
what was sampled, and the reading of sampled tokens as a message with tool calls.
What it is not: it runs no model, and the form of tool calls is `calls.py`'s.

Tokens in, tokens out: a history's tokens are never made again from its text, since the tokenizer might cut
the same text otherwise than the model did (huggingface/trl#5224). Only the text that is new is encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from burnish.model.calls import OPEN, call_text, listing, parse_calls
from burnish.model.template import DEFAULT_DATE, ChatTemplate, TemplateRefusal, read_json, read_template
from burnish.types import Message, Tool, UsageError

_PROBE = "burnish probe"


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a model said. `message.content` is the raw text without the stop token, calls included; `text` is
    the part outside the calls. A malformed call leaves no call at all, and `error`, a sentence to tell the
    model."""

    message: Message
    text: str
    error: str | None = None


class Renderer:
    """Renders for one model. `stop_ids` end a turn; the first is the one that the template writes after an
    assistant's message. `native_tools`: the template lists tools itself, in the `<tool_call>` form."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, eos_ids: Sequence[int] = ()) -> None:
        self.tokenizer, self.template = tokenizer, template
        source = template.source
        self.native_tools = "tools" in source and OPEN in source and "<function=" not in source
        # a second tokenizer that takes the text of special tokens for text
        self._literal = Tokenizer.from_str(tokenizer.to_str())
        self._literal.encode_special_tokens = True
        added = tokenizer.get_added_tokens_decoder()
        self._specials = {token.content: (i, token) for i, token in added.items() if token.special}
        self._knows_system = self._renders([Message("system", _PROBE), Message("user", "a")])
        self._knows_tool = self._renders(
            [Message("user", "a"), Message("assistant", "b"), Message("tool", _PROBE)]
        )
        end = self._end_of_turn()
        self.stop_ids = tuple(dict.fromkeys([*end, *eos_ids]))
        if not self.stop_ids:
            raise UsageError(
                "the model has no end-of-turn token: the chat template writes no special token after an "
                "assistant's message, and no eos_token_id is in config.json or generation_config.json"
            )
        self._stop_texts = [text for text, (i, _) in self._specials.items() if i in self.stop_ids]

    @classmethod
    def from_directory(cls, path: Path, today: date = DEFAULT_DATE) -> Renderer:
        """Reads tokenizer.json, tokenizer_config.json and the chat template of a model directory. `today` is
        what a template that prints the date is told; it is fixed so that prompts do not follow the clock.
        Raises UsageError for a missing or unreadable file and for a tokenizer without a chat template."""
        path = Path(path)
        if not path.is_dir():
            raise UsageError(f"{path}: no such model directory")
        config = read_json(path / "tokenizer_config.json")
        source = read_template(path, config)
        tokenizer = load_tokenizer(path)
        specials = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
        try:
            template = ChatTemplate(source, _named_tokens(config), specials, today)
            return cls(tokenizer, template, _eos_ids(path))
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None

    def start(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        """The ids of a whole prompt, up to where the assistant's answer begins. BOS is there only where the
        template writes it. Raises UsageError when the template rejects the conversation."""
        data = self._data(messages, tools)
        guards = self.template.guards_for(data)
        return self._encode(self.template.render(*data, guards=guards), guards)

    def extend(
        self, history: Sequence[Message], new: Sequence[Message], tools: Sequence[Tool], ended: bool
    ) -> tuple[int, ...] | None:
        """The ids to append after an assistant's output, the last message of `history`, so that it can answer
        `new`. `ended`: that output's last id was a stop token, which is then not written again. None when
        the template renders the history otherwise than it was (it cuts old reasoning out, say): then the
        old ids are no prefix of the new prompt, and the caller starts a new root with `start`."""
        if not history or history[-1].role != "assistant":
            raise ValueError(
                "extend continues an assistant's output, which must be the history's last message"
            )
        before, answer = self._data(history[:-1], tools), history[-1]
        whole = self._data([*history, *new], tools)
        guards = self.template.guards_for(whole)
        old = self.template.render(*before, guards=guards) + self.template.protect(_content(answer), guards)
        text = self.template.render(*whole, guards=guards)
        if not text.startswith(old):
            return None
        suffix = text[len(old) :]
        if ended:
            stop = next((s for s in self._stop_texts if suffix.startswith(s)), "")
            suffix = suffix[len(stop) :]
        return self._encode(suffix, guards)

    def demonstrate(self, message: Message) -> tuple[int, ...]:
        """The ids that a model would have sampled for an assistant's message: its content as it stands (or
        its calls, when it has calls that the content does not show), and the stop token."""
        pieces = self._plain(_content(message))
        return (*pieces, self.stop_ids[0])

    def parse(self, output_ids: Sequence[int], first_call: int = 0) -> Parsed:
        """Reads sampled ids; a stop token at the end is not part of the content. Call ids count from
        `first_call`."""
        ids = list(output_ids)
        if ids and ids[-1] in self.stop_ids:
            ids.pop()
        content = self.decode(ids)
        parsed = parse_calls(content, first_call)
        message = Message("assistant", content, parsed.calls, error=parsed.error)
        return Parsed(message, parsed.text, parsed.error)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included. Bytes that are not UTF-8 become U+FFFD."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def stream(self) -> Detokenizer:
        """A fresh incremental decoder for one output."""
        return Detokenizer(self)

    def _data(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """What the template is given: messages and tools as OpenAI-style plain data."""
        messages = list(messages)
        native = None
        if tools and self.native_tools:
            native = [_openai_tool(tool) for tool in tools]
        elif tools:
            messages = _with_listing(messages, tools)
        if not self._knows_system:
            messages = _system_into_user(messages)
        if not self._knows_tool:
            messages = _tool_into_user(messages)
        return [_plain_data(m) for m in messages], native

    def _encode(self, text: str, guards: Mapping[str, str]) -> tuple[int, ...]:
        """Rendered text to ids. Without guards every special token in it is the template's own."""
        if not guards:
            return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        pieces = self.template.split(text, guards)
        for at, (piece, special) in enumerate(pieces):
            if special:
                ids.append(self._specials[piece][0])
                continue
            # ordinary pieces and special tokens alternate; a token may claim the spaces beside it
            if at > 0 and self._specials[pieces[at - 1][0]][1].rstrip:
                piece = piece.lstrip()
            if at + 1 < len(pieces) and self._specials[pieces[at + 1][0]][1].lstrip:
                piece = piece.rstrip()
            ids += self._plain(piece)
        return tuple(ids)

    def _plain(self, text: str) -> list[int]:
        """Text to ids, none of them special, whatever the text says."""
        ids: list[int] = self._literal.encode(text, add_special_tokens=False).ids
        return ids

    def _renders(self, messages: Sequence[Message]) -> bool:
        """Whether the template shows the probe text: some templates reject or drop a role."""
        try:
            text = self.template.render([_plain_data(m) for m in messages], generate=False)
        except TemplateRefusal:
            return False
        return _PROBE in text

    def _end_of_turn(self) -> list[int]:
        """The special token that the template writes after an assistant's message, if any."""
        talk = [Message("user", "a"), Message("assistant", _PROBE)]
        text = self.template.render([_plain_data(m) for m in talk], generate=False)
        after = self.template.split(text.rpartition(_PROBE)[2], {})
        closes = len(after) > 1 and not after[0][0].strip()
        return [self._specials[after[1][0]][0]] if closes else []


class Detokenizer:
    """Ids to text as they come. Text is given out only in whole characters, stop tokens are left out, and all
    pieces joined are the decoding of all ids."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._ids: list[int] = []  # a window: the last ids that were given out, then those that were not
        self._shown = 0  # how many of them were given out

    def push(self, ids: Sequence[int]) -> str:
        """The text that these ids complete; may be empty."""
        self._ids += [i for i in ids if i not in self._renderer.stop_ids]
        before, now = self._window()
        # U+FFFD at the end is most likely a character whose other bytes are still to come
        if now.endswith("\ufffd") or len(now) <= len(before):
            return ""
        self._ids, self._shown = self._ids[self._shown :], len(self._ids) - self._shown
        return now[len(before) :]

    def finish(self) -> str:
        """What was held back, when no more ids come."""
        before, now = self._window()
        self._ids, self._shown = [], 0
        return now[len(before) :]

    def _window(self) -> tuple[str, str]:
        # the given-out ids stay for context: some decoders treat the first token of a text otherwise
        return self._renderer.decode(self._ids[: self._shown]), self._renderer.decode(self._ids)


def load_tokenizer(directory: Path) -> Tokenizer:
    """tokenizer.json of a model directory. Raises UsageError when it is missing or unreadable."""
    file = directory / "tokenizer.json"
    if not file.is_file():
        raise UsageError(f"{file}: the file is missing; a model directory needs it")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(f"{file}: not a tokenizer: {error}") from None


def _content(message: Message) -> str:
    """The raw text of a message. One that came with calls but without their text (from an API client, say)
    gets their canonical text."""
    if not message.tool_calls or OPEN in message.content:
        return message.content
    return "\n".join([*([message.content] if message.content else []), *map(call_text, message.tool_calls)])


def _plain_data(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": _content(message)}


def _openai_tool(tool: Tool) -> dict[str, Any]:
    body = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": body}


def _with_listing(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The tools' listing goes at the end of the system message, or is one."""
    if messages and messages[0].role == "system":
        return [replace(messages[0], content=f"{messages[0].content}\n\n{listing(tools)}"), *messages[1:]]
    return [Message("system", listing(tools)), *messages]


def _system_into_user(messages: Sequence[Message]) -> list[Message]:
    """For templates without a system role: its text opens the first user message."""
    if not messages or messages[0].role != "system":
        return list(messages)
    if len(messages) > 1 and messages[1].role == "user":
        joined = f"{messages[0].content}\n\n{messages[1].content}"
        return [replace(messages[1], content=joined), *messages[2:]]
    return [replace(messages[0], role="user"), *messages[1:]]


def _tool_into_user(messages: Sequence[Message]) -> list[Message]:
    """For templates without a tool role: results become one user message, since such templates want users
    and assistants to alternate."""
    out: list[Message] = []
    after_tool = False
    for message in messages:
        is_tool = message.role == "tool"
        if is_tool:
            message = Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
        if after_tool and message.role == "user":
            message = replace(message, content=f"{out.pop().content}\n{message.content}")
        out.append(message)
        after_tool = is_tool
    return out


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token`, `eos_token` and so on, as templates refer to them."""
    tokens: dict[str, str] = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def _eos_ids(directory: Path) -> list[int]:
    """eos_token_id of generation_config.json, else of config.json; one or several."""
    for name in ("generation_config.json", "config.json"):
        if (directory / name).is_file():
            found = read_json(directory / name).get("eos_token_id")
            ids = [i for i in (found if isinstance(found, list) else [found]) if isinstance(i, int)]
            if ids:
                return ids
    return []
