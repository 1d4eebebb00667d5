"""Filters of a source: found by descriptor or key, and answered as they are applied."""

from __future__ import annotations

import time
from typing import Any

import pytest
from proton import Data, Described, symbol, timestamp, ulong

from broker.amqp.links.filters import NO_LOCAL, read, without
from broker.codec.offsets import OFFSET_SPEC
from broker.errors import PeerError
from broker.queues.stream import FIRST, LAST, NEXT, OFFSET, TIME

SELECTOR = "apache.org:selector-filter:string"


def data(value: object) -> Data:
    made = Data()
    made.put_object(value)
    made.rewind()
    return made


@pytest.mark.parametrize(
    "value",
    [
        Described(ulong(0x468C00000004), "a = 1"),
        Described(symbol(SELECTOR), "a = 1"),
        Described(symbol("apache.org:selector-filter"), "a = 1"),
    ],
)
def test_a_filter_is_known_by_its_descriptor(value: Described) -> None:
    found = read(data({symbol("mine"): value}))
    assert found.texts == ((SELECTOR, "a = 1"),)
    assert list(found.applied) == ["mine"]


def test_a_bare_string_is_known_by_its_key() -> None:
    assert read(data({symbol(SELECTOR): "a = 1"})).texts == ((SELECTOR, "a = 1"),)


def test_an_unknown_filter_is_not_in_the_answer() -> None:
    found = read(data({symbol("x"): Described(symbol("example:x"), "y"), symbol(SELECTOR): "a = 1"}))
    assert list(found.applied) == [SELECTOR]


def test_no_local_has_no_text_and_can_be_left_out() -> None:
    found = read(data({symbol("n"): Described(symbol(NO_LOCAL), []), symbol(SELECTOR): "a = 1"}))
    assert found.no_local
    rest = without(found, NO_LOCAL)
    assert (rest.no_local, list(rest.applied), rest.texts) == (False, [SELECTOR], found.texts)


@pytest.mark.parametrize("value", [Described(symbol(SELECTOR), 5), Described(symbol(SELECTOR), [])])
def test_a_text_has_to_be_a_string(value: Described) -> None:
    with pytest.raises(PeerError) as caught:
        read(data({symbol("mine"): value}))
    assert caught.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize("value", [None, "text", [1]])
def test_a_source_without_a_map_has_no_filters(value: object) -> None:
    assert read(data(value)).applied == {}


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("first", (FIRST, 0)),
        (symbol("last"), (LAST, 0)),
        ("next", (NEXT, 0)),
        (0, (OFFSET, 0)),
        (ulong(1 << 40), (OFFSET, 1 << 40)),
        (ulong((1 << 64) - 1), (OFFSET, 1 << 62)),
        ("999999999Y", (TIME, 0)),
        (timestamp(1_700_000_000_123), (TIME, 1_700_000_000_123)),
    ],
)
@pytest.mark.parametrize("described", [True, False])
def test_a_stream_s_reader_says_where_it_begins(value: Any, start: tuple[str, int], described: bool) -> None:
    key = symbol(OFFSET_SPEC)
    found = read(data({key: Described(key, value) if described else value}))
    assert (found.start, len(found.applied)) == (start, 1)
    rest = without(found, OFFSET_SPEC)
    assert (rest.start, rest.applied) == (None, {})


@pytest.mark.parametrize(("span", "seconds"), [("30s", 30), ("10m", 600), ("2h", 7200), ("1D", 86_400)])
def test_a_span_is_a_time_so_long_ago(span: str, seconds: int) -> None:
    before = time.time()
    found = read(data({symbol(OFFSET_SPEC): span})).start
    assert found is not None
    assert found[0] == TIME
    assert int((before - seconds) * 1000) <= found[1] <= int((time.time() - seconds) * 1000)


@pytest.mark.parametrize("wrong", ["", "First", "10", "1w", -1, True, 1.5])
def test_another_start_is_refused(wrong: Any) -> None:
    with pytest.raises(PeerError, match="first, last, next"):
        read(data({symbol(OFFSET_SPEC): wrong}))
