"""Random turn trees for tests of packing, and the obvious way to compute what packing computes.

What this file is: trajectories whose turns branch, share prefixes and repeat tokens, and log-probabilities by
one plain forward for each token sequence, with torch's own operations only.
What it is not: it imports nothing of `burnish.train`, so that a fault there cannot hide here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from burnish.model.transformer import Transformer
from burnish.types import Budget, Message, Sampling, Score, Status, Task, Trajectory, Turn

VOCABULARY = 5
"""Few, so that prefixes are shared often."""


def turn(
    parent: int | None,
    prompt: Sequence[int],
    output: Sequence[int],
    trainable: Sequence[bool] | None = None,
    temperature: float = 1.0,
) -> Turn:
    return Turn(
        parent=parent, after=None, agent="main", prompt_ids=tuple(prompt), output_ids=tuple(output),
        logprobs=(-1.5,) * len(output),
        trainable=(True,) * len(output) if trainable is None else tuple(trainable),
        message=Message("assistant", ""), stop="stop", sampling=Sampling(temperature),
    )  # fmt: skip


def trajectory_of(turns: Sequence[Turn], tail: Sequence[int] = (), reward: float = 1.0) -> Trajectory:
    """Turns in the order of time that they are given in."""
    task = Task("t", "files", (), (), Budget(), {}, {})
    for index, node in enumerate(turns):
        node.after = index - 1 if index else None
    status = Status("truncated", "turns") if tail else Status("completed")
    return Trajectory("t", task, list(turns), tuple(tail), status=status, score=Score(reward))


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Up to four turns, each on any earlier one or on nothing, some tokens forced, and perhaps a tail."""
    tokens = st.integers(0, VOCABULARY - 1)
    turns: list[Turn] = []
    for index in range(draw(st.integers(1, 4))):
        parent = draw(st.none() | st.integers(0, index - 1)) if index else None
        output = draw(st.lists(tokens, min_size=1, max_size=5))
        trained = draw(st.lists(st.booleans(), min_size=len(output), max_size=len(output)))
        prompt = draw(st.lists(tokens, min_size=1 if parent is None else 0, max_size=6))
        turns.append(turn(parent, prompt, output, trained, draw(st.sampled_from((0.0, 0.7, 1.0)))))
    return trajectory_of(turns, draw(st.lists(tokens, max_size=3)))


def trained_tokens(trajectory: Trajectory) -> list[tuple[list[int], int, float]]:
    """(context, token, temperature) of each trainable token, in storage order."""
    found = []
    for index, node in enumerate(trajectory.turns):
        path = trajectory.path_ids(index)
        first = len(path) - len(node.output_ids)
        for offset, chosen in enumerate(node.trainable):
            if chosen:
                place = first + offset
                found.append((path[:place], path[place], node.sampling.temperature or 1.0))
    return found


def plain_logprobs(model: Transformer, trajectory: Trajectory) -> list[Tensor]:
    """log pi(token | context) of each trainable token that has a context, in storage order: one forward for
    each turn, over its whole path."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        future = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, v).flatten(1)

    found = []
    for index, node in enumerate(trajectory.turns):
        path = trajectory.path_ids(index)
        logits = model.logits(model(torch.tensor(path), torch.arange(len(path)), attend)).float()
        every = torch.log_softmax(logits / (node.sampling.temperature or 1.0), -1)
        first = len(path) - len(node.output_ids)
        for place, chosen in enumerate(node.trainable, first):
            if chosen and place:
                found.append(every[place - 1, path[place]])
    return found
