"""Sizes, durations and percentages as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.units import (
    format_duration,
    format_size,
    parse_duration,
    parse_percent,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (65536, 65536),
        ("65536", 65536),
        ("1 B", 1),
        ("512kb", 512 * 1024),
        ("10 MB", 10 * 1024 * 1024),
        ("60MB", 60 * 1024 * 1024),
        (" 2 gB ", 2 * 1024**3),
        ("1.5 KB", 1536),
        ("0.0001 KB", 0),
    ],
)
def test_a_size_is_a_number_or_a_number_with_a_unit(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "wrong", [-1, "-1", True, 1.5, None, "", "MB", "10 TB", "10 KiB", "1,5 MB", "1 0", "١ MB", "1.5", [], {}]
)
def test_what_is_no_size_is_refused_with_an_example(wrong: object) -> None:
    with pytest.raises(ValueError, match="expected a size such as 65536, 512 KB or 10 MB, not"):
        parse_size(wrong)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        (3000, 3000),
        ("3000", 3000),
        ("500ms", 500),
        ("3s", 3000),
        ("1.5 s", 1500),
        ("5 M", 300_000),
        ("1h", 3_600_000),
    ],
)
def test_a_duration_is_milliseconds_or_a_number_with_a_unit(text: object, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("wrong", [-1, True, 0.5, None, "3 sec", "1d", "s", "-3s"])
def test_what_is_no_duration_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 500 ms, 3s, 5m or 1h, not"):
        parse_duration(wrong)


@pytest.mark.parametrize(
    ("text", "percent"), [(50, 50), ("50", 50), ("50%", 50), (" 7 % ", 7), (0, 0), ("100%", 100)]
)
def test_a_percentage_is_a_whole_number_to_100(text: object, percent: int) -> None:
    assert parse_percent(text) == percent


@pytest.mark.parametrize("wrong", [-1, 101, "101%", "50.5%", 0.5, True, None, "half", "%"])
def test_what_is_no_percentage_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="expected a whole percentage from 0 to 100"):
        parse_percent(wrong)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1500, "1500 B"), (1536, "1536 B"), (2048, "2 KB"), (100 << 20, "100 MB")]
)
def test_a_size_is_shown_in_the_largest_unit_that_divides_it(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (1500, "1500 ms"), (3000, "3 s"), (90_000, "90 s"), (60_000, "1 m")]
)
def test_a_duration_is_shown_in_the_largest_unit_that_divides_it(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@given(st.integers(0, 1 << 50))
def test_what_is_shown_can_be_read_back(number: int) -> None:
    assert parse_size(format_size(number)) == number
    assert parse_duration(format_duration(number)) == number


@pytest.mark.parametrize("parse", [parse_size, parse_duration])
def test_what_could_not_be_written_again_is_too_large(parse: Callable[[object], int]) -> None:
    assert parse(10**18 - 1) == 10**18 - 1
    for value in (10**18, "1111111111111111 GB" if parse is parse_size else "1111111111111.111h"):
        with pytest.raises(ValueError, match="too large"):
            parse(value)
