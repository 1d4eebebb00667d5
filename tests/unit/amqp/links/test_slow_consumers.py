"""Samples of consumers' rates: told once a change, and detached where the node asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from broker.amqp.links.slow_consumers import Sampler
from broker.engine.node import Node
from broker.units import SECOND_NS
from tests.unit.amqp.links.test_consumer import fill, link_of
from tests.unit.amqp.live import LiveBroker
from tests.wire.frames import DETACH

POLICIES = """
policies:
  - {match: orders, slow_consumer: 10/s for 1s ACTION}
"""


@pytest.fixture(params=["notify", "detach"])
def broker(request: pytest.FixtureRequest) -> Iterator[LiveBroker]:
    made = LiveBroker(POLICIES.replace("ACTION", request.param))
    yield made
    made.close()


def test_a_consumer_that_holds_messages_is_slow(broker: LiveBroker) -> None:
    told: list[Mapping[str, object]] = []

    def tell(event: str, node: Node | None, details: Mapping[str, object]) -> None:
        if event == "slow_consumer":
            told.append(details)

    fill(broker, 3)
    peer = broker.connect()
    peer.attach_receiver("orders")
    peer.give_credit(3)
    peer.turn()
    link = link_of(peer)
    broker.engine.changes.emit = tell
    sampler = Sampler(broker.engine)
    now_ns = broker.engine.turn.now_ns
    for second in range(6):
        sampler.sample([peer.control], now_ns + second * SECOND_NS)
    assert link.slow
    assert [each["slow"] for each in told] == [True]
    assert told[0]["unsettled"] == 3
    peer.turn()
    detached = [each.condition for each in peer.log if each.code == DETACH]
    assert detached == (["amqp:resource-limit-exceeded"] if told[0]["action"] == "detach" else [])
