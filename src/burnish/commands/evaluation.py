"""eval, compare: what a model reaches on held-out tasks, and whether another is better.

What this file is: the running of a model over a suite's tasks, the table of its figures, and the two sides
of a comparison, each a file of episodes, a stage of a run, or a model that is evaluated first.
What it is not: it computes no statistic (`evaluate` does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from burnish.agent.policy import ModelPolicy
from burnish.commands.models import FoundModel, find_model, opened
from burnish.commands.output import Stopped, emit, interval, number, percent, say, table
from burnish.evaluate.comparison import Comparison, compare
from burnish.evaluate.report import ReportData, write_report
from burnish.evaluate.suite import Suite
from burnish.evaluate.summary import Figures, Summary, summarize
from burnish.interfaces import Domain
from burnish.observe.progress import LiveView
from burnish.recipes.road import chosen_domains
from burnish.rollout.group import Roller
from burnish.sandbox.local import LocalSandboxes
from burnish.store.codec import decode_lines, encode_lines, task_digest
from burnish.store.files import whole_lines, write_atomically
from burnish.store.run import RunDirectory
from burnish.types import Sampling, Split, Task, Trajectory, UsageError

VERDICT_CODES = {"pass": 0, "regression": 1, "inconclusive": 3}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to evaluate on: `wanted` are the digests of the tasks to keep, None for all of the suite."""

    suite: Suite
    domains: tuple[str, ...] = ()
    wanted: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.suite.per_domain < 1:
            raise UsageError(f"--per-domain is {self.suite.per_domain}: at least one task of each is needed")
        if self.suite.split not in ("heldout", "train"):
            raise UsageError(f"--split is {self.suite.split!r}: it must be heldout or train")

    def tasks(self, domains: Mapping[str, Domain]) -> list[Task]:
        tasks = self.suite.tasks(domains)
        if self.wanted is None:
            return tasks
        kept = [task for task in tasks if task.digest() in self.wanted]
        if len(kept) < len(self.wanted):
            raise UsageError(
                f"{len(self.wanted) - len(kept)} of the first side's {len(self.wanted)} tasks cannot be made "
                "again: they come from other domains, or from another version. Evaluate both sides now."
            )
        return kept


def plan(per_domain: int, domains: str, split: str, seed: int) -> Plan:
    """From options. `domains` is a list with commas; empty means all. Raises UsageError."""
    names = tuple(name.strip() for name in domains.split(",") if name.strip())
    chosen_domains(names, LocalSandboxes())
    side: Split = "train" if split == "train" else "heldout"
    if split != side:
        raise UsageError(f"--split is {split!r}: it must be heldout or train")
    return Plan(Suite(per_domain, side, seed), names)


def evaluate(model: str, what: Plan, out: Path | None, page: Path | None, as_json: bool) -> None:
    """Prints the figures; writes the episodes to `out` and a page to `page` where asked."""
    for target in (out, page):
        if target is not None and (target.is_dir() or not target.absolute().parent.is_dir()):
            raise UsageError(f"{target} cannot be a file to write: give a file in a directory that exists")
    found = find_model(model)
    episodes = run(found, what)
    summary = summarize(episodes)
    if out is not None:
        write_atomically(out, encode_lines(episodes))
    if page is not None:
        write_report(page, ReportData(found.name, {"evaluated": episodes}))
    if as_json:
        suite = {"per_domain": what.suite.per_domain, "split": what.suite.split, "seed": what.suite.seed}
        emit({"model": found.name, "path": str(found.path), "suite": suite, **summary.to_json()})
        return
    show(summary)
    for target in (out, page):
        if target is not None:
            say(f"wrote {target}")


def run(found: FoundModel, what: Plan) -> list[Trajectory]:
    """One greedy episode for each task, in the suite's order, with progress on standard error."""
    try:
        return asyncio.run(_measure(found, what))
    except KeyboardInterrupt:
        raise Stopped(f"stopped; the evaluation of {found.name} was not finished and not kept") from None


async def _measure(found: FoundModel, what: Plan) -> list[Trajectory]:
    limits = found.rollouts
    async with LocalSandboxes() as sandboxes:
        domains = chosen_domains(what.domains, sandboxes)
        tasks = what.tasks(domains)
        slots = min(limits.concurrency, len(tasks))
        async with opened(found, slots, limits.context) as (engine, renderer):
            policy = ModelPolicy(engine, renderer, Sampling(0.0, limits.turn_tokens), engine.context)
            with LiveView() as view:
                view.phase(f"evaluate {found.name}", len(tasks))
                roller = Roller(domains, limits.concurrency, finished=lambda _: view.advance())
                lineage = {"model": found.name, "version": found.version}
                groups = await roller.groups(policy, tasks, 1, what.suite.seed, lineage)
    return [trajectory for group in groups for trajectory in group.trajectories]


def show(summary: Summary) -> None:
    """The figures by domain and overall."""
    columns = ("domain", "tasks", "success", "95 % interval", "steps", "tool failures", "timeouts")
    rows = [_row(name, figures) for name, figures in summary.domains.items()]
    table(columns, [*rows, _row("overall", summary.overall)])
    if summary.invalid or summary.unscored:
        say(
            f"{summary.invalid} invalid and {summary.unscored} unscored episodes are in none of these figures"
        )


def _row(name: str, f: Figures) -> list[str]:
    rates = [percent(f.tool_failure_rate), percent(f.timeout_rate)]
    return [name, str(f.tasks), percent(f.success), interval(f.low, f.high), number(f.turns), *rates]


def compare_sides(first: str, second: str, what: Plan, margin: float, alpha: float, as_json: bool) -> int:
    """Prints whether `second` is better or worse than `first`; returns the exit code of the verdict."""
    recorded = [_recorded(first), _recorded(second)]
    # Both models are looked for before either is run.
    models = [
        None if r is not None else find_model(s) for r, s in zip(recorded, (first, second), strict=True)
    ]
    known = next((r for r in recorded if r is not None), None)
    tasks = what if known is None else _same_tasks(known)
    sides = []
    for episodes, model in zip(recorded, models, strict=True):
        if episodes is None:
            assert model is not None
            episodes = run(model, tasks)
        sides.append(episodes)
    found = compare(sides[0], sides[1], margin, alpha)
    if as_json:
        emit({"first_name": first, "second_name": second, **found.to_json()})
    else:
        _show_comparison(found, first, second)
    return VERDICT_CODES[found.verdict]


def _recorded(side: str) -> list[Trajectory] | None:
    """The episodes that a side names, or None where it names a model."""
    path = Path(side)
    if path.suffix == ".jsonl":
        if not path.is_file():
            raise UsageError(
                f"{side}: no such file of episodes; `burnish eval MODEL --out FILE.jsonl` makes one"
            )
        return _some(decode_lines(whole_lines(path), side), side)
    if (path / "recipe.json").is_file():
        stages = RunDirectory.open(path).evaluations()
        return stages.get("trained")
    directory, colon, stage = side.rpartition(":")
    if colon and not path.exists():
        stages = RunDirectory.open(Path(directory)).evaluations()
        if stage not in stages:
            there = ", ".join(stages) or "none yet"
            raise UsageError(f"{directory} has no evaluation {stage!r}; it has: {there}")
        return _some(stages[stage], side)
    return None


def _some(episodes: list[Trajectory], side: str) -> list[Trajectory]:
    if not episodes:
        raise UsageError(f"{side} holds no episodes")
    return episodes


def _same_tasks(episodes: Sequence[Trajectory]) -> Plan:
    """The plan that makes the tasks of these episodes again. Raises UsageError where they were not drawn
    from domains by split, seed and number (`files/heldout/s7/3`)."""
    try:
        parts = [t.task.id.split("/") for t in episodes]
        splits, seeds = {p[1] for p in parts}, {int(p[2].removeprefix("s")) for p in parts}
        (split,), (seed,) = splits, seeds
        most = max(int(p[3]) for p in parts) + 1
    except (IndexError, ValueError):
        raise UsageError("the recorded tasks are of no one suite and seed; evaluate both sides now") from None
    domains = tuple(sorted({t.task.domain for t in episodes}))
    side: Split = "train" if split == "train" else "heldout"
    return Plan(Suite(most, side, seed), domains, frozenset(task_digest(t) for t in episodes))


def _show_comparison(found: Comparison, first: str, second: str) -> None:
    rows = [
        [name, percent(s.overall.success), interval(s.overall.low, s.overall.high)]
        for name, s in ((first, found.first), (second, found.second))
    ]
    table(("model", "success", "95 % interval"), rows)
    say()
    changes = [
        [d.domain, str(d.tasks), f"{d.difference:+.1%}", f"{d.p_worse_holm:.3f}"] for d in found.domains
    ]
    table(("domain", "tasks", "difference", "p that it fell"), changes)
    say()
    say(
        f"difference {found.difference:+.1%}, {1 - found.alpha:.0%} interval {found.low:+.1%} to "
        f"{found.high:+.1%} over {found.tasks} tasks; {found.gained} gained, {found.lost} lost"
    )
    say(f"paired p = {found.p_value:.2g} ({found.clusters} clusters by {found.clustering}); ", end="")
    say(f"exact over single tasks: {found.p_permutation:.2g}")
    if found.excluded:
        say(f"{found.excluded} tasks without a valid episode on both sides were left out")
    say(f"{found.verdict}: {'; '.join(found.reasons)}")
