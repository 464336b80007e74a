"""Domain 10, iterate: read a file, write code for it, run it, and revise the code after its error.

What this file is: templates whose first natural attempt fails with an error that says what to change. A file
of numbers shows its first lines when read, and the odd lines are further down; a module shows what to call,
and the call says how it wants its argument, or what to call instead. Each has two train templates and a
held-out one, which asks in new words and of modules, functions and forms that no train task has.
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
class Numbers:
    """A template: something to work out from a file of numbers, some of which, deep in it, have a comma for
    the thousands. Code that leaves these out is wrong."""

    wording: str
    operations: tuple[str, ...]

    def __call__(self, rng: Random) -> Draft:
        path, operation = f"{rng.choice(FOLDERS)}/{rng.choice(STEMS)}.txt", rng.choice(self.operations)
        # With numbers on both sides of the plain ones, the odd ones decide the sum, the max and the min.
        plain = rng.sample(range(4000, 9000), rng.randint(30, 45))
        odd = [*rng.sample(range(1000, 3000), 2), *rng.sample(range(10_000, 30_000), 2)]
        answer = OPERATIONS[operation](plain + odd)
        # The error shows the first odd line, so the answer must not be in that.
        odd.sort(key=lambda number: (number == answer, rng.random()))
        attempts = (
            f"print({operation}(int(x) for x in open('{path}')))",
            f"print({operation}(int(x.replace(',', '')) for x in open('{path}')))",
        )
        return Draft(
            self.wording.format(path=path, operation=operation),
            {path: text(_spread(rng, plain, [f"{number:,}" for number in odd]))},
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
    how to write the name (one of `forms`), or which function to use instead (one of `insteads`). `functions`
    are the modules' names with the function of each."""

    wording: str
    functions: tuple[tuple[str, str], ...]
    forms: tuple[str, ...] = ("{}",)
    insteads: tuple[str, ...] = ()

    def __call__(self, rng: Random) -> Draft:
        (module, asked), form = rng.choice(self.functions), rng.choice(self.forms)
        path = f"{module}.py"
        forms = {thing: form.format(thing, thing.upper()) for thing in pick(rng, THINGS, 12)}
        table = {form: rng.randint(100, 999) for form in forms.values()}
        name, right = next(iter(forms.items()))
        used = rng.choice(self.insteads or (asked,))
        attempts = (
            f"from {module} import {asked}; print({asked}('{name}'))",
            f"from {module} import {used}; print({used}('{right}'))",
        )
        head = text([f"The {module} module.", "", f"Call {asked}(name).", f"Kept by {rng.choice(PEOPLE)}."])
        tables = f"FORMS = {forms}\nTABLE = {dict(pick(rng, list(table.items()), len(table)))}\n"
        return Draft(
            self.wording.format(name=name, path=path, asked=asked),
            {path: f'"""{head}"""\n\n{_functions(asked, used)}\n\n{tables}'},
            (("read", {"path": path}), *(("python", {"code": code}) for code in attempts)),
            answer=str(table[right]),
            errors=1,
        )


def _functions(asked: str, used: str) -> str:
    """The code of the module, far enough below its head that a look does not show it."""
    refusal = ""
    if used != asked:
        refusal = f"def {asked}(name):\n    raise ValueError('{asked} is old, use {used}')\n\n\n"
    error = "raise ValueError(f'write {name} as {FORMS.get(name)}')"
    found = "if name in TABLE:\n        return TABLE[name]"
    return f"{refusal}def {used}(name):\n    {found}\n    {error}\n"


FUNCTIONS = (
    *(("shop", "price"), ("stock", "amount"), ("rent", "fee"), ("bank", "rate"), ("road", "length")),
    *(("mail", "count"), ("tax", "share"), ("hall", "place"), ("farm", "harvest"), ("lab", "level")),
)
NEW_FUNCTIONS = (("scale", "weight"), ("ages", "age"), ("port", "depth"), ("park", "area"), ("team", "score"))
INSTEADS = ("cost", "total", "value", "find", "number", "get")
NEW_INSTEADS = ("lookup", "result", "measure", "points")
FORMS, NEW_FORMS = ("{1}", "the_{0}", "{0}_1", "my_{0}", "{0}_a"), ("old_{0}", "{0}_x", "a_{0}", "{0}_2")
OPERATIONS_OF_ALL = tuple(OPERATIONS)
TRAIN: dict[str, Numbers | Lookup] = {
    "comma": Numbers("What is the {operation} of the numbers in {path}?", OPERATIONS_OF_ALL),
    "comma-2": Numbers("Compute the {operation} of all numbers in {path}.", OPERATIONS_OF_ALL),
    "form": Lookup("Use {path} to find the {asked} of {name}.", FUNCTIONS, forms=FORMS),
    "form-2": Lookup("What {asked} does {path} give for {name}?", FUNCTIONS, forms=FORMS),
    "instead": Lookup("Use {path} to find the {asked} of {name}.", FUNCTIONS, insteads=INSTEADS),
    "instead-2": Lookup("What {asked} does {path} give for {name}?", FUNCTIONS, insteads=INSTEADS),
}
HELDOUT: dict[str, Numbers | Lookup] = {
    "comma-3": Numbers("The file {path} has numbers. Report the {operation}.", OPERATIONS_OF_ALL),
    "form-3": Lookup("With {path}, find the {asked} of {name}.", NEW_FUNCTIONS, forms=NEW_FORMS),
    "instead-3": Lookup("With {path}, find the {asked} of {name}.", NEW_FUNCTIONS, insteads=NEW_INSTEADS),
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
