"""Domain 3, repair: correct a small Python function so that its hidden cases come out right.

What this file is: templates (a class of bug times a way to report it) and the reward that decides.
What it is not: no test of ours runs where the agent ran, and nothing of the agent's decides. A fresh sandbox
gets the repaired file and nothing else; there a process is asked only for the results of the hidden inputs,
and they are compared here, with values that never enter any sandbox. An exit code counts for nothing. A
control, the function as it was, must come out wrong in the same way, else the grading itself is broken.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from burnish.domains import bugs
from burnish.domains.bugs import Bug
from burnish.domains.lexicon import FOLDERS, STEMS, pick
from burnish.domains.workspace import LIMITS, Draft, FileDomain, FileWorld, clip, templates
from burnish.tools.tool import ToolFailure, tool, tools_of
from burnish.types import Evidence, InfrastructureError, Task, Trajectory

HIDDEN_CASES = 8

ASK = """
import importlib.util, json, os, sys
request = json.load(sys.stdin)
answer = os.dup(1)
os.dup2(2, 1)
spec = importlib.util.spec_from_file_location("solution", "solution.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
function = getattr(module, request["function"])
results = []
for arguments in request["inputs"]:
    try:
        results.append([function(*arguments)])
    except Exception:
        results.append([])
os.write(answer, json.dumps(results).encode())
"""
"""What the fresh sandbox runs. Each result is in a list of its own, which is empty where the call failed. It
may be subverted by the module that it imports, which gains nothing: only right results score."""


def same(found: Any, expected: Any) -> bool:
    """Equal in value and in type all the way down, so that 1 is not True."""
    if type(found) is not type(expected):
        return False
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


@dataclass(frozen=True, slots=True)
class Report:
    """How the task says what is wrong. `folder`: the file is to be found first; `docstring`: the file says
    what is right."""

    wording: str
    folder: bool = False
    docstring: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """A template: a class of bug and a way to report it."""

    bugs: Sequence[Bug]
    report: Report

    def __call__(self, rng: Random) -> Draft:
        bug = rng.choice(self.bugs)
        cases = bug.cases(rng, HIDDEN_CASES)
        arguments, right, wrong = bug.example(rng, cases)
        folder, stems = rng.choice(FOLDERS), pick(rng, STEMS, 2)
        path = f"{folder}/{stems[0]}.py" if self.report.folder else f"{stems[0]}.py"
        parts = [bug.source(bug.bad, self.report.docstring)]
        if not bug.before and rng.random() < 0.5:
            other = rng.choice([b for b in bugs.OTHERS if b.name != bug.name and bug.bad not in b.good])
            parts.insert(rng.randint(0, 1), other.source(other.good, docstring=False))
        files = {path: "\n".join(parts)}
        if self.report.folder:
            files[f"{folder}/{stems[1]}.txt"] = "Nothing to repair here.\n"
        call = f"{bug.name}({', '.join(map(repr, arguments))})"
        text = self.report.wording.format(
            name=bug.name, path=path, folder=folder, says=bug.says, call=call, wrong=wrong, right=right
        )
        look = (("read", {"path": folder}),) if self.report.folder else ()
        fix = {"path": path, "old": f"return {bug.bad}", "new": f"return {bug.good}"}
        return Draft(
            text,
            files,
            (*look, ("read", {"path": path}), ("replace", fix)),
            secret={"path": path, "function": bug.name, "cases": [list(case) for case in cases]},
        )


TOLD = Report("The function {name} in {path} is wrong. It should return {says}. Fix it.")
FOLDER = Report("The Python file in {folder} has a bug: {name} should return {says}. Fix it.", folder=True)
DOCSTRING = Report("{name} in {path} does not do what its docstring says. Fix it.", docstring=True)
EXAMPLE = Report("{call} in {path} gives {wrong} but should give {right}. Fix {name}.", docstring=True)

NEW_TOLD = Report("Please correct {path}: {name} must return {says}.")
NEW_FOLDER = Report("Look in {folder} for the code and make {name} return {says}.", folder=True)
NEW_DOCSTRING = Report("Make {name} in {path} do what its docstring promises.", docstring=True)
NEW_EXAMPLE = Report("Why is {call} equal to {wrong}? Repair {path} so that it is {right}.", docstring=True)

TRAIN = {
    "operator-told": Pair(bugs.OPERATOR, TOLD),
    "comparison-docstring": Pair(bugs.COMPARISON, DOCSTRING),
    "constant-example": Pair(bugs.CONSTANT, EXAMPLE),
    "variable-folder": Pair(bugs.VARIABLE, FOLDER),
    "return-docstring": Pair(bugs.RETURN, DOCSTRING),
    "swap-told": Pair(bugs.SWAP, TOLD),
    "comparison-folder": Pair(bugs.COMPARISON, FOLDER),
    "operator-example": Pair(bugs.OPERATOR, EXAMPLE),
}
HELDOUT = {
    "operator-docstring": Pair(bugs.OPERATOR_HELDOUT, NEW_DOCSTRING),
    "comparison-told": Pair(bugs.COMPARISON_HELDOUT, NEW_TOLD),
    "constant-folder": Pair(bugs.CONSTANT_HELDOUT, NEW_FOLDER),
    "variable-example": Pair(bugs.VARIABLE_HELDOUT, NEW_EXAMPLE),
    "return-told": Pair(bugs.RETURN_HELDOUT, NEW_TOLD),
    "swap-docstring": Pair(bugs.SWAP_HELDOUT, NEW_DOCSTRING),
}


class RepairWorld(FileWorld):
    @tool
    async def read(self, path: str) -> str:
        """Read a file or list a folder."""
        try:
            return await self.entries(path)
        except ToolFailure:
            return clip((await self.content(path)).decode(errors="replace")) or "(empty)"

    @tool
    async def replace(self, path: str, old: str, new: str) -> str:
        """Replace text in a file."""
        content = await self.content(path)
        count = content.count(old.encode()) if old else 0
        if count != 1:
            raise ToolFailure("not_found", f"old must be in {path} once, and is there {count} times")
        return await self.store(path, content.replace(old.encode(), new.encode()))

    @tool
    async def write(self, path: str, text: str) -> str:
        """Write a whole file."""
        return await self.store(path, text.encode())


class RepairDomain(FileDomain):
    name = "repair"
    title = "Repair a Python function so that its hidden cases come out right"
    world = RepairWorld
    tools = tools_of(RepairWorld)
    templates = templates(train=TRAIN, heldout=HELDOUT)

    async def verify(self, task: Task, answer: str, evidence: Evidence, trajectory: Trajectory) -> float:
        """1 where the function, as it was left, gives the right result for every hidden input."""
        path = task.secret["path"]
        before, after = task.setup["files"][path].encode(), evidence.artifacts.get(path)
        if after is None or after == before:
            return 0.0
        if await self._passes(before, task):
            raise InfrastructureError(f"{task.id}: the unrepaired function passes its hidden cases")
        return float(await self._passes(after, task))

    async def _passes(self, source: bytes, task: Task) -> bool:
        cases = task.secret["cases"]
        request = {"function": task.secret["function"], "inputs": [arguments for arguments, _ in cases]}
        sandbox = await self.sandboxes.open()
        try:
            await sandbox.write("solution.py", source)
            argv = ["python3", "-I", "-S", "-B", "-c", ASK]
            result = await sandbox.run(argv, stdin=json.dumps(request).encode(), limits=LIMITS)
        finally:
            await sandbox.close()
        try:
            found = json.loads(result.stdout)
        except (ValueError, RecursionError):
            return False
        return same(found, [[expected] for _, expected in cases])
