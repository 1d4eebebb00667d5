"""Which nodes have groups: at once where nobody consumes, else when the last consumer has left."""

from __future__ import annotations

from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.grouping import groups_of, has_members, is_regrouped
from broker.engine.node import Node
from broker.queues.dispatch import Consumer


class Idle(Consumer):
    """Takes nothing."""

    def capacity(self) -> int:
        return 0


def made(**settings: object) -> tuple[Engine, Node]:
    engine = Engine()
    engine.begin_turn(1)
    return engine, engine.lifecycle.create("q", resolve(settings, BrokerDefaults()))


def test_a_plain_queue_has_no_order_of_its_own() -> None:
    _, node = made()
    assert node.queue.order is None
    assert node.queue.readers == []
    assert groups_of(node) is None


def test_a_group_key_means_qpidds_groups_unless_more_is_said() -> None:
    _, node = made(group_key="customer")
    groups = groups_of(node)
    assert groups is not None
    assert groups.shared
    assert groups.property_key is not None
    assert groups.property_key.name == "customer"
    _, node = made(group_key="customer", message_groups="sticky")
    groups = groups_of(node)
    assert groups is not None
    assert not groups.shared
    assert groups.property_key is not None


def test_groups_begin_and_end_when_nobody_consumes() -> None:
    engine, node = made()
    consumer = Idle()
    engine.delivery.add_consumer(node, consumer)
    sticky = resolve({"message_groups": "sticky"}, BrokerDefaults())
    assert is_regrouped(node, sticky)
    assert has_members(node)
    engine.configurator.apply(node, sticky)
    assert groups_of(node) is None
    engine.delivery.remove_consumer(node, consumer)
    assert groups_of(node) is not None
    assert not is_regrouped(node, sticky)
    engine.delivery.add_consumer(node, consumer)
    engine.configurator.apply(
        node, resolve({"message_groups": "sticky", "group_max_idle": 5}, BrokerDefaults())
    )
    groups = groups_of(node)
    assert groups is not None
    assert groups.most_idle == 5
    engine.delivery.remove_consumer(node, consumer)
    engine.configurator.apply(node, resolve({}, BrokerDefaults()))
    assert node.queue.order is None
    assert node.queue.readers == []
