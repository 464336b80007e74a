"""Small Python functions with one bug each, from which the tasks of `repair` are made.

What this file is: tables of functions by class of bug, train and held out apart, and the hidden cases that
tell the right function from the wrong one.
What it is not: it runs no code. Expected results come from a walk over the handful of expression forms that
the tables use, so that a table row is the only place that says what a function does.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
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
CALLS: Mapping[str, Callable[[Any], Any]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "len": len,
    "sorted": sorted,
    "product": math.prod,
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
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return CALLS[name](_walk(argument, names))
    raise ValueError(f"the bug tables use no {type(node).__name__}")


@dataclass(frozen=True, slots=True)
class Bug:
    """One function. `kinds` gives the kind of each parameter: n (a number), w (a word) or l (a list of
    numbers); `says` completes "it should return ..."; `good` and `bad` are what its last line returns, and
    `before` the lines above; `right` and `wrong` are what these come to, as expressions in the parameters."""

    name: str
    parameters: str
    kinds: str
    says: str
    good: str
    bad: str
    right: str
    wrong: str
    before: tuple[str, ...] = ()

    def source(self, returned: str, docstring: bool) -> str:
        """The function as text, with `returned` in its last line."""
        doc = (f'"""Return {self.says}."""',) if docstring else ()
        body = (*doc, *self.before, f"return {returned}")
        return f"def {self.name}({self.parameters}):\n" + "".join(f"    {row}\n" for row in body)

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

    def example(self, rng: Random, cases: Sequence[Case]) -> tuple[list[Any], Any, Any]:
        """Arguments that are in none of the cases, with the right and the wrong result, which differ."""
        while True:
            arguments, right, wrong = self._drawn(rng)
            if right != wrong and all(arguments != other for other, _ in cases):
                return arguments, right, wrong

    def _drawn(self, rng: Random) -> tuple[list[Any], Any, Any]:
        arguments = self._arguments(rng)
        names = dict(zip(self.parameters.split(", "), arguments, strict=True))
        return arguments, value(self.right, names), value(self.wrong, names)

    def _arguments(self, rng: Random) -> list[Any]:
        numbers, words = rng.sample(range(2, 60), 8), rng.sample(THINGS, 4)
        if rng.random() < 0.2:
            numbers[1] = numbers[0]
        taken = {"n": iter(numbers), "w": iter(words)}
        length = rng.randint(3, 6)
        return [rng.sample(range(2, 60), length) if kind == "l" else next(taken[kind]) for kind in self.kinds]


def _table(rows: str) -> tuple[Bug, ...]:
    """Functions of one line: name | parameters | kinds | says | good | bad."""
    bugs = []
    for row in rows.strip().splitlines():
        name, parameters, kinds, says, good, bad = row.split(" | ")
        bugs.append(Bug(name, parameters, kinds, says, good, bad, right=good, wrong=bad))
    return tuple(bugs)


def _loop(name: str, items: str, says: str, start: str, step: str, right: str) -> Bug:
    """A loop that gathers something; the bug returns the item instead."""
    gathered = start.split(" ")[0]
    before = (start, f"for n in {items}:", f"    {gathered} = {gathered} {step} n")
    return Bug(name, items, "l", says, gathered, "n", f"{right}({items})", f"{items}[-1]", before)


def _choice(name: str, items: str, says: str, good: str, bad: str, takes: str, leaves: str) -> Bug:
    """Two results, of which the bug returns the other."""
    right, wrong = f"{takes}({items})", f"{leaves}({items})"
    return Bug(name, items, "l", says, good, bad, right, wrong, (f"{good} = {right}", f"{bad} = {wrong}"))


OPERATOR = _table("""
area | w, h | nn | w times h | w * h | w + h
total | a, b | nn | a plus b | a + b | a - b
change | paid, price | nn | paid minus price | paid - price | paid + price
share | cake, people | nn | cake divided by people, rounded down | cake // people | cake * people
sum_three | a, b, c | nnn | a plus b plus c | a + b + c | a + b * c
pay | hours, rate | nn | hours times rate | hours * rate | hours - rate
difference | x, y | nn | x minus y | x - y | x * y
pages | words, size | nn | words divided by size, rounded down | words // size | words - size
""")

COMPARISON = _table("""
larger | a, b | nn | the larger of a and b | a if a > b else b | a if a < b else b
smaller | a, b | nn | the smaller of a and b | a if a < b else b | a if a > b else b
is_same | a, b | nn | True if a equals b | a == b | a != b
is_above | n, limit | nn | True if n is above limit | n > limit | n < limit
is_below | n, limit | nn | True if n is below limit | n < limit | n > limit
is_other | a, b | nn | True if a differs from b | a != b | a == b
top_of | p, q | nn | the larger of p and q | p if p > q else q | p if p < q else q
is_after | day, other | nn | True if day is above other | day > other | day < other
""")

CONSTANT = _table("""
last_item | items | l | the last item, at index -1 | items[-1] | items[-2]
first_item | items | l | the first item, at index 0 | items[0] | items[1]
next_number | n | n | n plus 1 | n + 1 | n + 2
double | n | n | n times 2 | n * 2 | n * 3
half | n | n | n divided by 2, rounded down | n // 2 | n // 3
add_five | n | n | n plus 5 | n + 5 | n + 4
minus_three | n | n | n minus 3 | n - 3 | n - 2
second_item | items | l | the second item, at index 1 | items[1] | items[2]
""")

VARIABLE = _table("""
full_name | first, last | ww | first followed by last | first + last | first + first
add | a, b | nn | a plus b | a + b | a + a
volume | a, b, c | nnn | a times b times c | a * b * c | a * b * b
span | low, high | nn | high minus low | high - low | high - high
square | n, m | nn | n times n | n * n | n * m
ending | word, tail | ww | word followed by tail | word + tail | tail + tail
change_of | paid, price | nn | paid minus price | paid - price | paid - paid
key_of | group, item | ww | group followed by item | group + item | item + item
""")

SWAP = _table("""
minus | a, b | nn | a minus b | a - b | b - a
divide | a, b | nn | a divided by b, rounded down | a // b | b // a
join | first, second | ww | first followed by second | first + second | second + first
left_over | budget, spent | nn | budget minus spent | budget - spent | spent - budget
modulo | a, b | nn | a modulo b | a % b | b % a
glue | left, right | ww | left followed by right | left + right | right + left
ratio | x, y | nn | x divided by y, rounded down | x // y | y // x
gain | after, before | nn | after minus before | after - before | before - after
""")

OPERATOR_HELDOUT = _table("""
cost | count, price | nn | count times price | count * price | count + price
age | year, born | nn | year minus born | year - born | year + born
boxes | items, size | nn | items divided by size, rounded down | items // size | items * size
weight | bag, load | nn | bag plus load | bag + load | bag - load
distance | speed, hours | nn | speed times hours | speed * hours | speed - hours
score | base, bonus | nn | base plus bonus | base + bonus | base * bonus
left | stock, sold | nn | stock minus sold | stock - sold | stock * sold
""")

COMPARISON_HELDOUT = _table("""
older | x, y | nn | the larger of x and y | x if x > y else y | x if x < y else y
cheaper | p, q | nn | the smaller of p and q | p if p < q else q | p if p > q else q
is_hot | heat, mark | nn | True if heat is above mark | heat > mark | heat < mark
is_match | x, y | nn | True if x equals y | x == y | x != y
shorter | x, y | nn | the smaller of x and y | x if x < y else y | x if x > y else y
is_cold | heat, mark | nn | True if heat is below mark | heat < mark | heat > mark
has_changed | old, new | nn | True if old differs from new | old != new | old == new
""")

CONSTANT_HELDOUT = _table("""
final_score | scores | l | the last score, at index -1 | scores[-1] | scores[-2]
winner | scores | l | the first score, at index 0 | scores[0] | scores[1]
triple | x | n | x times 3 | x * 3 | x * 4
add_nine | x | n | x plus 9 | x + 9 | x + 8
third_of | x | n | x divided by 3, rounded down | x // 3 | x // 4
minus_two | x | n | x minus 2 | x - 2 | x - 1
runner_up | scores | l | the second score, at index 1 | scores[1] | scores[0]
""")

VARIABLE_HELDOUT = _table("""
address | street, town | ww | street followed by town | street + town | street + street
sum_of | x, y | nn | x plus y | x + y | x + x
block | x, y, z | nnn | x times y times z | x * y * z | x * y * y
gap | old, new | nn | new minus old | new - old | new - new
profit | income, costs | nn | income minus costs | income - costs | income - income
code_of | word, mark | ww | word followed by mark | word + mark | word + word
pay_for | hours, rate | nn | hours times rate | hours * rate | hours * hours
""")

SWAP_HELDOUT = _table("""
discount | price, cut | nn | price minus cut | price - cut | cut - price
per_person | bill, people | nn | bill divided by people, rounded down | bill // people | people // bill
title | name, tag | ww | name followed by tag | name + tag | tag + name
rest | x, y | nn | x modulo y | x % y | y % x
debt | owed, paid | nn | owed minus paid | owed - paid | paid - owed
greeting | hello, name | ww | hello followed by name | hello + name | name + hello
per_box | total, boxes | nn | total divided by boxes, rounded down | total // boxes | boxes // total
""")
RETURN = (
    _loop("add_all", "items", "the sum of items", "total = 0", "+", "sum"),
    _loop("multiply_all", "items", "the product of items", "result = 1", "*", "product"),
    _choice("largest", "items", "the largest of items", "best", "worst", "max", "min"),
    _choice("count", "items", "the number of items", "size", "total", "len", "sum"),
    _loop("total_of", "numbers", "the sum of numbers", "result = 0", "+", "sum"),
    _choice("smallest", "items", "the smallest of items", "first", "last", "min", "max"),
    _choice("in_order", "items", "items in order", "ordered", "top", "sorted", "max"),
)
RETURN_HELDOUT = (
    _loop("sum_scores", "scores", "the sum of scores", "points = 0", "+", "sum"),
    _choice("lowest", "scores", "the lowest of scores", "low", "high", "min", "max"),
    _loop("product_of", "values", "the product of values", "answer = 1", "*", "product"),
    _choice("highest", "scores", "the highest of scores", "high", "low", "max", "min"),
    _choice("ranked", "scores", "scores in order", "ranks", "points", "sorted", "sum"),
    _choice("how_many", "scores", "the number of scores", "amount", "least", "len", "min"),
)
OTHERS = OPERATOR + COMPARISON + CONSTANT
