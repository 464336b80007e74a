"""Domain 2, transform: make a text file out of others with shell commands.

What this file is: sources (how the task says which file) times operations (what is to become of its lines).
The verifier compares the files that are left at the end, so any command that does the work counts.
What it is not: the agent's command never runs outside the sandbox, and what it says is not looked at.

A held-out template is a pair of a source and an operation that no train template has, in new words.
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
    """Which file is meant: the words for it, its path (or paths, with a space between), the tree that it
    lies in, and the command that finds it."""

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


def only_file(rng: Random, lines: list[str]) -> Source:
    folder, other = pick(rng, FOLDERS, 2)
    names = pick(rng, STEMS, 2)
    path = f"{folder}/{names[0]}.txt"
    files = {path: text(lines), f"{other}/{names[1]}.txt": decoy(rng, lines)}
    return Source(f"the only file in {folder}", path, files, f"ls {folder}")


def by_suffix(rng: Random, lines: list[str]) -> Source:
    folder, names = rng.choice(FOLDERS), pick(rng, STEMS, 3)
    suffixes = pick(rng, ("csv", "txt", "log", "md", "dat"), 3)
    paths = [f"{folder}/{name}.{suffix}" for name, suffix in zip(names, suffixes, strict=True)]
    files = {path: decoy(rng, lines) for path in paths} | {paths[0]: text(lines)}
    return Source(f"the .{suffixes[0]} file in {folder}", paths[0], files, f"ls {folder}")


def named_in(rng: Random, lines: list[str]) -> Source:
    folder, names = rng.choice(FOLDERS), pick(rng, STEMS, 3)
    paths = [f"{folder}/{name}.txt" for name in names]
    index = rng.choice(("todo.txt", "task.txt", "name.txt"))
    files = {path: decoy(rng, lines) for path in paths} | {paths[0]: text(lines), index: text([paths[0]])}
    return Source(f"the file named in {index}", paths[0], files, f"cat {index}")


def both_files(rng: Random, lines: list[str]) -> Source:
    """Two files that hold the lines between them, the first by name the first of them."""
    folder, other = pick(rng, FOLDERS, 2)
    names, half = sorted(pick(rng, STEMS, 2)), len(lines) // 2
    paths = [f"{folder}/{name}.txt" for name in names]
    files = {
        paths[0]: text(lines[:half]),
        paths[1]: text(lines[half:]),
        f"{other}/{names[0]}.txt": decoy(rng, lines),
    }
    return Source(f"the two files in {folder}", " ".join(paths), files, f"ls {folder}")


def ordered(rng: Random, lines: list[str]) -> Operation:
    return Operation("sort {path}", sorted(lines))


def unique(rng: Random, lines: list[str]) -> Operation:
    return Operation("sort -u {path}", sorted(set(lines)))


def joined(rng: Random, lines: list[str]) -> Operation:
    return Operation("cat {path}", lines)


def first(rng: Random, lines: list[str]) -> Operation:
    count = rng.randint(2, 4)
    return Operation(f"head -n {count} {{path}}", lines[:count], {"count": str(count)})


def last(rng: Random, lines: list[str]) -> Operation:
    count = rng.randint(2, 4)
    return Operation(f"tail -n {count} {{path}}", lines[-count:], {"count": str(count)})


def kept(rng: Random, lines: list[str]) -> Operation:
    word = target_of(lines)
    return Operation(f"grep {word} {{path}}", [line for line in lines if word in line], {"word": word})


def dropped(rng: Random, lines: list[str]) -> Operation:
    word = target_of(lines)
    result = [line for line in lines if word not in line]
    return Operation(f"grep -v {word} {{path}}", result, {"word": word})


def counted(rng: Random, lines: list[str]) -> Operation:
    word = target_of(lines)
    result = [str(sum(word in line for line in lines))]
    return Operation(f"grep -c {word} {{path}}", result, {"word": word})


def kept_ordered(rng: Random, lines: list[str]) -> Operation:
    word = target_of(lines)
    result = sorted(line for line in lines if word in line)
    return Operation(f"grep {word} {{path}} | sort", result, {"word": word})


def replaced(rng: Random, lines: list[str]) -> Operation:
    old = target_of(lines)
    new = rng.choice([state for state in STATES if state != old])
    result = [line.replace(old, new) for line in lines]
    return Operation(f"sed s/{old}/{new}/ {{path}}", result, {"old": old, "new": new})


@dataclass(frozen=True, slots=True)
class Pair:
    """A template: a source, an operation, and the wording that asks for it."""

    source: Callable[[Random, list[str]], Source]
    operation: Callable[[Random, list[str]], Operation]
    wording: str

    def __call__(self, rng: Random) -> Draft:
        lines, out = rows(rng), rng.choice(OUTPUTS)
        source, operation = self.source(rng, lines), self.operation(rng, lines)
        command = operation.command.format(path=source.path)
        return Draft(
            self.wording.format(source=source.phrase, out=out, **operation.words),
            source.files,
            (("run", {"command": source.look}), ("run", {"command": f"{command} > {out}"})),
            goal={**source.files, out: text(operation.result)},
        )


TRAIN = {
    "sort-only": Pair(only_file, ordered, "Sort the lines of {source} and save them in {out}."),
    "keep-suffix": Pair(by_suffix, kept, "Save the lines of {source} that contain {word} in {out}."),
    "replace-named": Pair(named_in, replaced, "Replace {old} with {new} in {source}. Save it in {out}."),
    "first-only": Pair(only_file, first, "Put the first {count} lines of {source} into {out}."),
    "unique-suffix": Pair(by_suffix, unique, "Sort {source} without repeated lines into {out}."),
    "last-named": Pair(named_in, last, "Save the last {count} lines of {source} in {out}."),
    "keep-sort-only": Pair(
        only_file, kept_ordered, "Take the lines with {word} from {source}, sort them and save them in {out}."
    ),
    "count-suffix": Pair(
        by_suffix, counted, "Count the lines of {source} that contain {word}. Write the number to {out}."
    ),
    "join-both": Pair(both_files, joined, "Join {source}, in the order of their names, into {out}."),
    "drop-named": Pair(named_in, dropped, "Save {source} in {out} without the lines that contain {word}."),
}
HELDOUT = {
    "replace-suffix": Pair(by_suffix, replaced, "Make {out} from {source}, with {new} in place of {old}."),
    "unique-both": Pair(
        both_files, unique, "{out} should have the lines of {source}, sorted, without repeats."
    ),
    "keep-sort-named": Pair(
        named_in,
        kept_ordered,
        "From {source} take only the lines with {word} and write them, sorted, to {out}.",
    ),
    "first-suffix": Pair(by_suffix, first, "I need a file {out} with the first {count} lines of {source}."),
    "drop-only": Pair(only_file, dropped, "Copy {source} to {out}, but leave out every line with {word}."),
}


class TransformDomain(FileDomain):
    name = "transform"
    title = "Make a text file out of others with shell commands"
    world = ShellWorld
    tools = tools_of(ShellWorld)
    templates = templates(train=TRAIN, heldout=HELDOUT)
