"""The learner: one step against torch's own AdamW, resuming bit for bit, and what stops it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from burnish.interfaces import Learner
from burnish.model.weights import load_model
from burnish.train.grpo import GRPO
from burnish.train.learner import LocalLearner, Optimization
from burnish.train.packing import build_samples
from burnish.train.ppo import PPO
from burnish.train.sft import SFT
from burnish.types import BurnishError, Group, Status, UsageError
from tests.model.tiny import tiny_directory

from .trees import plain_logprobs, trajectory_of, turn


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_directory(tmp_path_factory.mktemp("learner") / "model", dtype=torch.float32)


def groups(count: int = 2, seed: int = 0, tail: Sequence[int] = ()) -> list[Group]:
    """`count` groups of two episodes of two turns, of rewards 1 and 0."""
    draw = np.random.default_rng(seed)

    def ids(n: int) -> list[int]:
        return [int(i) for i in draw.integers(4, 500, n)]

    made = []
    for number in range(count):
        prompt, seen = ids(12 + number), ids(5)
        pair = [
            trajectory_of([turn(None, prompt, ids(6)), turn(0, seen, ids(4 + number))], tail, reward)
            for reward in (1.0, 0.0)
        ]
        task = replace(pair[0].task, id=f"t{number}")
        for trajectory in pair:
            trajectory.task = task
        made.append(Group(task, pair))
    return made


def prepare(learner: LocalLearner, batch: list[Group], algorithm: Any) -> list[Group]:
    """Behaviour logprobs of the learner's own weights, then annotation and credit."""
    for group in batch:
        build_samples(group)
    learner.annotate(batch, ("reference",))
    for sample in (s for g in batch for s in g.samples):
        sample.columns["logprobs"] = sample.columns.pop("reference")
    learner.annotate(batch, algorithm.needs)
    algorithm.credit(batch)
    return batch


def state(learner: LocalLearner) -> dict[str, Tensor]:
    """Everything that a resume must bring back."""
    kept = {f"compute.{n}": t.clone() for n, t in learner.export().items()}
    kept |= {f"master.{n}": t.clone() for n, t in learner._masters.items()}
    return kept | {f"value.{n}": t.detach().clone() for n, t in learner.value_head.named_parameters()}


def equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_is_a_learner(directory: Path) -> None:
    assert isinstance(LocalLearner(directory, Optimization()), Learner)


def test_a_step_is_torchs_adamw_on_fp32_masters_with_the_gradient_of_plain_sequences(directory: Path) -> None:
    """The reference: a bf16 model, one sequence at a time, its mean loss, clipping, AdamW on fp32 copies."""
    optimization = Optimization(rate=1e-3, clip_norm=0.5, weight_decay=0.01, micro_batch=30)
    learner, batch = LocalLearner(directory, optimization), groups()
    learner.annotate(batch, ())
    metrics = learner.update(batch, SFT())

    model, masters = load_model(directory, torch.bfloat16), load_model(directory, torch.float32)
    values = [v for g in batch for t in g.trajectories for v in plain_logprobs(model, t)]
    (-torch.stack(values).mean()).backward()
    for exact, rounded in zip(masters.parameters(), model.parameters(), strict=True):
        assert rounded.grad is not None
        exact.grad = rounded.grad.float()
    norm = torch.nn.utils.clip_grad_norm_(masters.parameters(), 0.5)
    before = {n: p.detach().clone() for n, p in masters.named_parameters()}
    torch.optim.AdamW(masters.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01).step()

    assert metrics["gradient_norm"] == pytest.approx(float(norm), rel=0.02)
    assert metrics["loss"] == pytest.approx(-float(torch.stack(values).detach().mean()), rel=1e-3)
    for name, exact in masters.named_parameters():
        mine, start = learner._masters[name] - before[name], exact.detach() - before[name]
        # The first step of Adam is the gradient's sign: where it is clear, the two agree on it.
        clear = exact.grad.abs() > 0.1 * exact.grad.abs().max()
        torch.testing.assert_close(mine[clear], start[clear], atol=2e-5, rtol=0.02)
        assert torch.equal(learner.export()[name], learner._masters[name].bfloat16())


@pytest.mark.parametrize("micro_batch", [1, 60, 10_000])
def test_group_order_and_micro_batches_give_the_same_update(directory: Path, micro_batch: int) -> None:
    rows = []
    for batch, budget in ((groups(4), 10_000), (groups(4)[::-1], micro_batch)):
        learner = LocalLearner(directory, Optimization(micro_batch=budget))
        learner.annotate(batch, ())
        rows.append(learner.update(batch, SFT()))
    assert rows[0]["loss"] == pytest.approx(rows[1]["loss"], rel=1e-5)
    assert rows[0]["gradient_norm"] == pytest.approx(rows[1]["gradient_norm"], rel=0.01)


def test_saving_and_loading_go_on_to_the_same_bits(directory: Path, tmp_path: Path) -> None:
    optimization = Optimization(rate=1e-3, warmup=4, epochs=2, minibatches=2, micro_batch=40)

    def step(learner: LocalLearner, algorithm: Any, number: int) -> dict[str, float]:
        return learner.update(prepare(learner, groups(seed=number), algorithm), algorithm)

    whole, algorithm = LocalLearner(directory, optimization), PPO().open()
    rows = [step(whole, algorithm, number) for number in range(4)]

    first, before = LocalLearner(directory, optimization), PPO().open()
    again = [step(first, before, number) for number in range(2)]
    first.save(tmp_path / "checkpoint")
    second, after = LocalLearner(directory, optimization), PPO().open()
    second.load(tmp_path / "checkpoint")
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    again += [step(second, after, number) for number in range(2, 4)]
    assert again == rows
    assert equal(state(second), state(whole))
    assert second.steps == whole.steps == 4 * 2 * 2


def test_a_checkpoint_is_an_ordinary_model_directory(directory: Path, tmp_path: Path) -> None:
    learner = LocalLearner(directory, Optimization(rate=1e-3))
    learner.update(prepare(learner, groups(), SFT()), SFT())
    learner.save(tmp_path / "kept", resumable=False)
    assert {"config.json", "model.safetensors", "tokenizer.json", "heads.safetensors"} <= {
        path.name for path in (tmp_path / "kept").iterdir()
    }
    kept = load_model(tmp_path / "kept", torch.bfloat16).state_dict()
    assert equal({n: kept[n] for n in learner.export()}, dict(learner.export()))
    with pytest.raises(UsageError, match="not resumed"):
        learner.load(tmp_path / "kept")


class Poisoned(SFT):
    """A loss that is not a number."""

    def loss(self, output: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Any:
        total, metrics = super().loss(output, batch)
        return total * float("nan"), metrics


def test_a_gradient_that_is_no_number_stops_before_it_reaches_the_weights(directory: Path) -> None:
    learner = LocalLearner(directory, Optimization())
    before = state(learner)
    batch = prepare(learner, groups(), SFT())
    with pytest.raises(BurnishError, match="stopped before it reached the weights"):
        learner.update(batch, Poisoned())
    assert equal(state(learner), before) and learner.steps == 0


def test_the_critic_learns_and_does_not_steer_the_trunk(directory: Path) -> None:
    """With advantages of zero nothing but the value loss is left."""

    class CriticOnly(type(PPO().open())):  # type: ignore[misc]
        def credit(self, batch: Sequence[Group]) -> dict[str, float]:
            metrics = super().credit(batch)
            for sample in (s for g in batch for s in g.samples):
                sample.columns["advantages"] = np.zeros(len(sample), np.float32)
            return metrics

    learner = LocalLearner(directory, Optimization(value_rate=0.05))
    algorithm, trunk = CriticOnly(PPO()), state(learner)
    losses = [
        learner.update(prepare(learner, groups(), algorithm), algorithm)["value_loss"] for _ in range(4)
    ]
    assert losses[-1] < 0.8 * losses[0]
    after = state(learner)
    for name in trunk:
        assert torch.equal(trunk[name], after[name]) == (not name.startswith("value.")), name


def test_values_are_those_of_the_states_that_predict_and_of_the_state_that_is_left(directory: Path) -> None:
    learner, batch = LocalLearner(directory, Optimization()), groups(1, tail=(7, 8, 9))
    learner.annotate(batch, ("values",))
    for sample in batch[0].samples:
        assert not sample["values"].any() and sample["tail_value"].tolist() == [0.0]
    with torch.no_grad():
        learner.value_head.weight.fill_(0.05)
        learner.value_head.bias.fill_(0.25)
    learner.annotate(batch, ("values",))
    sample = batch[0].samples[0]
    chosen = sample["trainable"]
    assert len(set(sample["values"][chosen].tolist())) == int(chosen.sum())
    assert not sample["values"][~chosen].any()
    assert sample["tail_value"].shape == (1,) and sample["tail_value"][0] != 0.25


def test_the_reference_stays_while_the_policy_moves(directory: Path) -> None:
    learner, algorithm = LocalLearner(directory, Optimization(rate=1e-3)), SFT()
    batch = prepare(learner, groups(), algorithm)
    sampled = [s["logprobs"].copy() for g in batch for s in g.samples]
    learner.update(batch, algorithm)
    learner.annotate(batch, ("reference",))
    for sample, before in zip((s for g in batch for s in g.samples), sampled, strict=True):
        assert np.array_equal(sample["reference"], before)


def test_what_the_learner_cannot_annotate_is_refused(directory: Path) -> None:
    with pytest.raises(UsageError, match="teacher"):
        LocalLearner(directory, Optimization()).annotate(groups(1), ("teacher",))


def policy_loss(learner: LocalLearner, batch: list[Group], algorithm: Any) -> float:
    """The algorithm's own mean loss on a batch, as one more update would report it."""
    probe = LocalLearner(learner.source, replace(learner.optimization, rate=1e-12))
    with torch.no_grad():
        torch._foreach_copy_(list(probe._compute.values()), list(learner._compute.values()))
        probe.value_head.load_state_dict(learner.value_head.state_dict())
    return probe.update(batch, algorithm)["loss"]


@pytest.mark.parametrize("make", [SFT, GRPO().open, PPO().open], ids=["sft", "grpo", "ppo"])
def test_an_update_reduces_the_algorithms_own_loss(directory: Path, make: Any) -> None:
    learner, algorithm = LocalLearner(directory, Optimization(rate=5e-4, value_rate=1e-2)), make()
    batch = prepare(learner, groups(), algorithm)
    before = policy_loss(learner, batch, algorithm)
    learner.update(batch, algorithm)
    assert policy_loss(learner, batch, algorithm) < before - 1e-3


def test_grpo_makes_the_rewarded_answer_likelier_and_the_other_less(directory: Path) -> None:
    learner, algorithm = LocalLearner(directory, Optimization(rate=5e-4)), GRPO().open()
    batch = prepare(learner, groups(), algorithm)
    learner.update(batch, algorithm)
    old = [s["logprobs"].sum() for g in batch for s in g.samples]
    moved = LocalLearner(learner.source, learner.optimization)
    moved.model.load_state_dict(learner.export())
    moved._reference = moved.model
    moved.annotate(batch, ("reference",))
    new = [s["reference"].sum() for g in batch for s in g.samples]
    gains = np.array(new) - np.array(old)
    assert (gains[0::2] > 0).all() and (gains[1::2] < 0).all()


def test_an_update_without_a_trainable_token_does_nothing(directory: Path) -> None:
    learner, batch = LocalLearner(directory, Optimization()), groups()
    for trajectory in (t for g in batch for t in g.trajectories):
        trajectory.status = Status("invalid", "the sandbox died")
    before = state(learner)
    learner.annotate(batch, ("values", "reference"))
    assert learner.update(batch, SFT())["optimizer_steps"] == 0
    assert equal(state(learner), before)


def test_a_policy_that_moved_too_far_ends_the_update(directory: Path) -> None:
    optimization = Optimization(rate=1e-2, epochs=5, max_kl=1e-3)
    learner, algorithm = LocalLearner(directory, optimization), GRPO().open()
    metrics = learner.update(prepare(learner, groups(), algorithm), algorithm)
    assert metrics["stopped_early"] == 1.0
    assert 1 < metrics["optimizer_steps"] < 5


def test_warmup_raises_the_rate_step_by_step(directory: Path) -> None:
    learner = LocalLearner(directory, Optimization(rate=1e-4, warmup=4))
    rates = [learner.update(prepare(learner, groups(1), SFT()), SFT())["rate"] for _ in range(6)]
    assert rates == pytest.approx([2.5e-5, 5e-5, 7.5e-5, 1e-4, 1e-4, 1e-4])


@pytest.mark.parametrize("field", ["rate", "clip_norm", "epochs", "minibatches"])
def test_impossible_settings_are_refused(field: str) -> None:
    with pytest.raises(UsageError, match="positive"):
        Optimization(**{field: 0})
