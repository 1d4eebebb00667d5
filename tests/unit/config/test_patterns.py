"""Patterns: what they match, and which of two is the more specific."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.patterns import covers, is_pattern, parse_pattern, touches, words_of

ADDRESSES = [".".join(words) for length in range(1, 5) for words in product("ab", repeat=length)]

# One word more than a pattern has here, and words that no pattern has.
LONG_ADDRESSES = [".".join(words) for length in range(1, 7) for words in product("abc", repeat=length)]

_head = st.lists(st.sampled_from(["a", "b", "*"]), max_size=4)
_last = st.sampled_from(["a", "b", "*", ">", "#"])
patterns = st.builds(lambda head, last: ".".join([*head, last]), _head, _last)


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("orders", ["orders"], ["orders.eu", "order", "Orders", ""]),
        ("orders.*", ["orders.eu"], ["orders", "orders.eu.de"]),
        ("orders.>", ["orders.eu", "orders.eu.de"], ["orders", "ordersx.eu"]),
        ("orders.#", ["orders", "orders.eu", "orders.eu.de"], ["ordersx"]),
        ("*.eu", ["orders.eu"], ["eu", "orders.de", "a.orders.eu"]),
        ("*.eu.>", ["orders.eu.de"], ["orders.eu"]),
        (">", ["a", "a.b"], []),
        ("#", ["a", "a.b"], []),
        ("*", ["a"], ["a.b"]),
        ("$sluice/events", ["$sluice/events"], ["$sluice"]),
    ],
)
def test_words_between_dots(pattern: str, matched: list[str], not_matched: list[str]) -> None:
    parsed = parse_pattern(pattern)
    assert [address for address in matched if not parsed.matches(address)] == []
    assert [address for address in not_matched if parsed.matches(address)] == []


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("", "none of them may be empty"),
        ("a..b", "none of them may be empty"),
        ("a.", "none of them may be empty"),
        (">.a", "'>' stands for the rest and must be the last word"),
        ("a.#.b", "'#' stands for the rest and must be the last word"),
        ("ord*", "'\\*' stands for whole words only, not for a part of 'ord\\*'"),
        ("a.b>", "'>' stands for whole words only"),
        ("**", "'\\*' stands for whole words only"),
    ],
)
def test_other_patterns_are_refused(wrong: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_pattern(wrong)


def oracle(pattern: list[str], words: list[str]) -> bool:
    """The definition, word by word."""
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(oracle(rest, words[taken:]) for taken in range(len(words) + 1))
    if first == ">":
        return any(oracle(rest, words[taken:]) for taken in range(1, len(words) + 1))
    return bool(words) and first in ("*", words[0]) and oracle(rest, words[1:])


@given(patterns, st.sampled_from(ADDRESSES))
def test_matching_is_the_definition(pattern: str, address: str) -> None:
    assert parse_pattern(pattern).matches(address) == oracle(pattern.split("."), address.split("."))


def test_the_most_specific_first() -> None:
    in_order = ["a.b.c", "a.b.*", "a.b.>", "a.b.#", "a.*.c", "a.>", "a.#", "*.b.c", "*.*.*", "*.>", ">", "#"]
    mixed = in_order[::-1]
    assert sorted(mixed, key=lambda text: parse_pattern(text).rank) == in_order


@given(patterns, patterns)
def test_a_pattern_that_means_fewer_addresses_is_more_specific(one: str, other: str) -> None:
    mine, theirs = parse_pattern(one), parse_pattern(other)
    narrow = {address for address in ADDRESSES if mine.matches(address)}
    wide = {address for address in ADDRESSES if theirs.matches(address)}
    if narrow and narrow < wide:
        assert mine.rank < theirs.rank


@given(patterns, patterns)
def test_two_patterns_for_one_address_are_never_equally_specific(one: str, other: str) -> None:
    mine, theirs = parse_pattern(one), parse_pattern(other)
    if one != other and any(mine.matches(address) and theirs.matches(address) for address in ADDRESSES):
        assert mine.rank != theirs.rank


@given(patterns)
def test_literal_means_one_address(pattern: str) -> None:
    parsed = parse_pattern(pattern)
    assert parsed.literal == (not set(pattern) & set("*>#"))
    assert not parsed.literal or [a for a in ADDRESSES if parsed.matches(a)] in ([pattern], [])


@given(patterns, patterns)
def test_covering_and_touching_are_about_the_addresses_that_fit(mine: str, theirs: str) -> None:
    ours, wanted = words_of(mine), words_of(theirs)
    fits = [each for each in LONG_ADDRESSES if parse_pattern(theirs).matches(each)]
    meant = [each for each in fits if parse_pattern(mine).matches(each)]
    if covers(ours, wanted):
        assert meant == fits
    if meant:
        assert touches(ours, wanted)
    if touches(ours, wanted):
        assert meant, (mine, theirs)


@given(patterns, st.sampled_from(ADDRESSES))
def test_a_pattern_covers_the_addresses_it_matches(pattern: str, address: str) -> None:
    assert covers(words_of(pattern), words_of(address)) == parse_pattern(pattern).matches(address)


@pytest.mark.parametrize(
    ("address", "wanted"),
    [("a.*", True), (">", True), ("a.#", True), ("a.b*", False), ("a", False), ("", False)],
)
def test_a_pattern_has_a_word_that_stands_for_others(address: str, wanted: bool) -> None:
    assert is_pattern(address) is wanted
