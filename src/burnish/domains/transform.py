"""Domain 2, transform: make a text file out of others with shell commands.

What this file is: sources (how the task says which file) times operations (what is to become of its lines).
The verifier compares the files that are left at the end, so any command that does the work counts.
What it is not: the agent's command never runs outside the sandbox, and what it says is not looked at.

Each pair has two train templates and a held-out one, which asks in new words, for files of other kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from burnish.domains.lexicon import FOLDERS, STATES, STEMS, THINGS, pick, text
from burnish.domains.workspace import Draft, FileDomain, ShellWorld, templates
from burnish.tools.tool import tools_of

OUTPUTS = ("out.txt", "result.txt", "new.txt", "final.txt", "report.txt")


@dataclass(frozen=True, slots=True)
class Source:
    """Which file is meant: the words for it, its path, the tree that it lies in, and the command that finds
    it (none where the words are the path)."""

    phrase: str
    path: str
    files: Mapping[str, str]
    look: str


@dataclass(frozen=True, slots=True)
class Operation:
    """What becomes of the lines: a shell pipeline with `{path}` in it, the lines that it gives, and the
    words that the task's wording needs."""

    command: str
    result: list[str]
    words: Mapping[str, str] = field(default_factory=dict)


def rows(rng: Random) -> list[str]:
    """Five to seven lines `thing state`, not sorted, one of them there twice; the first and the last differ
    in their state."""
    states = pick(rng, STATES, 3)
    things = pick(rng, THINGS, rng.randint(4, 6))
    lines = [f"{thing} {states[i % 3]}" for i, thing in enumerate(things)]
    lines.append(rng.choice(lines))
    while lines == sorted(lines) or lines[0].split()[1] == lines[-1].split()[1]:
        rng.shuffle(lines)
    return lines


def target_of(lines: Sequence[str]) -> str:
    """The state of the first line, which the last line does not have."""
    return lines[0].split()[1]


def decoy(rng: Random, lines: Sequence[str]) -> str:
    """The content of a file beside the one that is meant: it has lines of the same state, so that a command
    which takes every file does to this one what is not wanted."""
    others = [f"{thing} {target_of(lines)}" for thing in pick(rng, THINGS, 2)] + rows(rng)[2:]
    return text(pick(rng, others, len(others)))


def at_path(rng: Random, lines: list[str], suffixes: Sequence[str]) -> Source:
    """The task names the file itself."""
    folder, names, suffix = rng.choice(FOLDERS), pick(rng, STEMS, 2), rng.choice(suffixes)
    paths = [f"{folder}/{name}.{suffix}" for name in names]
    return Source(paths[0], paths[0], {paths[0]: text(lines), paths[1]: decoy(rng, lines)}, "")


def only_file(rng: Random, lines: list[str], suffixes: Sequence[str]) -> Source:
    """The task names a folder that holds one file."""
    folder, other = pick(rng, FOLDERS, 2)
    names, suffix = pick(rng, STEMS, 2), rng.choice(suffixes)
    path = f"{folder}/{names[0]}.{suffix}"
    files = {path: text(lines), f"{other}/{names[1]}.{suffix}": decoy(rng, lines)}
    return Source(f"the only file in {folder}", path, files, f"ls {folder}")


def ordered(rng: Random, lines: list[str]) -> Operation:
    return Operation("sort {path}", sorted(lines))


def first(rng: Random, lines: list[str]) -> Operation:
    count = rng.randint(2, 4)
    return Operation(f"head -n {count} {{path}}", lines[:count], {"count": str(count)})


def kept(rng: Random, lines: list[str]) -> Operation:
    word = target_of(lines)
    return Operation(f"grep {word} {{path}}", [line for line in lines if word in line], {"word": word})


@dataclass(frozen=True, slots=True)
class Pair:
    """A template: a source, an operation, the wording that asks for it, and the kinds of file that it is on."""

    source: Callable[[Random, list[str], Sequence[str]], Source]
    operation: Callable[[Random, list[str]], Operation]
    wording: str
    suffixes: tuple[str, ...] = ("txt", "md")

    def __call__(self, rng: Random) -> Draft:
        lines, out = rows(rng), rng.choice(OUTPUTS)
        source, operation = self.source(rng, lines, self.suffixes), self.operation(rng, lines)
        command = f"{operation.command.format(path=source.path)} > {out}"
        commands = [source.look, command] if source.look else [command]
        return Draft(
            self.wording.format(source=source.phrase, out=out, **operation.words),
            source.files,
            tuple(("run", {"command": command}) for command in commands),
            goal={**source.files, out: text(operation.result)},
        )


NEW_KINDS = ("csv", "log")
TRAIN = {
    "sort-path": Pair(at_path, ordered, "Sort the lines of {source} and save them in {out}."),
    "sort-path-2": Pair(at_path, ordered, "Put the lines of {source}, sorted, into {out}."),
    "keep-path": Pair(at_path, kept, "Save the lines of {source} that contain {word} in {out}."),
    "keep-path-2": Pair(at_path, kept, "Put the lines of {source} with {word} into {out}."),
    "first-only": Pair(only_file, first, "Save the first {count} lines of {source} in {out}."),
    "first-only-2": Pair(only_file, first, "Put the first {count} lines of {source} into {out}."),
}
HELDOUT = {
    "sort-path-3": Pair(at_path, ordered, "Write the sorted lines of {source} to {out}.", NEW_KINDS),
    "keep-path-3": Pair(
        at_path, kept, "Write the lines of {source} that contain {word} to {out}.", NEW_KINDS
    ),
    "first-only-3": Pair(only_file, first, "Write the first {count} lines of {source} to {out}.", NEW_KINDS),
}


class TransformDomain(FileDomain):
    name = "transform"
    title = "Make a text file out of others with shell commands"
    world = ShellWorld
    tools = tools_of(ShellWorld)
    templates = templates(train=TRAIN, heldout=HELDOUT)
