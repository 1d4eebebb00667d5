"""Producer links come and go: each has an account at its node's allocator."""

from __future__ import annotations

from broker import constants
from broker.engine.changes import Changes
from broker.engine.node import UNCONFIGURED, Node
from broker.engine.turn import Turn
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.producer_credit import Port, ProducerCredit


class Producers:
    """Opens and closes producers' accounts."""

    def __init__(self, turn: Turn, changes: Changes) -> None:
        self._turn = turn
        self._changes = changes

    def open(
        self, node: Node, port: Port, promised: bool, budget: ConnectionBudget | None = None
    ) -> ProducerCredit:
        """Open an account; ``promised`` false for links whose credit reserves nothing.

        ``budget`` is its connection's, if that has one.
        """
        if node.settings is UNCONFIGURED:
            raise RuntimeError(f"node '{node.name}' was never configured")
        window = node.settings.producer_window if promised else 0
        account = node.allocator.open(port, window, node.settings.initial_credit, self._turn.now_ns, budget)
        account.place = node
        self._used(node)
        return account

    def close(self, node: Node, account: ProducerCredit) -> None:
        """Close an account; its credit goes to whoever waits, at this node or where its room is shared."""
        if account.outstanding > 0 and (node.topics or node.shared > 0):
            for each in (node, *node.subscriptions):
                for owner in each.owners():
                    self._turn.mark_dirty(owner)
        account.close()
        node.timed_parked.discard(account)
        self._used(node)

    def _used(self, node: Node) -> None:
        node.used_ns = self._turn.now_ns
        self._turn.mark_dirty(node)
        self._changes.links_changed(node)

    def reject_at_once(self, node: Node) -> bool:
        """Return whether credit at this node promises no room, because sends are to fail instead."""
        return node.hot.when_full != constants.FULL_BLOCK

    def hold_settlement(self, topic: Node, account: ProducerCredit, held: object) -> None:
        """Keep what arrive() answered HOLD to; its account's port is told when it may be settled."""
        if topic.awaiting is not None:
            topic.awaiting.hold(account, held)

    def forget_held(self, node: Node, account: ProducerCredit) -> None:
        """Forget settlements that nobody waits for any more: the link is gone."""
        if node.awaiting is not None:
            node.awaiting.forget(account)
