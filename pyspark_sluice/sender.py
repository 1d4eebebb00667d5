"""One task's messages on their way: in flight, their outcomes, and what is sent again.

``put`` and ``finish`` are the task's; all else runs on the connection's thread, the encoding of messages too:
one busy thread costs less than two that hand the interpreter to and fro. Nothing counts as sent before the
broker has accepted it. What is in doubt when a connection is lost goes out again under the same ids.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import cproton
from cproton_ffi import ffi, lib

from .connection import Connection, ask_for
from .engine import Handle, condition
from .errors import AmqpError, CreditTimeoutError, RefusedError
from .options import Options

log = logging.getLogger("pyspark_sluice")

# Batches that wait behind the one under way; each may have ten thousand rows.
_WAITING = 1
# Where no limit is known.
_ANY = 1 << 64
# Messages between two looks at the socket: a few frames' worth.
_BURST = 256
_WARN_S = 30.0
# A pause in the broker's answers that counts as being blocked.
_BLOCKED_S = 0.2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0

TOO_LARGE = "amqp:link:message-size-exceeded"

_ACCEPTED, _REJECTED = cproton.PN_ACCEPTED, cproton.PN_REJECTED
_RELEASED, _MODIFIED = cproton.PN_RELEASED, cproton.PN_MODIFIED


@dataclass(slots=True)
class Counts:
    """What became of a task's rows. ``resent`` are sends beyond the first of a message."""

    accepted: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    resent: int = 0
    reconnected: int = 0
    blocked_s: float = 0.0


class Outbox:
    """A link and the messages for it."""

    def __init__(self, name: str, address: str | None, node_kind: str | None) -> None:
        self.name = name
        self.address = address
        self.node_kind = node_kind
        self.link: Handle = None
        self.is_attached = False
        # The most bytes that a message may have there.
        self.most_bytes = _ANY
        self.in_flight: dict[Handle, bytes] = {}
        self.again: deque[bytes] = deque()
        self.sent = 0  # for the first time

    @property
    def is_idle(self) -> bool:
        return not self.in_flight and not self.again

    @property
    def unsettled(self) -> int:
        """Messages without an outcome, sent or not."""
        return len(self.in_flight) + len(self.again)

    def attach(self, session: Handle) -> None:
        """Attaches the link of a new connection."""
        link = lib.pn_sender(session, self.name.encode())
        target = lib.pn_link_target(link)
        if self.address is not None:
            lib.pn_terminus_set_address(target, self.address.encode())
            if self.node_kind is not None:
                ask_for(target, self.node_kind)
        lib.pn_link_set_snd_settle_mode(link, cproton.PN_SND_UNSETTLED)
        lib.pn_link_set_rcv_settle_mode(link, cproton.PN_RCV_FIRST)
        lib.pn_link_open(link)
        self.link = link

    def on_attached(self) -> None:
        """The broker has attached it, and says how large messages may be; 0: as they like."""
        self.is_attached = True
        self.most_bytes = lib.pn_link_remote_max_message_size(self.link) or _ANY

    def forget(self) -> int:
        """The link is gone: what had no outcome is to be sent again, first. How many that are."""
        in_doubt = len(self.in_flight)
        self.again.extendleft(reversed(self.in_flight.values()))
        self.in_flight.clear()
        self.link = None
        self.is_attached = False
        return in_doubt


class Sender(Connection):
    """``start``, then ``put`` and ``finish`` on one thread, ``close`` in any case."""

    def __init__(self, options: Options, container: str) -> None:
        super().__init__(options, container)
        self.counts = Counts()
        self._out = Outbox("rows", options.address, options.node_kind)
        # Never a topic: without a subscriber it would accept them and keep none.
        kind = None if options.node_kind is None else "queue"
        self._dead = Outbox("dead-letters", options.dead_letter_address, kind)
        self._change = threading.Condition()
        self._waiting: deque[Iterator[bytes]] = deque()
        self._source: Iterator[bytes] = iter(())
        # Whether nothing is left of ``_source``; whether no more will be handed over; whether all is done.
        self._is_dry = True
        self._no_more = False
        self._ended = False
        self._done_before = 0
        self._pause_s = _FIRST_PAUSE_S
        self._paused_until = 0.0
        self._progress_at = time.monotonic()
        self._warned_at = self._progress_at
        # A tag is a number of four bytes, counted in place: Proton takes a copy.
        self._number = ffi.new("uint32_t *")
        self._tag = ffi.new("pn_bytes_t *", {"size": 4, "start": ffi.cast("char *", self._number)})

    # --- the task's thread

    def put(self, messages: Iterator[bytes]) -> None:
        """Hands over a batch; waits while there are enough. Raises why nothing can be sent any more."""
        with self._change:
            self._change.wait_for(lambda: self.failure is not None or len(self._waiting) < _WAITING)
            self._check()
            self._waiting.append(messages)
        self.post(_nothing)

    def finish(self) -> Counts:
        """Waits until every message has been accepted, or was dealt with as ``onReject`` says."""
        self.post(self._end)
        with self._change:
            self._change.wait_for(lambda: self.failure is not None or self._ended)
            self._check()
        self.counts.reconnected = self.lost_count
        return self.counts

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    # --- the connection's thread

    def _end(self) -> None:
        self._no_more = True

    def on_open(self) -> None:
        # A broker that can't be reached is no broker that grants nothing; one whose links end at once is, and
        # then no turn comes to its end.
        self._progress_at += self.away_s
        self._warned_at += self.away_s
        if not self._is_idle():
            self._blocked_until(time.monotonic())
        self._out.attach(self.session())
        if self.options.dead_letter_address is not None:
            self._dead.attach(self.session())

    def on_attached(self, link: Handle) -> None:
        self._box(link).on_attached()

    def on_lost(self) -> None:
        self.counts.resent += self._out.forget() + self._dead.forget()

    def on_end(self) -> None:
        with self._change:
            if self.failure is None and not self._ended:
                self.failure = AmqpError("the connection was closed")
            self._change.notify_all()

    def on_delivery(self, delivery: Handle) -> None:
        # Hot: once a row (bench/spark.py).
        state = lib.pn_delivery_remote_state(delivery)
        if state == _ACCEPTED:
            message = self._out.in_flight.pop(delivery, None)
            if message is not None:
                self.counts.accepted += 1
                lib.pn_delivery_settle(delivery)
                return
            if self._dead.in_flight.pop(delivery, None) is not None:
                self.counts.dead_lettered += 1
                lib.pn_delivery_settle(delivery)
        elif state in (_RELEASED, _MODIFIED, _REJECTED) or lib.pn_delivery_settled(delivery):
            self._outcome(delivery, state)

    def _outcome(self, delivery: Handle, state: int) -> None:
        box = self._out if delivery in self._out.in_flight else self._dead
        message = box.in_flight.pop(delivery, None)
        if message is None:
            return
        why = condition(lib.pn_disposition_condition(lib.pn_delivery_remote(delivery)))
        lib.pn_delivery_settle(delivery)
        if state == _REJECTED:
            self._reject(box, message, why or RefusedError("rejected", ""))
            return
        # Given back: all wait a little, since the next would fare no better.
        box.again.append(message)
        self.counts.resent += 1
        now = time.monotonic()
        if now >= self._paused_until:
            self._paused_until = now + self._pause_s
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def _reject(self, box: Outbox, message: bytes, why: RefusedError) -> None:
        action = self.options.on_reject
        if box is self._dead:
            self.fail(RefusedError(why.condition, f"a dead letter was rejected: {why.description}"))
            return
        if action == "fail":
            self.fail(RefusedError(why.condition, f"the broker rejected a message: {why.description}"))
            return
        if action == "skip":
            if not self.counts.skipped:
                log.warning("a rejected message is skipped, as others will be: %s", why)
            self.counts.skipped += 1
            return
        from .deadletter import annotated

        self._dead.again.append(annotated(message, self._out.address, why))

    def on_turn(self) -> float | None:
        now = time.monotonic()
        if now < self._paused_until:
            return self._paused_until
        if self._dead.is_attached:
            self._send(self._dead, iter(()))
        if self._out.is_attached:
            self._send_rows()
        if self._is_idle():
            self._rest(now)
            return None
        return self._blocked_until(now)

    def _is_idle(self) -> bool:
        return self._is_dry and not self._waiting and self._out.is_idle and self._dead.is_idle

    def _rest(self, now: float) -> None:
        """There is nothing to do: Spark is slow, or everything has its outcome."""
        self._progress_at = self._warned_at = now
        if self._no_more and not self._ended:
            with self._change:
                self._ended = True
                self._change.notify_all()

    def _blocked_until(self, now: float) -> float | None:
        """When to look again if the broker says nothing. CreditTimeoutError if it has said nothing for too
        long."""
        counts = self.counts
        limit_s = self.options.credit_timeout or float("inf")
        done = self._out.sent + counts.accepted + counts.dead_lettered + counts.skipped
        if done != self._done_before:
            if now - self._progress_at > _BLOCKED_S:
                counts.blocked_s += now - self._progress_at
            self._done_before, self._progress_at, self._warned_at = done, now, now
            self._pause_s = _FIRST_PAUSE_S
            return now if self._may_send() else now + min(_WARN_S, limit_s)
        blocked_s = now - self._progress_at
        if blocked_s >= limit_s:
            raise CreditTimeoutError(f"no credit for {blocked_s:.0f} s (creditTimeout): {self._shown()}")
        if now - self._warned_at >= _WARN_S:
            self._warned_at = now
            log.warning("no credit for %.0f s: %s", blocked_s, self._shown())
        return min(self._warned_at + _WARN_S, self._progress_at + limit_s)

    def _may_send(self) -> bool:
        more = (not self._is_dry or bool(self._waiting)) and self._has_room_for_the_dead()
        return any(
            box.is_attached
            and (bool(box.again) or (box is self._out and more))
            and len(box.in_flight) < self.options.max_in_flight
            and lib.pn_link_credit(box.link) > 0
            for box in (self._out, self._dead)
        )

    def _shown(self) -> str:
        box, dead = self._out, self._dead
        shown = (
            f"{box.address or 'the anonymous relay'} at {self.broker} has accepted {self.counts.accepted:,},"
            f" {len(box.in_flight):,} are in flight"
        )
        if not dead.is_idle:
            shown += f"; {dead.unsettled:,} dead letters are not yet accepted by {dead.address}"
        return shown if box.is_attached or not self.useless else f"{shown}; {self.useless}"

    def _has_room_for_the_dead(self) -> bool:
        """Rejected rows are held until they are dead letters: where those get no credit, rows wait too."""
        return self._dead.unsettled < self.options.max_in_flight

    def _send_rows(self) -> None:
        """Sends of this batch, and of the next where this one ends."""
        while self._has_room_for_the_dead() and self._send(self._out, self._source):
            self._is_dry = not self._waiting
            if self._is_dry:
                return
            with self._change:
                self._source = self._waiting.popleft()
                self._change.notify_all()

    def _send(self, box: Outbox, source: Iterator[bytes]) -> bool:
        """Sends what credit, ``maxInFlight`` and a burst allow; true if there was nothing left to send."""
        link, in_flight, again = box.link, box.in_flight, box.again
        room = min(lib.pn_link_credit(link), self.options.max_in_flight - len(in_flight), _BURST)
        number, tag, most_bytes = self._number, self._tag[0], box.most_bytes
        if room <= 0 and not in_flight and not again:
            # Only the source knows that it is dry, and the last credit may have gone to its last row: without
            # a look that task would wait for credit that it doesn't need.
            found = next(source, None)
            if found is None:
                return True
            again.append(found)
            box.sent += 1
        new, send, advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
        for _ in range(room):
            if again:
                message = again.popleft()
            else:
                found = next(source, None)
                if found is None:
                    return True
                message = found
                box.sent += 1
            size = len(message)
            if size > most_bytes:
                # Sent, it would end the link, and with it the task.
                self._reject(box, message, _too_large(message, box))
                if self.failure is not None:
                    return False
                continue
            number[0] += 1
            delivery = new(link, tag)
            send(link, message, size)
            advance(link)
            in_flight[delivery] = message
        return False

    def _box(self, link: Handle) -> Outbox:
        return self._out if link == self._out.link else self._dead


def _too_large(message: bytes, box: Outbox) -> RefusedError:
    from .deadletter import id_of

    where = box.address or "the anonymous relay"
    text = f"message '{id_of(message)}' has {len(message):,} bytes, and {where} takes {box.most_bytes:,}"
    return RefusedError(TOO_LARGE, text)


def _nothing() -> None:
    """Only wakes the thread up."""
