"""domains: what there is to learn, one task to look at, and the checks that admit a domain.

What this file is: list, show and check over the catalogue.
What it is not: it runs no model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from burnish.commands.output import Stopped, emit, say, table
from burnish.domains.check import Verdict, check_domain
from burnish.interfaces import Domain
from burnish.observe.progress import LiveView
from burnish.recipes.road import chosen_domains
from burnish.sandbox.local import LocalSandboxes
from burnish.types import Budget, Split, Task, UsageError

SPLITS: tuple[Split, ...] = get_args(Split)


def list_domains(as_json: bool) -> None:
    rows = [_facts(domain) for domain in chosen_domains((), LocalSandboxes()).values()]
    if as_json:
        emit({"domains": rows})
        return
    columns = ("name", "what", "tools")
    table(columns, [[r["name"], r["title"], ", ".join(r["tools"])] for r in rows], numbers_from=9)


def _facts(domain: Domain) -> dict[str, Any]:
    (task,) = domain.tasks("heldout", 0, 1)
    return {"name": domain.name, "title": domain.title, "tools": [tool.name for tool in task.tools]}


def show_domain(name: str, split: str, seed: int, count: int, as_json: bool) -> None:
    """Tasks as an agent is given them; never what grades them."""
    (domain,) = chosen_domains((name,), LocalSandboxes()).values()
    if split not in SPLITS or count < 1:
        raise UsageError("--split must be train or heldout, and --count at least 1")
    tasks = domain.tasks("train" if split == "train" else "heldout", seed, count)
    if as_json:
        emit({"name": domain.name, "title": domain.title, "tasks": [_task(task) for task in tasks]})
        return
    say(f"{domain.name}: {domain.title}")
    for task in tasks:
        say(f"\n{task.id}  (template {task.tags['template']}, {_limits(task.budget)})")
        for tool in task.tools:
            say(f"  {tool.name}({', '.join(tool.parameters['properties'])}): {tool.description}")
        for message in task.prompt:
            say(f"  {message.role}: {message.content}")


def _task(task: Task) -> dict[str, Any]:
    data = asdict(task)
    return {key: data[key] for key in ("id", "prompt", "tools", "budget", "tags")}


def _limits(budget: Budget) -> str:
    named = {name: value for name, value in asdict(budget).items() if value is not None}
    return ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in named.items()) or "no limits"


def check_domains(names: Sequence[str], count: int, seed: int, as_json: bool) -> int:
    """Returns 0 when every check of every domain passed, else 1. `count` tasks of each split."""
    if count < 2:
        raise UsageError("--count must be at least 2: a domain cannot be judged by one task")
    try:
        verdicts = asyncio.run(_check(tuple(names), count, seed))
    except KeyboardInterrupt:
        raise Stopped("stopped; the checks were not finished") from None
    passed = all(v.passed for found in verdicts.values() for v in found)
    if as_json:
        emit({"passed": passed, "domains": {n: [asdict(v) for v in found] for n, found in verdicts.items()}})
    else:
        for name, found in verdicts.items():
            say(f"{'ok    ' if all(v.passed for v in found) else 'failed'}  {name}")
            for verdict in found:
                say(f"    {'ok    ' if verdict.passed else 'failed'}  {verdict.check}: {verdict.reason}")
    return 0 if passed else 1


async def _check(names: tuple[str, ...], count: int, seed: int) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    async with LocalSandboxes() as sandboxes:
        domains = chosen_domains(names, sandboxes)
        with LiveView() as view:
            view.phase("check", len(domains))
            for name, domain in domains.items():
                tasks = [task for split in SPLITS for task in domain.tasks(split, seed, count)]
                found[name] = await check_domain(domain, tasks)
                view.advance()
    return found
