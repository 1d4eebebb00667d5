"""Expiry and lifetime policies of a terminus (AMQP 1.0 §3.5.1, §3.5.10)."""

from __future__ import annotations

import pytest
from proton import Described, Terminus, symbol, ulong

from broker.amqp.control.lifetimes import (
    CLOSED,
    CONNECTION_CLOSED,
    DETACHED,
    ON_CLOSE,
    ON_NO_MESSAGES,
    SESSION_ENDED,
    Kept,
    lifetime_of,
    tell_lifetime,
)
from broker.errors import PeerError
from tests.unit.amqp.terminus import a_terminus

WAYS = (DETACHED, SESSION_ENDED, CONNECTION_CLOSED, CLOSED)


@pytest.mark.parametrize(
    ("policy", "until"),
    [
        (Terminus.EXPIRE_WITH_LINK, DETACHED),
        (Terminus.EXPIRE_WITH_SESSION, SESSION_ENDED),
        (Terminus.EXPIRE_WITH_CONNECTION, CONNECTION_CLOSED),
        (Terminus.EXPIRE_NEVER, CLOSED),
    ],
)
def test_a_terminus_is_over_at_what_its_policy_names_and_all_that_includes_it(
    policy: int, until: int
) -> None:
    terminus = a_terminus()
    terminus.expiry_policy = policy
    kept = Kept.of(terminus, lambda: None)
    assert [how for how in WAYS if kept.is_over(how)] == [how for how in WAYS if how >= until]


def test_an_end_comes_once() -> None:
    ends: list[str] = []
    kept = Kept(DETACHED, 0, lambda: ends.append("end"))
    kept.end()
    kept.end()
    assert ends == ["end"]
    assert kept.is_ended


def test_a_link_that_is_back_calls_the_end_off() -> None:
    told: list[str] = []
    kept = Kept(DETACHED, 5, lambda: told.append("end"))
    kept.ends_later(lambda: told.append("called off"))
    kept.cancel()
    kept.end()
    assert told == ["called off"]


def test_one_that_follows_ends_behind_the_first() -> None:
    ends: list[str] = []
    first = Kept(SESSION_ENDED, 3, lambda: ends.append("first"))
    both = first.followed_by(Kept(CLOSED, 0, lambda: ends.append("second")))
    assert (both.until, both.timeout_s) == (SESSION_ENDED, 3)
    both.end()
    assert ends == ["first", "second"]


@pytest.mark.parametrize("descriptor", [ulong(ON_NO_MESSAGES), symbol("amqp:delete-on-no-messages:list")])
def test_a_lifetime_policy_by_its_number_or_its_name(descriptor: ulong | symbol) -> None:
    terminus = a_terminus()
    terminus.properties.put_object({symbol("lifetime-policy"): Described(descriptor, [])})
    assert lifetime_of(terminus) == ON_NO_MESSAGES


def test_a_node_goes_with_its_link_where_no_policy_is_given() -> None:
    assert lifetime_of(a_terminus()) == ON_CLOSE


def test_no_policy_of_the_specification_is_refused() -> None:
    terminus = a_terminus()
    terminus.properties.put_object({symbol("lifetime-policy"): Described(ulong(1), [])})
    with pytest.raises(PeerError, match="lifetime-policy"):
        lifetime_of(terminus)


def test_the_policy_that_is_told_is_read_again() -> None:
    terminus = a_terminus()
    tell_lifetime(terminus, ON_NO_MESSAGES)
    assert lifetime_of(terminus) == ON_NO_MESSAGES
