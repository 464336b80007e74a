"""The request body of /v1/chat/completions: what is understood, what is ignored, what is refused.

What this file is: a strict reading of untrusted bytes into `ChatRequest`. A parameter that would change the
answer and is not supported is refused by name; one that cannot change it (`IGNORED`) is dropped.
What it is not: it renders nothing and knows no model. docs/serving.md lists the parameters for users.
Source: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from burnish.serve.errors import Refusal, invalid

IGNORED = frozenset(
    {
        "user",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prediction",
        "service_tier",
    }
)
"""Parameters that say who asks, or how to bill or cache, and so cannot change the answer."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "store": (False,),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "verbosity": ("medium",),
}
"""Parameters that are accepted only with values that mean: as usual. `null` always does."""

DEEPEST = 64
"""Levels of nesting that a body may have."""

_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
_Count = Annotated[int, Field(ge=1)]
_StopString = Annotated[str, Field(min_length=1, max_length=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Lenient(BaseModel):
    """Part of a message. Clients echo whole answers back, with fields such as `refusal` and `annotations`."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class TextPart(_Lenient):
    type: Literal["text"]
    text: str


class CalledFunction(_Lenient):
    """`arguments` is JSON text of an object, as the API has it. `name` is whatever the model made up."""

    name: str = Field(min_length=1)
    arguments: str

    @field_validator("arguments")
    @classmethod
    def _an_object(cls, text: str) -> str:
        try:
            value = load_json(text or "{}")
        except ValueError as error:
            raise ValueError(f"not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        return text or "{}"


class CallPart(_Lenient):
    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(_Lenient):
    """One message. `content` is text or parts of type text; only an assistant that calls tools may have
    none."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    tool_calls: list[CallPart] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _fits_its_role(self) -> ChatMessage:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only an assistant's message may have tool_calls")
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError("content is missing")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("tool_call_id belongs to a tool's message, and to no other")
        return self

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class FunctionPart(_Strict):
    """`strict` would promise arguments that fit the schema, which takes constrained decoding."""

    name: str = Field(pattern=_NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Literal[False] | None = None

    @field_validator("parameters")
    @classmethod
    def _an_object_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is None:
            return None
        if schema.get("type", "object") != "object":
            raise ValueError('a schema with "type": "object" is needed')
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict):
            raise ValueError("properties must be an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise ValueError("required must be a list of strings")
        for name, part in properties.items():
            _check_property(name, part)
        return schema


def _check_property(name: str, part: Any) -> None:
    if not isinstance(part, dict | bool):
        raise ValueError(f"properties.{name} must be a schema")
    if isinstance(part, dict):
        kind = part.get("type", [])
        kinds = kind if isinstance(kind, list) else [kind]
        if not all(isinstance(k, str) for k in kinds):
            raise ValueError(f"properties.{name}.type must be a string or a list of strings")
        if not isinstance(part.get("enum", []), list):
            raise ValueError(f"properties.{name}.enum must be a list")


class ToolPart(_Strict):
    type: Literal["function"]
    function: FunctionPart


class StreamOptions(_Strict):
    """`include_obfuscation` pads chunks against observers of the network; nothing is padded here."""

    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class ChatRequest(_Strict):
    """A whole request. `limit` is the wanted number of tokens, under either of its two names."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=10_000)
    tools: list[ToolPart] | None = Field(None, max_length=128)
    tool_choice: Literal["auto", "none"] | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: _StopString | Annotated[list[_StopString], Field(max_length=16)] | None = None
    n: int | None = Field(None, ge=1, le=16)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


def read_request(raw: bytes) -> ChatRequest:
    """Reads and checks a body. Raises Refusal (400) that names the first field that is wrong."""
    try:
        body = load_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise invalid(f"The body is not UTF-8: byte {error.start} cannot be decoded.") from None
    except ValueError as error:
        raise invalid(f"The body is not valid JSON: {error}.") from None
    if not isinstance(body, dict):
        raise invalid("The body must be a JSON object.")
    fields = {name: value for name, value in body.items() if name not in IGNORED}
    for name in [name for name in fields if name in NEUTRAL]:
        _check_neutral(name, fields.pop(name))
    try:
        request = ChatRequest.model_validate(fields)
    except ValidationError as error:
        raise _first_problem(error) from None
    _check_together(request)
    return request


def characters(request: ChatRequest) -> int:
    """The length of all text in a request that becomes part of the prompt."""
    calls = [call.function for message in request.messages for call in message.tool_calls or ()]
    return (
        sum(len(message.text) for message in request.messages)
        + sum(len(call.name) + len(call.arguments) for call in calls)
        + sum(len(tool.model_dump_json()) for tool in request.tools or ())
    )


def load_json(text: str) -> Any:
    """Strict JSON of bounded depth, in which every text can be encoded. Raises ValueError with a short
    reason."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:
        # The advice about an interpreter setting, after the semicolon, is not for a client.
        raise ValueError(str(error).split(";")[0]) from None
    _check_values(value)
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _check_values(value: Any) -> None:
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > DEEPEST:
            raise ValueError(f"it is nested deeper than {DEEPEST} levels")
        if isinstance(item, dict):
            pending += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            pending += [(part, depth + 1) for part in item]
        elif isinstance(item, float) and not math.isfinite(item):
            raise ValueError("a number is too large")
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError:
                raise ValueError("a string holds half a surrogate pair, which is not text") from None


def _check_neutral(name: str, value: Any) -> None:
    # `1 == True` in Python, but not in JSON.
    same = [v for v in NEUTRAL[name] if v == value and isinstance(v, bool) == isinstance(value, bool)]
    if value is None or same:
        return
    accepted = " or ".join(json.dumps(v) for v in NEUTRAL[name])
    message = f"'{name}' is not supported here other than as {accepted}, since it would change the answer."
    raise invalid(message, name, "unsupported_parameter")


def _first_problem(error: ValidationError) -> Refusal:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # Of the alternatives of a union, the one that was followed furthest is what the client meant.
    problem = max(
        (p for p in problems if p["loc"][:1] == problems[0]["loc"][:1]), key=lambda p: len(p["loc"])
    )
    param = _path(problem["loc"])
    if problem["type"] == "extra_forbidden":
        return invalid(f"Unknown parameter: '{param}'.", param, "unknown_parameter")
    if problem["type"] == "missing":
        return invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    why = problem["msg"].removeprefix("Value error, ")
    return invalid(f"Invalid '{param}': {why}.", param, "invalid_value")


def _path(location: tuple[int | str, ...]) -> str:
    """`messages[3].content`. The names of union members that pydantic adds are types, not fields."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "constrained"):
            path += f".{part}" if path else part
        elif not path:
            path = part
    return path


def _check_together(request: ChatRequest) -> None:
    """What no field can know alone."""
    if None not in (request.max_tokens, request.max_completion_tokens) and (
        request.max_tokens != request.max_completion_tokens
    ):
        raise invalid("'max_tokens' and 'max_completion_tokens' differ; give one of them.", "max_tokens")
    if request.stream_options is not None and not request.stream:
        raise invalid("'stream_options' needs 'stream': true.", "stream_options")
    names: set[str] = set()
    for at, tool in enumerate(request.tools or ()):
        name = tool.function.name
        if name in names:
            raise invalid(f"Two tools are named '{name}'.", f"tools[{at}].function.name")
        names.add(name)
    _check_calls(request.messages)


def _check_calls(messages: list[ChatMessage]) -> None:
    """Every tool message answers a call that was made further up and not answered yet."""
    waiting: set[str] = set()
    for at, message in enumerate(messages):
        waiting |= {call.id for call in message.tool_calls or ()}
        if message.tool_call_id is None:
            continue
        if message.tool_call_id not in waiting:
            why = "is no id of a call that was made before and not answered yet"
            where = f"messages[{at}].tool_call_id"
            raise invalid(f"Invalid '{where}': '{message.tool_call_id[:100]}' {why}.", where)
        waiting.remove(message.tool_call_id)
