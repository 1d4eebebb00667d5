"""The fair share of room that producers hold together."""

from __future__ import annotations

from broker.flow.level import Level
from tests.unit.flow.ports import MS, Link, allocator, gate_of


def test_those_who_ask_share_what_there_is_and_what_others_hold() -> None:
    address = allocator(100)
    first, second = (address.open(Link(), 100, 100, 0) for _ in range(2))
    first.outstanding = 40
    shares = Level(address.accounts, 60, 100, MS)
    assert shares.capacity == 100
    assert shares.of(first) == shares.of(second) == 50


def test_accounts_that_never_used_any_share_a_quarter() -> None:
    address = allocator(100)
    accounts = [address.open(Link(), 100, 100, 0) for _ in range(4)]
    for account in accounts:
        account.waiting = False
        account.outstanding = 25
    shares = Level(accounts, 0, 100, 50 * MS)
    assert shares.strangers == 4
    assert [shares.spared(account) for account in accounts] == [6, 6, 6, 6]


def test_a_budget_that_messages_do_not_use_has_no_claim_on_the_credit() -> None:
    address = allocator(100)
    account = address.open(Link(), 100, 100, 0)
    account.outstanding = 7
    shares = Level([account], 0, 0, MS, gate_of("store_limit", 0, 1))
    assert shares.unit(account) == 0
    assert shares.of(account) == 7
