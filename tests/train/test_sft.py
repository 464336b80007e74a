"""Supervised fine-tuning: which tokens it learns, and by what it divides."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from burnish.interfaces import Algorithm
from burnish.train.packing import pack
from burnish.train.sft import SFT

from .episodes import episode, group


def test_it_is_an_algorithm() -> None:
    assert isinstance(SFT(), Algorithm)
    assert SFT().needs == ()


def test_every_sampled_token_is_a_target_and_no_other() -> None:
    trajectory = episode([(2, 3)])
    trajectory.turns[0] = replace(trajectory.turns[0], prompt_ids=(10, 11), output_ids=(20, 21, 2))
    made = group(trajectory)
    assert SFT().credit([made]) == {"episodes": 1.0, "tokens": 3.0}
    assert pack([made]).targets.tolist() == [20, 21, 2]


def test_the_loss_is_normalized_over_all_tokens_of_the_update() -> None:
    """Two tokens of loss 1 and eight of loss 2, wherever they are computed, have the mean 1.8."""
    groups = [group(episode([(3, 2)])), group(episode([(1, 8)]))]
    algorithm = SFT()
    algorithm.credit(groups)
    total, count = 0.0, 0.0
    for tokens, nats in ((2, 1.0), (8, 2.0)):
        out = {"logprobs": torch.full((tokens,), -nats).requires_grad_(), "entropy": torch.ones(tokens)}
        loss, metrics = algorithm.loss(out, {})
        loss.backward()
        assert out["logprobs"].grad is not None and out["logprobs"].grad.tolist() == [-1.0] * tokens
        total += float(metrics["loss"])
        count += float(metrics["count"])
    assert total / algorithm.normalizer(groups) == total / count == pytest.approx(1.8)


def test_an_empty_update_divides_by_one() -> None:
    assert SFT().normalizer([]) == 1.0


def test_it_has_no_state_and_refuses_anothers() -> None:
    SFT().load_state_dict(SFT().state_dict())
    with pytest.raises(ValueError, match="kl"):
        SFT().load_state_dict({"kl": {"coefficient": 0.2}})
