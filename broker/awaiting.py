"""Settlements that wait until channels have sent what they are about (FLOW §6).

A message published to a topic with a channel is in every subscription at once; its producer is told only
when each channel has sent it and everything before it. What waits counts against the producer's window.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.flow.ledger import Account

if TYPE_CHECKING:
    from broker.engine import Engine
    from broker.node import Node


class Awaiting:
    """What waits at one topic, oldest first; ``channels`` are the subscriptions that send it out."""

    def __init__(self, engine: Engine, topic: Node) -> None:
        self._engine = engine
        self._topic = topic
        self.channels: list[Node] = []
        self._held: deque[tuple[list[tuple[Node, int]], Account, object]] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def wanted(self) -> bool:
        """Whether a message that has just come has to wait: flow control is on, and there is a backlog."""
        settings = self._topic.settings
        if settings is None or not settings.flow_control or not self._engine.flow_control:
            return False
        return any(channel.gate.depth_msgs > 0 for channel in self.channels)

    def hold(self, account: Account, held: object) -> None:
        """Confirm this one through its account's port once all that is in the channels now has gone."""
        marks = [(channel, channel.queue.next_seq - 1) for channel in self.channels]
        account.held += 1
        self._held.append((marks, account, held))

    def moved(self) -> None:
        """Something has left a channel: tell those it was about."""
        while self._held:
            marks, account, held = self._held[0]
            if any(_is_there(channel, seq) for channel, seq in marks):
                return
            self._held.popleft()
            account.held -= 1
            account.port.confirm(held)
            if not account.closed and account.outstanding <= account.low:
                account.ledger.renew(account, self._engine.now_ns)
        self._engine.touch(self._topic)

    def end(self) -> None:
        """The topic is gone, and all that was in its channels with it: nothing is waited for any more."""
        while self._held:
            _, account, held = self._held.popleft()
            account.held -= 1
            account.port.confirm(held)

    def forget(self, account: Account) -> None:
        """Nobody is there any more to be told."""
        if account.held:
            self._held = deque(each for each in self._held if each[1] is not account)
            account.held = 0


def _is_there(channel: Node, seq: int) -> bool:
    """Whether the channel holds anything up to this message."""
    head = channel.queue.head
    return not channel.deleted and head is not None and head.seq <= seq
