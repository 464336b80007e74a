"""Small Python functions with one bug each, from which the tasks of `repair` are made.

What this file is: tables of functions by class of bug, train and held out apart, and the hidden cases that
tell the right function from the wrong one.
What it is not: it runs no code. Expected results come from a walk over the handful of expression forms that
the tables use, so that a table row is the only place that says what a function does.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from burnish.domains.lexicon import THINGS

Case = tuple[list[Any], Any]

BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}


def value(expression: str, names: Mapping[str, Any]) -> Any:
    """What `expression`, one of this file's, is worth when `names` have the values given."""
    return _walk(ast.parse(expression, mode="eval").body, names)


def _walk(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=constant):
            return constant
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, names)
        case ast.BinOp(left=left, op=op, right=right):
            return BINARY[type(op)](_walk(left, names), _walk(right, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return BINARY[type(op)](_walk(left, names), _walk(right, names))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _walk(body if _walk(test, names) else orelse, names)
        case ast.Subscript(value=items, slice=index):
            return _walk(items, names)[_walk(index, names)]
    raise ValueError(f"the bug tables use no {type(node).__name__}")


@dataclass(frozen=True, slots=True)
class Bug:
    """One function of one line. `kinds` gives the kind of each parameter: n (a number), w (a word) or l (a
    list of numbers); `good` and `bad` are the expressions that it should return and returns."""

    name: str
    parameters: str
    kinds: str
    good: str
    bad: str

    def source(self, docstring: bool) -> str:
        """The function as it is, with a docstring that says what it should return where one is wanted."""
        doc = f'    """Return {self.good}."""\n' if docstring else ""
        return f"def {self.name}({self.parameters}):\n{doc}    return {self.bad}\n"

    def cases(self, rng: Random, count: int) -> list[Case]:
        """`count` different cases. The first three, at least, are ones that the bug gets wrong, and no one
        result is right for all of them."""
        found: list[Case] = []
        while len(found) < count:
            arguments, right, wrong = self._drawn(rng)
            dull = len(found) == count - 1 and all(right == other for _, other in found)
            seen = any(arguments == other for other, _ in found)
            if not (dull or seen or (len(found) < 3 and right == wrong)):
                found.append((arguments, right))
        return found

    def _drawn(self, rng: Random) -> tuple[list[Any], Any, Any]:
        arguments = self._arguments(rng)
        names = dict(zip(self.parameters.split(", "), arguments, strict=True))
        return arguments, value(self.good, names), value(self.bad, names)

    def _arguments(self, rng: Random) -> list[Any]:
        numbers, words = rng.sample(range(2, 60), 8), rng.sample(THINGS, 4)
        if rng.random() < 0.2:
            numbers[1] = numbers[0]
        taken = {"n": iter(numbers), "w": iter(words)}
        length = rng.randint(3, 6)
        return [rng.sample(range(2, 60), length) if kind == "l" else next(taken[kind]) for kind in self.kinds]


def _table(rows: str) -> tuple[Bug, ...]:
    """Functions: name | parameters | kinds | good | bad."""
    return tuple(Bug(*row.split(" | ")) for row in rows.strip().splitlines())


OPERATOR = _table("""
area | w, h | nn | w * h | w + h
total | a, b | nn | a + b | a - b
change | paid, price | nn | paid - price | paid + price
share | cake, people | nn | cake // people | cake * people
sum_three | a, b, c | nnn | a + b + c | a + b * c
pay | hours, rate | nn | hours * rate | hours - rate
difference | x, y | nn | x - y | x * y
pages | words, size | nn | words // size | words - size
""")

COMPARISON = _table("""
larger | a, b | nn | a if a > b else b | a if a < b else b
smaller | a, b | nn | a if a < b else b | a if a > b else b
is_same | a, b | nn | a == b | a != b
is_above | n, limit | nn | n > limit | n < limit
is_below | n, limit | nn | n < limit | n > limit
is_other | a, b | nn | a != b | a == b
top_of | p, q | nn | p if p > q else q | p if p < q else q
is_after | day, other | nn | day > other | day < other
""")

CONSTANT = _table("""
last_item | items | l | items[-1] | items[-2]
first_item | items | l | items[0] | items[1]
next_number | n | n | n + 1 | n + 2
double | n | n | n * 2 | n * 3
half | n | n | n // 2 | n // 3
add_five | n | n | n + 5 | n + 4
minus_three | n | n | n - 3 | n - 2
second_item | items | l | items[1] | items[2]
""")

VARIABLE = _table("""
full_name | first, last | ww | first + last | first + first
add | a, b | nn | a + b | a + a
volume | a, b, c | nnn | a * b * c | a * b * b
span | low, high | nn | high - low | high - high
square | n, m | nn | n * n | n * m
ending | word, tail | ww | word + tail | tail + tail
change_of | paid, price | nn | paid - price | paid - paid
key_of | group, item | ww | group + item | item + item
""")

SWAP = _table("""
minus | a, b | nn | a - b | b - a
divide | a, b | nn | a // b | b // a
join | first, second | ww | first + second | second + first
left_over | budget, spent | nn | budget - spent | spent - budget
modulo | a, b | nn | a % b | b % a
glue | left, right | ww | left + right | right + left
ratio | x, y | nn | x // y | y // x
gain | after, before | nn | after - before | before - after
""")

OPERATOR_HELDOUT = _table("""
cost | count, price | nn | count * price | count + price
age | year, born | nn | year - born | year + born
boxes | items, size | nn | items // size | items * size
weight | bag, load | nn | bag + load | bag - load
distance | speed, hours | nn | speed * hours | speed - hours
score | base, bonus | nn | base + bonus | base * bonus
left | stock, sold | nn | stock - sold | stock * sold
""")

COMPARISON_HELDOUT = _table("""
older | x, y | nn | x if x > y else y | x if x < y else y
cheaper | p, q | nn | p if p < q else q | p if p > q else q
is_hot | heat, mark | nn | heat > mark | heat < mark
is_match | x, y | nn | x == y | x != y
shorter | x, y | nn | x if x < y else y | x if x > y else y
is_cold | heat, mark | nn | heat < mark | heat > mark
has_changed | old, new | nn | old != new | old == new
""")

CONSTANT_HELDOUT = _table("""
final_score | scores | l | scores[-1] | scores[-2]
winner | scores | l | scores[0] | scores[1]
triple | x | n | x * 3 | x * 4
add_nine | x | n | x + 9 | x + 8
third_of | x | n | x // 3 | x // 4
minus_two | x | n | x - 2 | x - 1
runner_up | scores | l | scores[1] | scores[0]
""")

VARIABLE_HELDOUT = _table("""
address | street, town | ww | street + town | street + street
sum_of | x, y | nn | x + y | x + x
block | x, y, z | nnn | x * y * z | x * y * y
gap | old, new | nn | new - old | new - new
profit | income, costs | nn | income - costs | income - income
code_of | word, mark | ww | word + mark | word + word
pay_for | hours, rate | nn | hours * rate | hours * hours
""")

SWAP_HELDOUT = _table("""
discount | price, cut | nn | price - cut | cut - price
per_person | bill, people | nn | bill // people | people // bill
title | name, tag | ww | name + tag | tag + name
rest | x, y | nn | x % y | y % x
debt | owed, paid | nn | owed - paid | paid - owed
greeting | hello, name | ww | hello + name | name + hello
per_box | total, boxes | nn | total // boxes | boxes // total
""")
TRAIN = OPERATOR + COMPARISON + CONSTANT + VARIABLE + SWAP
HELDOUT = OPERATOR_HELDOUT + COMPARISON_HELDOUT + CONSTANT_HELDOUT + VARIABLE_HELDOUT + SWAP_HELDOUT
