"""Training and generation give the same log-probabilities, bit for bit: on a tiny model and a real one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks.parity import Comparison, Shape, measure, sample

from burnish.train.learner import LocalLearner, Optimization

from .model.tiny import tiny_directory

SMALL = Shape(prompts=5, members=3, turns=3, prompt_tokens=160, output_tokens=20, slots=4, chunk=37)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_directory(tmp_path / "model", dtype=torch.bfloat16)


def test_ragged_batches_chunks_and_reuse_change_no_bit(tiny: Path) -> None:
    result = measure(tiny, SMALL)
    assert result["max_abs_logprob_difference"] == 0.0
    assert result["tokens"] > 450 and result["differing_tokens"] == 0
    assert result["reused_tokens"] > 1000, "prefixes were to be shared"


def test_the_comparison_sees_another_models_logprobs(tiny: Path, tmp_path: Path) -> None:
    other = LocalLearner(tiny_directory(tmp_path / "other", seed=1, dtype=torch.bfloat16), Optimization())
    shape = Shape(prompts=2, members=2, turns=1, prompt_tokens=40, output_tokens=6)
    groups, _ = asyncio.run(sample(tiny, other.export(), shape))
    learner, comparison = LocalLearner(tiny, Optimization()), Comparison()
    learner.annotate(groups, ())
    learner.update(groups, comparison)
    assert comparison.worst > 0.1 and comparison.differing == comparison.tokens > 0


@pytest.mark.real_model
def test_the_real_model_keeps_parity_over_two_thousand_tokens() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.parity", "--json"],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["max_abs_logprob_difference"] == 0.0
    assert result["tokens"] >= 2000
