"""Attention over packed trees, against one softmax for each token over its whole path."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from burnish.model.attention import TILE, Block, Layout, PackedAttention

HEADS, KV_HEADS, DIM = 4, 2, 16

# A prompt of 150 tokens with two continuations, one of which branches again, and a sequence of its own.
SEGMENTS = ((150, None), (20, 0), (70, 0), (9, 1), (5, None))
"""(tokens, segment that it continues)."""


def paths() -> list[tuple[list[int], int]]:
    """(packed indices from the root to a segment's end, how many of them are its own)."""
    made: list[tuple[list[int], int]] = []
    first = 0
    for count, parent in SEGMENTS:
        own = list(range(first, first + count))
        made.append(([*(made[parent][0] if parent is not None else []), *own], count))
        first += count
    return made


TOKENS = sum(count for count, _ in SEGMENTS)


def block(segments: Sequence[tuple[list[int], int]], tiles: int, queries: int) -> Block:
    """Padded to `tiles` of keys and `queries` rows."""
    q = torch.full((len(segments), queries), -1)
    k = torch.zeros(len(segments), tiles * TILE, dtype=torch.int64)
    starts = torch.zeros(len(segments), dtype=torch.int64)
    for row, (path, own) in enumerate(segments):
        q[row, :own] = torch.tensor(path[len(path) - own :])
        k[row, : len(path)] = torch.tensor(path)
        k[row, len(path) :] = path[-1]
        starts[row] = len(path) - own
    return Block(q, k, starts)


def attend(q: Tensor, k: Tensor, v: Tensor, blocks: Sequence[Block]) -> Tensor:
    layout = Layout(torch.zeros(len(q)), torch.zeros(len(q)), tuple(blocks))
    return PackedAttention(layout)(0, q, k, v)


def together() -> list[Block]:
    return [block(paths(), 2, 150)]


def one_by_one() -> list[Block]:
    return [block([(path, own)], -(-len(path) // TILE), own) for path, own in paths()]


def slowly(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query at a time, over its own path."""
    rows: list[Tensor] = [q.new_zeros(0)] * len(q)
    for path, own in paths():
        for place in range(len(path) - own, len(path)):
            seen = path[: place + 1]
            heads = []
            for head in range(HEADS):
                keys, values = k[seen, head // (HEADS // KV_HEADS)], v[seen, head // (HEADS // KV_HEADS)]
                weights = torch.softmax(keys @ q[path[place], head] * DIM**-0.5, 0)
                heads.append(weights @ values)
            rows[path[place]] = torch.cat(heads)
    return torch.stack(rows)


def inputs(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(TOKENS, heads, DIM, generator=generator).to(dtype).requires_grad_()
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    ]


def gradients(out: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    return torch.autograd.grad((out.float() * weights).sum(), tensors)


def test_forward_and_backward_are_those_of_plain_attention() -> None:
    tensors = inputs(torch.float32)
    fast, slow = attend(*tensors, together()), slowly(*tensors)
    torch.testing.assert_close(fast, slow, atol=2e-6, rtol=1e-5)
    for mine, theirs in zip(gradients(fast, tensors), gradients(slow, tensors), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)


def test_padding_and_company_change_no_bit() -> None:
    tensors = inputs(torch.bfloat16)
    alone = attend(*tensors, one_by_one())
    packed = attend(*tensors, together())
    padded = attend(*tensors, [block([p], 5, p[1] + 13) for p in paths()])
    reordered = attend(*tensors, [block(paths()[::-1], 3, 151)])
    for other in (packed, padded, reordered):
        assert torch.equal(alone, other)


def test_padding_changes_no_bit_of_a_gradient() -> None:
    tensors = inputs(torch.bfloat16)
    alone = gradients(attend(*tensors, one_by_one()), tensors)
    padded = gradients(attend(*tensors, [block([p], 5, p[1] + 13) for p in paths()]), tensors)
    for mine, theirs in zip(alone, padded, strict=True):
        assert torch.equal(mine, theirs)


def test_company_changes_no_bit_of_a_query_gradient() -> None:
    """Keys and values are shared, so that their gradients are sums whose order is that of the blocks."""
    tensors = inputs(torch.bfloat16)
    alone, packed = (gradients(attend(*tensors, b), tensors) for b in (one_by_one(), together()))
    assert torch.equal(alone[0], packed[0])
    for mine, theirs in zip(alone[1:], packed[1:], strict=True):
        torch.testing.assert_close(mine, theirs, atol=0.02, rtol=0.02)


def test_a_token_sees_its_own_path_only() -> None:
    q, k, v = (t.detach() for t in inputs(torch.float32))
    before = attend(q, k, v, together())
    other = range(150, 170)  # the first continuation
    k[other], v[other] = 100.0, 100.0
    after = attend(q, k, v, together())
    unrelated = [*range(150), *range(170, 240), *range(249, 254)]
    assert torch.equal(before[unrelated], after[unrelated])
    assert not torch.equal(before[160], after[160]) and not torch.equal(before[245], after[245])


def test_the_future_is_hidden() -> None:
    q, k, v = (t.detach() for t in inputs(torch.float32))
    before = attend(q, k, v, together())
    k[100:150], v[100:150] = 50.0, -50.0
    assert torch.equal(before[:100], attend(q, k, v, together())[:100])
