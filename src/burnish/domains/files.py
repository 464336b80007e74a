"""Domain 1, files: find a fact that lies somewhere in a small tree of files, and report it.

What this file is: templates of questions of three plans (follow a file's pointer, search a word, list a folder
and read the file of a name), each with its tree, its answer and its shortest way there. Trees hold
distractors: other files that are named, the same field in other files, other jobs in the logs.
What it is not: it changes no file and it runs no command of the agent's; `transform` and `terminal` do.

Each plan has two train templates and a held-out one, which asks in new words for fields, reasons and kinds of
file that no train task has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from burnish.domains.lexicon import FOLDERS, PEOPLE, STATES, STEMS, THINGS, code, pick, text
from burnish.domains.workspace import Draft, FileDomain, FileWorld, clip, templates
from burnish.tools.tool import tool, tools_of


def _notes(rng: Random, count: int) -> list[str]:
    """`count` short lines that say nothing to the point."""
    return [f"{word} {rng.choice(STATES)}" for word in pick(rng, THINGS, count)]


def _insert(rng: Random, lines: list[str], line: str) -> str:
    lines.insert(rng.randint(0, len(lines)), line)
    return text(lines)


@dataclass(frozen=True, slots=True)
class Question:
    """A template: a plan, its wording, and the pool that the plan draws from."""

    plan: Callable[[Random, str, Sequence[str]], Draft]
    wording: str
    pool: tuple[str, ...]

    def __call__(self, rng: Random) -> Draft:
        return self.plan(rng, self.wording, self.pool)


def pointer(rng: Random, wording: str, labels: Sequence[str]) -> Draft:
    """read → the file that it names → the field in it. `labels`: names of the field."""
    folder, other = pick(rng, FOLDERS, 2)
    stems, codes, label = pick(rng, STEMS, 4), [code(rng) for _ in range(3)], rng.choice(labels)
    start = f"{folder}/{stems[0]}.txt"
    ends = [f"{other}/{stem}.txt" for stem in stems[1:]]
    files = {
        path: text([f"{label}: {value}", *_notes(rng, 1)]) for path, value in zip(ends, codes, strict=True)
    }
    target = rng.randrange(3)
    files[start] = _insert(rng, _notes(rng, 1), f"next: {ends[target]}")
    return Draft(
        wording.format(path=start, label=label),
        files,
        (("read", {"path": start}), ("read", {"path": ends[target]})),
        codes[target],
        others=codes,
        reply=f"{label}: {codes[target]}",
    )


def stop_reason(rng: Random, wording: str, reasons: Sequence[str]) -> Draft:
    """search → the reason of the job in one of two logs, each of two jobs."""
    jobs, drawn, stems = [code(rng) for _ in range(4)], pick(rng, reasons, 4), pick(rng, STEMS, 2)
    files = {}
    for index, stem in enumerate(stems):
        pair = range(2 * index, 2 * index + 2)
        files[f"logs/{stem}.log"] = text(
            [f"{jobs[i]} started" for i in pair] + [f"{jobs[i]} stopped: {drawn[i]}" for i in pair]
        )
    return Draft(
        wording.format(job=jobs[0]),
        files,
        (("search", {"word": jobs[0]}),),
        drawn[0],
        others=reasons,
        reply=f"stopped: {drawn[0]}",
    )


def person_by_stem(rng: Random, wording: str, suffixes: Sequence[str]) -> Draft:
    """list → the file of the asked name, whose kind only the list tells → its line with a person."""
    folder, label = rng.choice(FOLDERS), rng.choice(ROLES)
    kinds = pick(rng, suffixes, 3)
    stems, people = pick(rng, STEMS, 3), pick(rng, PEOPLE, 3)
    paths = [f"{folder}/{stem}.{suffix}" for stem, suffix in zip(stems, kinds, strict=True)]
    files = {
        path: _insert(rng, _notes(rng, 1), f"{label}: {person}")
        for path, person in zip(paths, people, strict=True)
    }
    return Draft(
        wording.format(stem=stems[0], folder=folder, label=label),
        files,
        (("list", {"path": folder}), ("read", {"path": paths[0]})),
        people[0],
        others=PEOPLE,
        reply=f"{label}: {people[0]}",
    )


ROLES = ("author", "owner", "editor", "reader")
LABELS, NEW_LABELS = ("code", "key", "number", "mark"), ("label", "tag", "sign")
REASONS = (
    *("disk full", "no network", "bad password", "out of memory", "file missing", "too slow"),
    *("low power", "wrong date"),
)
NEW_REASONS = ("broken link", "old version", "empty queue", "bad input", "lost key", "late answer")
KINDS, NEW_KINDS = ("md", "txt", "csv", "log"), ("json", "xml", "dat", "cfg")
TRAIN = {
    "pointer": Question(
        pointer, "Read {path}. It names the next file. What is the {label} in that file?", LABELS
    ),
    "pointer-2": Question(pointer, "Go from {path} to the next file and give the {label} there.", LABELS),
    "stop-reason": Question(stop_reason, "Search for job {job}. Why did it stop?", REASONS),
    "stop-reason-2": Question(
        stop_reason, "Job {job} is in the logs. Give the reason why it stopped.", REASONS
    ),
    "person": Question(person_by_stem, "Find the file called {stem} in {folder}. Who is its {label}?", KINDS),
    "person-2": Question(person_by_stem, "Give the {label} of the file called {stem} in {folder}.", KINDS),
}
HELDOUT = {
    "pointer-3": Question(
        pointer, "The file {path} names the next file. Read that and tell me its {label}.", NEW_LABELS
    ),
    "stop-reason-3": Question(
        stop_reason, "Look for job {job} in the logs and tell me why it stopped.", NEW_REASONS
    ),
    "person-3": Question(
        person_by_stem, "The folder {folder} has a file called {stem}. Tell me its {label}.", NEW_KINDS
    ),
}


class TreeWorld(FileWorld):
    @tool
    async def list(self, path: str) -> str:
        """List a folder."""
        return await self.entries(path)

    @tool
    async def read(self, path: str) -> str:
        """Read a file."""
        return clip((await self.content(path)).decode(errors="replace")) or "(empty)"

    @tool
    async def search(self, word: str) -> str:
        """Find the lines with a word in all files."""
        found = [
            f"{path}: {line.decode(errors='replace').strip()}"
            for path, content in sorted((await self.sandbox.files()).items())
            for line in content.splitlines()
            if word and word.encode() in line
        ]
        return clip("\n".join(found)) or f"no line with {word}"


class FilesDomain(FileDomain):
    name = "files"
    title = "Find a fact in a tree of files"
    world = TreeWorld
    tools = tools_of(TreeWorld)
    templates = templates(train=TRAIN, heldout=HELDOUT)
