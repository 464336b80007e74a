"""A row of a product does not depend on the rows beside it: what train/inference parity rests on.

The widths are SmolLM2-135M's; the inputs are many, because a different order of summation shows only where a
rounding to bf16 falls the other way (one row in twelve for a single row of the 1,536-wide product)."""

from __future__ import annotations

import pytest
import torch

from burnish.model.transformer import Linear

ROWS = 600


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 960), (576, 576), (576, 3072), (1536, 576)])
def test_a_row_is_the_same_in_any_company(inputs: int, outputs: int, packed: bool) -> None:
    generator = torch.Generator().manual_seed(inputs + outputs)
    linear = Linear(inputs, outputs).requires_grad_(False).bfloat16()
    linear.weight.normal_(0, 0.05, generator=generator)
    x = torch.randn(ROWS, inputs, generator=generator).mul(3).bfloat16()
    together = torch.nn.functional.linear(x, linear.weight)
    if packed:
        linear.pack()
    for rows in (1, 2, 3, 7, 16, 48, 100):
        alone = torch.cat([linear(part) for part in x.split(rows)])
        assert torch.equal(alone, together), f"{rows} rows"
