"""A stock Spring Boot application: 10,000 messages in and out, and listeners that throw."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.clients.moving import LISTENERS, broker_at, check, drained, feed, spring, wait_until_over
from tests.wire.conftest import wait_until
from tests.wire.seeing import number_of

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900), pytest.mark.usefixtures("spring_built")]


def test_a_stock_listener_gets_a_message(tmp_path: Path) -> None:
    with broker_at(tmp_path) as broker, spring(broker, "--mover.listener=stock") as moving:
        connection = BlockingConnection(broker.url, timeout=30)
        connection.create_sender("orders").send(Message("1", durable=True))
        answer = connection.create_receiver("invoices").receive(timeout=60)
        connection.close()
        assert answer.body == "1"
        wait_until(lambda: number_of(broker, "orders", "depth_msgs") == 0, 30, "the order to be gone")
        assert moving.process.poll() is None


@pytest.mark.parametrize("listener", LISTENERS)
def test_ten_thousand_end_where_they_belong(tmp_path: Path, listener: str) -> None:
    with broker_at(tmp_path) as broker:
        feed(broker)
        with spring(broker, *LISTENERS[listener]) as moving:
            wait_until_over(broker, moving)
        check(broker)


def test_a_template_with_a_cache_is_not_in_the_listeners_transaction(tmp_path: Path) -> None:
    """Spring Boot's doing since 3.4, which docs/clients.md warns of."""
    with broker_at(tmp_path) as broker:
        feed(broker, 100)
        with spring(broker, "--mover.listener=template"):
            wait_until(lambda: number_of(broker, "DLQ", "depth_msgs") == 1, 120, "the dead letter")
            wait_until(lambda: number_of(broker, "orders", "depth_msgs") == 0, 120, "all to be moved")
        sent = drained(broker, "invoices")
        assert (sent["1"], sent["3"], sent["7"]) == (1, 2, 10)
