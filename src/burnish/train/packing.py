"""From groups of trajectories to packed batches of unique tokens.

What this file is: trajectories as token columns (`build_samples`), and groups merged into token trees
(`pack`): tokens that several trajectories share, prompts above all, are stored, and so computed, once; every
trainable token of every trajectory still counts in the loss, as an item that points at the position which
predicts it.
What it is not: it runs no model and knows no algorithm.

Attention follows `Turn.parent`; items keep the trajectories' storage order, so packing changes no credit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from burnish.model.attention import TILE, Block, Layout
from burnish.types import Group, Sample, Trajectory


def build_samples(group: Group) -> None:
    """Fills `group.samples` with one Sample for each trajectory that may be learnt from; invalid ones have
    none. Idempotent."""
    if not group.samples:
        group.samples = [
            Sample(i, _columns(t))
            for i, t in enumerate(group.trajectories)
            if t.turns and (t.status is None or t.status.kind != "invalid")
        ]


def _columns(trajectory: Trajectory) -> dict[str, NDArray[np.generic]]:
    ids: list[int] = []
    turn: list[int] = []
    trainable: list[bool] = []
    logprobs: list[float] = []
    temperature: list[float] = []
    for index, node in enumerate(trajectory.turns):
        prompt, output = len(node.prompt_ids), len(node.output_ids)
        ids += [*node.prompt_ids, *node.output_ids]
        turn += [index] * (prompt + output)
        trainable += [False] * prompt + list(node.trainable)
        logprobs += [0.0] * prompt + list(node.logprobs)
        temperature += [node.sampling.temperature or 1.0] * (prompt + output)
    tail = len(trajectory.tail_ids)
    return {
        "ids": np.array([*ids, *trajectory.tail_ids], np.int64),
        "turn": np.array([*turn, *[len(trajectory.turns) - 1] * tail], np.int64),
        "trainable": np.array([*trainable, *[False] * tail], bool),
        "logprobs": np.array([*logprobs, *[0.0] * tail], np.float32),
        "temperature": np.array([*temperature, *[1.0] * tail], np.float32),
    }


@dataclass(frozen=True, slots=True)
class Packed:
    """A micro-batch. `layout` is what the model runs on. Item n is the trainable token `targets[n]` predicted
    by the hidden state of packed token `sources[n]`; it is token `index[n]` of sample `owner[n]` of `samples`.
    `ends` [samples] is each sample's last packed token (for the value of the state it was left in)."""

    layout: Layout
    sources: Tensor
    targets: Tensor
    temperatures: Tensor
    owner: NDArray[np.int64]
    index: NDArray[np.int64]
    samples: tuple[Sample, ...]
    ends: Tensor

    def column(self, name: str) -> Tensor:
        """The items' values of a column, [N]."""
        flat = np.concatenate([np.asarray(s.columns[name]) for s in self.samples])
        return torch.from_numpy(flat[self._flat()])

    def scatter(self, name: str, values: Tensor) -> None:
        """Writes [N] back into the samples as float32 column `name`, zero elsewhere."""
        flat = np.zeros(sum(map(len, self.samples)), np.float32)
        flat[self._flat()] = values.detach().float().numpy()
        for sample, part in zip(self.samples, np.split(flat, self._starts()[1:]), strict=True):
            sample.columns[name] = part

    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *[len(s) for s in self.samples[:-1]]])

    def _flat(self) -> NDArray[np.int64]:
        return self._starts()[self.owner] + self.index


def micro_batches(groups: Sequence[Group], budget: int) -> Iterator[Packed]:
    """Packs whole groups together up to about `budget` stored tokens; a group is never split."""
    pending: list[Group] = []
    size = 0
    for group in groups:
        length = sum(len(s) for s in group.samples)
        if pending and size + length > budget:
            yield pack(pending)
            pending, size = [], 0
        if group.samples:
            pending.append(group)
            size += length
    if pending:
        yield pack(pending)


class _Tree:
    """Unique tokens by (parent, token)."""

    def __init__(self) -> None:
        self.children: dict[tuple[int, int], int] = {}
        self.ids: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []

    def insert(self, parent: int, ids: Sequence[int]) -> list[int]:
        path = []
        for token in ids:
            node = self.children.get((parent, token))
            if node is None:
                node = self.children[parent, token] = len(self.ids)
                self.ids.append(token)
                self.parents.append(parent)
                self.depths.append(0 if parent < 0 else self.depths[parent] + 1)
            path.append(node)
            parent = node
        return path


def pack(groups: Sequence[Group]) -> Packed:
    """Merges groups into one layout. Trees are kept apart by group only where their tokens differ."""
    tree = _Tree()
    samples: list[Sample] = []
    places: list[NDArray[np.int64]] = []
    for group in groups:
        for sample in group.samples:
            samples.append(sample)
            places.append(_place(tree, group.trajectories[sample.trajectory], sample))
    parents = np.array(tree.parents)
    owner, index, sources, targets, temperatures = [], [], [], [], []
    for number, (sample, place) in enumerate(zip(samples, places, strict=True)):
        chosen = np.nonzero(sample.columns["trainable"] & (parents[place] >= 0))[0]
        owner.append(np.full(len(chosen), number))
        index.append(chosen)
        sources.append(parents[place[chosen]])
        targets.append(sample.columns["ids"][chosen])
        temperatures.append(sample.columns["temperature"][chosen])
    return Packed(
        layout=_layout(tree),
        sources=torch.from_numpy(np.concatenate(sources)),
        targets=torch.from_numpy(np.concatenate(targets)),
        temperatures=torch.from_numpy(np.concatenate(temperatures)),
        owner=np.concatenate(owner),
        index=np.concatenate(index),
        samples=tuple(samples),
        ends=torch.tensor([int(p[-1]) for p in places]),
    )


def _place(tree: _Tree, trajectory: Trajectory, sample: Sample) -> NDArray[np.int64]:
    """The packed index of each of a sample's tokens."""
    ends: list[int] = []
    place: list[int] = []
    for turn in trajectory.turns:
        start = -1 if turn.parent is None else ends[turn.parent]
        path = tree.insert(start, [*turn.prompt_ids, *turn.output_ids])
        place += path
        ends.append(path[-1] if path else start)
    place += tree.insert(ends[-1], trajectory.tail_ids)
    assert len(place) == len(sample)
    return np.array(place, np.int64)


def _layout(tree: _Tree) -> Layout:
    chains = _chains(tree)
    shapes = sorted(range(len(chains)), key=lambda c: _bucket(*chains[c]))
    blocks: list[Block] = []
    first = 0
    while first < len(shapes):
        bucket = _bucket(*chains[shapes[first]])
        last = first
        while last < len(shapes) and _bucket(*chains[shapes[last]]) == bucket:
            last += 1
        blocks.append(_block([chains[c] for c in shapes[first:last]], bucket[0] * TILE))
        first = last
    return Layout(torch.tensor(tree.ids), torch.tensor(tree.depths), tuple(blocks))


def _bucket(path: NDArray[np.int64], own: int) -> tuple[int, int]:
    """(tiles of keys, power of two that holds the queries): segments of one bucket waste little together."""
    return -(-len(path) // TILE), max(8, 1 << (own - 1).bit_length())


def _block(chains: Sequence[tuple[NDArray[np.int64], int]], width: int) -> Block:
    longest = max(own for _, own in chains)
    queries = np.full((len(chains), longest), -1, np.int64)
    keys = np.zeros((len(chains), width), np.int64)
    starts = np.zeros(len(chains), np.int64)
    for row, (path, own) in enumerate(chains):
        queries[row, :own] = path[len(path) - own :]
        keys[row, : len(path)] = path
        keys[row, len(path) :] = path[0]
        starts[row] = len(path) - own
    return Block(torch.from_numpy(queries), torch.from_numpy(keys), torch.from_numpy(starts))


def _chains(tree: _Tree) -> list[tuple[NDArray[np.int64], int]]:
    """The tree cut at its branchings: for each chain the path from the root to its end, and the chain's own
    length at the end of that path."""
    degree = np.bincount(np.array(tree.parents) + 1, minlength=len(tree.ids) + 1)
    follower: dict[int, int] = {}
    heads: list[int] = []
    for node, parent in enumerate(tree.parents):
        if parent >= 0 and degree[parent + 1] == 1:
            follower[parent] = node
        else:
            heads.append(node)
    paths: dict[int, NDArray[np.int64]] = {}
    chains: list[tuple[NDArray[np.int64], int]] = []
    for head in heads:  # a parent is inserted before its children, so its chain is already there
        chain = [head]
        while chain[-1] in follower:
            chain.append(follower[chain[-1]])
        before = paths[tree.parents[head]] if tree.parents[head] >= 0 else np.empty(0, np.int64)
        path = np.concatenate([before, np.array(chain, np.int64)])
        paths[chain[-1]] = path
        chains.append((path, len(chain)))
    return chains
