"""Values that a peer has encoded as it likes: read where they can be, rewritten or left out otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Delivery, Link, symbol
from proton import Connection as ProtonConnection

from broker.amqp.control.decoding import capabilities_of, copy_terminus, first_of, offer, refusal_of
from broker.errors import PeerError


@pytest.fixture
def link() -> Link:
    return ProtonConnection().session().receiver("in")


def symbols(*names: str) -> Array:
    members: list[Any] = [UNDESCRIBED, Data.SYMBOL, *map(symbol, names)]
    return Array(*members)


@pytest.mark.parametrize("one_array", [True, False])
def test_capabilities_are_read_in_their_order_from_an_array_or_from_several_values(
    link: Link, one_array: bool
) -> None:
    if one_array:
        link.source.capabilities.put_object(symbols("topic", "shared"))
    else:
        link.source.capabilities.put_object(symbol("topic"))
        link.source.capabilities.put_object(symbol("shared"))
    assert capabilities_of(link.source) == ["topic", "shared"]


@pytest.mark.parametrize(
    ("names", "outcome"),
    [
        ((), Delivery.REJECTED),
        (("amqp:accepted:list",), 0),
        (("amqp:modified:list", "amqp:released:list"), Delivery.RELEASED),
        (("amqp:rejected:list", "amqp:released:list"), Delivery.REJECTED),
    ],
)
def test_the_outcome_of_a_message_that_is_not_taken(link: Link, names: tuple[str, ...], outcome: int) -> None:
    if names:
        link.source.outcomes.put_object(symbols(*names))
    assert refusal_of(link.source) == int(outcome)


def test_a_copy_has_no_properties_and_nothing_that_can_not_be_read(link: Link) -> None:
    link.target.address = "orders"
    link.target.properties.put_object({symbol("lifetime-policy"): 1})
    link.target.capabilities.put_object(symbol("queue"))
    # A text that is no UTF-8.
    link.target.outcomes.decode(b"\xa1\x02\xff\xfe")
    copy_terminus(link.source, link.target)
    assert link.source.address == "orders"
    assert first_of(link.source.properties) is None
    assert first_of(link.source.outcomes) is None
    assert capabilities_of(link.source) == ["queue"]


def test_a_value_that_can_not_be_read_is_the_peers_fault() -> None:
    data = Data()
    data.decode(b"\xa1\x02\xff\xfe")
    with pytest.raises(PeerError, match="decode-error"):
        first_of(data)


def test_an_offer_takes_the_place_of_what_was_offered_before(link: Link) -> None:
    offer(link.source, ["queue"])
    offer(link.source, ["topic", "shared"])
    assert capabilities_of(link.source) == ["topic", "shared"]
