"""Domain 9, terminal: find the right file among several and act on it, with at most three commands.

What this file is: ways to say which file is meant (its name without the kind, its path in another file) times
acts on it. Looking costs one command of three, acting another; acting on a guess spoils the workspace, because the
verifier compares the whole tree that is left, every file of it.
What it is not: `transform` makes new text; here the text mostly stays, and files come, go and move.

Each pair has two train templates and a held-out one, which asks in new words, for files of other kinds or by
index files of other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from burnish.domains.lexicon import FOLDERS, STEMS, pick, text
from burnish.domains.transform import Source, decoy, rows
from burnish.domains.workspace import Draft, FileDomain, ShellWorld, templates
from burnish.tools.tool import tools_of
from burnish.types import Budget

COMMANDS = 3


def by_stem(rng: Random, lines: list[str], suffixes: Sequence[str]) -> Source:
    """The file of a name, whose kind only a look at the folder tells."""
    folder, names = rng.choice(FOLDERS), pick(rng, STEMS, 3)
    kinds = pick(rng, suffixes, 3)
    paths = [f"{folder}/{name}.{suffix}" for name, suffix in zip(names, kinds, strict=True)]
    files = {path: decoy(rng, lines) for path in paths} | {paths[0]: text(lines)}
    return Source(f"the file called {names[0]} in {folder}", paths[0], files, f"ls {folder}")


def named_in(rng: Random, lines: list[str], indexes: Sequence[str]) -> Source:
    """The file that another file names."""
    folder, names = rng.choice(FOLDERS), pick(rng, STEMS, 3)
    paths = [f"{folder}/{name}.txt" for name in names]
    index = rng.choice(indexes)
    files = {path: decoy(rng, lines) for path in paths} | {paths[0]: text(lines), index: text([paths[0]])}
    return Source(f"the file named in {index}", paths[0], files, f"cat {index}")


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
    """A template: a way to say which file, an act, the wording that asks for it, and the pool that the way
    draws from: kinds of file or names of index files."""

    source: Callable[[Random, list[str], Sequence[str]], Source]
    act: Callable[[Random, Source], Act]
    wording: str
    pool: tuple[str, ...]

    def __call__(self, rng: Random) -> Draft:
        source = self.source(rng, rows(rng), self.pool)
        act = self.act(rng, source)
        wording = self.wording.format(source=source.phrase, **act.words)
        return Draft(
            f"{wording} Use at most {COMMANDS} commands.",
            source.files,
            tuple(("run", {"command": command}) for command in (source.look, *act.commands)),
            goal=act.goal,
        )


KINDS, NEW_KINDS = ("csv", "txt", "log", "md"), ("dat", "json", "xml", "cfg")
INDEXES, NEW_INDEXES = ("todo.txt", "task.txt", "name.txt"), ("job.txt", "order.txt")
TRAIN = {
    "copy-stem": Pair(by_stem, copy, "Copy {source} to {target}.", KINDS),
    "copy-stem-2": Pair(by_stem, copy, "Make a copy of {source} called {target}.", KINDS),
    "delete-stem": Pair(by_stem, delete, "Delete {source}.", KINDS),
    "delete-stem-2": Pair(by_stem, delete, "Remove {source}.", KINDS),
    "rename-named": Pair(named_in, rename, "Rename {source} to {target}.", INDEXES),
    "rename-named-2": Pair(named_in, rename, "Give {source} the name {target}.", INDEXES),
}
HELDOUT = {
    "copy-stem-3": Pair(by_stem, copy, "Copy {source} to the new file {target}.", NEW_KINDS),
    "delete-stem-3": Pair(by_stem, delete, "Please delete {source}.", NEW_KINDS),
    "rename-named-3": Pair(named_in, rename, "Change the name of {source} to {target}.", NEW_INDEXES),
}


class TerminalDomain(FileDomain):
    name = "terminal"
    title = "Find the right file and act on it, with three commands"
    budget = Budget(turns=COMMANDS + 1, tokens=300, tool_calls=COMMANDS)
    exact = True
    world = ShellWorld
    tools = tools_of(ShellWorld)
    templates = templates(train=TRAIN, heldout=HELDOUT)
