"""Ready messages go out: to consumers, which take them, and to browsers, which don't."""

from __future__ import annotations

from broker.engine.departure import Departure
from broker.engine.durability import SENT_ANY, Durability
from broker.engine.grouping import set_groups
from broker.engine.node import Node
from broker.engine.topology import Topology
from broker.engine.turn import Turn
from broker.queues.dispatch import Consumer, by_priority, fair, fill, only

FOREVER_NS = (1 << 63) - 1
# After so many messages a browser is asked anew how many it may be sent.
SHOWN_AT_ONCE = 16


class Delivery:
    """Hands messages to consumers; ``winding_down`` once none goes out any more.

    None goes out of nodes that are ``frozen``, and those of durable nodes before ``until_ns`` only
    (``act_until``); ``held_back``: some would have.
    """

    def __init__(self, turn: Turn, durability: Durability, departure: Departure, topology: Topology) -> None:
        self._turn = turn
        self._durability = durability
        self._departure = departure
        self._topology = topology
        self.winding_down = False
        self._some_stand = False
        self.until_ns = FOREVER_NS
        self.held_back = False
        self.frozen: set[Node] = set()

    def wind_down(self) -> None:
        """Send nothing any more."""
        self.winding_down = self._some_stand = True

    def freeze(self, node: Node) -> None:
        """Send nothing of a node until ``thaw``."""
        self.frozen.add(node)
        self._some_stand = True

    def thaw(self, node: Node) -> None:
        """Send what a node has again, or forget one that is deleted."""
        self.frozen.discard(node)
        self._some_stand = self.winding_down or bool(self.frozen)

    def act_until(self, until_ns: int) -> None:
        """Send nothing of durable nodes from then on: another broker may own, and deliver, what they have.

        The owner of a replicated cell calls it again and again, with the end of its lease.
        """
        self.until_ns = until_ns
        if self.held_back and self._turn.now_ns < until_ns:
            self.held_back = False
            for node in (*self._topology.nodes.values(), *self._topology.subscriptions.values()):
                self._turn.mark_dirty(node)

    def add_consumer(self, node: Node, consumer: Consumer) -> None:
        """Serve a consumer from now on."""
        node.used_ns = self._turn.now_ns
        if not node.consumers:
            # Settings about groups that had to wait for what was held when the last one left.
            set_groups(node)
        if consumer.priority or node.ranked:
            _enlist(node, consumer)
        else:
            node.consumers.append(consumer)
        if node.queue.order is not None:
            node.queue.order.join(consumer)
        elif consumer.reader is not None:
            node.queue.open_reader(consumer.reader)
        if node.shelf is not None and len(node.consumers) == 1:
            self._durability.mark_sent(node, SENT_ANY)
        self._topology.consumers_changed(node)

    def remove_consumer(self, node: Node, consumer: Consumer) -> None:
        """Serve a consumer no more; the caller has requeued what it held."""
        node.used_ns = self._turn.now_ns
        if consumer.reader is not None:
            node.queue.close_reader(consumer.reader)
        if node.queue.order is not None:
            node.queue.order.leave(consumer)
            if not node.deleted:
                self._turn.mark_dirty(node)
        if consumer in node.consumers:
            node.consumers.remove(consumer)
            node.ranked = node.ranked and any(each.priority for each in node.consumers)
            if not node.consumers and not node.deleted:
                # Settings about groups that had to wait for this.
                set_groups(node)
            if node.shelf is not None and not node.consumers and not node.deleted:
                upto = node.maybe_delivered_upto
                self._durability.mark_sent(node, b"%d" % upto if upto else b"")
        self._topology.consumers_changed(node)

    def add_browser(self, node: Node, browser: Consumer) -> None:
        """Show the node's messages to somebody who takes none."""
        if browser.reader is not None:
            node.queue.open_reader(browser.reader)
        node.browsers.append(browser)
        node.used_ns = self._turn.now_ns
        self._turn.mark_dirty(node)

    def remove_browser(self, node: Node, browser: Consumer) -> None:
        """Show a browser nothing more."""
        node.used_ns = self._turn.now_ns
        if browser.reader is not None:
            node.queue.close_reader(browser.reader)
        if browser in node.browsers:
            node.browsers.remove(browser)
        if node.stream is not None:
            self._topology.consumers_changed(node)

    def serve(self, node: Node) -> None:
        """Send what is ready, then drop what `pending_message_limit` doesn't let wait, then show browsers."""
        queue = node.queue
        if (queue.ready > 0 or (queue.gap and queue.readers)) and node.consumers and self.may_serve(node):
            self._dispatch(node)
        if node.hot.pending_limit:
            self._shed(node)
        if node.browsers:
            self._show(node)

    def is_noted(self, node: Node) -> bool:
        """Return whether it is on disk that the node's messages may have been sent; else none is yet."""
        return node.shelf is None or self._durability.is_mark_stored(node)

    def may_serve(self, node: Node) -> bool:
        """Return whether messages may go out: no shutdown, they are this broker's still, and it is on disk
        that they may have been sent.
        """
        if self._some_stand and (self.winding_down or node in self.frozen):
            return False
        if node.shelf is None:
            return True
        if self._turn.now_ns >= self.until_ns:
            self.held_back = True
            return False
        return self._durability.is_mark_stored(node)

    def _dispatch(self, node: Node) -> None:
        consumers = node.consumers
        order = node.queue.order
        if order is not None:
            node.turn += 1
            order.dispatch(consumers, node.hot.single_active, node.hot.by_turn, node.turn)
        elif len(consumers) == 1:
            only(node.queue, consumers[0])
        elif node.hot.single_active:
            self._serve_single(node)
        elif node.ranked:
            node.turn += 1
            by_priority(node.queue, consumers, node.turn, node.hot.by_turn)
        else:
            node.turn += 1
            if node.hot.by_turn:
                fill(node.queue, consumers, node.turn)
            else:
                fair(node.queue, consumers, node.turn)
        if node.queue.readers:
            self._look_for_unfinished(node)

    def _serve_single(self, node: Node) -> None:
        """Send to operators' moves first, then to the one consumer that is active."""
        for consumer in list(node.consumers):
            if not consumer.joins_groups:
                only(node.queue, consumer)
        active = node.active_consumer()
        if active is not None:
            only(node.queue, active)

    def _shed(self, node: Node) -> None:
        """Drop the oldest of the messages that wait beyond the limit: whoever could be sent any was."""
        queue = node.queue
        spooled = 0 if node.spool is None else node.spool.count
        excess = queue.ready + queue.behind + queue.aside + spooled - node.hot.pending_limit
        while excess > 0:
            entry = queue.least_ready()
            if entry is None:
                return
            self._departure.drop(node, entry)
            excess -= 1

    def _show(self, node: Node) -> None:
        """Send browsers what they have not seen yet, as far as they may be sent."""
        if self.winding_down:
            return
        for browser in list(node.browsers):
            reader = browser.reader
            browser.left = browser.capacity()
            shown = 0
            while reader is not None and browser.left > 0:
                entry = node.queue.look(reader)
                if entry is None:
                    break
                browser.left -= 1
                browser.send(entry)
                shown += 1
                if shown % SHOWN_AT_ONCE == 0:
                    # What it has room for went by the mean of messages: these may be larger.
                    browser.left = min(browser.left, browser.capacity())
        self._look_for_unfinished(node)

    def _look_for_unfinished(self, node: Node) -> None:
        for reader in node.queue.readers:
            if reader.unfinished:
                self._turn.mark_dirty_later(node)
                return


def _enlist(node: Node, consumer: Consumer) -> None:
    """Add a consumer behind those of its priority; never before the one that is the single active."""
    node.ranked = True
    active = node.active_consumer() if node.hot.single_active else None
    place = 0 if active is None else node.consumers.index(active) + 1
    while place < len(node.consumers) and node.consumers[place].priority >= consumer.priority:
        place += 1
    node.consumers.insert(place, consumer)
