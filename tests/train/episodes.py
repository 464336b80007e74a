"""Episodes for tests of credit and loss: trajectories by token counts, and a learner's outputs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from burnish.train.packing import build_samples
from burnish.types import (
    Budget,
    Ending,
    Group,
    Message,
    Sample,
    Sampling,
    Score,
    Status,
    Stream,
    Task,
    Trajectory,
    Turn,
)


def task(name: str = "task", domain: str = "files", tokens: int | None = None) -> Task:
    return Task(name, domain, (Message("user", "do it"),), (), Budget(tokens=tokens), {}, {})


def episode(
    shape: Sequence[tuple[int, int]],
    reward: float | None = 1.0,
    ending: Ending = "completed",
    tail: int = 0,
    after: Sequence[int | None] | None = None,
    streams: Mapping[str, Sequence[float | None]] | None = None,
    of: Task | None = None,
) -> Trajectory:
    """`shape` gives each turn's observed and sampled tokens, `tail` the last observation's."""
    turns = []
    for index, (observed, sampled) in enumerate(shape):
        before = index - 1 if index else None
        turns.append(
            Turn(
                parent=before,
                after=before if after is None else after[index],
                agent="main",
                prompt_ids=tuple(range(100, 100 + observed)),
                output_ids=tuple(range(sampled)),
                logprobs=(-1.0,) * sampled,
                trainable=(True,) * sampled,
                message=Message("assistant", ""),
                stop="stop",
                sampling=Sampling(),
            )
        )
    parts = {name: Stream(turns=tuple(values)) for name, values in (streams or {}).items()}
    score = None if reward is None and not parts else Score(reward, parts)
    return Trajectory(
        "t", of or task(), turns, tuple(range(tail)), status=Status(ending, "test"), score=score
    )


def group(*trajectories: Trajectory) -> Group:
    made = Group(trajectories[0].task, list(trajectories))
    build_samples(made)
    return made


def annotate(sample: Sample, name: str, values: Sequence[float], elsewhere: float = 0.0) -> None:
    """Writes a column: `values` at the trainable tokens, `elsewhere` at the others (a value that must not be
    used gives it away)."""
    column = np.full(len(sample), elsewhere, np.float32)
    column[sample.columns["trainable"]] = values
    sample.columns[name] = column


def annotate_randomly(groups: Sequence[Group], seed: int) -> None:
    """Behaviour logprobs, reference logprobs and values that differ at every token."""
    generator = np.random.default_rng(seed)
    for sample in (s for g in groups for s in g.samples):
        count = int(sample.columns["trainable"].sum())
        annotate(sample, "logprobs", -generator.random(count) * 3)
        annotate(sample, "reference", -generator.random(count) * 3)
        annotate(sample, "values", generator.normal(size=count), elsewhere=50.0)
        sample.columns["tail_value"] = generator.normal(size=1).astype(np.float32)


def at_tokens(sample: Sample, name: str) -> list[float]:
    """A column's values at the trainable tokens, rounded to 5 places, in storage order."""
    return [round(float(x), 5) for x in sample.columns[name][sample.columns["trainable"]]]


def batch(groups: Sequence[Group]) -> dict[str, Tensor]:
    """What a learner passes to `loss`: all trainable tokens' columns, and their sample's number."""
    samples = [s for g in groups for s in g.samples if s.columns["trainable"].any()]
    names = [n for n, c in samples[0].columns.items() if len(c) == len(samples[0]) and n != "tail_value"]
    columns = {
        name: torch.from_numpy(np.concatenate([s.columns[name][s.columns["trainable"]] for s in samples]))
        for name in names
    }
    counts = torch.tensor([int(s.columns["trainable"].sum()) for s in samples])
    return columns | {"sequence": torch.repeat_interleave(torch.arange(len(samples)), counts)}


def output(columns: Mapping[str, Tensor], shift: float = 0.1) -> dict[str, Any]:
    """Outputs of weights that moved: logprobs `shift` times a different amount for every logprob."""
    moved = columns["logprobs"] + shift * torch.cos(7 * columns["logprobs"])
    return {
        "logprobs": moved.requires_grad_(),
        "entropy": torch.full_like(moved, 0.7).detach(),
        "values": (columns["values"] + 0.3).requires_grad_() if "values" in columns else None,
    }
