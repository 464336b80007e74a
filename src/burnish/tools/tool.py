"""Tools from typed methods: schema, description and validation of a call, derived from the signature.

What this file is: the `@tool` decorator, the failure that a tool raises, and what a world needs to know of a
tool to run it.
What it is not: it runs nothing and holds no world (`world.py` does), and it talks to no MCP server.

    class Shop(World):
        @tool
        def price(self, item: str, currency: Literal["eur", "usd"] = "eur") -> str:
            \"\"\"Price of an item.\"\"\"

is told to a model as `price(item, currency?)`, with a JSON Schema whose types are enforced strictly.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from burnish.types import ErrorKind, Observation, Tool, UsageError

ToolResult = str | Observation
ToolMethod = Callable[..., ToolResult | Awaitable[ToolResult]]
F = TypeVar("F", bound=ToolMethod)

_MARK = "__burnish_tool__"


class ToolFailure(Exception):
    """Raised by a tool when the call cannot succeed: the agent sees `message` as the observation, typed with
    `kind`. `costs` are charged to the episode by name, such as `{"wall_s": 30.0}` for a timeout."""

    def __init__(self, kind: ErrorKind, message: str, costs: Mapping[str, float] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.costs = dict(costs or {})


def tool(method: F) -> F:
    """Marks a method of a World as a tool. It may be sync or async and returns a string or an Observation.
    The first line of its docstring is the description; every parameter needs a type that JSON has."""
    setattr(method, _MARK, True)
    return method


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool of a world class: what the model is told, and the model class that validates its arguments."""

    spec: Tool
    arguments: type[BaseModel]

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as keyword arguments of the method. Raises ToolFailure("malformed") with one sentence
        that names the first argument that is wrong."""
        try:
            parsed = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise ToolFailure("malformed", self._sentence(error)) from None
        fields = self.arguments.model_fields
        return {fields[n].alias or n: getattr(parsed, n) for n in fields if n in parsed.model_fields_set}

    def _sentence(self, error: ValidationError) -> str:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "missing" and len(first["loc"]) == 1:
            return f'{self.spec.name} needs the argument "{name}".'
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            takes = ", ".join(f'"{n}"' for n in self.spec.parameters["properties"]) or "none"
            return f'{self.spec.name} has no argument "{name[:40]}"; it takes {takes}.'
        message = first["msg"].removeprefix("Input ").replace("should be", "must be")
        message = message.replace("a valid integer", "an integer").replace("a valid ", "a ")
        return f'The argument "{name}" of {self.spec.name} {message[0].lower()}{message[1:]}.'


@cache
def bound_tools(world: type) -> Mapping[str, BoundTool]:
    """The tools of a class by name, in the order of definition, those of its bases first."""
    found: dict[str, BoundTool] = {}
    for base in reversed(world.__mro__):
        for name, member in vars(base).items():
            if getattr(member, _MARK, False):
                found[name] = _bind(name, getattr(world, name))
    return found


def tools_of(world: type) -> tuple[Tool, ...]:
    """What a model is told of the tools of a world class; goes into `Task.tools`."""
    return tuple(bound.spec for bound in bound_tools(world).values())


def _bind(name: str, method: ToolMethod) -> BoundTool:
    where = f"tool {getattr(method, '__qualname__', name)}"
    text = inspect.getdoc(method)
    if not text:
        raise UsageError(f"{where} has no docstring; its first line is what the model is told.")
    hints = get_type_hints(method, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"{where}: parameter {parameter} must be an ordinary named parameter.")
        if parameter.name not in hints:
            raise UsageError(f"{where}: parameter {parameter.name} has no type.")
        default = ... if parameter.default is parameter.empty else parameter.default
        # The prefix keeps an argument called `json` or `copy` from shadowing a method of BaseModel.
        fields[f"arg_{parameter.name}"] = (hints[parameter.name], Field(default, alias=parameter.name))
    arguments = create_model(name, __config__=ConfigDict(strict=True, extra="forbid"), **fields)
    schema = _without_titles(arguments.model_json_schema(by_alias=True))
    parameters = {"type": "object", "properties": {}, **schema}
    return BoundTool(Tool(name, text.splitlines()[0], parameters), arguments)


def _without_titles(schema: Any) -> Any:
    """Drops the titles that pydantic adds; they repeat the names and cost tokens."""
    if isinstance(schema, dict):
        kept = {k: v for k, v in schema.items() if not (k == "title" and isinstance(v, str))}
        return {k: _without_titles(v) for k, v in kept.items()}
    return [_without_titles(item) for item in schema] if isinstance(schema, list) else schema
