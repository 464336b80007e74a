"""The work that `benchmarks.rollout` and `benchmarks.train_step` give to Burnish and to TRL.

What this file is: prompts of Burnish's own domains, rendered, and both sides as things that make one step
when asked, so that a benchmark can take them in turn and both see the same load of the machine.
What it is not: it decides no order and computes no ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from burnish.domains.catalogue import simulated_domains
from burnish.engine.local import LocalEngine
from burnish.model.prepare import prepare_smollm2
from burnish.model.renderer import Renderer
from burnish.model.weights import load_config
from burnish.train.grpo import GRPO
from burnish.train.learner import LocalLearner, Optimization
from burnish.types import (
    Budget,
    Group,
    Message,
    Sampling,
    Score,
    Status,
    Task,
    Trajectory,
    Turn,
)  # fmt: skip

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "models" / "smollm2-135m-instruct"
PEERS = ROOT / ".venv-peers" / "bin" / "python"
# Read before anything computes: the compute thread leaves the others one thread, and TRL is to have them all.
THREADS = torch.get_num_threads()
HOW = "TRL is not here: `make peers` makes its environment, .venv-peers"


@dataclass(frozen=True)
class Workload:
    """`size` answers of up to `max_tokens` to each prompt, and one update on them. `micro_batch` is TRL's
    sequences at once; Burnish cuts by tokens and is left at its default. `peer_dtype` is of TRL's weights:
    float32 runs under bf16 autocast, as its defaults do."""

    model: str
    prompts: list[str]
    prompt_ids: list[list[int]]
    size: int = 8
    max_tokens: int = 48
    steps: int = 4
    micro_batch: int = 8
    rate: float = 1e-6
    peer_dtype: str = "bfloat16"
    threads: int = THREADS

    @property
    def trajectories(self) -> int:
        return len(self.prompts) * self.size


def workload_from(parser: argparse.ArgumentParser) -> tuple[Workload, argparse.Namespace]:
    """The workload that the command line asks for, and what else it says."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON only")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--size", type=int, default=8, help="answers to each prompt")
    parser.add_argument("--tokens", type=int, default=48, help="most new tokens of an answer")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-dtype", choices=("bfloat16", "float32"), default="bfloat16")
    chosen = parser.parse_args()
    workload = make_workload(chosen.prompts, chosen.size, chosen.tokens, chosen.runs)
    return replace(workload, peer_dtype=chosen.peer_dtype), chosen


def described(workload: Workload) -> dict[str, Any]:
    """What a result says of the work that it was measured on."""
    return {
        "trajectories": workload.trajectories,
        "max_tokens": workload.max_tokens,
        "prompt_tokens": sum(map(len, workload.prompt_ids)) / len(workload.prompts),
        "runs": workload.steps - 1,
        "threads": workload.threads,
        "peer_dtype": workload.peer_dtype,
    }


def make_workload(prompts: int, size: int, max_tokens: int, runs: int) -> Workload:
    """The first training tasks of the simulated domains, in turn; one step more than `runs`, to warm up."""
    directory = prepare_smollm2(MODEL)
    renderer, domains = Renderer.from_directory(directory), simulated_domains()
    ids = []
    for number in range(prompts):
        domain = domains[number % len(domains)]
        task = domain.tasks("train", 0, number // len(domains) + 1)[-1]
        ids.append(list(renderer.start(task.prompt, task.tools)))
    texts = [renderer.tokenizer.decode(i, skip_special_tokens=False) for i in ids]
    micro = next(m for m in (8, 4, 2, 1) if prompts * size % m == 0)
    return Workload(str(directory), texts, ids, size, max_tokens, runs + 1, micro)


@dataclass
class Step:
    """One step: seconds in all, seconds of generation, and tokens sampled."""

    step_s: float
    generation_s: float
    tokens: int


class Burnish:
    """The engine, GRPO and the learner, on the workload."""

    def __init__(self, workload: Workload) -> None:
        self.workload, directory = workload, Path(workload.model)
        self.renderer = Renderer.from_directory(directory)
        longest = max(map(len, workload.prompt_ids)) + workload.max_tokens
        self.engine = LocalEngine(load_config(directory), slots=workload.trajectories, context=longest)
        self.learner = LocalLearner(directory, Optimization(rate=workload.rate))
        self.algorithm = GRPO().open()
        self.steps = 0

    async def step(self, update: bool = True) -> Step:
        """Rolls out and, with `update`, learns and hands the new weights to the engine."""
        if self.engine.version is None:
            await self.engine.load(self.learner.export(), 0)
        began = time.perf_counter()
        turns = await asyncio.gather(
            *(
                self._answer(p, m)
                for p in range(len(self.workload.prompts))
                for m in range(self.workload.size)
            )
        )
        generated = time.perf_counter()
        if update:
            groups = self._groups(turns)
            self.learner.annotate(groups, self.algorithm.needs)
            self.algorithm.credit(groups)
            self.learner.update(groups, self.algorithm)
            await self.engine.load(self.learner.export(), self.steps + 1)
        self.steps += 1
        tokens = sum(len(turn.output_ids) for turn in turns)
        return Step(time.perf_counter() - began, generated - began, tokens)

    async def _answer(self, prompt: int, member: int) -> Turn:
        ids, w = self.workload.prompt_ids[prompt], self.workload
        seed = (self.steps * len(w.prompts) + prompt) * w.size + member
        sampling = Sampling(1.0, w.max_tokens, seed, self.renderer.stop_ids)
        pieces = [piece async for piece in self.engine.generate(ids, sampling)]
        output = tuple(token for piece in pieces for token in piece.token_ids)
        logprobs = tuple(value for piece in pieces for value in piece.logprobs)
        return Turn(
            None, None, "agent", tuple(ids), output, logprobs, (True,) * len(output),
            Message("assistant", ""), pieces[-1].stop or "stop", sampling,
        )  # fmt: skip

    def _groups(self, turns: Sequence[Turn]) -> list[Group]:
        size, groups = self.workload.size, []
        for prompt in range(len(self.workload.prompts)):
            task = Task(f"prompt-{prompt}", "benchmark", (), (), Budget(), {}, {})
            members = turns[prompt * size : (prompt + 1) * size]
            groups.append(Group(task, [_trajectory(task, m, turn) for m, turn in enumerate(members)]))
        return groups

    async def close(self) -> None:
        await self.engine.close()


def _trajectory(task: Task, member: int, turn: Turn) -> Trajectory:
    """Scored by a reward that says nothing and differs within a group, as the peer's does."""
    reward = Score(sum(turn.output_ids) % 7 / 6)
    return Trajectory(f"{task.id}#{member}", task, [turn], status=Status("completed"), score=reward)


class TRL:
    """`benchmarks/peers/trl_grpo.py` in its own environment, stepped over its pipes."""

    def __init__(self, workload: Workload) -> None:
        self.process = subprocess.Popen(
            [str(PEERS), str(Path(__file__).parent / "peers" / "trl_grpo.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        opened = self._ask(json.dumps(asdict(workload)))
        self.versions: Mapping[str, str] = opened["versions"]
        if not opened["same_tokens"]:
            raise SystemExit("TRL's tokenizer cut the prompts otherwise than Burnish's: nothing to compare")

    @classmethod
    def open(cls, workload: Workload) -> Self | None:
        """None where its environment is missing."""
        return cls(workload) if PEERS.exists() else None

    def step(self) -> Step:
        return Step(**self._ask("step"))

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"TRL's process ended with exit code {self.process.wait()}; see above")
        made: dict[str, Any] = json.loads(answer)
        return made

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def in_turn(workload: Workload, update: bool = True) -> tuple[list[Step], list[Step], dict[str, str]]:
    """Steps of Burnish and of TRL, alternating, the first of each left out; TRL's are empty where it is
    missing. TRL has no step without update."""

    async def run() -> tuple[list[Step], list[Step], dict[str, str]]:
        burnish, trl = Burnish(workload), TRL.open(workload)
        mine, theirs = [], []
        try:
            for _ in range(workload.steps):
                mine.append(await burnish.step(update))
                if trl is not None:
                    theirs.append(trl.step())
        finally:
            await burnish.close()
            if trl is not None:
                trl.close()
        return mine[1:], theirs[1:], dict(trl.versions) if trl is not None else {}

    return asyncio.run(run())


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
