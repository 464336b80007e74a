"""The decoder against transformers' own, at near and far positions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from burnish.model.attention import TILE, Block, Layout, PackedAttention
from burnish.model.weights import load_model

from .tiny import tiny_directory


def one_sequence(ids: Tensor) -> Layout:
    """A layout of a single causal sequence."""
    keys = torch.zeros(1, -(-len(ids) // TILE) * TILE, dtype=torch.int64)
    keys[0, : len(ids)] = torch.arange(len(ids))
    block = Block(torch.arange(len(ids))[None], keys, torch.zeros(1, dtype=torch.int64))
    return Layout(ids, torch.arange(len(ids)), (block,))


@torch.no_grad()
def ours(directory: Path, ids: Tensor, places: Tensor) -> Tensor:
    model, layout = load_model(directory, torch.float32), one_sequence(ids)
    return model.logits(model(layout.ids, layout.positions, PackedAttention(layout))[places])


@torch.no_grad()
def theirs(directory: Path, ids: Tensor, places: Tensor) -> Tensor:
    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    return model(ids[None], logits_to_keep=places).logits[0]


def some_ids(vocabulary: int, count: int) -> Tensor:
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(3))


def test_a_tiny_model_has_transformers_logits(tmp_path: Path) -> None:
    directory = tiny_directory(tmp_path / "model")
    ids, places = some_ids(400, 300), torch.arange(300)
    torch.testing.assert_close(
        ours(directory, ids, places), theirs(directory, ids, places), atol=1e-4, rtol=0
    )


def test_the_base_of_the_rotary_frequencies_is_the_configured_one(tmp_path: Path) -> None:
    """At a far position a wrong base moves the logits; the right one agrees with transformers."""
    directory = tiny_directory(tmp_path / "model")
    other = Path(shutil.copytree(directory, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rope_theta": 500.0}))
    ids, places = some_ids(400, 200), torch.tensor([199])
    mine = ours(other, ids, places)
    torch.testing.assert_close(mine, theirs(other, ids, places), atol=1e-4, rtol=0)
    assert (mine - ours(directory, ids, places)).abs().max() > 0.01


def test_angles_stay_exact_at_far_positions(tmp_path: Path) -> None:
    model = load_model(tiny_directory(tmp_path / "model"), torch.bfloat16)
    cos, _ = model.rotation(torch.tensor([3000, 3001]))
    assert cos.dtype == torch.float32
    # The fastest frequency is one radian a position.
    torch.testing.assert_close(cos[:, 0, 0], torch.tensor([3000.0, 3001.0]).cos())


@pytest.mark.real_model
def test_the_real_model_has_transformers_logits_near_and_far(real: Path) -> None:
    ids, places = some_ids(49152, 2001), torch.tensor([5, 2000])
    difference = ours(real, ids, places) - theirs(real, ids, places)
    assert difference.abs().amax(-1).tolist() == pytest.approx([0.0, 0.0], abs=1e-3)
