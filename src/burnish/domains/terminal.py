"""Domain 9, terminal: find the right file among several and act on it, with at most three commands.

What this file is: ways to say which file is meant (its kind, its name in another file) times acts on it. Looking
costs one command of three, acting another; acting on a guess spoils the workspace,
because the verifier compares the whole tree that is left, every file of it.
What it is not: `transform` makes new text; here the text mostly stays, and files come, go and move.

A held-out template is a pair of a way to say it and an act that no train template has, in new words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from burnish.domains.lexicon import STEMS
from burnish.domains.transform import Source, by_suffix, named_in, rows
from burnish.domains.workspace import Draft, FileDomain, ShellWorld, templates
from burnish.tools.tool import tools_of
from burnish.types import Budget

COMMANDS = 3


@dataclass(frozen=True, slots=True)
class Act:
    """What is done to the file: the commands, the tree that they leave, the words for the task's wording."""

    commands: tuple[str, ...]
    goal: Mapping[str, str]
    words: Mapping[str, str]


def _without(source: Source) -> dict[str, str]:
    return {path: content for path, content in source.files.items() if path != source.path}


def _free_name(rng: Random, source: Source) -> str:
    """A path at the top of the workspace that nothing has yet."""
    stems = [stem for stem in STEMS if f"{stem}.txt" not in source.files]
    return f"{rng.choice(stems)}.txt"


def delete(rng: Random, source: Source) -> Act:
    return Act((f"rm {source.path}",), _without(source), {})


def copy(rng: Random, source: Source) -> Act:
    target = _free_name(rng, source)
    goal = {**source.files, target: source.files[source.path]}
    return Act((f"cp {source.path} {target}",), goal, {"target": target})


def rename(rng: Random, source: Source) -> Act:
    target = _free_name(rng, source)
    goal = {**_without(source), target: source.files[source.path]}
    return Act((f"mv {source.path} {target}",), goal, {"target": target})


@dataclass(frozen=True, slots=True)
class Pair:
    """A template: a way to say which file, an act, and the wording that asks for it."""

    source: Callable[[Random, list[str]], Source]
    act: Callable[[Random, Source], Act]
    wording: str

    def __call__(self, rng: Random) -> Draft:
        source = self.source(rng, rows(rng))
        act = self.act(rng, source)
        wording = self.wording.format(source=source.phrase, **act.words)
        return Draft(
            f"{wording} Use at most {COMMANDS} commands.",
            source.files,
            tuple(("run", {"command": command}) for command in (source.look, *act.commands)),
            goal=act.goal,
        )


TRAIN = {
    "copy-suffix": Pair(by_suffix, copy, "Copy {source} to {target}."),
    "copy-suffix-2": Pair(by_suffix, copy, "Make a copy of {source} called {target}."),
    "delete-suffix": Pair(by_suffix, delete, "Delete {source}."),
    "delete-suffix-2": Pair(by_suffix, delete, "Remove {source}."),
    "rename-named": Pair(named_in, rename, "Rename {source} to {target}."),
    "rename-named-2": Pair(named_in, rename, "Give {source} the name {target}."),
}
HELDOUT = {
    "copy-named": Pair(named_in, copy, "Copy {source} to the new file {target}."),
    "rename-suffix": Pair(by_suffix, rename, "Change the name of {source} to {target}."),
    "delete-named": Pair(named_in, delete, "Delete just {source}."),
}


class TerminalDomain(FileDomain):
    name = "terminal"
    title = "Find the right file and act on it, with three commands"
    budget = Budget(turns=COMMANDS + 1, tokens=300, tool_calls=COMMANDS)
    exact = True
    world = ShellWorld
    tools = tools_of(ShellWorld)
    templates = templates(train=TRAIN, heldout=HELDOUT)
