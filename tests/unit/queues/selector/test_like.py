"""LIKE: a pattern's segments, its wild characters and its escapes, and the time it takes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.queues.selector.like import MAX_BITS, LikePattern


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("", ["", ""], ["a"]),
        ("%", ["", "abc"], []),
        ("a", ["a"], ["", "A", "aa", "ba"]),
        ("a%", ["a", "ab"], ["", "ba"]),
        ("%a", ["a", "ba"], ["ab"]),
        ("a%a", ["aa", "aba"], ["a", "aab"]),
        ("_", ["a", "é", "😀"], ["", "ab"]),
        ("%b_d%", ["abcd", "bbdbxd", "bxdd"], ["bd", "bcxd"]),
        ("%ab%ba%", ["abba", "xabxbax"], ["aba"]),
    ],
)
def test_patterns(pattern: str, fits: list[str], fails: list[str]) -> None:
    like = LikePattern(pattern)
    assert [text for text in (*fits, *fails) if like.matches(text)] == fits


def test_an_escape_makes_the_next_character_literal() -> None:
    assert LikePattern("50!%", "!").matches("50%")
    assert not LikePattern("50!%", "!").matches("500")
    assert LikePattern("!!!_", "!").matches("!_")
    with pytest.raises(ValueError, match="ends with its escape"):
        LikePattern("a!", "!")


def test_a_piece_with_wild_characters_is_bounded() -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_BITS}"):
        LikePattern("%" + "a_" * MAX_BITS + "%")
    # One run of literal text needs no masks, whatever its length.
    assert LikePattern("%" + "a" * 2 * MAX_BITS + "%").matches("a" * 2 * MAX_BITS)


@given(st.text("ab_%", max_size=8), st.text("ab", max_size=12))
def test_as_a_regular_expression_has_it(pattern: str, text: str) -> None:
    meant = "".join({"_": ".", "%": ".*"}.get(each, each) for each in pattern)
    assert LikePattern(pattern).matches(text) == (re.fullmatch(meant, text, re.DOTALL) is not None)
