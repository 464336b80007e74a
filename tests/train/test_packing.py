"""Packing: every trainable token once, and the loss and gradients of one sequence at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from burnish.model.attention import TILE, PackedAttention
from burnish.model.config import ModelConfig
from burnish.model.transformer import Transformer
from burnish.train.logprobs import token_logprobs
from burnish.train.packing import Packed, build_samples, micro_batches, pack
from burnish.types import Group, Status, Trajectory

from .trees import VOCABULARY, plain_logprobs, trained_tokens, trajectories, trajectory_of, turn

CONFIG = ModelConfig(
    vocab_size=VOCABULARY, hidden_size=8, intermediate_size=12, layers=2, heads=2, kv_heads=1, head_dim=4,
    rope_theta=100.0, rms_eps=1e-5, max_positions=512, tie_embeddings=True,
    bos_id=None, eos_ids=(), pad_id=None,
)  # fmt: skip

groups_of_trees = st.lists(st.lists(trajectories(), min_size=1, max_size=3), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def model() -> Transformer:
    made = Transformer(CONFIG)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return made


def made_of(members: Sequence[Trajectory]) -> Group:
    group = Group(members[0].task, list(members))
    build_samples(group)
    return group


def packed_logprobs(model: Transformer, packed: Packed) -> Tensor:
    layout = packed.layout
    hidden = model(layout.ids, layout.positions, PackedAttention(layout))
    return token_logprobs(hidden, model.head.weight, packed.sources, packed.targets, packed.temperatures)[0]


def gradients(model: Transformer, loss: Tensor) -> list[Tensor]:
    made = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(made, model.parameters(), strict=True)]


def weighted(values: Tensor, packed: Packed) -> Tensor:
    """A loss in which every item has a weight of its own, by its sample and place."""
    weights = [
        1.0 + 0.1 * packed.samples[o].columns["weight"][i]
        for o, i in zip(packed.owner, packed.index, strict=True)
    ]
    return (values * torch.tensor(weights)).sum()


def number_tokens(groups: Sequence[Group]) -> None:
    """A column that tells every token of a batch from every other."""
    count = 0
    for sample in (s for g in groups for s in g.samples):
        sample.columns["weight"] = np.arange(count, count + len(sample), dtype=np.float32) % 17
        count += len(sample)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(groups_of_trees)
def test_every_trainable_token_is_one_item_with_its_own_context(trees: list[list[Trajectory]]) -> None:
    groups = [made_of(members) for members in trees]
    packed = pack(groups)
    layout = packed.layout
    parents = {}
    for block in layout.blocks:
        for row in range(len(block.queries)):
            start = int(block.starts[row])
            for offset, query in enumerate(block.queries[row].tolist()):
                if query >= 0:
                    assert query not in parents, "a token is attended once"
                    parents[query] = block.keys[row, : start + offset + 1].tolist()
                    assert parents[query][-1] == query
                    assert int(layout.positions[query]) == start + offset
    assert sorted(parents) == list(range(len(layout.ids)))
    wanted = [t for members in trees for m in members for t in trained_tokens(m)]
    # The first token of a sequence is predicted by nothing.
    wanted = [(c, token, temperature) for c, token, temperature in wanted if c]
    found = [
        (layout.ids[parents[source]].tolist(), target, pytest.approx(temperature))
        for source, target, temperature in zip(
            packed.sources.tolist(), packed.targets.tolist(), packed.temperatures.tolist(), strict=True
        )
    ]
    assert found == wanted
    assert len({(o, i) for o, i in zip(packed.owner.tolist(), packed.index.tolist(), strict=True)}) == len(
        wanted
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(groups_of_trees)
def test_no_token_is_computed_twice(trees: list[list[Trajectory]]) -> None:
    packed = pack([made_of(members) for members in trees])
    paths = set()
    for members in trees:
        for member in members:
            ends = [tuple(member.path_ids(i)) for i in range(len(member.turns))]
            ends.append((*ends[-1], *member.tail_ids))
            paths |= {path[:n] for path in ends for n in range(1, len(path) + 1)}
    assert len(packed.layout.ids) == len(paths)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(trees=groups_of_trees)
def test_loss_and_gradients_are_those_of_one_sequence_at_a_time(
    model: Transformer, trees: list[list[Trajectory]]
) -> None:
    groups = [made_of(members) for members in trees]
    number_tokens(groups)
    packed = pack(groups)
    values = [value for members in trees for m in members for value in plain_logprobs(model, m)]
    if not values:
        return
    plain = torch.stack(values)
    mine = packed_logprobs(model, packed)
    torch.testing.assert_close(mine, plain, atol=2e-5, rtol=1e-4)
    wanted, got = gradients(model, weighted(plain, packed)), gradients(model, weighted(mine, packed))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=2e-4 * float(b.abs().max() + 1), rtol=0)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(trees=groups_of_trees, order=st.randoms(use_true_random=False), budget=st.integers(1, 80))
def test_order_and_micro_batches_change_no_logprob_and_no_gradient(
    model: Transformer, trees: list[list[Trajectory]], order: random.Random, budget: int
) -> None:
    groups = [made_of(members) for members in trees]
    number_tokens(groups)
    shuffled = order.sample(groups, len(groups))
    totals = []
    for arranged, limit in ((groups, 10_000), (shuffled, budget)):
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for packed in micro_batches(arranged, limit):
            values = packed_logprobs(model, packed)
            packed.scatter(f"new-{limit == 10_000}", values)
            if len(values):
                for total, part in zip(sums, gradients(model, weighted(values, packed)), strict=True):
                    total += part
        totals.append(sums)
    for sample in (s for g in groups for s in g.samples):
        assert np.allclose(sample.columns["new-True"], sample.columns["new-False"], atol=1e-5)
    for a, b in zip(*totals, strict=True):
        torch.testing.assert_close(a, b, atol=2e-4 * float(b.abs().max() + 1), rtol=0)


def test_long_shared_prefixes_cross_tiles(model: Transformer) -> None:
    prompt = [(i * i) % VOCABULARY for i in range(TILE + 40)]
    members = [
        trajectory_of([turn(None, prompt, [1, 2, 3]), turn(0, [4] * 90, [i, 0, i])], tail=[1, 1])
        for i in range(3)
    ]
    packed = pack([made_of(members)])
    assert len(packed.layout.ids) == len(prompt) + 3 + 90 + 3 * 5
    plain = torch.stack([value for m in members for value in plain_logprobs(model, m)])
    torch.testing.assert_close(packed_logprobs(model, packed), plain, atol=2e-5, rtol=1e-4)


def test_micro_batches_keep_groups_whole_and_to_the_budget() -> None:
    groups = [made_of([trajectory_of([turn(None, [1] * 6, [2] * 4)])] * 2) for _ in range(5)]
    sizes = [len(packed.samples) for packed in micro_batches(groups, 45)]
    assert sizes == [4, 4, 2]
    assert [len(p.samples) for p in micro_batches(groups, 1)] == [2] * 5
    assert list(micro_batches([], 10)) == []


def test_invalid_episodes_have_no_sample_and_building_twice_changes_nothing() -> None:
    good, bad = (trajectory_of([turn(None, [1], [2, 3])]) for _ in range(2))
    bad.status = Status("invalid", "the sandbox died")
    group = made_of([bad, good, Trajectory("empty", good.task)])
    assert [sample.trajectory for sample in group.samples] == [1]
    samples = list(group.samples)
    build_samples(group)
    assert group.samples == samples


def test_columns_follow_storage_order() -> None:
    trajectory = trajectory_of(
        [turn(None, [1, 2], [3, 4], [True, False], 0.7), turn(0, [0], [1], temperature=0.0)], tail=[2, 2]
    )
    (sample,) = made_of([trajectory]).samples
    assert sample["ids"].tolist() == [1, 2, 3, 4, 0, 1, 2, 2]
    assert sample["turn"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sample["trainable"].tolist() == [False, False, True, False, False, True, False, False]
    assert sample["logprobs"].tolist() == [0, 0, -1.5, -1.5, 0, -1.5, 0, 0]
    assert sample["temperature"].tolist() == pytest.approx([0.7] * 4 + [1.0] * 4)


def test_ends_are_the_states_that_samples_were_left_in() -> None:
    trajectory = trajectory_of([turn(None, [1, 2], [3])], tail=[4, 0])
    packed = pack([made_of([trajectory])])
    assert packed.ends.tolist() == [4]
    assert packed.layout.ids[packed.ends].tolist() == [0]
