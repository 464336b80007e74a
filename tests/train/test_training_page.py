"""docs/training.md: the algorithm that it shows runs, and its fields and settings exist."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from burnish.interfaces import Algorithm
from burnish.train.control import KL
from burnish.train.grpo import GRPO
from burnish.train.ppo import PPO

from .episodes import annotate_randomly, batch, episode, group, output

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_algorithm_that_it_shows_is_reinforce() -> None:
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], names)
    algorithm = names["Reinforce"]()
    assert isinstance(algorithm, Algorithm)
    groups = [group(episode([(1, 2), (3, 1)], 1.0)), group(episode([(1, 1)], 0.0), episode([(1, 2)], None))]
    annotate_randomly(groups, seed=1)
    assert algorithm.credit(groups) == {"baseline": 0.5}
    columns = batch(groups)
    out = output(columns, shift=0.0)
    loss, metrics = algorithm.loss(out, columns)
    (slope,) = torch.autograd.grad(loss, out["logprobs"])
    assert slope.tolist() == [-0.5, -0.5, -0.5, 0.5]
    assert metrics["count"] == algorithm.normalizer(groups) == 4


@pytest.mark.parametrize("kind", [PPO, GRPO])
def test_it_names_every_field_and_no_other(kind: Any) -> None:
    table = section(kind.__name__).split("| field |")[1].split("\n\n")[0]
    cells = " ".join(row.split("|")[1] for row in table.splitlines()[2:])
    named = set(re.findall(r"`(\w+)`", cells))
    assert named == {field.name for field in dataclasses.fields(kind)}


def test_the_settings_that_it_shows_can_be_made() -> None:
    shown = re.findall(r"`(GRPO\(.*?\)|KL\(.*?\))`", PAGE)
    assert len(shown) >= 7
    for text in shown:
        made = eval(text.replace("…", "8"), {"GRPO": GRPO, "KL": KL})
        assert made.open() is not None
