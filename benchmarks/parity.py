"""Do training and generation see the same log-probabilities? `python -m benchmarks.parity --json`.

What this file is: conversations of several turns through the engine, in batches that are ragged and change at
every step, with shared prefixes, chunked prefill and more of them than slots; then the learner's own update
on the same trajectories, whose log-probabilities, from the packed forward that has a gradient, are compared
with those that the engine gave while sampling. The last line of the output is one JSON object.
What it is not: a tolerance. The difference is 0.0 or there is a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from burnish.engine.local import LocalEngine
from burnish.interfaces import Engine
from burnish.model.prepare import prepare_smollm2
from burnish.model.weights import load_config
from burnish.train.learner import LocalLearner, Optimization
from burnish.types import Budget, Group, Message, Sampling, Status, Task, Trajectory, Turn

MODEL = Path(__file__).parents[1] / "models" / "smollm2-135m-instruct"


@dataclass(frozen=True)
class Shape:
    """`prompts` of up to `prompt_tokens` tokens, `members` conversations on each, of `turns` turns that
    sample up to `output_tokens` each, with up to `observed_tokens` between them; an engine of `slots`, which
    computes `chunk` prompt tokens a step at most."""

    prompts: int = 8
    members: int = 4
    turns: int = 3
    prompt_tokens: int = 260
    observed_tokens: int = 60
    output_tokens: int = 40
    slots: int = 12
    chunk: int = 96
    temperatures: tuple[float, ...] = (1.0, 0.7, 0.0, 1.3)


@dataclass
class Comparison:
    """An algorithm that teaches nothing: it compares what the learner computes with what was sampled."""

    needs: tuple[str, ...] = ()
    unit: Literal["token", "sequence", "pair", "group"] = "token"
    worst: float = 0.0
    tokens: int = 0
    differing: int = 0

    def credit(self, groups: Sequence[Group]) -> dict[str, float]:
        return {}

    def normalizer(self, groups: Sequence[Group]) -> float:
        return 1.0

    def loss(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        difference = (output["logprobs"].detach() - batch["logprobs"]).abs()
        self.worst = max(self.worst, float(difference.max()))
        self.differing += int((difference != 0).sum())
        self.tokens += len(difference)
        loss: Tensor = 0.0 * output["logprobs"].sum()
        return loss, {"count": float(len(difference))}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


async def converse(
    engine: Engine, prompt: Sequence[int], shape: Shape, member: int, seed: int, vocabulary: int
) -> Trajectory:
    """One conversation, in token ids; what it is told between its turns is drawn at random."""
    draw = random.Random(f"conversation {seed} {member}")
    task = Task(f"prompt-{seed}", "benchmark", (), (), Budget(), {}, {})
    trajectory = Trajectory(f"{task.id}#{member}", task, status=Status("completed"))
    added = list(prompt)
    for number in range(shape.turns):
        parent = number - 1 if number else None
        sampling = Sampling(
            shape.temperatures[member % len(shape.temperatures)],
            draw.randint(shape.output_tokens // 2, shape.output_tokens),
            draw.getrandbits(40),
        )
        ids = [*trajectory.path_ids(parent), *added]
        pieces = [piece async for piece in engine.generate(ids, sampling)]
        output = tuple(token for piece in pieces for token in piece.token_ids)
        logprobs = tuple(value for piece in pieces for value in piece.logprobs)
        trajectory.turns.append(Turn(
            parent, parent, "agent", tuple(added), output, logprobs, (True,) * len(output),
            Message("assistant", ""), "length", sampling,
        ))  # fmt: skip
        added = [draw.randrange(vocabulary) for _ in range(draw.randint(1, shape.observed_tokens))]
    return trajectory


async def sample(directory: Path, weights: Any, shape: Shape) -> tuple[list[Group], LocalEngine]:
    """Every conversation at once; the engine is returned, closed, for its counters."""
    config = load_config(directory)
    longest = shape.prompt_tokens + shape.turns * (shape.output_tokens + shape.observed_tokens)
    engine = LocalEngine(config, slots=shape.slots, context=longest + 1, chunk=shape.chunk)
    draw = random.Random("prompts")
    lengths = [draw.randint(shape.prompt_tokens // 8, shape.prompt_tokens) for _ in range(shape.prompts)]
    prompts = [[draw.randrange(config.vocab_size) for _ in range(n)] for n in lengths]
    await engine.load(weights, version=1)
    try:
        done = await asyncio.gather(*(
            converse(engine, prompt, shape, member, seed, config.vocab_size)
            for seed, prompt in enumerate(prompts)
            for member in range(shape.members)
        ))  # fmt: skip
    finally:
        await engine.close()
    m = shape.members
    return [Group(done[i].task, list(done[i : i + m])) for i in range(0, len(done), m)], engine


def measure(directory: Path, shape: Shape) -> dict[str, float | int]:
    """The largest difference of a log-probability between sampling and learning, and on how many tokens."""
    learner, comparison = LocalLearner(directory, Optimization(micro_batch=2048)), Comparison()
    groups, engine = asyncio.run(sample(directory, learner.export(), shape))
    learner.annotate(groups, comparison.needs)
    learner.update(groups, comparison)
    return {
        "max_abs_logprob_difference": comparison.worst,
        "tokens": comparison.tokens,
        "differing_tokens": comparison.differing,
        "conversations": shape.prompts * shape.members,
        "turns": shape.turns,
        "engine_steps": engine.counters.steps,
        "prefilled_tokens": engine.counters.prefilled,
        "reused_tokens": engine.counters.reused,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the result as JSON only")
    parser.add_argument("--model", type=Path, default=MODEL, help="a Hugging Face directory")
    chosen = parser.parse_args()
    directory = prepare_smollm2(MODEL) if chosen.model == MODEL else chosen.model
    result = measure(directory, Shape())
    if not chosen.json:
        print(f"{result['tokens']} tokens, {result['differing_tokens']} of them differ")
    print(json.dumps(result))
    return int(result["max_abs_logprob_difference"] != 0.0)


if __name__ == "__main__":
    sys.exit(main())
