"""Filters of a source: found by descriptor or key, and answered as they are applied."""

from __future__ import annotations

import pytest
from proton import Data, Described, symbol, ulong

from broker.amqp.links.filters import NO_LOCAL, read, without_no_local
from broker.errors import PeerError

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
    rest = without_no_local(found)
    assert (rest.no_local, list(rest.applied), rest.texts) == (False, [SELECTOR], found.texts)


@pytest.mark.parametrize("value", [Described(symbol(SELECTOR), 5), Described(symbol(SELECTOR), [])])
def test_a_text_has_to_be_a_string(value: Described) -> None:
    with pytest.raises(PeerError) as caught:
        read(data({symbol("mine"): value}))
    assert caught.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize("value", [None, "text", [1]])
def test_a_source_without_a_map_has_no_filters(value: object) -> None:
    assert read(data(value)).applied == {}
