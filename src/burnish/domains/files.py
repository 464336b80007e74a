"""Domain 1, files: find a fact that lies somewhere in a small tree of files, and report it.

What this file is: templates of questions whose answer takes two to four looks (list, read, search), each
with its tree, its answer and its shortest way there. Trees hold distractors: the searched word in another
folder, the asked key in another project.
What it is not: it changes no file and it runs no command of the agent's; `transform` and `terminal` do.
"""

from __future__ import annotations

from random import Random

from burnish.domains import lexicon
from burnish.domains.lexicon import FOLDERS, PEOPLE, PROJECTS, STEMS, THINGS, code, pick, text
from burnish.domains.workspace import Draft, FileDomain, FileWorld, clip, templates
from burnish.tools.tool import tool, tools_of

CONFIGS = ("app.cfg", "config.ini", "settings.txt", "server.conf", "options.env", "setup.toml")
KEYS = ("port", "limit", "retries", "timeout", "workers", "size")
REASONS = (
    *("disk full", "no network", "bad password", "out of memory", "file missing", "too slow"),
    *("low power", "wrong date", "broken link", "old version", "empty queue", "bad input"),
)


def _config(rng: Random, **fixed: str) -> str:
    """Three or four settings in random order; `fixed` ones have the values given."""
    keys = pick(rng, [key for key in KEYS if key not in fixed], 4 - len(fixed))
    lines = [f"{key} = {rng.randint(11, 998)}" for key in keys]
    lines += [f"{key} = {value}" for key, value in fixed.items()]
    return text(pick(rng, lines, len(lines)))


def _notes(rng: Random, count: int, without: tuple[str, ...] = ()) -> list[str]:
    """`count` short lines, none of them with a word of `without`."""
    words = pick(rng, [word for word in THINGS if word not in without], count)
    return [f"{word} {rng.choice(lexicon.STATES)}" for word in words]


def _insert(rng: Random, lines: list[str], line: str) -> str:
    lines.insert(rng.randint(0, len(lines)), line)
    return text(lines)


def word_in_folder(rng: Random) -> Draft:
    """search → the match that lies in the asked folder."""
    folder, other = pick(rng, FOLDERS, 2)
    word = rng.choice(THINGS)
    here, there = pick(rng, STEMS, 3), pick(rng, STEMS, 2)
    files = {f"{folder}/{stem}.txt": text(_notes(rng, 3, (word,))) for stem in here[1:]}
    files |= {f"{other}/{there[1]}.txt": text(_notes(rng, 3, (word,)))}
    answer = f"{folder}/{here[0]}.txt"
    for path in (answer, f"{other}/{there[0]}.txt"):
        files[path] = _insert(rng, _notes(rng, 2, (word,)), f"{word} {rng.choice(lexicon.STATES)}")
    return Draft(
        f"Which file in {folder} contains the word {word}? Answer with its path.",
        files,
        (("search", {"word": word}),),
        answer,
        others=list(files),
    )


def config_value(rng: Random) -> Draft:
    """list → the project's config file, whatever it is called → the key."""
    projects = pick(rng, PROJECTS, 3)
    key, values = rng.choice(KEYS), rng.sample(range(1000, 9999), 3)
    files: dict[str, str] = {}
    for project, value in zip(projects, values, strict=True):
        files[f"{project}/{rng.choice(CONFIGS)}"] = _config(rng, **{key: str(value)})
        files[f"{project}/README.md"] = text([f"# {project}", *_notes(rng, 1)])
    project = projects[0]
    path = next(path for path in files if path.startswith(project) and "README" not in path)
    return Draft(
        f"What value has {key} in the config file of {project}?",
        files,
        (("list", {"path": project}), ("read", {"path": path})),
        str(values[0]),
    )


def owner_of_mention(rng: Random) -> Draft:
    """search → the README among the matches → its owner line."""
    word = rng.choice(THINGS)
    projects, owners = pick(rng, PROJECTS, 3), pick(rng, PEOPLE, 3)
    files: dict[str, str] = {}
    for project, owner in zip(projects, owners, strict=True):
        topic = word if project == projects[0] else _notes(rng, 1, (word,))[0]
        files[f"{project}/README.md"] = text([f"# {project}", f"Owner: {owner}", f"About: {topic}"])
    files[f"{projects[1]}/notes.txt"] = _insert(rng, _notes(rng, 2, (word,)), f"{word} order")
    return Draft(
        f"Find the README about {word}. Who is the owner of that project?",
        files,
        (("search", {"word": word}), ("read", {"path": f"{projects[0]}/README.md"})),
        owners[0],
        others=owners,
    )


def pointer(rng: Random) -> Draft:
    """read → the file that it names → the code in it."""
    folder, other = pick(rng, FOLDERS, 2)
    stems, codes = pick(rng, STEMS, 4), [code(rng) for _ in range(3)]
    start = f"{folder}/{stems[0]}.txt"
    ends = [f"{other}/{stem}.txt" for stem in stems[1:]]
    files = {path: text([f"code: {value}", *_notes(rng, 1)]) for path, value in zip(ends, codes, strict=True)}
    target = rng.randrange(3)
    files[start] = _insert(rng, _notes(rng, 2), f"next: {ends[target]}")
    return Draft(
        f"Read {start}. It names the next file. What is the code in that file?",
        files,
        (("read", {"path": start}), ("read", {"path": ends[target]})),
        codes[target],
    )


def setting_holder(rng: Random) -> Draft:
    """search → the match with the asked key, not the one where another key has the value."""
    projects, value = pick(rng, PROJECTS, 3), rng.choice(THINGS)
    key, *others = pick(rng, ("host", "theme", "user", "door"), 3)
    files = {
        f"{project}/{rng.choice(CONFIGS)}": _config(rng, **{name: value})
        for project, name in zip(projects, (key, *others), strict=True)
    }
    return Draft(
        f"Which project has {value} as its {key}? Answer with its folder.",
        files,
        (("search", {"word": value}),),
        projects[0],
        others=projects,
    )


def _job_logs(rng: Random, folder: str, suffix: str) -> tuple[dict[str, str], str, str, str]:
    """Log files of two jobs each; the path, the job and the reason of one that stopped."""
    jobs, reasons, stems = [code(rng) for _ in range(4)], pick(rng, REASONS, 4), pick(rng, STEMS, 2)
    paths = [f"{folder}/{stem}.{suffix}" for stem in stems]
    files = {}
    for index, path in enumerate(paths):
        pair = range(2 * index, 2 * index + 2)
        files[path] = text(
            [f"{jobs[i]} started" for i in pair] + [f"{jobs[i]} stopped: {reasons[i]}" for i in pair]
        )
    return files, paths[0], jobs[0], reasons[0]


def stop_reason(rng: Random) -> Draft:
    """search → the reason in the second match."""
    files, _, job, reason = _job_logs(rng, "logs", "log")
    return Draft(
        f"Job {job} is in the logs. Why did it stop?",
        files,
        (("search", {"word": job}),),
        reason,
        others=REASONS,
    )


def _authored(rng: Random, folder: str, suffixes: tuple[str, ...]) -> tuple[dict[str, str], str, str]:
    """One file for each suffix, each with its author; the path and the author of the first."""
    stems, authors = pick(rng, STEMS, len(suffixes)), pick(rng, PEOPLE, len(suffixes))
    paths = [f"{folder}/{stem}.{suffix}" for stem, suffix in zip(stems, suffixes, strict=True)]
    files = {
        path: _insert(rng, _notes(rng, 2), f"Author: {author}")
        for path, author in zip(paths, authors, strict=True)
    }
    return files, paths[0], authors[0]


def author_by_suffix(rng: Random) -> Draft:
    """list → the file of the asked kind → its author line."""
    folder, suffixes = rng.choice(FOLDERS), pick(rng, ("md", "txt", "csv", "log"), 3)
    files, path, author = _authored(rng, folder, tuple(suffixes))
    return Draft(
        f"The folder {folder} has one .{suffixes[0]} file. Who is its author?",
        files,
        (("list", {"path": folder}), ("read", {"path": path})),
        author,
        others=PEOPLE,
    )


def readme_names_config(rng: Random) -> Draft:
    """Held out: read → the file that it names → the key."""
    projects, key = pick(rng, PROJECTS, 2), rng.choice(KEYS)
    names, values = pick(rng, CONFIGS, 3), rng.sample(range(1000, 9999), 3)
    paths = [f"{projects[0]}/{names[0]}", f"{projects[0]}/{names[1]}", f"{projects[1]}/{names[2]}"]
    files = {path: _config(rng, **{key: str(value)}) for path, value in zip(paths, values, strict=True)}
    readme = f"{projects[0]}/README.md"
    files[readme] = text([f"# {projects[0]}", f"Settings: {paths[0]}"])
    return Draft(
        f"{readme} says where the settings are. Tell me the value of {key} there.",
        files,
        (("read", {"path": readme}), ("read", {"path": paths[0]})),
        str(values[0]),
    )


def config_of_host(rng: Random) -> Draft:
    """Held out: search → the config among the matches → another key of it."""
    projects, host, key = pick(rng, PROJECTS, 3), rng.choice(THINGS), rng.choice(KEYS)
    values = rng.sample(range(1000, 9999), 3)
    hosts = [host, *pick(rng, [word for word in THINGS if word != host], 2)]
    paths = [f"{project}/{rng.choice(CONFIGS)}" for project in projects]
    files = {
        path: _config(rng, **{"host": name, key: str(value)})
        for path, name, value in zip(paths, hosts, values, strict=True)
    }
    files[f"{projects[2]}/README.md"] = text([f"# {projects[2]}", f"About: {host}"])
    return Draft(
        f"One config file has the host {host}. What value does {key} have there?",
        files,
        (("search", {"word": host}), ("read", {"path": paths[0]})),
        str(values[0]),
    )


def author_of_note(rng: Random) -> Draft:
    """Held out: search → the match in the asked folder → its author line."""
    folder, other = pick(rng, FOLDERS, 2)
    word, stems, authors = rng.choice(THINGS), pick(rng, STEMS, 3), pick(rng, PEOPLE, 3)
    paths = [f"{folder}/{stems[0]}.txt", f"{other}/{stems[1]}.txt", f"{folder}/{stems[2]}.txt"]
    files = {}
    for path, author in zip(paths, authors, strict=True):
        topic = [] if path == paths[2] else [f"{word} {rng.choice(lexicon.STATES)}"]
        files[path] = _insert(rng, _notes(rng, 2, (word,)) + topic, f"Author: {author}")
    return Draft(
        f"A file in {folder} mentions {word}. Give me the name of its author.",
        files,
        (("search", {"word": word}), ("read", {"path": paths[0]})),
        authors[0],
        others=authors,
    )


def reason_by_suffix(rng: Random) -> Draft:
    """Held out: list → the one log among other kinds → the reason of one of two jobs."""
    folder = rng.choice(FOLDERS)
    logs, path, job, reason = _job_logs(rng, folder, "log")
    others, _, _ = _authored(rng, folder, ("md", "csv"))
    files = others | {path: logs[path]}
    return Draft(
        f"There is one .log file in {folder}. For what reason did job {job} stop?",
        files,
        (("list", {"path": folder}), ("read", {"path": path})),
        reason,
        others=REASONS,
    )


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
    templates = templates(
        train={
            "word-in-folder": word_in_folder,
            "config-value": config_value,
            "owner-of-mention": owner_of_mention,
            "pointer": pointer,
            "setting-holder": setting_holder,
            "stop-reason": stop_reason,
            "author-by-suffix": author_by_suffix,
        },
        heldout={
            "readme-names-config": readme_names_config,
            "config-of-host": config_of_host,
            "author-of-note": author_of_note,
            "reason-by-suffix": reason_by_suffix,
        },
    )
