"""Who among a queue's consumers gets the next message.

A discipline is one function in ``DISCIPLINES``. It hands out ready entries for as long as somebody
has capacity, and never more than that capacity.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.queues.queue import Entry, Queue, Reader


class Consumer:
    """A taker of messages; the room that knows the wire implements ``capacity`` and ``send``.

    ``shares`` is true where what others are sent lowers its capacity too (one window over a connection);
    ``started`` once its client has given credit for the first time.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self.shares = False
        # It settles too few, as its node's settings say.
        self.slow = False
        # Those of a higher one that have capacity are served first.
        self.priority = 0
        self.started = True
        # False for one that takes messages elsewhere, whatever group they are of.
        self.joins_groups = True
        # For one that doesn't take everything: how far it has looked.
        self.reader: Reader | None = None
        # Whose it is: the connection, None for the broker's own; opaque.
        self.origin: object = None
        # Only while a discipline deals: what it would hold then, `in_flight` to begin with and one more for
        # each message that it is given (pre-settled ones are never in flight), and what it may still be sent;
        # one that can take no more after a message sets that to 0 itself.
        self.load = 0
        self.left = 0

    def capacity(self) -> int:
        """How many messages it may be sent now: the least of its credit and its windows."""
        raise NotImplementedError

    def send(self, entry: Entry) -> None:
        """Take an acquired entry; the implementation counts ``in_flight``."""
        raise NotImplementedError


def only(queue: Queue, consumer: Consumer) -> None:
    """All that is ready to the one consumer there is, up to its capacity."""
    reader = consumer.reader
    consumer.left = consumer.capacity()
    if reader is None or not queue.gap:
        consumer.left = min(consumer.left, queue.ready)
    while consumer.left > 0:
        entry = queue.acquire_for(consumer) if reader is None else queue.acquire_next(reader)
        if entry is None:
            return
        consumer.left -= 1
        consumer.send(entry)


def fair(queue: Queue, consumers: list[Consumer], start: int) -> None:
    """Each message to the consumer with the fewest in flight that has capacity.

    So no consumer starves while another holds a surplus: among equals the counts differ by at most
    one (Open MQ's consumer flow control for small backlogs). ``start`` breaks ties in turn.
    """
    takers = _with_capacity(consumers, start)
    # A reader looks further than at what is ready.
    while takers and (queue.ready > 0 or queue.gap):
        taker = takers[0]
        for other in takers:
            if other.load < taker.load:
                taker = other
        if taker.shares and taker.capacity() <= 0:
            takers.remove(taker)
            continue
        entry = queue.acquire_for(taker) if taker.reader is None else queue.acquire_next(taker.reader)
        if entry is not None:
            taker.send(entry)
            taker.load += 1
            taker.left -= 1
        if entry is None or taker.left <= 0:
            takers.remove(taker)


def fill(queue: Queue, consumers: list[Consumer], start: int) -> None:
    """First come, first served, in full batches: the next consumer in turn takes all it may."""
    for taker in _with_capacity(consumers, start):
        if queue.ready <= 0 and not queue.gap:
            return
        only(queue, taker)


def by_priority(queue: Queue, consumers: list[Consumer], start: int, by_turn: bool) -> None:
    """Serve consumers of the highest priority that have capacity, then those of the next.

    ``consumers`` are in that order. Those of one priority share by ``fair``, or by ``fill`` if ``by_turn``.
    """
    everyone = list(consumers)
    first = 0
    while first < len(everyone) and (queue.ready > 0 or queue.gap):
        head = everyone[first]
        peers: list[Consumer] = []
        while first < len(everyone):
            other = everyone[first]
            if other.priority != head.priority:
                break
            peers.append(other)
            first += 1
        if len(peers) == 1:
            only(queue, peers[0])
        elif by_turn:
            fill(queue, peers, start)
        else:
            fair(queue, peers, start)


def _with_capacity(consumers: list[Consumer], start: int) -> list[Consumer]:
    takers: list[Consumer] = []
    count = len(consumers)
    for i in range(count):
        consumer = consumers[(start + i) % count]
        consumer.left = consumer.capacity()
        consumer.load = consumer.in_flight
        if consumer.left > 0:
            takers.append(consumer)
    return takers


DISCIPLINES: dict[str, Callable[[Queue, list[Consumer], int], None]] = {"fair": fair, "fill": fill}
