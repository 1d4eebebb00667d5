"""Queues and subscriptions that nobody uses any more are deleted (`expire_after`).

A queue is in use while it has a link, a message, a named reader or a bridge; a subscription while it has a
receiver, or is a route's, however many messages wait in it. Looked at once a second, so that one goes at most
two seconds late and never early: a link that came and went in between has set its time anew
(``Node.used_ns``), and a message that did is seen by the count of those received.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.engine.engine import Engine
from broker.engine.node import Node, is_empty
from broker.flow.producer_credit import ProducerCredit
from broker.manage.subscriptions import Subscriptions

log = logging.getLogger("sluice")

MILLISECOND_NS = 1_000_000


class Idle:
    """The engine's nodes that fade. ``delete(name)`` deletes one with all that goes with it."""

    def __init__(self, engine: Engine, subscriptions: Subscriptions, delete: Callable[[str], object]) -> None:
        self._engine = engine
        self._subscriptions = subscriptions
        self._delete = delete

    def look(self) -> None:
        """Delete those whose time is over; call it once a second."""
        engine = self._engine
        if engine.delivery.winding_down or not engine.topology.fading:
            return
        spared = self._subscriptions.of_the_broker()
        spared.update(end for each in engine.topology.bridging.all for end in (each.source, each.target))
        for node in list(engine.topology.fading):
            if node in spared or node in engine.delivery.frozen or _is_used(node):
                node.used_ns = engine.turn.now_ns
                node.used_mark = node.received
            elif engine.turn.now_ns - node.used_ns >= node.expire_ns:
                self._expire(node)

    def _expire(self, node: Node) -> None:
        idle_ms = (self._engine.turn.now_ns - node.used_ns) // MILLISECOND_NS
        messages = node.gate.depth_msgs
        told = {"kind": node.kind, "idle_ms": idle_ms, "messages": messages}
        if node.is_subscription:
            told["address"] = node.address
        self._engine.changes.emit("idle_deleted", node, told)
        text = "deleted %s '%s' with %d messages: nobody had used it for %d s (expire_after)"
        log.info(text, node.kind, node.name, messages, idle_ms // 1000)
        self._delete(node.name)


def _is_used(node: Node) -> bool:
    """Whether it has a link or, a queue, a message now, or one came since the last look."""
    if node.consumers or node.browsers:
        return True
    if node.is_subscription:
        return False
    if not is_empty(node) or node.received != node.used_mark:
        return True
    return any(is_attached(account, node) for account in node.allocator.accounts)


def is_attached(account: ProducerCredit, node: Node) -> bool:
    """Whether an account is that of a link to the node. A relay has one at each node that it has sent to for
    as long as it is there, which is in use while messages come on it.
    """
    return bool(account.parked) or getattr(account.port, "node", node) is not None
