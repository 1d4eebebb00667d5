"""Settlements that wait until channels have sent what they are about (FLOW §6).

A message published to a topic with a channel is in every subscription at once; its producer is told only
when each channel has sent it and everything before it. What waits counts against the producer's window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from broker import constants
from broker.flow.producer_credit import ProducerCredit

if TYPE_CHECKING:
    from broker.config.node import NodeSettings
    from broker.engine.node import Node
    from broker.engine.ports import SettlementHost

# Where `overflow` says what to drop it is dropped, whether or not somebody waits for it to be sent.
_DROPS = (constants.OVERFLOW_RING, constants.OVERFLOW_DROP_NEWEST)


class DeferredSettlement:
    """What waits at one topic, oldest first; ``channels`` are the subscriptions that send it out."""

    def __init__(self, engine: SettlementHost, topic: Node) -> None:
        self._engine = engine
        self._topic = topic
        self.channels: list[Node] = []
        self._held: deque[tuple[list[tuple[Node, int]], ProducerCredit, object]] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def wanted(self) -> bool:
        """Whether a message that has just come has to wait: flow control is on, and there is a backlog."""
        return self._is_on() and any(channel.gate.depth_msgs > 0 for channel in self.channels)

    def put(self, data: bytes, bits: int) -> int:
        """Bring in a message whose sender waits until the channels have sent it, which bounds what they hold:
        the topic's limits have no part in it, unless its `overflow` says what to drop.
        """
        if not self._is_on():
            return self._engine.intake.put(self._topic, data, bits)
        free = [each for each in self.channels if each.hot.overflow not in _DROPS]
        limits = [(each.hard_msgs, each.hard_bytes) for each in free]
        for channel in free:
            channel.hard_msgs = channel.hard_bytes = constants.UNBOUNDED
        try:
            return self._engine.intake.put(self._topic, data, bits)
        finally:
            for channel, (msgs, nbytes) in zip(free, limits, strict=True):
                channel.hard_msgs, channel.hard_bytes = msgs, nbytes

    def heed(self) -> None:
        """The topic's settings changed, or the broker's: without flow control nobody waits any more."""
        for channel in self.channels:
            self._engine.configurator.change(channel, channel_settings(self._topic))
        if not self._is_on():
            while self._held:
                self._confirm_first()

    def _is_on(self) -> bool:
        """Whether flow control holds at the topic, by its own switch and by the broker's."""
        return self._engine.topology.flow_control and self._topic.settings.flow_control

    def hold(self, account: ProducerCredit, held: object) -> None:
        """Confirm this one through its account's port once all that is in the channels now has gone."""
        marks = [(channel, channel.queue.next_seq - 1) for channel in self.channels]
        account.held += 1
        self._held.append((marks, account, held))

    def moved(self) -> None:
        """Something has left a channel: tell those it was about."""
        while self._held:
            marks, _, _ = self._held[0]
            if any(_is_there(channel, seq) for channel, seq in marks):
                return
            self._confirm_first()
        self._engine.turn.mark_dirty(self._topic)

    def _confirm_first(self) -> None:
        _, account, held = self._held.popleft()
        account.held -= 1
        account.port.confirm(held)
        if not account.closed and account.outstanding <= account.low:
            self._topic.allocator.renew(account, self._engine.turn.now_ns)

    def end(self) -> None:
        """The topic is gone, and all that was in its channels with it: nothing is waited for any more."""
        while self._held:
            _, account, held = self._held.popleft()
            account.held -= 1
            account.port.confirm(held)

    def forget(self, account: ProducerCredit) -> None:
        """Nobody is there any more to be told."""
        if account.held:
            self._held = deque(each for each in self._held if each[1] is not account)
            account.held = 0


def channel_settings(topic: Node) -> NodeSettings:
    """How a topic's channel keeps its backlog: it stops nobody, and beyond the topic's hard limits its
    `overflow` holds. `page` means `reject`: a backlog of datagrams is in memory.
    """
    overflow = "reject" if topic.settings.overflow == "page" else topic.settings.overflow
    return replace(topic.settings, flow_control=False, durable=False, overflow=overflow, priority="none")


def _is_there(channel: Node, seq: int) -> bool:
    """Whether the channel holds anything up to this message."""
    head = channel.queue.head
    return not channel.deleted and head is not None and head.seq <= seq
