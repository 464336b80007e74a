"""Drawing tokens: the distribution, its log-probabilities, and what never happens."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import chisquare

from burnish.engine.sampler import child_seed, draw, log_probabilities, uniform

DRAWS = 20_000


def drawn(logits: list[float], temperature: float, count: int = DRAWS) -> list[int]:
    rows = torch.tensor(logits).expand(count, -1)
    temperatures = torch.full((count,), temperature)
    uniforms = [uniform(7, position) for position in range(count)]
    return draw(log_probabilities(rows, temperatures), temperatures, uniforms)[0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_with_their_probability(temperature: float) -> None:
    """More tokens than a block of the search, so that the choice of block is tested too."""
    logits = [math.sin(0.1 * i) * 2 - (3 if i % 5 else 0) for i in range(300)]
    target = torch.softmax(torch.tensor(logits).double() / temperature, 0).numpy()
    counts = torch.bincount(torch.tensor(drawn(logits, temperature)), minlength=300).numpy()
    common = target * DRAWS >= 5
    observed, expected = [*counts[common]], [*(target[common] * DRAWS)]
    if not common.all():
        observed.append(counts[~common].sum())
        expected.append(target[~common].sum() * DRAWS)
    assert chisquare(observed, expected).pvalue > 1e-3


def test_the_logprob_is_that_of_the_distribution_that_was_drawn_from() -> None:
    logprobs = log_probabilities(torch.tensor([[2.0, 0.0]]), torch.tensor([0.5]))
    assert round(float(logprobs[0, 0]), 4) == -0.0181
    assert draw(logprobs, torch.tensor([0.5]), [0.3]) == ([0], [float(logprobs[0, 0])])


@pytest.mark.parametrize("at", [0.0, 0.25, 0.5, 0.75, 1 - 2**-53])
def test_a_token_of_probability_zero_is_never_drawn(at: float) -> None:
    never = float("-inf")
    logits = torch.full((1, 400), never)
    possible = [3, 127, 128, 250]
    logits[0, possible] = torch.tensor([0.0, 1.0, -1.0, 0.5])
    one = torch.ones(1)
    tokens, values = draw(log_probabilities(logits, one), one, [at])
    assert tokens[0] in possible and math.isfinite(values[0])


@pytest.mark.parametrize("place", [0, 127, 128, 255, 300])
def test_a_certain_token_is_always_drawn(place: int) -> None:
    logits = torch.full((3, 301), float("-inf"))
    logits[:, place] = 1.0
    ones = torch.ones(3)
    tokens, values = draw(log_probabilities(logits, ones), ones, [0.0, 0.5, 1 - 2**-53])
    assert tokens == [place] * 3 and values == [0.0] * 3


def test_greedy_takes_the_likeliest_at_any_number_and_reports_it_at_temperature_one() -> None:
    logits, zero = torch.tensor([[0.0, 3.0, 1.0]]), torch.zeros(1)
    logprobs = log_probabilities(logits, zero)
    for at in (0.0, 0.5, 0.999):
        tokens, values = draw(logprobs, zero, [at])
        assert tokens == [1]
        assert values[0] == float(torch.log_softmax(logits, -1)[0, 1])


def test_a_row_is_drawn_as_if_it_were_alone() -> None:
    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(1)).bfloat16()
    temperatures = torch.tensor([1.0, 0.7, 0.0, 1.3, 1.0, 0.2])
    uniforms = [uniform(3, i) for i in range(6)]
    together = draw(log_probabilities(logits, temperatures), temperatures, uniforms)
    for row in range(6):
        part = slice(row, row + 1)
        alone = draw(log_probabilities(logits[part], temperatures[part]), temperatures[part], uniforms[part])
        assert (together[0][part], together[1][part]) == alone


def test_numbers_are_fixed_by_seed_and_position() -> None:
    """Written down once: a change here changes what every recorded seed means."""
    assert (uniform(0, 0), uniform(7, 3), child_seed(7, 1)) == (
        0.0564663990004608,
        0.1846062188940475,
        3827903485688701458,
    )
    numbers = {uniform(seed, position) for seed in range(40) for position in range(50)}
    assert len(numbers) == 2000 and min(numbers) >= 0 and max(numbers) < 1
    counts = torch.histc(torch.tensor(sorted(numbers)), bins=10, min=0, max=1)
    assert chisquare(counts.numpy()).pvalue > 1e-3


def test_continuations_have_seeds_of_their_own_and_the_first_keeps_its() -> None:
    assert child_seed(5, 0) == 5
    seeds = {child_seed(seed, index) for seed in range(20) for index in range(20)}
    assert len(seeds) == 400 and all(0 <= seed < 1 << 63 for seed in seeds)
