"""Tools from signatures: the schema that a model is told, and one sentence for every wrong call."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from burnish.tools.tool import tool, tools_of
from burnish.tools.world import World
from burnish.types import ToolCall, UsageError

STOCK_TAKES = 'stock has no argument "arg_json"; it takes "json", "ratio", "deep".'


class Shop(World):
    @tool
    def price(self, item: str, count: int = 1, unit: Literal["eur", "usd"] = "eur") -> str:
        """Price of an item.

        More words that no model is told."""
        return f"{item} {count} {unit}"

    @tool
    async def stock(self, json: list[str], ratio: float, deep: bool = False) -> str:
        """Stock of items."""
        return f"{json} {ratio} {deep}"

    @tool
    def close_shop(self) -> str:
        """Close it."""
        return "closed"


class Nameless(World):
    @tool
    def lost(self, item: str) -> str:
        return item


class Untyped(World):
    @tool
    def lost(self, item) -> str:  # type: ignore[no-untyped-def]
        """Lost."""
        return str(item)


class Starred(World):
    @tool
    def lost(self, *items: str) -> str:
        """Lost."""
        return str(items)


def test_schema_is_that_of_the_signature() -> None:
    price, stock, close = tools_of(Shop)
    assert (price.name, price.description) == ("price", "Price of an item.")
    assert price.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["item"],
        "properties": {
            "item": {"type": "string"},
            "count": {"type": "integer", "default": 1},
            "unit": {"enum": ["eur", "usd"], "type": "string", "default": "eur"},
        },
    }
    assert stock.parameters["properties"]["json"] == {"type": "array", "items": {"type": "string"}}
    assert close.parameters["properties"] == {}


@pytest.mark.parametrize(
    ("name", "arguments", "content"),
    [
        ("price", {"item": "tea"}, "tea 1 eur"),
        ("price", {"item": "tea", "count": 2, "unit": "usd"}, "tea 2 usd"),
        ("stock", {"json": ["a"], "ratio": 2}, "['a'] 2.0 False"),
        ("close_shop", {}, "closed"),
    ],
)
async def test_right_calls(name: str, arguments: dict[str, Any], content: str) -> None:
    seen = await Shop().act(ToolCall(name, arguments, "call_3"))
    assert (seen.content, seen.error, seen.call_id) == (content, None, "call_3")


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("price", {}, 'price needs the argument "item".'),
        ("price", {"item": 3}, 'The argument "item" of price must be a string.'),
        ("price", {"item": "tea", "count": "2"}, 'The argument "count" of price must be an integer.'),
        ("price", {"item": "tea", "count": True}, 'The argument "count" of price must be an integer.'),
        ("price", {"item": "tea", "count": 2.0}, 'The argument "count" of price must be an integer.'),
        ("price", {"item": "tea", "unit": "gbp"}, "The argument \"unit\" of price must be 'eur' or 'usd'."),
        ("price", {"item": None}, 'The argument "item" of price must be a string.'),
        ("stock", {"json": [], "ratio": 1.0, "arg_json": 1}, STOCK_TAKES),
        ("stock", {"json": [1], "ratio": 1.0}, 'The argument "json" of stock must be a string.'),
        ("stock", {"json": "a", "ratio": 1.0}, 'The argument "json" of stock must be a list.'),
        ("close_shop", {"now": 1}, 'close_shop has no argument "now"; it takes none.'),
    ],
)  # fmt: skip
async def test_wrong_calls_are_named(name: str, arguments: dict[str, Any], sentence: str) -> None:
    seen = await Shop().act(ToolCall(name, arguments))
    assert (seen.error, seen.content) == ("malformed", sentence)


async def test_unknown_tool_lists_the_known() -> None:
    seen = await Shop(only=("price",)).act(ToolCall("stock", {"json": [], "ratio": 1.0}))
    assert seen.error == "unknown_tool"
    assert seen.content == 'There is no tool "stock"; there are: price.'


@pytest.mark.parametrize(
    ("world", "what"), [(Nameless, "no docstring"), (Untyped, "no type"), (Starred, "ordinary")]
)
def test_bad_definitions_are_refused(world: type[World], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        tools_of(world)
