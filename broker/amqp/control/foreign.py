"""Links of one client to nodes of other cells: attached there in its name, and passed on.

For each other cell that a client's links go to there is one connection, over a Unix socket, and for each
session of the client one session on it. It is the client's in all that counts there: user, container-id,
virtual host. A cell never passes on what came from a cell, so that nothing goes in circles.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib
from proton import Collector, Condition, Connection, Delivery, Endpoint, Link, Session, Terminus, Transport
from proton._events import Event

from broker.amqp.control.attached import AttachedLinks
from broker.amqp.control.client import ClientDetails
from broker.amqp.control.decoding import UNREADABLE, copy_terminus
from broker.amqp.control.handles import address_of, handle_of
from broker.amqp.control.live import LiveConnection
from broker.amqp.control.placement import CLIENT_CELL
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.foreign import (
    ForeignConsumer,
    ForeignProducer,
    NeighbourIO,
    NeighbourReceiver,
    NeighbourSender,
)
from broker.amqp.links.neighbour_links import NeighbourCoordinator, NeighbourRelay, NeighbourReplies
from broker.amqp.management import ADDRESS as MANAGEMENT
from broker.codec.owned import owned
from broker.engine.transaction import Transaction
from broker.errors import PeerError
from broker.units import SECOND_NS

if TYPE_CHECKING:
    from broker.amqp.container import Container

log = logging.getLogger("sluice.amqp")

# Told a delivery's state, and the condition and the text of a rejection.
Told = Callable[[int, bytes, bytes], None]

# A session's handle, a link's name, and whether it receives.
LinkName = tuple[int, str, bool]

# What may have come of a session and not been passed on: so many frames of so many bytes, 16 MiB. The window
# counts frames. With fewer of them than a consumer asks for messages, Proton goes through all that wait for
# the window each time that it writes: with 16, messages of 100 bytes cost three times as much. With smaller
# ones, large messages cost more: of 20,000 bytes a quarter with 4 KiB (bench/cells.py).
SESSION_FRAMES, FRAME_BYTES = 1024, 1 << 14
# Of further sessions of a client fewer, by how many it has, and these at least: 320 MiB for the 1,024 that it
# may have, rather than 16 GiB.
LEAST_FRAMES = 16
# Of answers of management that are under way to nodes of other cells for one client; more are dropped.
MOST_REPLY_BYTES = 16 << 20
FORCED, NOT_FOUND = "amqp:connection:forced", "amqp:not-found"
# How long nothing may be heard of another cell, which says something twice in that time if it only runs: its
# clients' connections end then. Shorter than the supervisor's patience with a cell.
SILENCE_S = 20
# How long a connection that ends may take to hear that the other cell has heard of it.
END_NS = 10 * SECOND_NS


class ForeignLink:
    """A client's link, and its other half on the connection to the cell that has its node.

    ``further``: the cells that are asked where that one doesn't know it. ``is_left``: the client has detached
    it, and is answered once the other cell has said its outcomes.
    """

    __slots__ = ("further", "half", "is_left", "link", "other", "other_half")

    def __init__(self, link: Link, half: ForeignProducer | ForeignConsumer, other: Link) -> None:
        self.link = link
        self.half = half
        self.other = other
        self.further: list[int] = []
        self.is_left = False
        self.other_half: NeighbourSender | NeighbourReceiver | None = None


class NeighbourConnection:
    """One client's connection to another cell; ``on_end`` is called when that cell ends it."""

    def __init__(
        self, container: Container, cell: int, sock: socket.socket, client: ClientDetails, links: ForeignLinks
    ) -> None:
        self.cell = cell
        self.sock = sock
        self.by_handle: dict[int, ForeignLink] = {}
        # For messages that name a node there; None as long as there were none.
        self._relay: NeighbourRelay | None = None
        # For transactions; None as long as the client has no link to the coordinator.
        self.coordinator: NeighbourCoordinator | None = None
        # For answers of the management there; None as long as the client asks it nothing.
        self._replies: NeighbourReplies | None = None
        # Links of the cell's own: those.
        self._own: list[Link] = []
        # By the client's channel.
        self.sessions: dict[int, Session] = {}
        # By name and direction, links whose detach the other cell has yet to answer, and those that are to be
        # attached by these names then: Proton would take the answer to the second for one to the first.
        self.leaving: dict[LinkName, Link] = {}
        self.waiting: dict[LinkName, Link] = {}
        self._container = container
        self._links = links
        self._is_ending = self._is_lost = self._is_closed = False
        self.transport = Transport()
        self.transport.max_frame_size = min(FRAME_BYTES, container.settings.limits.max_frame_size)
        self.transport.idle_timeout = SILENCE_S
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.connection.container = client.name
        self.connection.hostname = client.host
        self.transport.bind(self.connection)
        wire = NeighbourIO(
            sock.fileno(),
            address_of(self.transport._impl),
            address_of(self.collector._impl),
            self._on_event,
            container.to_flush,
            container.answers,
        )
        self.wire: Wire = wire
        self._neighbour_wire = wire
        wire.owner = self
        wire.turns = container.turns
        wire.session_bytes = SESSION_FRAMES * self.transport.max_frame_size
        self.connection.open()
        wire.mark()

    @property
    def reason(self) -> str:
        """Why the other cell has closed it; empty where it hasn't, or has ended."""
        told = self.connection.remote_condition
        return "" if told is None else str(told.description or "")

    # --- asked for by the loop

    def on_readable(self) -> None:
        """Read what has come, or its end."""
        if not self.wire.pump_in():
            self.lose()

    def on_writable(self) -> None:
        """Write more of what there is."""
        self.wire.blocked = False
        self.wire.mark()

    def flush(self) -> bool:
        """Write what there is; whether the socket is full."""
        if not self.wire.pump_out() and not self._is_ending:
            self.lose()
        # One that ends has said its last: its socket stays until the other cell has heard that, which
        # answers what it hears meanwhile, and reads no more where nobody takes the answers.
        return self.wire.blocked

    def crash(self, fault: BaseException) -> None:
        """End after a bug of ours, with the client that it is for."""
        log.error("a connection to cell %d: closing after an internal error", self.cell, exc_info=fault)
        self.lose()

    def lose(self) -> None:
        """End the client's connection too, as nobody knows what became of what was under way."""
        if not self._is_lost:
            # Later, as it may be in the middle of its own events.
            self._is_lost = True
            found = self.transport.condition
            if found is not None and not self._is_ending:
                log.error("a connection to cell %d ends: %s: %s", self.cell, found.name, found.description)
            self._container.inbox.post(self._tell_lost)

    def _tell_lost(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._links.lost(self)
            for each in list(self.by_handle.values()):
                each.half.shut()
            self.by_handle.clear()
        self._drop()

    # --- asked for by Wire

    def close(self, condition: str, text: str, info: Any = None) -> None:
        """End, as what has come can't be handled."""
        log.error("a connection to cell %d ends: %s: %s", self.cell, condition, text)
        self.lose()

    def answer_sessions(self) -> None:
        """Answer nothing: no cell asks for it."""

    # --- links

    def relay(self, data: bytes, told: Told, transaction: Transaction | None = None) -> None:
        """Send a message to the node that it names, in that cell, perhaps in a transaction of the client's;
        ``told`` hears the outcome.
        """
        if self._relay is None:
            self._relay = NeighbourRelay(self.wire, self._attach_own("relay", Terminus.TARGET))
        name = None
        if transaction is not None and self.coordinator is not None:
            self.coordinator.part_of(transaction)
            name = transaction.name
        self._relay.pass_message(data, told, name)

    def open_coordinator(self, own: int, on_ready: Callable[[], None]) -> None:
        """Attach a link for transactions, if there is none; ``on_ready`` is called once it takes requests."""
        if self.coordinator is None:
            handle = self._attach_own("coordinator", Terminus.COORDINATOR)
            coordinator = NeighbourCoordinator(self.wire, handle, own, self.cell, on_ready)
            self.coordinator = self._neighbour_wire.coordinator = coordinator

    def open_replies(self, deliver: Callable[[bytes], None]) -> None:
        """Attach a link from the management there, if there is none; ``deliver`` takes its answers."""
        if self._replies is None:
            link = self._own_session().receiver(f"replies-{len(self._own)}")
            link.source.address = MANAGEMENT
            link.target.address = CLIENT_CELL
            link.snd_settle_mode = Link.SND_SETTLED
            self._replies = NeighbourReplies(self.wire, self._open_own(link), deliver)

    def _attach_own(self, name: str, target: int) -> int:
        """Attach a link of the cell's own on which it sends, and return its handle."""
        link = self._own_session().sender(name)
        link.target.type = target
        link.snd_settle_mode = Link.SND_UNSETTLED
        return self._open_own(link)

    def _own_session(self) -> Session:
        """Begin a session for a link of the cell's own."""
        session = self.connection.session()
        self.wire.set_window(address_of(session._impl), LEAST_FRAMES)
        session.open()
        return session

    def _open_own(self, link: Link) -> int:
        link.open()
        self._own.append(link)
        self.wire.mark()
        return handle_of(link)

    def session_of(self, theirs: Session) -> Session:
        """Return the session for one of the client's, begun if need be."""
        found = self.sessions.get(theirs.sluice_channel)
        if found is None:
            found = self.sessions[theirs.sluice_channel] = self.connection.session()
            self.wire.set_window(address_of(found._impl), frames_of(len(self.sessions)))
            found.open()
        return found

    def attach(self, other: Link) -> None:
        """Attach a link, once one that had its name has gone."""
        if name_of(other) in self.leaving:
            self.waiting[name_of(other)] = other
        else:
            other.open()
            self.wire.mark()

    def part(self, other: Link, *, closed: bool) -> None:
        """Detach a link whose client has gone from it, in kind."""
        self.by_handle.pop(handle_of(other), None)
        self.leave(other, closed=closed)

    def leave(self, other: Link, *, closed: bool) -> None:
        """Detach a link, of which outcomes may still come if it is known yet."""
        if other.state & Endpoint.LOCAL_UNINIT:
            self.waiting.pop(name_of(other), None)
            other.free()
            return
        self.leaving[name_of(other)] = other
        if closed:
            other.close()
        else:
            other.detach()
        self.wire.mark()

    def left(self, other: Link) -> None:
        """A link is gone that the client left before."""
        name = name_of(other)
        is_last = self.leaving.get(name) == other
        other.free()
        if is_last:
            del self.leaving[name]
            waiting = self.waiting.pop(name, None)
            if waiting is not None:
                waiting.open()
                self.wire.mark()

    def end_session(self, theirs: Session) -> None:
        """End the session for one of the client's that has ended."""
        found = self.sessions.pop(theirs.sluice_channel, None)
        if found is not None:
            for links in (self.leaving, self.waiting):
                for name in [name for name, each in links.items() if each.session == found]:
                    del links[name]
            ending = [each for each in self.by_handle.values() if each.link.session == theirs]
            for each in ending:
                del self.by_handle[handle_of(each.other)]
                each.half.shut()
            found.close()
            self.wire.mark()

    def end(self) -> None:
        """End it in order: its client is gone, and what that has said last is passed on."""
        if self._is_ending:
            return
        self._is_ending = True
        try:
            for each in list(self.by_handle.values()):
                each.half.finish()
        finally:
            self.by_handle.clear()
            self.connection.close()
            self.wire.mark()
            now_ns = self._container.engine.turn.now_ns
            self._container.timers.at(now_ns + END_NS, lambda _: self._drop())

    def _drop(self) -> None:
        """Close the socket, and let everything go."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._relay is not None:
            self._relay.shut()
        if self.coordinator is not None:
            self.coordinator.shut()
        if self._replies is not None:
            self._replies.shut()
        if self._container.neighbours is not None:
            self._container.neighbours.forget(self)
        self.sock.close()
        self.transport.unbind()
        self.connection.free()
        self.wire.forget()

    # --- Proton's events

    def _on_event(self, kind: int, event: int) -> None:
        if self._is_closed:
            return
        if kind in _OF_LINKS:
            found: Any = Event.wrap(ffi.cast("pn_event_t *", event))  # type: ignore[no-untyped-call]
            foreign = self.by_handle.get(handle_of(found.link))
            if foreign is not None:
                self._on_link_event(kind, foreign)
            elif found.link in self._own:
                if kind != lib.PN_LINK_REMOTE_OPEN:
                    self._on_own_detached(found.link)
            elif kind != lib.PN_LINK_REMOTE_OPEN:
                self.left(found.link)
        elif kind == lib.PN_SESSION_REMOTE_CLOSE:
            ended: Any = Event.wrap(ffi.cast("pn_event_t *", event))  # type: ignore[no-untyped-call]
            if ended.session.state & Endpoint.LOCAL_CLOSED:
                # The client has ended it before.
                ended.session.free()
            else:
                self.lose()
        elif kind in _ENDS:
            self.lose()

    def _on_own_detached(self, link: Link) -> None:
        """Go without answers whose node there is gone, until the client attaches to that management anew; end
        where it is another link.
        """
        if self._replies is None or not link.is_receiver:
            self.lose()
            return
        found = link.remote_condition
        why = "" if found is None else found.description
        log.info("cell %d has no node for management replies any more: %s", self.cell, why)
        self._replies.shut()
        self._replies = None
        link.close()
        self.wire.mark()

    def _on_link_event(self, kind: int, foreign: ForeignLink) -> None:
        if kind == lib.PN_LINK_REMOTE_OPEN:
            self._links.opened(self, foreign)
        else:
            self._links.detached(self, foreign, closed=kind == lib.PN_LINK_REMOTE_CLOSE)


class ForeignLinks:
    """The links of one client's connection to nodes of other cells."""

    def __init__(
        self,
        container: Container,
        owner: LiveConnection,
        wire: Wire,
        client: ClientDetails,
        attached: AttachedLinks,
    ) -> None:
        self._container = container
        self._owner = owner
        self._wire = wire
        self._client = client
        self._attached = attached
        self._connections: dict[int, NeighbourConnection] = {}
        # By the handle of the client's link, with the connection that has the other half.
        self._by_handle: dict[int, tuple[NeighbourConnection, ForeignLink]] = {}
        # Of answers that are under way to nodes of other cells.
        self._reply_bytes = 0
        # Told once all of those cells take transactions.
        self._told_ready: list[Callable[[], None]] = []

    def seek(self, link: Link, cells: list[int]) -> None:
        """Attach a link without an address at the first of some cells that knows its name, or refuse it as
        the last of them does. PeerError where one can't be reached.
        """
        self.attach(link, cells[0], "").further = cells[1:]

    def attach(self, link: Link, cell: int, address: str) -> ForeignLink:
        """Attach a link at the cell of its node, whose address there is ``address``; that cell answers it.

        PeerError where the cell can't be reached.
        """
        connection = self._connection_to(cell)
        handle = handle_of(link)
        self._check_name(link)
        half: ForeignProducer | ForeignConsumer
        other: Link
        if link.is_receiver:
            other = connection.session_of(link.session).sender(link.name)
            half = ForeignProducer(self._wire, handle)
            ours, theirs = other.target, link.remote_target
        else:
            other = connection.session_of(link.session).receiver(link.name)
            channel = link.session.sluice_channel
            half = ForeignConsumer(self._wire, handle, link.name, channel)
            ours, theirs = other.source, link.remote_source
        copy_terminus(other.source, link.remote_source)
        copy_terminus(other.target, link.remote_target)
        if address and address != theirs.address:
            ours.address = address
        _copy_rest(other, link)
        foreign = ForeignLink(link, half, other)
        connection.by_handle[handle_of(other)] = foreign
        self._by_handle[handle] = connection, foreign
        if link.is_receiver and address == MANAGEMENT:
            # Before any request: its answer may be for a node of another cell.
            connection.open_replies(lambda data: self._container.requests.deliver(self._owner, data))
        connection.attach(other)
        return foreign

    def relay(self, cell: int, data: bytes, told: Told, transaction: Transaction | None) -> None:
        """Pass on a message that names a node of another cell, perhaps in a transaction; ``told`` hears the
        outcome.
        """
        try:
            connection = self._connection_to(cell)
        except PeerError as fault:
            told(Delivery.REJECTED, fault.condition.encode(), fault.description.encode())
            return
        connection.relay(data, told, transaction)

    def pass_reply(self, cell: int, reply: bytes) -> bool:
        """Pass on an answer of management to a node of another cell; false where too many are under way."""
        if self._reply_bytes + len(reply) > MOST_REPLY_BYTES:
            return False
        self._reply_bytes += len(reply)

        def told(state: int, condition: bytes, text: bytes) -> None:
            self._reply_bytes -= len(reply)
            if state != Delivery.ACCEPTED:
                why = text.decode(errors="replace") or "it was not accepted"
                log.info("cell %d took no management reply: %s", cell, why, extra=self._client.about())

        self.relay(cell, reply, told, None)
        return True

    def prepare_transactions(self, ready: Callable[[], None]) -> None:
        """Have all cells with links of the client take its transactions; ``ready`` is called once they do.

        No message of one may come before: it would overtake the transaction's declaration there.
        """
        self._told_ready.append(ready)
        for connection in self._connections.values():
            self._open_coordinator(connection)
        self._tell_ready()

    def __len__(self) -> int:
        return len(self._by_handle)

    def has(self, link: Link) -> bool:
        """Whether a link is one of these."""
        return handle_of(link) in self._by_handle

    def leave(self, link: Link, closed: bool) -> bool:
        """Detach the other half of a link if outcomes of its messages are to come; whether they are.

        Its client's detach is answered behind them. Of a link that is freed Proton settles what is left
        without an outcome, which some clients take for success. Nobody waits for messages that were sent on
        credit that is being taken back: nobody knows when there is room for them.
        """
        connection, foreign = self._by_handle[handle_of(link)]
        half = foreign.half
        if not isinstance(half, ForeignProducer) or not half.awaits_outcomes():
            return False
        half.leave(lambda: self._give_up(connection, foreign, closed=closed))
        if half.waits_for_credit():
            return False
        del self._by_handle[handle_of(link)]
        foreign.is_left = True
        connection.leave(foreign.other, closed=closed)
        return True

    def on_detach(self, link: Link, closed: bool) -> None:
        """Detach the other half of a link that the client detaches, in kind."""
        connection, foreign = self._by_handle.pop(handle_of(link))
        foreign.half.finish()
        self._part(connection, foreign, closed=closed)

    def on_end(self, session: Session) -> None:
        """End what belongs to a session that the client has ended."""
        for connection, foreign in list(self._by_handle.values()):
            if foreign.link.session == session:
                del self._by_handle[handle_of(foreign.link)]
                foreign.half.finish()
                self._part(connection, foreign, closed=False)
        for connection in self._connections.values():
            connection.end_session(session)

    def end(self) -> None:
        """End all of them, with their client's connection."""
        self._by_handle.clear()
        for connection in list(self._connections.values()):
            connection.end()
        self._connections.clear()
        self._told_ready.clear()

    # --- asked for by connections to other cells

    def opened(self, connection: NeighbourConnection, foreign: ForeignLink) -> None:
        """Answer a client's attach as the other cell has answered it."""
        link, other = foreign.link, foreign.other
        if foreign.further and other.remote_source.type == Terminus.UNSPECIFIED:
            # Its detach says why, and the next cell is asked.
            return
        copy_terminus(link.source, other.remote_source)
        copy_terminus(link.target, other.remote_target)
        theirs = link.remote_target if link.is_receiver else link.remote_source
        ours = link.target if link.is_receiver else link.source
        if ours.type != Terminus.UNSPECIFIED and theirs.address:
            # As the peer wrote it: some clients compare.
            ours.address = theirs.address
        link.snd_settle_mode = other.remote_snd_settle_mode
        link.rcv_settle_mode = other.remote_rcv_settle_mode
        link.max_message_size = other.remote_max_message_size
        link.open()
        self._wire.mark()
        is_refused = ours.type == Terminus.UNSPECIFIED
        if is_refused:
            return
        half = foreign.half
        if isinstance(half, ForeignProducer):
            sender = foreign.other_half = NeighbourSender(connection.wire, handle_of(other))
            half.join(sender)
        else:
            receiver = foreign.other_half = NeighbourReceiver(connection.wire, handle_of(other))
            half.join(receiver)

    def detached(self, connection: NeighbourConnection, foreign: ForeignLink, *, closed: bool) -> None:
        """Detach a client's link as the other cell has detached its other half."""
        link, other = foreign.link, foreign.other
        self._by_handle.pop(handle_of(link), None)
        condition = other.remote_condition
        was_refused = foreign.other_half is None
        if was_refused and foreign.further and condition is not None and condition.name == NOT_FOUND:
            condition = self._seek_on(connection, foreign)
            if condition is None:
                return
        if link.state & Endpoint.LOCAL_UNINIT:
            link.open()
        if condition is not None:
            link.condition = Condition(condition.name, condition.description, _readable(condition.info))
        foreign.half.shut()
        connection.by_handle.pop(handle_of(other), None)
        if foreign.is_left:
            connection.left(other)
        else:
            other.close()
            other.free()
            connection.wire.mark()
        if closed:
            link.close()
        else:
            link.detach()
        if foreign.is_left:
            self._forget(link)
            return
        self._attached.mark_wronged(link, refused=was_refused)
        if condition is not None:
            told = self._client.about(link=link.name, condition=condition.name)
            text = "%s: cell %d detached '%s': %s: %s"
            who = self._client.id, connection.cell, link.name
            log.info(text, *who, condition.name, condition.description, extra=told)
        self._wire.mark()

    def _seek_on(self, connection: NeighbourConnection, foreign: ForeignLink) -> Condition | None:
        """Ask the next cell for a link that one didn't know; the error where that can't be reached."""
        try:
            self._connection_to(foreign.further[0])
        except PeerError as fault:
            return Condition(fault.condition, fault.description)
        foreign.half.shut()
        connection.by_handle.pop(handle_of(foreign.other), None)
        foreign.other.close()
        foreign.other.free()
        self.seek(foreign.link, foreign.further)
        return None

    def lost(self, connection: NeighbourConnection) -> None:
        """End the client's connection too: it finds its links again by coming back."""
        text = f"cell {connection.cell}, which has nodes of this connection's links, is gone or silent"
        self._owner.send_back(FORCED, connection.reason or text)

    # --- inside

    def _connection_to(self, cell: int) -> NeighbourConnection:
        found = self._connections.get(cell)
        if found is not None:
            return found
        neighbours = self._container.neighbours
        sock = None if neighbours is None else neighbours.dial(self._owner, cell)
        if neighbours is None or sock is None:
            text = f"cell {cell}, which has the node of this link, can't be reached"
            raise PeerError("amqp:internal-error", text)
        found = self._connections[cell] = NeighbourConnection(self._container, cell, sock, self._client, self)
        neighbours.watch(found)
        if self._wire.transactions is not None:
            # Before any link there: its answer comes before theirs.
            self._open_coordinator(found)
        return found

    def _open_coordinator(self, connection: NeighbourConnection) -> None:
        cells = self._container.cells
        if cells is not None:
            connection.open_coordinator(cells.own, self._tell_ready)

    def _tell_ready(self) -> None:
        """Tell those that wait for it once all other cells take transactions."""
        coordinators = [each.coordinator for each in self._connections.values()]
        if all(each is not None and each.is_ready for each in coordinators):
            told, self._told_ready = self._told_ready, []
            for each in told:
                each()

    def _check_name(self, link: Link) -> None:
        for _, each in self._by_handle.values():
            if each.link.name == link.name and each.link.is_receiver == link.is_receiver:
                raise PeerError(
                    "amqp:not-allowed", f"another link of this connection is called '{link.name}'"
                )

    def _give_up(self, connection: NeighbourConnection, foreign: ForeignLink, *, closed: bool) -> None:
        """Answer a client's detach before all outcomes are known."""
        connection.by_handle.pop(handle_of(foreign.other), None)
        foreign.half.shut()
        if closed:
            foreign.link.close()
        else:
            foreign.link.detach()
        self._forget(foreign.link)

    def _forget(self, link: Link) -> None:
        """Free a link that both sides have detached."""
        handle = handle_of(link)
        link.session.sluice_links.discard(handle)
        self._wire.mark()
        self._wire.part(handle)
        link.free()

    def _part(self, connection: NeighbourConnection, foreign: ForeignLink, *, closed: bool) -> None:
        foreign.half.shut()
        connection.part(foreign.other, closed=closed)


def frames_of(sessions: int) -> int:
    """Return the window of the last of so many sessions of one client, in frames."""
    return max(SESSION_FRAMES // sessions, LEAST_FRAMES)


def name_of(other: Link) -> LinkName:
    """Return what tells a link of a connection from others."""
    return address_of(other.session._impl), other.name, bool(other.is_receiver)


def _copy_rest(other: Link, link: Link) -> None:
    other.snd_settle_mode = link.remote_snd_settle_mode
    other.rcv_settle_mode = link.remote_rcv_settle_mode
    other.max_message_size = link.remote_max_message_size
    properties = _readable(link.remote_properties)
    if properties:
        other.properties = properties


def _readable(value: Any) -> Any:
    """Return a value of a peer's, its bytes its own; None for one that can't be read."""
    try:
        return owned(value)
    except UNREADABLE:
        return None


_OF_LINKS = frozenset((lib.PN_LINK_REMOTE_OPEN, lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH))
_ENDS = frozenset((lib.PN_CONNECTION_REMOTE_CLOSE, lib.PN_TRANSPORT_ERROR, lib.PN_TRANSPORT_CLOSED))
