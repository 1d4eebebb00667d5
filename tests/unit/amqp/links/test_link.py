"""The two kinds of link that a connection knows, and that it knows no more of them."""

from __future__ import annotations

from broker.amqp.links import consumer, link, producer, relay, sink
from broker.flow.producer_credit import Port
from broker.queues.dispatch import Consumer
from tests.imports import compiled_imports


def test_each_link_is_of_one_kind() -> None:
    for sends in (producer.ProducerLink, relay.RelayLink, sink.SinkLink):
        assert issubclass(sends, link.IncomingLink)
        assert not issubclass(sends, link.OutgoingLink)
    assert issubclass(consumer.ConsumerLink, link.OutgoingLink)


def test_they_are_ports_of_the_flow_and_consumers_of_the_queues() -> None:
    assert issubclass(link.IncomingLink, Port)
    assert issubclass(link.OutgoingLink, Consumer)


def test_the_connection_knows_neither_producers_nor_consumers() -> None:
    known = {item.imported for item in compiled_imports() if item.importer == "amqp.links.connection"}
    assert "amqp.links.link" in known
    assert not known & {
        f"amqp.links.{name}" for name in ("assembly", "producer", "relay", "sink", "consumer")
    }
