"""TLS before anything else: its share of a turn, and the clients that take another port for theirs."""

from __future__ import annotations

import pytest

from broker.amqp.loop.handshake import BUDGET_NS, HandshakeBudget, is_client_hello


def test_handshakes_have_a_share_of_each_turn() -> None:
    budget = HandshakeBudget()
    assert budget.may_begin(1)
    budget.spent_ns += BUDGET_NS
    assert not budget.may_begin(1)
    assert budget.may_begin(2), "the next turn has its own"


def test_the_first_of_a_turn_is_always_done() -> None:
    budget = HandshakeBudget()
    for turn in (1, 2, 3):
        assert budget.may_begin(turn)
        budget.spent_ns += 100 * BUDGET_NS


@pytest.mark.parametrize(
    ("data", "is_tls"), [(b"\x16\x03\x01\x02", True), (b"AMQP\x00\x01\x00\x00", False), (b"\x16", False)]
)
def test_a_client_that_speaks_tls_is_known_by_its_first_bytes(data: bytes, is_tls: bool) -> None:
    assert is_client_hello(data) is is_tls
