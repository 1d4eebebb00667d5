"""One connection to whichever broker of the list answers, kept by a thread of its own.

The thread alone touches Proton: heartbeats go on whatever Spark is doing. Others give it work by ``post``
and learn by ``failure`` that it has given up. A lost connection is made anew, with back-off, over the whole
list; then ``on_open`` attaches the links again. One that opened but was of no use, since its links were
refused or ended at once, is an attempt that failed: the pauses grow, and ``reconnectTimeout`` goes on.
Subclasses say what links there are and what happens on them; all their ``on_`` methods run on the thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable

import cproton
from cproton_ffi import ffi, lib

from .dial import dial
from .engine import Engine, Handle, condition
from .errors import AmqpError, RefusedError, UnreachableError
from .options import Options

log = logging.getLogger("pyspark_sluice")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
# A link that has stood for so long was not refused, whatever it is ended of.
_STEADY_S = 1.0
# A farewell takes a round trip; a broker that is gone gets no more than this.
_FAREWELL_S = 2.0
_LINGER_S = 60.0
# Conditions that another attempt may find gone; any other is the broker's final word.
TRANSIENT = frozenset(
    {
        "amqp:connection:forced",
        "amqp:connection:redirect",
        "amqp:internal-error",
        "amqp:link:detach-forced",
        "amqp:link:stolen",
        "amqp:resource-limit-exceeded",
        "amqp:session:errant-link",
    }
)

DELIVERY, LINK_FLOW = cproton.PN_DELIVERY, cproton.PN_LINK_FLOW
_CONNECTION_OPENED, _CONNECTION_CLOSED = cproton.PN_CONNECTION_REMOTE_OPEN, cproton.PN_CONNECTION_REMOTE_CLOSE
_SESSION_CLOSED = cproton.PN_SESSION_REMOTE_CLOSE
_LINK_OPENED = cproton.PN_LINK_REMOTE_OPEN
_LINK_ENDED = (cproton.PN_LINK_REMOTE_CLOSE, cproton.PN_LINK_REMOTE_DETACH)


class Connection:
    """Made without touching the network; ``start`` begins, ``close`` ends it in order.

    ``failure`` is why the thread has given up, for good; None as long as it hasn't.
    """

    def __init__(self, options: Options, container: str) -> None:
        self.options = options
        self.container = f"{container}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.failure: AmqpError | None = None
        self.engine: Engine | None = None
        self.broker = ""
        self.lost_count = 0
        # How long it took to open this connection, from the end of the last one's pause.
        self.away_s = 0.0
        # What ended the connection before this one, as long as this one is of no use either; else empty.
        self.useless = ""
        # None while a connection is of use.
        self._useless_since: float | None = None
        self._next_pause_s = FIRST_PAUSE_S
        self._opened = False
        self._attached_at: float | None = None
        self._calls: deque[Callable[[], None]] = deque()
        self._closing = False
        self._wake_out, self._wake_in = -1, -1
        self._thread: threading.Thread | None = None

    # --- any thread

    def start(self) -> None:
        """Begins to connect; returns at once."""
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        os.set_blocking(self._wake_in, False)
        self._thread = threading.Thread(target=self._run, name=f"amqp {self.container}", daemon=True)
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        """Has the thread make a call, soon; after ``close`` nothing."""
        self._calls.append(call)
        if self._wake_in >= 0:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_in, b"\0")

    def close(self) -> None:
        """Ends links and connection in order and waits for the thread; safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing = True
        self.post(lambda: None)
        # Connecting may be under way, which ends by its own deadline.
        thread.join(self.options.connect_timeout * len(self.options.url) + _LINGER_S)
        wake_in, self._wake_in = self._wake_in, -1
        if not thread.is_alive():
            os.close(wake_in)
            os.close(self._wake_out)

    @property
    def is_running(self) -> bool:
        """Whether the thread is there and has not given up."""
        return self._thread is not None and self.failure is None

    # --- for subclasses

    def on_open(self) -> None:
        """The connection is open, anew perhaps: attach the links."""

    def on_attached(self, link: Handle) -> None:
        """The broker has attached a link."""

    def on_flow(self, link: Handle) -> None:
        """Credit has changed, or a drain was asked for or answered."""

    def on_delivery(self, delivery: Handle) -> None:
        """A message, a part of one, or an outcome has come."""

    def on_detached(self, link: Handle, why: RefusedError | None) -> None:
        """The broker has ended a link. What it may repent of is tried again with a new connection."""
        self.give_up_link(why)

    def on_lost(self) -> None:
        """The connection is gone, and every handle with it."""

    def on_turn(self) -> float | None:
        """Behind every turn's events, before what is pending is written. The monotonic time at which there is
        something to do although nothing came, or None."""
        return None

    def on_end(self) -> None:
        """The thread ends; ``failure`` is final."""

    def session(self) -> Handle:
        """The session of the connection that is open."""
        assert self.engine is not None
        return self.engine.session

    def fail(self, failure: AmqpError) -> None:
        """Gives up for good."""
        if self.failure is None:
            self.failure = failure

    def give_up_link(self, why: RefusedError | None) -> None:
        """A link was refused or ended: for good, or until the next connection if that may help."""
        if why is None or why.condition in TRANSIENT:
            raise UnreachableError(f"the broker ended a link: {why or 'without a reason'}")
        raise why

    def asks_for_node(self, terminus: Handle) -> None:
        """Says which kind of node the broker should make where the address is unknown to it."""
        if self.options.node_kind is not None:
            ask_for(terminus, self.options.node_kind)

    # --- the thread

    def _run(self) -> None:
        self._useless_since = time.monotonic()
        try:
            while not self._closing and self.failure is None:
                self._connect()
                if self.engine is not None:
                    self._serve(self.engine)
        except AmqpError as fault:
            self.fail(fault)
        except Exception as fault:
            log.exception("the connection's thread failed")
            self.fail(AmqpError(f"{type(fault).__name__}: {fault}"))
        finally:
            if self.engine is not None:
                self.engine.close()
            self.on_end()

    def _connect(self) -> None:
        """Tries the list, again and again with longer pauses, until a broker opens the connection."""
        began = time.monotonic()
        while not self._closing:
            faults = []
            for broker in self.options.url:
                try:
                    self._open(dial(broker, self.options), self.options.virtual_host or broker.host)
                    self.broker = str(broker)
                    self.away_s = time.monotonic() - began
                    return
                except UnreachableError as fault:
                    faults.append(str(fault))
                if self._closing:
                    return
            self._back_off("; ".join(faults))

    def _back_off(self, why: str) -> None:
        """A pause, longer than the last one. UnreachableError if nothing has been of use for too long."""
        limit_s = self.options.reconnect_timeout or float("inf")
        assert self._useless_since is not None
        if time.monotonic() + self._next_pause_s - self._useless_since > limit_s:
            raise UnreachableError(f"gave up after {limit_s:g} s: {why}")
        log.warning("%s; again in %.1f s", why, self._next_pause_s)
        self._pause(self._next_pause_s * random.uniform(0.7, 1.0))  # noqa: S311  spreads many tasks, hides nothing
        self._next_pause_s = min(self._next_pause_s * 2, LONGEST_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._closing and (left := until - time.monotonic()) > 0:
            select.select([self._wake_out], [], [], left)
            self._drain_wakes()

    def _open(self, stream: socket.socket, hostname: str) -> None:
        """Opens the connection on it and waits until the broker has too."""
        engine = Engine(stream, self.container, hostname, self.options.heartbeat)
        self.engine = engine
        self._opened = False
        self._attached_at = None
        deadline = time.monotonic() + self.options.connect_timeout
        try:
            while not self._opened:
                self._turn(engine, deadline)
                if time.monotonic() > deadline:
                    raise UnreachableError("the broker did not open the connection in time")
                if self._closing:
                    break
        except AmqpError as fault:
            self._drop()
            raise _final(fault) from None
        if self._closing:
            self._drop()

    def _serve(self, engine: Engine) -> None:
        """Until the connection is lost or no longer wanted."""
        try:
            self.on_open()
            due: float | None = None
            while not self._closing and self.failure is None:
                # Of calls that are due already nothing may come that ends the wait.
                self._turn(engine, 0.0 if self._calls else due)
                self._make_calls()
                due = self.on_turn()
            self._farewell(engine)
            self._drop()
        except AmqpError as fault:
            self._drop()
            error = UnreachableError(str(fault)) if self._has_expired(fault) else _final(fault)
            if not isinstance(error, UnreachableError):
                raise error from None
            self.lost_count += 1
            why = f"{self.broker}: {error}"
            attached_at = self._attached_at
            if attached_at is not None and time.monotonic() - attached_at >= _STEADY_S:
                self._was_of_use()
            self.useless = why
            if self._useless_since is not None:
                self._back_off(why)
            else:
                log.warning("%s; connecting again", why)
                self._pause(FIRST_PAUSE_S)
                self._useless_since = time.monotonic()

    def _has_expired(self, fault: AmqpError) -> bool:
        """Whether the broker ended the connection because its token has expired: there may be a new one."""
        options = self.options
        has_token = options.token_env is not None or options.token_file is not None
        is_refused = isinstance(fault, RefusedError) and fault.condition == "amqp:unauthorized-access"
        return has_token and is_refused and "expired" in str(fault)

    def _was_of_use(self) -> None:
        """Something came of this connection: what follows when it is lost begins anew."""
        self.useless = ""
        self._useless_since = None
        self._next_pause_s = FIRST_PAUSE_S

    def _drop(self) -> None:
        engine, self.engine = self.engine, None
        if engine is not None:
            engine.close()
            self.on_lost()

    def _turn(self, engine: Engine, due: float | None) -> None:
        """Writes what is pending, waits until there is something to do, takes in what came."""
        tick_at = engine.tick()
        flushed = engine.write()
        self._events(engine)
        times = [at for at in (due, tick_at) if at is not None]
        wait_s = max(min(times) - time.monotonic(), 0.0) if times else None
        poll = select.poll()
        poll.register(engine.fileno(), select.POLLIN | (0 if flushed else select.POLLOUT))
        poll.register(self._wake_out, select.POLLIN)
        ready = poll.poll(None if wait_s is None else wait_s * 1000)
        if any(descriptor == self._wake_out for descriptor, _ in ready):
            self._drain_wakes()
        if any(descriptor == engine.fileno() for descriptor, _ in ready):
            while engine.read():
                self._events(engine)
        self._events(engine)
        lost = engine.lost()
        if lost is not None:
            raise lost

    def _make_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_out, 4096)

    def _events(self, engine: Engine) -> None:
        # Hot: a sink's every outcome and a source's every message is one event (bench/spark.py).
        collector = engine.collector
        peek, pop, kind_of, delivery_of = (
            lib.pn_collector_peek,
            lib.pn_collector_pop,
            lib.pn_event_type,
            lib.pn_event_delivery,
        )
        on_delivery = self.on_delivery
        while event := peek(collector):
            kind = kind_of(event)
            if kind == DELIVERY:
                if self._useless_since is not None:
                    self._was_of_use()
                on_delivery(delivery_of(event))
            elif kind == LINK_FLOW:
                self.on_flow(lib.pn_event_link(event))
            else:
                self._control(engine, kind, event)
            pop(collector)

    def _control(self, engine: Engine, kind: int, event: Handle) -> None:
        if kind == _LINK_OPENED:
            link = lib.pn_event_link(event)
            # A refused link is attached with an empty terminus first, and detached with the reason after that
            # (AMQP 1.0 §2.6.3).
            if _is_attached(link):
                if self._attached_at is None:
                    self._attached_at = time.monotonic()
                self.on_attached(link)
        elif kind in _LINK_ENDED:
            link = lib.pn_event_link(event)
            self.on_detached(link, condition(lib.pn_link_remote_condition(link)))
        elif kind == _CONNECTION_OPENED:
            self._opened = True
        elif kind == _CONNECTION_CLOSED:
            said = condition(lib.pn_connection_remote_condition(engine.connection))
            raise said or UnreachableError("the broker closed the connection")
        elif kind == _SESSION_CLOSED:
            said = condition(lib.pn_session_remote_condition(engine.session))
            raise said or UnreachableError("the broker ended the session")

    def _farewell(self, engine: Engine) -> None:
        """Closes in order: links and all end with the connection."""
        lib.pn_connection_close(engine.connection)
        until = time.monotonic() + _FAREWELL_S
        with contextlib.suppress(AmqpError):
            while time.monotonic() < until:
                self._turn(engine, until)


def _is_attached(link: Handle) -> bool:
    far = lib.pn_link_remote_target if lib.pn_link_is_sender(link) else lib.pn_link_remote_source
    return bool(lib.pn_terminus_get_type(far(link)) != cproton.PN_UNSPECIFIED)


def ask_for(terminus: Handle, kind: str) -> None:
    """Says which kind of node is to be made if there is none."""
    name = kind.encode()
    held = ffi.from_buffer(name)
    lib.pn_data_put_symbol(lib.pn_terminus_capabilities(terminus), (len(name), held))


def _final(fault: AmqpError) -> AmqpError:
    """What another attempt may find gone is told apart from the broker's final word."""
    if isinstance(fault, RefusedError) and fault.condition in TRANSIENT:
        return UnreachableError(str(fault))
    return fault
