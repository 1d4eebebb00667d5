"""Subscriptions to topics of other cells: kept, come back to, and ended by their names alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from broker.client.request import Management
from tests.wire.cells import ARGS, CELLS, names_in
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.terminus import LASTING, close, connected, detach, send, take

POLICIES = "policies:\n  - {match: 'news.>', kind: topic}\n"


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Three cells whose `news.>` are topics."""
    broker = RunningBroker(tmp_path_factory.mktemp("news"), "", POLICIES, ARGS)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def subscriptions(broker: RunningBroker, cell: int) -> list[str]:
    """Return the names of a cell's subscriptions."""
    with Management(broker.url, cell=cell) as management:
        query: Any = management.call(
            "QUERY", "org.sluice.subscription", body={"attributeNames": ["name"]}
        ).body
    return [str(name) for [name] in query["results"]]


def lasting(connection: BlockingConnection, topic: str) -> BlockingReceiver:
    """A durable subscription as JMS makes it."""
    return connection.create_receiver(topic, credit=50, name="sub", options=LASTING)


@contextmanager
def settled_as(broker: RunningBroker, cell: int, container: str) -> Iterator[BlockingConnection]:
    """A connection of a container that stays in a cell."""
    with connected(broker.url, container) as connection:
        connection.create_sender(names_in(cell, CELLS, 1, "first")[0], name="first")
        yield connection


@pytest.mark.parametrize("here", range(CELLS))
@pytest.mark.parametrize("there", range(CELLS))
def test_jms_unsubscribes_by_the_link_name_wherever_the_topic_is(
    news: RunningBroker, here: int, there: int
) -> None:
    [topic], app = names_in(there, CELLS, 1, "news"), f"app{here}{there}"
    with settled_as(news, here, app) as connection:
        detach(lasting(connection, topic))
    with settled_as(news, here, app) as connection:
        send(connection.create_sender(topic, name="publisher"), 1, 2)
        assert take(lasting(connection, topic), 2) == [1, 2]
    assert [f"{topic}/{app}.sub"] == subscriptions(news, there)
    with settled_as(news, here, app) as connection:
        receiver = connection.create_receiver(None, name="sub")
        assert receiver.link.remote_source.address == topic
        close(receiver)
        wait_until(lambda: not subscriptions(news, there), 10, "no subscription")
        with pytest.raises(LinkDetached, match=r"amqp:not-found.*no subscription is known by 'sub'"):
            connection.create_receiver(None, name="sub")
        # The connection is none the worse.
        send(connection.create_sender(topic, name="publisher"), 3)


def test_a_client_that_says_only_that_may_be_in_any_cell(news: RunningBroker) -> None:
    for there in range(CELLS):
        [topic] = names_in(there, CELLS, 1, "news")
        for number in range(4):
            app = f"only{there}{number}"
            with connected(news.url, app) as connection:
                detach(lasting(connection, topic))
            with connected(news.url, app) as connection:
                close(connection.create_receiver(None, name="sub"))
        wait_until(lambda there=there: not subscriptions(news, there), 10, "no subscription")  # type: ignore[misc]
