"""Links that take messages from a queue, never more than was asked for.

Credit is granted for one filling and used up by draining (AMQP 1.0 §2.6.7): the broker sends what is there
and gives the rest back, so that between two fillings no link has any. A filling:

1. What is missing is granted to the first link, with drain: all of it, or a step of it where bytes are
   limited (``Filling``).
2. A link that gets all of it is granted what is still missing.
3. One that gets less has either found the queue empty or holds as many unsettled messages as the broker lets
   a link hold. So the next link is tried, attached if need be; a link that gets nothing at all ends the
   filling, and so does one that the broker refuses, which then isn't asked for another.
4. Where nothing came at all, one credit stays for ``wait_s``, lest an empty queue is asked all the time.

One link after the other keeps the queue's order. At a topic, and at a queue that keeps its messages, there is
one link alone: every other would be sent all of it once more. Messages are held until ``settle``; a lost
connection gives them back to the queue, whoever has them already.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

import cproton
from cproton_ffi import ffi, lib

from .connection import Connection
from .depth import Depth, Inquiry
from .engine import Handle
from .errors import OptionError, RefusedError, UnreachableError
from .filters import count_applied, put, put_filters
from .options import Options

log = logging.getLogger("pyspark_sluice")

ACCEPTED, RELEASED = cproton.PN_ACCEPTED, cproton.PN_RELEASED
# What a broker calls a node of whose messages each link is sent a copy.
TOPICS = frozenset({"topic", "temporary-topic"})
# A queue that one consumer alone may have has one.
LOCKED = "amqp:resource-locked"
# What another link to a queue that is read already may be refused with: it is held by one alone, or a quota.
REFUSALS = frozenset(
    {
        "amqp:not-allowed",
        "amqp:resource-limit-exceeded",
        LOCKED,
        "amqp:unauthorized-access",
    }
)
# Where bytes are limited so many are granted whose size nobody knows yet, and so many at a time at most.
# Steps of 250 to 4,000 took 10,000 messages in the same time on one machine, and a link's window costs a
# round trip for each thousand anyway.
UNKNOWN, LONGEST = 100, 500
# Sizes are forgotten by and by: of two means one is of about so many messages.
MEMORY = 1000
_RELEASE_S = 2.0


class Sizes:
    """How large messages are taken to be before they come: by the larger of two means, that of the last step
    and that of about the last thousand. So one step of large ones is enough to be careful, and it takes
    several of small ones to be bold again."""

    __slots__ = ("_last", "_messages", "_step", "_total")

    def __init__(self) -> None:
        self._messages = self._total = self._last = 0.0
        self._step: list[int] = []

    def count(self, size: int) -> None:
        """A message of so many bytes has come."""
        self._step.append(size)

    def typical(self) -> float:
        """Ends a step; 0 as long as nothing has come."""
        if self._step:
            size, more = sum(self._step), len(self._step)
            self._step.clear()
            kept = min(MEMORY / (self._messages + more), 1.0)
            self._messages, self._total = (self._messages + more) * kept, (self._total + size) * kept
            self._last = size / more
        return max(self._last, self._total / self._messages if self._messages else 0.0)


class Filling:
    """So many rows and bytes at most. ``done``: the queue gave as much, or had no more.

    Rows are never more. Bytes are known when they have come, so where they are limited credit goes in steps:
    as many messages as should fit, at most ``UNKNOWN`` at first, then twice the step before, up to
    ``LONGEST``. A filling is full when no typical message fits any more. So the limit is exceeded by one step
    at most, whatever follows on small messages, and hardly at all where sizes are what they were.
    """

    __slots__ = ("bytes_left", "done", "rows", "rows_left", "size", "step", "wait_s", "waits_until")

    def __init__(self, rows: int, size: int | None, wait_s: float) -> None:
        self.rows, self.size, self.wait_s = rows, size, wait_s
        self.done = threading.Event()
        self.again()

    def again(self) -> None:
        """From the beginning: what came is lost."""
        self.rows_left, self.bytes_left = self.rows, self.size
        self.step = 0
        self.waits_until: float | None = None
        self.done.clear()

    def count(self, size: int) -> None:
        """A message of so many bytes has come."""
        self.rows_left -= 1
        if self.bytes_left is not None:
            self.bytes_left -= size

    def missing(self, typical: float) -> int:
        """Messages of a typical size to be granted next, by rows and by bytes; 0: full."""
        if self.bytes_left is None:
            return self.rows_left
        fits = int(max(self.bytes_left, 0) / typical) if typical else UNKNOWN
        if self.rows_left == self.rows:
            # However large they are, one comes.
            fits = max(fits, 1)
        self.step = min(self.rows_left, fits, max(UNKNOWN, min(2 * self.step, LONGEST)))
        return self.step


class Receiver(Connection):
    """``take`` and ``settle`` are for one thread. ``copies``: messages stay in the queue (browsing).

    ``dry``: what was taken last was all there was, or all that links may hold. ``empty``: it was all there
    was, since a link that got less than it was granted had room for more.
    """

    def __init__(self, options: Options, *, copies: bool = False) -> None:
        super().__init__(options, "spark-browse" if copies else "spark-source")
        self.copies = copies
        self.dry = self.empty = False
        # As the broker of now has said. Where we are sent copies each link is sent all of them.
        self._is_topic = self._sends_copies = False
        self._lock = threading.Lock()
        self._filling: Filling | None = None
        self._links: list[Handle] = []
        self._inquiry = Inquiry(options.address or "")
        # What came for this filling, and whose settlement is due when it is taken and done with.
        self._messages: list[bytes] = []
        self._fresh: list[Handle] = []
        self._held: deque[Handle | None] = deque()
        # Of the link in turn: what it was granted last, how much of that came, how much in this filling.
        self._at = self._granted = self._got = self._got_all = 0
        # The most that the last link of a filling got although it was granted more: it may hold so many.
        self._most_got = 0
        # How many of the links the broker has attached, and whether it lets us have another.
        self._attached, self._more_links = 0, True
        self._sizes, self._seen_messages = Sizes(), 0
        self._room = ffi.new("char[]", 1 << 16)

    # --- the caller's thread

    def take(
        self, rows: int, size: int | None, *, wait_s: float, patience_s: float | None
    ) -> list[bytes] | None:
        """Up to ``rows`` messages of about ``size`` bytes in all (``Filling`` says how many more it may be);
        none where the queue has none.

        None if the broker has not given them within ``patience_s`` (the connection is being made anew): what
        was asked for then comes with a later call. Raises what the connection failed of.
        """
        with self._lock:
            if self._filling is None:
                self._filling = Filling(rows, size, wait_s)
                self.post(self._go_on)
            filling = self._filling
        if self.failure is None:
            filling.done.wait(patience_s)
        with self._lock:
            if self.failure is not None:
                raise self.failure
            if not filling.done.is_set():
                return None
            self._filling = None
            taken, self._messages = self._messages, []
            self._held.extend(self._fresh)
            self._fresh = []
        return taken

    def settle(self, count: int) -> None:
        """So many of the messages that were taken, the oldest, have been dealt with."""
        self.post(lambda: self._settle(count))

    def depth(self, patience_s: float) -> Depth | None:
        """How full the queue is; None where the broker doesn't tell us, or not in time, and of a topic."""
        self._inquiry.answered.clear()
        self.post(self._inquire)
        self._inquiry.answered.wait(patience_s)
        return self._inquiry.depth

    def close(self) -> None:
        """Gives back what is not settled, as not having been delivered, and closes in order."""
        if self.is_running:
            released = threading.Event()
            self.post(lambda: self._release(released))
            released.wait(_RELEASE_S)
        super().close()

    # --- the connection's thread

    def on_open(self) -> None:
        self._attach()

    def on_attached(self, link: Handle) -> None:
        if self._inquiry.on_attached(link):
            return
        if self.options.selector and not count_applied(link):
            raise RefusedError("amqp:not-implemented", f"{self.broker} has no selectors")
        self._is_topic = bool(TOPICS & _capabilities(link))
        self._sends_copies = not self.copies and _sends_copies(link)
        if self._sends_copies and not self._is_topic:
            self._inquire()
        self._attached += 1
        if link == self._links[-1]:
            self._go_on()

    def on_detached(self, link: Handle, why: RefusedError | None) -> None:
        if self._inquiry.on_detached(link):
            return
        refused = len(self._links) - 1 == self._attached and link == self._links[-1]
        if refused and not self._attached and not self.copies and why is not None and why.condition == LOCKED:
            # Held perhaps by our own last connection, which the broker hasn't missed yet.
            raise UnreachableError(f"the broker refused a link: {why}")
        if not refused or not self._attached or why is None or why.condition not in REFUSALS:
            super().on_detached(link, why)
            return
        log.info("%s has no more than %d links for us: %s", self.broker, self._attached, why)
        lib.pn_link_close(link)
        self._links.pop()
        self._more_links = False
        if self._filling is not None:
            self.dry = self.empty = False
            self._finish(self._filling)

    def on_lost(self) -> None:
        if self.copies and self._seen_messages:
            # From the start again some would be seen twice: that is for whoever began to look.
            self.fail(UnreachableError(f"the connection was lost after {self._seen_messages} messages"))
        with self._lock:
            self._links, self._messages, self._fresh = [], [], []
            # They are in the queue again; those who took them settle them in vain.
            self._held = deque([None] * len(self._held))
            self._at = self._granted = self._got_all = self._most_got = self._attached = 0
            self._more_links = True
            if self._filling is not None:
                self._filling.again()
        self._inquiry.forget()

    def on_turn(self) -> float | None:
        filling = self._filling
        if filling is None or filling.waits_until is None or filling.done.is_set():
            return None
        if time.monotonic() >= filling.waits_until:
            filling.waits_until = None
            link = self._links[0]
            if not lib.pn_link_get_drain(link):
                lib.pn_link_set_drain(link, True)
                lib.pn_link_flow(link, 0)
            return None
        return filling.waits_until

    def on_end(self) -> None:
        with self._lock:
            if self._filling is not None:
                self._filling.done.set()
        self._inquiry.answered.set()

    def on_flow(self, link: Handle) -> None:
        if self._inquiry.on_flow(link):
            return
        self._used_up(link)

    def on_delivery(self, delivery: Handle) -> None:
        if not lib.pn_delivery_readable(delivery) or lib.pn_delivery_partial(delivery):
            return
        link = lib.pn_delivery_link(delivery)
        if lib.pn_delivery_aborted(delivery):
            lib.pn_delivery_settle(delivery)
        elif self._inquiry.on_delivery(link, delivery):
            self._check_type()
            return
        else:
            self._keep(link, delivery)
        if lib.pn_link_credit(link) == 0:
            self._used_up(link)

    def _keep(self, link: Handle, delivery: Handle) -> None:
        size = lib.pn_delivery_pending(delivery)
        if size > len(self._room):
            self._room = ffi.new("char[]", size)
        got = lib.pn_link_recv(link, self._room, size) if size else 0
        lib.pn_link_advance(link)
        self._messages.append(ffi.unpack(self._room, got) if got > 0 else b"")
        self._got += 1
        self._got_all += 1
        self._seen_messages += 1
        self._sizes.count(size)
        if self._filling is not None:
            self._filling.count(size)
        if self.copies:
            lib.pn_delivery_update(delivery, ACCEPTED)
            lib.pn_delivery_settle(delivery)
        else:
            self._fresh.append(delivery)

    def _check_type(self) -> None:
        """Give up on a stream: whatever is settled stays, and each run would begin with the next message."""
        if self._inquiry.is_stream:
            fault = "is a stream, and read as a queue: see sourceType, subscription"
            self.fail(OptionError(f"'{self.options.address}' {fault}"))

    def _used_up(self, link: Handle) -> None:
        """A link may have no credit any more: by messages, or because the broker gave back the rest. Where
        both came at once, Proton's credit is that behind both when the last message is seen."""
        filling = self._filling
        if (
            filling is None
            or not self._granted
            or link != self._links[self._at]
            or lib.pn_link_credit(link) > 0
        ):
            return
        filling.waits_until = None
        granted, self._granted = self._granted, 0
        if self._got >= granted:
            self._go_on()
        else:
            self._went_dry(filling)

    def _go_on(self) -> None:
        """Grant what is missing, if there is a link to grant it to and it has used up what it had."""
        filling = self._filling
        if filling is None or filling.done.is_set() or self._at >= len(self._links):
            return
        link = self._links[self._at]
        if not lib.pn_link_state(link) & cproton.PN_REMOTE_ACTIVE or lib.pn_link_credit(link) > 0:
            return
        missing = filling.missing(self._sizes.typical())
        if missing <= 0:
            self.dry = self.empty = False
            self._finish(filling)
            return
        self._got, self._granted = 0, missing
        lib.pn_link_set_drain(link, True)
        lib.pn_link_flow(link, missing)

    def _went_dry(self, filling: Filling) -> None:
        """The link was sent less than it was granted (steps 3 and 4)."""
        is_alone = self.copies or self._is_topic or self._sends_copies
        most_links = 1 if is_alone else self.options.links
        if not self._more_links:
            most_links = min(most_links, len(self._links))
        if self._got_all > 0 and self._at + 1 < most_links:
            self._at += 1
            self._got_all = 0
            if self._at == len(self._links):
                self._attach()
            else:
                self._go_on()
        elif not self._messages and filling.wait_s > 0:
            filling.waits_until = time.monotonic() + filling.wait_s
            filling.wait_s = 0.0
            self._at, self._got, self._got_all, self._granted = 0, 0, 0, 1
            link = self._links[0]
            lib.pn_link_set_drain(link, False)
            lib.pn_link_flow(link, 1)
        else:
            self.dry, self.empty = True, self._got_all == 0 or self._got_all < self._most_got
            self._most_got = max(self._most_got, self._got_all)
            self._finish(filling)

    def _finish(self, filling: Filling) -> None:
        self._at = self._got_all = 0
        filling.done.set()

    def _settle(self, count: int) -> None:
        for _ in range(min(count, len(self._held))):
            delivery = self._held.popleft()
            if delivery is not None:
                lib.pn_delivery_update(delivery, ACCEPTED)
                lib.pn_delivery_settle(delivery)
        if self.engine is not None:
            # Before the next credit: a link that holds all it may is sent nothing for it.
            self.engine.write()

    def _release(self, released: threading.Event) -> None:
        for delivery in (*self._held, *self._fresh):
            if delivery is not None:
                lib.pn_delivery_update(delivery, RELEASED)
                lib.pn_delivery_settle(delivery)
        self._held.clear()
        self._fresh.clear()
        released.set()

    def _inquire(self) -> None:
        if self.engine is None or self._is_topic:
            self._inquiry.answered.set()
        else:
            self._inquiry.ask(self.session())

    def _attach(self) -> None:
        name = f"{self.container}-{len(self._links)}"
        subscribes = self.options.subscription is not None and not self.copies
        if subscribes:
            # Behind the mark each link of a shared subscription is told from the others (Qpid JMS).
            name = f"{self.options.subscription}|{name}"
        link = lib.pn_receiver(self.session(), name.encode())
        source = lib.pn_link_source(link)
        lib.pn_terminus_set_address(source, (self.options.address or "").encode())
        if subscribes:
            _subscribe(source)
        else:
            self.asks_for_node(source)
        if self.copies:
            lib.pn_terminus_set_distribution_mode(source, cproton.PN_DIST_MODE_COPY)
            lib.pn_link_set_snd_settle_mode(link, cproton.PN_SND_SETTLED)
        else:
            lib.pn_link_set_snd_settle_mode(link, cproton.PN_SND_UNSETTLED)
        lib.pn_link_set_rcv_settle_mode(link, cproton.PN_RCV_FIRST)
        if self.options.selector:
            put_filters(lib.pn_terminus_filter(source), selector=self.options.selector)
        lib.pn_link_open(link)
        self._links.append(link)


def _subscribe(source: Handle) -> None:
    """Ask for a durable subscription that is found again by its name alone: another run is another container,
    and its connection may come before the broker has missed the last one's.
    """
    lib.pn_terminus_set_durability(source, cproton.PN_DELIVERIES)
    lib.pn_terminus_set_expiry_policy(source, cproton.PN_EXPIRE_NEVER)
    capabilities = lib.pn_terminus_capabilities(source)
    lib.pn_data_put_array(capabilities, False, cproton.PN_SYMBOL)
    lib.pn_data_enter(capabilities)
    for name in (b"topic", b"shared", b"global"):
        put(capabilities, lib.pn_data_put_symbol, name)
    lib.pn_data_exit(capabilities)


def _sends_copies(link: Handle) -> bool:
    """Whether the broker says that what it sends over a link stays where it is."""
    mode = lib.pn_terminus_get_distribution_mode(lib.pn_link_remote_source(link))
    return bool(mode == cproton.PN_DIST_MODE_COPY)


def _capabilities(link: Handle) -> set[str]:
    """What the broker says of the node at its end of a link."""
    data = lib.pn_terminus_capabilities(lib.pn_link_remote_source(link))
    found: set[str] = set()
    lib.pn_data_rewind(data)
    while lib.pn_data_next(data):
        # One alone may stand without an array (AMQP 1.0 §1.4, multiple).
        if lib.pn_data_type(data) == cproton.PN_ARRAY:
            lib.pn_data_enter(data)
        elif lib.pn_data_type(data) == cproton.PN_SYMBOL:
            value = lib.pn_data_get_symbol(data)
            found.add(ffi.unpack(value.start, value.size).decode(errors="replace") if value.size else "")
    return found
