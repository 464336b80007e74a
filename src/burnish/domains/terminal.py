"""Domain 9, terminal: find the right file among several and act on it, with at most three commands.

What this file is: ways to say which file is meant (a word in it, its kind, its name in another file) times
acts on it. Looking costs one command of three, acting one or two; acting on a guess spoils the workspace,
because the verifier compares the whole tree that is left, every file of it.
What it is not: `transform` makes new text; here the text mostly stays, and files come, go and move.

A held-out template is a pair of a way to say it and an act that no train template has, in new words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from burnish.domains.lexicon import FOLDERS, STEMS, THINGS, pick, text
from burnish.domains.transform import Source, by_suffix, decoy, named_in, rows, target_of
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


def containing(rng: Random, lines: list[str]) -> Source:
    """The one file of three in a folder that has a certain word; another folder has it too."""
    folder, other = pick(rng, FOLDERS, 2)
    names, word = pick(rng, STEMS, 3), lines[0].split()[0]
    paths = [f"{folder}/{name}.txt" for name in names]
    files = {path: _without_word(decoy(rng, lines), word) for path in paths[1:]}
    files |= {paths[0]: text(lines), f"{other}/{names[1]}.txt": text(lines[:2])}
    return Source(f"the file in {folder} that contains {word}", paths[0], files, f"grep -l {word} {folder}/*")


def _without_word(content: str, word: str) -> str:
    return text([line for line in content.splitlines() if word not in line])


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


def into_folder(rng: Random, source: Source) -> Act:
    folder = rng.choice(("old", "done", "backup", "archive", "keep"))
    target = f"{folder}/{source.path.rsplit('/', 1)[1]}"
    goal = {**_without(source), target: source.files[source.path]}
    return Act((f"mkdir {folder}", f"mv {source.path} {folder}"), goal, {"folder": folder})


def append(rng: Random, source: Source) -> Act:
    word = rng.choice(THINGS)
    goal = {**source.files, source.path: source.files[source.path] + f"{word}\n"}
    return Act((f"echo {word} >> {source.path}",), goal, {"word": word})


def replace(rng: Random, source: Source) -> Act:
    content = source.files[source.path]
    old = target_of(content.splitlines())
    new = rng.choice([thing for thing in THINGS if thing not in content])
    goal = {**source.files, source.path: content.replace(old, new)}
    return Act((f"sed -i s/{old}/{new}/ {source.path}",), goal, {"old": old, "new": new})


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
    "delete-containing": Pair(containing, delete, "Delete {source}."),
    "copy-containing": Pair(containing, copy, "Copy {source} to {target}."),
    "append-containing": Pair(containing, append, "Add the line {word} to the end of {source}."),
    "rename-suffix": Pair(by_suffix, rename, "Rename {source} to {target}."),
    "folder-suffix": Pair(by_suffix, into_folder, "Make a folder {folder} and move {source} into it."),
    "append-suffix": Pair(by_suffix, append, "Append a line with the word {word} to {source}."),
    "replace-named": Pair(named_in, replace, "In {source}, change {old} to {new}."),
    "copy-named": Pair(named_in, copy, "Make a copy of {source} called {target}."),
}
HELDOUT = {
    "rename-containing": Pair(containing, rename, "{target} is to be the new name of {source}."),
    "replace-suffix": Pair(by_suffix, replace, "Put {new} in place of {old} in {source}."),
    "delete-named": Pair(named_in, delete, "Get rid of {source}."),
    "folder-containing": Pair(containing, into_folder, "Move {source} to a new folder called {folder}."),
}


class TerminalDomain(FileDomain):
    name = "terminal"
    title = "Find the right file and act on it, with three commands"
    budget = Budget(turns=COMMANDS + 1, tokens=300, tool_calls=COMMANDS)
    exact = True
    world = ShellWorld
    tools = tools_of(ShellWorld)
    templates = templates(train=TRAIN, heldout=HELDOUT)
