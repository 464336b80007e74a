"""Output kept within a bound, however it comes in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from burnish.sandbox.capture import Capture, share

PIECES = st.lists(st.binary(max_size=300), max_size=30)


@given(PIECES, st.integers(0, 200), st.integers(0, 200))
def test_keeps_head_and_tail_and_counts_the_rest(pieces: list[bytes], cap: int, less: int) -> None:
    limit = min(cap, less)
    whole = b"".join(pieces)
    capture = Capture(cap)
    for piece in pieces:
        capture.feed(piece)
    shown, dropped = capture.finish(limit)
    assert capture.total == len(whole)
    if len(whole) <= limit:
        assert (shown, dropped) == (whole, 0)
        return
    mark = b"\n[... %d bytes left out ...]\n" % dropped
    end = limit // 2
    assert dropped == len(whole) - limit
    assert shown == whole[: limit - end] + mark + (whole[-end:] if end else b"")


@given(st.integers(0, 1000), st.integers(0, 3000), st.integers(0, 3000))
def test_shares_all_that_is_allowed_and_no_more(cap: int, stdout: int, stderr: int) -> None:
    out, err = share(cap, stdout, stderr)
    assert 0 <= out <= stdout and 0 <= err <= stderr
    assert out + err == min(cap, stdout + stderr)
    assert out >= min(stdout, cap // 2) and err >= min(stderr, cap // 2)
