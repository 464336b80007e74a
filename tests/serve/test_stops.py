"""Stop strings: the same end however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.serve.stops import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    shown = [matcher.feed(piece) for piece in pieces]
    return [*shown, matcher.finish()], matcher.matched


def test_a_stop_string_across_pieces_is_never_shown() -> None:
    # vllm-project/vllm#3574
    shown, matched = run(["DEFGHIJ"], ["ABC", "DEF", "G", "HI", "J", "more"])
    assert (shown, matched) == (["ABC", "", "", "", "", "", ""], "DEFGHIJ")


def test_a_beginning_that_comes_to_nothing_is_shown_at_the_end() -> None:
    shown, matched = run(["DEFGHIJ"], ["ABC", "DEF", "G", "HI"])
    assert (shown, matched) == (["ABC", "", "", "", "DEFGHI"], None)


@pytest.mark.parametrize(
    ("stops", "text", "kept", "matched"),
    [
        (["b"], "abc", "a", "b"),
        (["bc", "abcd"], "abcd", "a", "bc"),  # the first to be complete
        (["c", "bc"], "abc", "a", "bc"),  # complete together: the longer
        (["aab"], "aaab", "a", "aab"),  # a beginning inside a beginning
        (["\n\n"], "one\ntwo\n\nthree", "one\ntwo", "\n\n"),
        (["x"], "abc", "abc", None),
        ([], "abc", "abc", None),
    ],
)
def test_which_stop_string_counts(stops: list[str], text: str, kept: str, matched: str | None) -> None:
    for pieces in ([text], list(text)):
        shown, found = run(stops, pieces)
        assert ("".join(shown), found) == (kept, matched)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=3), max_size=12),
)
def test_cutting_changes_nothing(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    ends = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text]
    expected = (text[: min(ends)[1]], min(ends)[2]) if ends else (text, None)
    shown, matched = run(stops, pieces)
    assert ("".join(shown), matched) == expected
