"""Domain 10, iterate: read a file, write code for it, run it, and revise the code after its error.

What this file is: templates whose first natural attempt fails with an error that says what to change. A file
of numbers shows its first lines when read, and the odd line lies further down; a module shows what to call,
and the call says how it wants its argument.
What it is not: no answer can be read off, and none needs the model to calculate; the code does that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from burnish.domains.lexicon import FOLDERS, PEOPLE, STEMS, THINGS, pick, text
from burnish.domains.workspace import LIMITS, Draft, FileDomain, FileWorld, clip, printed, templates
from burnish.tools.tool import tool, tools_of

SHOWN_HEAD = 5
"""Lines that a look at a file shows: few, so that what is odd about it comes out only in the running."""

OPERATIONS: dict[str, Callable[[list[int]], int]] = {"sum": sum, "max": max, "min": min}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is odd about some lines deep in a file of numbers. `odd` writes such a line from a number and a
    mark; `draw` gives their numbers, given the range of the others, or is None where the lines hold none.
    `number` and `where` are how code reads a line `x` and which lines it takes."""

    marks: tuple[str, ...]
    odd: Callable[[int, str], str]
    draw: Callable[[Random, int, int], list[int]] | None = None
    number: str = "int(x)"
    where: str = ""


def beyond(rng: Random, low: int, high: int) -> list[int]:
    """Two numbers below and two above a range, so that code which leaves the odd lines out is wrong."""
    return [*rng.sample(range(low - 40, low), 2), *rng.sample(range(high + 1, high + 40), 2)]


def thousands(rng: Random, low: int, high: int) -> list[int]:
    return rng.sample(range(1000, 10000), 3)


UNIT = Trouble(
    ("kg", "cm", "km", "liters", "boxes", "days"),
    lambda number, mark: f"{number} {mark}",
    beyond,
    number="int(x.split()[0])",
)
COMMA = Trouble(
    (",",),
    lambda number, mark: f"{number // 1000}{mark}{number % 1000:03d}",
    thousands,
    number="int(x.replace(',', ''))",
)
JUNK = Trouble(
    ("none", "lost", "error", "empty", "skip", "void"),
    lambda _, mark: mark,
    where=" if '{mark}' not in x",
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """A template: something to work out from a file of numbers, and the trouble that is in it."""

    operation: str
    trouble: Trouble
    wording: str

    def __call__(self, rng: Random) -> Draft:
        trouble, mark = self.trouble, rng.choice(self.trouble.marks)
        path = f"{rng.choice(FOLDERS)}/{rng.choice(STEMS)}.txt"
        low = rng.randint(120, 600)
        high = low + 300
        plain = rng.sample(range(low, high), rng.randint(30, 45))
        special = trouble.draw(rng, low, high) if trouble.draw else []
        answer = OPERATIONS[self.operation](plain + special)
        while answer in plain[:SHOWN_HEAD]:
            rng.shuffle(plain)
        # The error shows the first odd line, so the answer must not be in that.
        odd = sorted(pick(rng, special, len(special)), key=lambda number: number == answer) or [0, 0]
        where = trouble.where.format(mark=mark)
        attempts = (
            f"print({self.operation}(int(x) for x in open('{path}')))",
            f"print({self.operation}({trouble.number} for x in open('{path}'){where}))",
        )
        return Draft(
            self.wording.format(path=path),
            {path: text(_spread(rng, plain, [trouble.odd(number, mark) for number in odd]))},
            (("read", {"path": path}), *(("python", {"code": code}) for code in attempts)),
            answer=str(answer),
            errors=1,
        )


def _spread(rng: Random, numbers: Sequence[int], odd: Sequence[str]) -> list[str]:
    """The odd lines, in their order, among the plain ones, none of them where a look at the head shows it."""
    lines = [str(number) for number in numbers]
    places = sorted(rng.sample(range(SHOWN_HEAD, len(lines)), len(odd)), reverse=True)
    for place, line in zip(places, reversed(odd), strict=True):
        lines.insert(place, line)
    return lines


@dataclass(frozen=True, slots=True)
class Lookup:
    """A template: something to look up with a module's function, which refuses the first call. Its error says
    how to write the name (one of `forms`), or which function to use instead (one of `insteads`)."""

    module: str
    title: str
    function: str
    wording: str
    forms: tuple[str, ...] = ("{}",)
    insteads: tuple[str, ...] = ()

    def __call__(self, rng: Random) -> Draft:
        path, form = f"{self.module}.py", rng.choice(self.forms)
        forms = {thing: form.format(thing, thing.upper()) for thing in pick(rng, THINGS, 12)}
        table = {form: rng.randint(100, 999) for form in forms.values()}
        name, right = next(iter(forms.items()))
        function = rng.choice(self.insteads or (self.function,))
        attempts = (
            f"from {self.module} import {self.function}; print({self.function}('{name}'))",
            f"from {self.module} import {function}; print({function}('{right}'))",
        )
        head = text([self.title, "", f"Call {self.function}(name).", f"Kept by {rng.choice(PEOPLE)}."])
        tables = f"FORMS = {forms}\nTABLE = {dict(pick(rng, list(table.items()), len(table)))}\n"
        return Draft(
            self.wording.format(name=name, path=path),
            {path: f'"""{head}"""\n\n{self._functions(function)}\n\n{tables}'},
            (("read", {"path": path}), *(("python", {"code": code}) for code in attempts)),
            answer=str(table[right]),
            errors=1,
        )

    def _functions(self, function: str) -> str:
        """The code of the module, far enough below its head that a look does not show it."""
        refusal = ""
        if function != self.function:
            error = f"raise ValueError('{self.function} is old, use {function}')"
            refusal = f"def {self.function}(name):\n    {error}\n\n\n"
        error = "raise ValueError(f'write {name} as {FORMS.get(name)}')"
        found = "if name in TABLE:\n        return TABLE[name]"
        return f"{refusal}def {function}(name):\n    {found}\n    {error}\n"


TRAIN: dict[str, Numbers | Lookup] = {
    "sum-junk": Numbers(
        "sum", JUNK, "Compute the sum of the numbers in {path}. Leave out lines without a number."
    ),
    "max-junk": Numbers("max", JUNK, "What is the max of the numbers in {path}? Some lines have no number."),
    "sum-unit": Numbers("sum", UNIT, "What is the sum of the numbers in {path}?"),
    "min-unit": Numbers("min", UNIT, "What is the min of the numbers in {path}?"),
    "min-comma": Numbers("min", COMMA, "What is the min of the numbers in {path}?"),
    "max-comma": Numbers("max", COMMA, "What is the max of the numbers in {path}?"),
    "price-form": Lookup(
        *("shop", "Prices of the shop.", "price", "Use {path} to find the price of {name}."),
        forms=("{1}", "the_{0}", "{0}_1"),
    ),
    "amount-form": Lookup(
        *("stock", "What is in stock.", "amount", "What amount does {path} give for {name}?"),
        forms=("{1}", "my_{0}", "{0}_a"),
    ),
    "rent-instead": Lookup(
        *("rent", "Rents by thing.", "rent", "With {path}, find the rent of {name}."),
        insteads=("fee", "cost", "charge", "total"),
    ),
}
HELDOUT: dict[str, Numbers | Lookup] = {
    "min-junk": Numbers("min", JUNK, "Tell me the min of all numbers in {path}; skip lines that have none."),
    "max-unit": Numbers("max", UNIT, "The file {path} has numbers. Report the max."),
    "sum-comma": Numbers("sum", COMMA, "I need the sum of all numbers in {path}."),
    "weight-form": Lookup(
        *("scale", "Weights of things.", "weight", "How much does {name} weigh? Ask {path}."),
        forms=("old_{0}", "{0}_x", "{1}_2"),
    ),
    "age-instead": Lookup(
        *("ages", "Ages of things.", "age", "How old is {name}? The module {path} can say."),
        insteads=("years", "months", "span"),
    ),
}


class CodeWorld(FileWorld):
    @tool
    async def read(self, path: str) -> str:
        """Read the head of a file."""
        return clip((await self.content(path)).decode(errors="replace"), SHOWN_HEAD) or "(empty)"

    @tool
    async def python(self, code: str) -> str:
        """Run Python code."""
        return printed(await self.sandbox.run(["python3", "-B", "-"], stdin=code.encode(), limits=LIMITS))


class IterateDomain(FileDomain):
    name = "iterate"
    title = "Write code, run it, and revise it after its error"
    world = CodeWorld
    tools = tools_of(CodeWorld)
    templates = templates(train=TRAIN, heldout=HELDOUT)
