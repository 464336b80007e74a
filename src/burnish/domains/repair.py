"""Domain 3, repair: correct a small Python function so that its hidden cases come out right.

What this file is: templates (ways to say what is right, in two train wordings and a held-out one, which is about
other functions) and the reward that decides.
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
from typing import Any, Literal

from burnish.domains import bugs
from burnish.domains.bugs import Bug
from burnish.domains.lexicon import STEMS
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
    """A template: functions with a bug each, the wording, and where it says what is right: in the task, in a
    docstring, or in a note that is to be read first."""

    bugs: Sequence[Bug]
    wording: str
    says: Literal["task", "docstring", "note"]
    notes: tuple[str, ...] = ("todo.txt", "bug.txt", "fix.txt")

    def __call__(self, rng: Random) -> Draft:
        bug, path, note = rng.choice(self.bugs), f"{rng.choice(STEMS)}.py", rng.choice(self.notes)
        cases = bug.cases(rng, HIDDEN_CASES)
        files = {path: bug.source(docstring=self.says == "docstring")}
        if self.says == "note":
            files[note] = f"{path}: {bug.name} must return {bug.good}\n"
        looks = (*((note,) if self.says == "note" else ()), path)
        fix = {"path": path, "old": f"return {bug.bad}", "new": f"return {bug.good}"}
        return Draft(
            self.wording.format(name=bug.name, path=path, good=bug.good, note=note),
            files,
            (*(("read", {"path": look}) for look in looks), ("replace", fix)),
            secret={"path": path, "function": bug.name, "cases": [list(case) for case in cases]},
        )


NEW_NOTES = ("report.txt", "issue.txt")
TRAIN = {
    "told": Report(bugs.TRAIN, "{name} in {path} should return {good}. Fix it.", "task"),
    "told-2": Report(bugs.TRAIN, "The code in {path} is wrong: {name} must return {good}.", "task"),
    "docstring": Report(
        bugs.TRAIN, "{name} in {path} does not do what its docstring says. Fix it.", "docstring"
    ),
    "docstring-2": Report(
        bugs.TRAIN, "The code in {path} is wrong: see the docstring of {name}.", "docstring"
    ),
    "note": Report(bugs.TRAIN, "Fix the bug that {note} describes.", "note"),
    "note-2": Report(bugs.TRAIN, "Read {note} and repair the code that it names.", "note"),
}
HELDOUT = {
    "told-3": Report(bugs.HELDOUT, "Please correct {path}: {name} is to return {good}.", "task"),
    "docstring-3": Report(bugs.HELDOUT, "Make {name} in {path} do what its docstring promises.", "docstring"),
    "note-3": Report(bugs.HELDOUT, "There is a bug, see {note}. Correct it.", "note", NEW_NOTES),
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
