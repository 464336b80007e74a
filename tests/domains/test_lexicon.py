"""The words that workspace tasks are made of."""

from __future__ import annotations

from itertools import permutations

from burnish.domains import lexicon


def test_no_word_contains_another_so_that_a_search_finds_only_what_was_meant() -> None:
    pools = (lexicon.THINGS, lexicon.PEOPLE, lexicon.FOLDERS, lexicon.STEMS, lexicon.PROJECTS, lexicon.STATES)
    words = [word.lower() for pool in pools for word in pool]
    assert len(set(words)) == len(words)
    assert not [(one, other) for one, other in permutations(words, 2) if one in other]
