"""Settlements that wait for channels: told in order, once every channel has sent what they are about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.config.node import HotSettings, NodeSettings
from broker.config.thresholds import resolve
from broker.engine.deferred import DeferredSettlement, channel_settings
from broker.engine.hot import hot_numbers
from broker.engine.node import UNCONFIGURED, Node
from broker.engine.turn import Turn
from broker.flow.producer_credit import Port, ProducerCredit
from broker.queues.queue import Entry

pytestmark = pytest.mark.flow


class Link(Port):
    """A producer's link that notes what was confirmed."""

    def __init__(self) -> None:
        self.confirmed: list[object] = []

    def grant(self, msgs: int) -> None:
        pass

    def revoke(self, msgs: int) -> None:
        pass

    def admit(self, parked: object, size: int) -> None:
        pass

    def confirm(self, held: object) -> None:
        self.confirmed.append(held)


class Host:
    """What the engine does for it: a put that counts a message in at each channel within its limits."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.intake = self
        self.topology = self
        self.configurator = self
        self.flow_control = True
        self.changed: list[tuple[Node, NodeSettings]] = []
        self.limits: list[int] = []

    def put(self, node: Node, data: bytes, bits: int) -> int:
        self.limits = [each.hard_msgs for each in node.subscriptions]
        for each in node.subscriptions:
            add(each, data)
        return constants.ACCEPTED

    def arrive(self, node: Node, account: ProducerCredit, data: bytes, bits: int, settled: bool) -> int:
        raise AssertionError("its producers have arrived already")

    def change(self, node: Node, settings: NodeSettings) -> None:
        self.changed.append((node, settings))


def add(channel: Node, data: bytes = b"x") -> Entry:
    channel.gate.enter(len(data), 0)
    return channel.queue.append(data)


class World:
    """A topic with two channels and one producer."""

    def __init__(self, **settings: object) -> None:
        self.host = Host()
        self.topic = Node("news", "topic")
        self.topic.settings = resolve(settings, BrokerDefaults())
        self.channels = [Node(name, "subscription", "news") for name in ("east", "west")]
        self.topic.subscriptions += self.channels
        self.deferred = DeferredSettlement(self.host, self.topic)
        self.deferred.channels += self.channels
        self.link = Link()
        self.account: ProducerCredit = self.topic.allocator.open(self.link, 10, 10, 0)

    def publish(self, held: object) -> None:
        self.deferred.put(b"x", 0)
        self.deferred.hold(self.account, held)

    def sent(self, number: int) -> None:
        """A channel has sent the first message that it holds."""
        channel = self.channels[number]
        entry = channel.queue.head
        assert entry is not None
        channel.queue.drop(entry)
        channel.gate.leave(1, 0)
        self.deferred.moved()


def test_a_producer_is_told_when_every_channel_has_sent_its_message_in_order() -> None:
    world = World()
    world.publish("first")
    world.publish("second")
    assert (len(world.deferred), world.account.held, world.deferred.wanted()) == (2, 2, True)
    world.sent(0)
    world.sent(0)
    assert world.link.confirmed == []
    world.sent(1)
    assert world.link.confirmed == ["first"]
    world.sent(1)
    assert (world.link.confirmed, world.account.held) == (["first", "second"], 0)
    assert not world.deferred.wanted()
    assert world.host.turn.dirty


def test_limits_of_the_topic_bound_nothing_while_its_message_is_brought_in() -> None:
    world = World()
    for channel in world.channels:
        channel.hard_msgs = 7
    world.publish("first")
    assert world.host.limits == [constants.UNBOUNDED] * 2
    assert [channel.hard_msgs for channel in world.channels] == [7, 7]


def test_a_channel_that_drops_keeps_its_limit() -> None:
    world = World()
    for channel, overflow in zip(world.channels, ("ring", "reject"), strict=True):
        channel.hard_msgs, channel.hot = 7, hot_numbers(HotSettings(replace(UNCONFIGURED, overflow=overflow)))
    world.publish("first")
    assert world.host.limits == [7, constants.UNBOUNDED]


def test_nobody_waits_without_flow_control() -> None:
    world = World()
    world.publish("first")
    world.host.flow_control = False
    assert not world.deferred.wanted()
    world.deferred.heed()
    assert (world.link.confirmed, len(world.deferred)) == (["first"], 0)
    assert [node for node, _ in world.host.changed] == world.channels


def test_a_producer_that_is_gone_is_told_nothing() -> None:
    world = World()
    world.publish("first")
    world.deferred.forget(world.account)
    assert (len(world.deferred), world.account.held) == (0, 0)
    world.deferred.end()
    assert world.link.confirmed == []


def test_the_end_tells_everybody() -> None:
    world = World()
    world.publish("first")
    world.deferred.end()
    assert (world.link.confirmed, world.account.held) == (["first"], 0)


def test_a_channel_stops_nobody_and_keeps_its_backlog_in_memory() -> None:
    topic = Node("news", "topic")
    topic.settings = resolve({"overflow": "page", "durable": True}, BrokerDefaults())
    found = channel_settings(topic)
    assert (found.flow_control, found.durable, found.overflow) == (False, False, "reject")
