"""Offsets of a stream's messages, and the connection that asks a broker where its streams begin and end.

The driver's side: no message is read but the first after a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import cproton
from cproton_ffi import ffi, lib

from .connection import TRANSIENT, Connection
from .engine import Handle
from .errors import AmqpError, RefusedError, UnansweredError, UnreachableError
from .filters import count_applied, put_filters
from .incoming import ANNOTATIONS
from .management import Attributes, Reads
from .options import Options
from .ranges import Extent
from .rows import descriptor
from .unpack import read, skip

# The annotation's key, encoded, and the code of a ulong that has all of its bytes (AMQP 1.0 §1.6.5).
_KEY = b"\xa3\x13x-opt-sluice-offset"
_ULONG = 0x80


def offset_of(message: bytes) -> int | None:
    """The offset that the broker wrote into an encoded message's annotations; None if there is none.

    MalformedError, or IndexError, where the message can't be read up to there.
    """
    at, end = 0, len(message)
    while at < end:
        code, behind = (message[at + 2], at + 3) if message[at + 1] == 0x53 else descriptor(message, at)
        if code >= ANNOTATIONS:
            break
        at = skip(message, behind)
    if at >= end or code != ANNOTATIONS:
        return None
    at = behind
    if message[at] == 0xC1:
        count, at = message[at + 2], at + 3
    elif message[at] == 0xD1:
        count, at = int.from_bytes(message[at + 5 : at + 9], "big"), at + 9
    else:
        return None
    for _ in range(count // 2):
        if message.startswith(_KEY, at):
            at += len(_KEY)
            if message[at] == _ULONG:
                return int.from_bytes(message[at + 1 : at + 9], "big")
            value, _ = read(message, at)
            return value if isinstance(value, int) else None
        at = skip(message, skip(message, at))
    return None


def encoded_offset(offset: int) -> bytes:
    """The annotation as the broker writes it."""
    return _KEY + b"\x80" + offset.to_bytes(8, "big")


def extent_of(attributes: Attributes | None) -> Extent | None:
    """Where a stream begins and ends; None for what is no stream, or isn't shown to us."""
    if attributes is None or attributes.get("queue_type") != "stream":
        return None
    known = attributes.get("stream_id")
    stream_id = None if known is None else int(known)
    return Extent(int(attributes["first_offset"]), int(attributes["next_offset"]), stream_id)


class StreamOffsets(Connection):
    """Asks the broker about nodes. Its methods are for one thread; each raises what the connection failed of.

    ``patience_s``: how long an answer is waited for, over connections that are lost and made anew; without
    one by then the method returns None. None: UnansweredError where a broker that is there says nothing for
    ``connectTimeout``, and for one to be there ``reconnectTimeout`` goes on. ``once``: the brokers are tried
    once each, and no longer.
    """

    def __init__(self, options: Options, *, once: bool = False) -> None:
        super().__init__(options, "spark-offsets")
        self._once = once
        self._reads = Reads()
        self._done = threading.Event()
        # What is under way, begun once more on every new connection.
        self._begin: Callable[[], None] | None = None
        self._asks = False
        # Whether an answer has to come, and since when one to a probe is due.
        self._has_to_come = False
        self._probed_at = 0.0
        # As they were when all had come: the connection may be lost before they are looked at.
        self._answers: list[Attributes | None] = []
        self._refusal: RefusedError | None = None
        # Of the link that probes a node: its address, and a time if a message is wanted.
        self._probed: tuple[str, int | None] = ("", None)
        self._probe: Handle = None
        self._found: int | None = None
        self._links = 0

    # --- the caller's thread

    def attributes(
        self, questions: Sequence[tuple[str, str]], patience_s: float | None
    ) -> list[Attributes | None] | None:
        """The attributes of entities, each given by its type and name; None for those there are not.

        UnseenError where one is there, or may be, and the user may not see it.
        """

        def begin() -> None:
            self._asks = True
            self._reads.ask_for(self.session(), questions)
            self._answered()

        if not self._do(begin, patience_s):
            return None
        if self._refusal is not None:
            raise self._refusal
        return self._answers

    def offset_at(self, stream: str, time_ms: int) -> int | None:
        """The offset of a stream's first message that came at a time (ms since the epoch) or later; None if
        there is none yet."""
        self._probed = (stream, time_ms)
        self._do(self._attach_probe, None)
        return self._found

    def touch(self, address: str) -> None:
        """Attach to an address for a moment, so that the broker makes the node if it may."""
        self._probed = (address, None)
        self._do(self._attach_probe, None)

    def _do(self, begin: Callable[[], None], patience_s: float | None) -> bool:
        if self._thread is None:
            self.start()
        self._done.clear()

        def go() -> None:
            self._begin, self._has_to_come = begin, patience_s is None
            if self.engine is not None:
                begin()

        if self.failure is None:
            self.post(go)
            self._done.wait(patience_s)
        if self.failure is not None:
            raise self.failure
        return self._done.is_set()

    # --- the connection's thread

    def on_open(self) -> None:
        if self._begin is not None:
            self._begin()

    def on_attached(self, link: Handle) -> None:
        if self._reads.on_attached(link):
            return
        address, time_ms = self._probed
        if time_ms is None:
            self._end_probe()
            return
        if not count_applied(link):
            raise RefusedError("amqp:not-implemented", f"'{address}' is no stream of {self.broker}")
        # The broker sends the message there is, or gives the credit back (AMQP 1.0 §2.6.7).
        lib.pn_link_set_drain(link, True)
        lib.pn_link_flow(link, 1)

    def on_detached(self, link: Handle, why: RefusedError | None) -> None:
        if self._reads.on_detached(link):
            if why is not None and why.condition in TRANSIENT:
                self.give_up_link(why)
            self._answered()
        elif link == self._probe and self._probed[1] is None:
            # It can't be made, or not by us: it is asked about all the same.
            self._end_probe()
        elif link == self._probe:
            super().on_detached(link, why)

    def on_flow(self, link: Handle) -> None:
        if self._reads.on_flow(link):
            self._answered()
        elif link == self._probe and lib.pn_link_get_drain(link) and lib.pn_link_credit(link) == 0:
            self._end_probe()

    def on_delivery(self, delivery: Handle) -> None:
        if not lib.pn_delivery_readable(delivery) or lib.pn_delivery_partial(delivery):
            return
        link = lib.pn_delivery_link(delivery)
        if self._reads.on_delivery(link, delivery):
            self._answered()
        elif link == self._probe:
            size = lib.pn_delivery_pending(delivery)
            room = ffi.new("char[]", max(size, 1))
            got = lib.pn_link_recv(link, room, size)
            lib.pn_delivery_settle(delivery)
            self._found = offset_of(ffi.unpack(room, max(got, 0)))
            self._end_probe()

    def on_turn(self) -> float | None:
        if self._begin is None or not self._has_to_come:
            return None
        now, timeout_s = time.monotonic(), self.options.connect_timeout
        try:
            if self._asks:
                return self._reads.await_answer(now, timeout_s)
            if now >= self._probed_at + timeout_s:
                address = self._probed[0]
                raise UnansweredError(f"the broker has not answered at '{address}' for {timeout_s:g} s")
        except UnansweredError as fault:
            self.fail(fault)
        return self._probed_at + timeout_s

    def _back_off(self, why: str) -> None:
        if self._once:
            raise UnreachableError(why)
        super()._back_off(why)

    def on_lost(self) -> None:
        self._asks = False
        self._probe = None
        self._reads.forget()

    def on_end(self) -> None:
        self._done.set()

    def _answered(self) -> None:
        if self._asks and self._reads.answered.is_set():
            self._asks = False
            self._answers, self._refusal = list(self._reads.answers), self._reads.refusal
            self._finish()

    def _attach_probe(self) -> None:
        address, time_ms = self._probed
        self._probed_at = time.monotonic()
        self._found = None
        self._links += 1
        link = lib.pn_receiver(self.session(), f"{self.container}-{self._links}".encode())
        source = lib.pn_link_source(link)
        lib.pn_terminus_set_address(source, address.encode())
        self.asks_for_node(source)
        put_filters(lib.pn_terminus_filter(source), time_ms=time_ms)
        lib.pn_link_set_snd_settle_mode(link, cproton.PN_SND_SETTLED)
        lib.pn_link_open(link)
        self._probe = link

    def _end_probe(self) -> None:
        link, self._probe = self._probe, None
        lib.pn_link_close(link)
        self._finish()

    def _finish(self) -> None:
        self._begin = None
        self._done.set()


def missing(address: str) -> AmqpError:
    """What is raised where a stream was expected."""
    return AmqpError(
        f"the broker shows no stream '{address}': see sourceType and partitions, and whether $management may"
        " be read"
    )
