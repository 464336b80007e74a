"""Recipes as data: overriding a field from the command line, and the JSON that a run keeps.

What this file is: `override` ("algorithm.clip_high=0.28"), `to_json` and `from_json` for any recipe made of frozen
dataclasses. Every value is checked against its field's type before anything is loaded.
What it is not: a configuration language. A larger change is a recipe of one's own, in Python.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from burnish.types import UsageError

Recipe = TypeVar("Recipe")

KIND = "kind"


def override(recipe: Recipe, assignments: Sequence[str]) -> Recipe:
    """`recipe` with each "path.to.field=value" applied. Values are JSON, or plain text where that is no JSON.
    Raises UsageError for a wrong path (with the nearest valid name), type or value."""
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise UsageError(f"{assignment!r} is not of the form field=value, for instance seed=1")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        recipe = _replace(recipe, path.split("."), value, path)
    return recipe


def _replace(node: Any, path: Sequence[str], value: Any, whole: str) -> Any:
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        raise UsageError(f"{whole}: {path[0]!r} is below a plain value; it has no fields")
    names = [field.name for field in dataclasses.fields(node)]
    if path[0] not in names:
        near = difflib.get_close_matches(path[0], names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; its fields are {', '.join(names)}"
        raise UsageError(f"{whole}: {type(node).__name__} has no field {path[0]!r}{hint}")
    if len(path) > 1:
        new = _replace(getattr(node, path[0]), path[1:], value, whole)
    else:
        new = _build(typing.get_type_hints(type(node))[path[0]], value, whole)
    return dataclasses.replace(node, **{path[0]: new})


def to_json(recipe: Any) -> dict[str, Any]:
    """Plain data; each dataclass says what it is by `kind`."""
    data: dict[str, Any] = {KIND: type(recipe).__name__}
    for field in dataclasses.fields(recipe):
        data[field.name] = _plain(getattr(recipe, field.name))
    return data


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_json(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def from_json(shape: type[Recipe], data: Mapping[str, Any], where: str) -> Recipe:
    """The recipe that `to_json` described. Raises UsageError naming the field that does not fit."""
    built: Recipe = _build(shape, data, where)
    return built


def _build(hint: Any, value: Any, where: str) -> Any:
    choice = _dataclass_for(hint, value, where)
    if choice is None:
        return _checked(hint, value, where)
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} is a {choice.__name__}: set its fields, as in {where}.FIELD=value")
    fields = {field.name for field in dataclasses.fields(choice)}
    unknown = sorted(set(value) - fields - {KIND})
    if unknown:
        raise UsageError(f"{where}: {choice.__name__} has no field {unknown[0]!r}")
    hints = typing.get_type_hints(choice)
    made = {n: _build(hints[n], v, f"{where}.{n}") for n, v in value.items() if n != KIND}
    return choice(**made)


def _dataclass_for(hint: Any, value: Any, where: str) -> Any:
    """The dataclass that `value` describes, among those that `hint` allows; None when it allows none."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    classes: list[Any] = [o for o in options if dataclasses.is_dataclass(o)]
    if not classes:
        return None
    kind = value.get(KIND) if isinstance(value, Mapping) else None
    named = [c for c in classes if c.__name__ == kind] if kind is not None else classes[:1]
    if not named:
        allowed = ", ".join(c.__name__ for c in classes)
        raise UsageError(f"{where}: kind {kind!r} is not one of {allowed}")
    return named[0]


def _checked(hint: Any, value: Any, where: str) -> Any:
    """`value` as the field's type; numbers may be written as integers, but text is never taken for a number."""
    adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(strict=False))
    number = isinstance(value, str) and hint is not str and hint is not Path and not _is_choice(hint)
    if number or (isinstance(value, bool) and hint in (int, float)):
        raise UsageError(f"{where}: {value!r} is not {_name(hint)}")
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{where}: {value!r} is not {_name(hint)}: {error.errors()[0]['msg']}") from None


def _is_choice(hint: Any) -> bool:
    parts = typing.get_args(hint)
    return typing.get_origin(hint) is typing.Literal or any(_is_choice(p) or p in (str, Path) for p in parts)


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint)).replace("typing.", "")
