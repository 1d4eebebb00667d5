"""One connection's control plane on Proton's own classes: its open and its close.

The links' purposes are decided beside this file; what flows on them is the business of ``amqp.links``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cproton_ffi import ffi, lib
from proton import Collector, Condition, Connection, Endpoint, Transport
from proton._events import Event

from broker import __version__
from broker.amqp.control import sole
from broker.amqp.control.annotations import annotate, provisional_annotations
from broker.amqp.control.attach import AttachHandler
from broker.amqp.control.attach_consumer import ConsumerAttach
from broker.amqp.control.attach_producer import ProducerAttach
from broker.amqp.control.attached import SESSION_FRAMES, AttachedLinks
from broker.amqp.control.client import ClientDetails
from broker.amqp.control.decoding import UNREADABLE
from broker.amqp.control.foreign import ForeignLinks
from broker.amqp.control.handles import address_of
from broker.amqp.control.names import AddressResolver
from broker.amqp.control.permissions import UNAUTHORIZED, LinkPermissions
from broker.amqp.control.placement import LinkPlacement
from broker.amqp.control.report import ConnectionReport
from broker.amqp.control.sessions import ConnectionSessions
from broker.amqp.control.termini import KeptTermini
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.consumer_settings import wanted
from broker.amqp.links.producer import ProducerLink
from broker.amqp.links.secure import SecureConnection
from broker.amqp.loop.client_quotas import LIMIT_OF
from broker.config.limits import Limits
from broker.engine.node import Node
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.window import Shared
from broker.loggers import About, about
from broker.security.exchange import ListenerTrust
from broker.security.identity import Identity

if TYPE_CHECKING:
    from broker.amqp.container import Container
    from broker.security.tlsstream import TlsStream

log = logging.getLogger("sluice.amqp")

Given = TypeVar("Given")

RELAY = "ANONYMOUS-RELAY"
# JMS clients don't try to share a subscription where this isn't offered.
SHARED_SUBSCRIPTIONS = "SHARED-SUBS"
# Nor do they set a delivery delay without this.
DELAYED_DELIVERY = "DELAYED_DELIVERY"
# Of a cell that passes links of a client on: for messages of the relay, for transactions, and for answers
# of management.
OWN_SESSIONS = 3


class ConnectionControl:
    """A connection that has authenticated, between its client's open and its close.

    ``opened`` is called once the client has opened it and may stay, ``closes`` once the broker closes it, and
    ``sends_back`` to end it so that the client comes back.
    """

    __slots__ = (
        *("_attach", "_barred", "_client", "_closes", "_entered", "_links", "_opened", "_permissions"),
        *("_foreign", "_most_sessions", "_sends_back", "relays"),
        *("_report", "_sessions", "_socket_is_closed", "address", "collector", "connection", "container"),
        *("door", "id", "number", "opened_ns", "replies", "tls", "transport", "user", "wire"),
    )

    def __init__(
        self,
        container: Container,
        fd: int,
        address: str,
        identity: Identity,
        door: ListenerTrust,
        opened: Callable[[], None],
        closes: Callable[[], None],
        sends_back: Callable[[str, str], None],
        tls: TlsStream | None = None,
        relays: bool = False,
    ) -> None:
        self.container = container
        self.number = container.next_number()
        self.id = f"c{self.number}"
        self.address = address
        self.user = identity.user
        self.door = door
        # Version and cipher; empty without TLS.
        self.tls = "" if tls is None else f"{tls.version} {tls.cipher}"
        self.opened_ns = container.engine.turn.now_ns
        self.replies: dict[str, Node] = {}
        # Whether another cell passes links of its client on by it, who is counted there.
        self.relays = relays
        self._opened = opened
        self._closes = closes
        self._sends_back = sends_back
        # Whether the broker has closed it: nothing it says is heard then, but that it goes.
        self._barred = False
        # Whether it is counted among the connections that are open.
        self._entered = False
        self._socket_is_closed = False
        limits = container.settings.limits
        self.transport = Transport(mode=Transport.SERVER)
        self.transport.max_frame_size = limits.max_frame_size
        # Another cell has some of its own besides its client's.
        self._most_sessions = limits.max_sessions + (OWN_SESSIONS if relays else 0)
        self.transport.channel_max = self._most_sessions - 1
        self.transport.idle_timeout = limits.idle_timeout_ms / 1000
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.wire = self._make_wire(fd, tls)
        self._bound_input(limits)
        client = self._client = ClientDetails(self.id, address, identity.user, door)
        rights = self._permissions = LinkPermissions(container.model, identity)
        report = self._report = ConnectionReport(container.engine, client, self.tls)
        termini = KeptTermini(
            container.engine, container.timers, container.model.subscriptions, container.temporary, client
        )
        self._foreign: ForeignLinks | None = None
        links = self._links = AttachedLinks(
            self.wire, client, rights, termini, report, container.quotas, container.lasting
        )
        self._sessions = ConnectionSessions(self.wire, client, links, termini)
        self._attach = self._make_attach(client, links, rights, termini, report)

    def _make_wire(self, fd: int, tls: TlsStream | None) -> Wire:
        container = self.container
        make = Wire if tls is None else partial(SecureConnection, tls)
        wire = make(
            fd,
            address_of(self.transport._impl),
            address_of(self.collector._impl),
            self.on_event,
            container.to_flush,
            container.answers,
        )
        wire.owner = self
        wire.turns = container.turns
        flow = container.settings.flow
        limit = flow.connection_flow_limit if flow.connection_flow_limit_enabled else 0
        wire.shared = Shared(limit, wanted) if limit else None
        if flow.connection_memory_limit:
            wire.budget = ConnectionBudget(flow.connection_memory_limit)
        return wire

    def _bound_input(self, limits: Limits) -> None:
        self.wire.session_bytes = SESSION_FRAMES * limits.max_frame_size
        self.wire.incoming.bound(
            limits.max_first_frame_size,
            limits.max_frame_size,
            self._most_sessions,
            limits.max_depth,
            limits.max_elements,
            limits.max_links,
        )

    def _make_attach(
        self,
        client: ClientDetails,
        links: AttachedLinks,
        rights: LinkPermissions,
        termini: KeptTermini,
        report: ConnectionReport,
    ) -> AttachHandler:
        container, wire = self.container, self.wire
        model, engine, temporary = container.model, container.engine, container.temporary
        limits, hosts = container.settings.limits, container.settings.virtual_hosts
        names = AddressResolver(wire, client, rights, termini, temporary, model, hosts, container.cells)
        producers = ProducerAttach(wire, links, names, rights, engine, limits, container.requests)
        receiving = model.subscriptions, engine, limits.max_message_size, self.replies
        consumers = ConsumerAttach(wire, client, links, names, rights, termini, temporary, *receiving)
        placement = self._make_placement(client)
        if placement is not None:
            self._foreign = ForeignLinks(container, self, wire, client, links)
            producers.pass_on = self._foreign.relay
            producers.prepare_transactions = self._foreign.prepare_transactions
        deciding = termini, rights, report, limits, container.quotas, placement, self._foreign
        return AttachHandler(wire, client, links, producers, consumers, *deciding)

    def _make_placement(self, client: ClientDetails) -> LinkPlacement | None:
        cells, handovers = self.container.cells, self.container.handovers
        # Another cell has found that its links belong here; one that doesn't finds no node.
        if cells is None or handovers is None or self.relays:
            return None
        return LinkPlacement(cells, client, partial(handovers.begin, self), partial(handovers.settle, self))

    @property
    def identity(self) -> Identity:
        """The client's user; with other groups once the users are read again."""
        return self._permissions.identity

    @identity.setter
    def identity(self, found: Identity) -> None:
        self._permissions.identity = found

    @property
    def maker(self) -> str:
        """The user whose nodes those are that it makes; empty for the broker's own connections."""
        return self._permissions.maker

    @property
    def name(self) -> str:
        """The client's container-id; empty until it has opened."""
        return self._client.name

    @property
    def host(self) -> str:
        """The client's virtual host, empty for the common one."""
        return self._client.host

    @property
    def is_open(self) -> bool:
        """True once the client has opened its connection."""
        return not self.connection.state & Endpoint.REMOTE_UNINIT

    @property
    def names_its_product(self) -> bool:
        """Whether the properties of its `open` say what client it is, as those of Qpid JMS do."""
        try:
            properties: Any = self.connection.remote_properties
            return isinstance(properties, dict) and "product" in properties
        except UNREADABLE:
            return False

    def channels(self) -> list[int]:
        """Return the channels of the sessions that the client has begun and not ended."""
        return self._sessions.channels()

    def settled_msgs(self) -> int:
        """Count the messages its consumers have settled, or taken pre-settled; browsers take none."""
        takers = [each for each in self.wire.links if isinstance(each, ConsumerLink) and not each.browses]
        return sum(each.delivered if each.presettled else each.settled for each in takers)

    def about(self, **fields: object) -> About:
        """Return the fields that say in a line of the log who it is, with further ones."""
        return self._client.about(**fields)

    # --- asked for by the message path

    def on_event(self, kind: int, event: int) -> None:
        """Handle one of Proton's events; the message path never comes here."""
        handler = _HANDLERS.get(kind)
        if handler is None or (self._barred and kind not in _PARTING):
            return
        try:
            handler(self, Event.wrap(ffi.cast("pn_event_t *", event)))  # type: ignore[no-untyped-call]
        except UnicodeDecodeError:
            self.close("amqp:decode-error", "a string that is not UTF-8")

    def detach(self, link: ProducerLink | ConsumerLink, condition: str, text: str, info: Any = None) -> None:
        """Detach a link with an error, which may say more; the connection and its other links go on."""
        self._links.detach(link, condition, text, info)

    def over(self, limit: str) -> None:
        """Count that a link has reached this limit."""
        self.container.quotas.refuse(limit)

    def on_link_fault(self, name: str, condition: str, text: str, client_sends: bool) -> None:
        """Fail a link on which the client sent what can't be taken; its session goes on."""
        link = self._links.named(name, client_sends)
        if isinstance(link, ProducerLink):
            link.fail(condition, text)
        elif link is not None:
            link.dead = True
            self.detach(link, condition, text)

    def answer_sessions(self) -> None:
        """Tell the state of the sessions that were asked for theirs (§2.7.4)."""
        self._sessions.answer_echoes()

    # Called with the delivery and the message's entry.
    annotate = staticmethod(annotate)
    provisional_annotations = staticmethod(provisional_annotations)

    # --- its end

    def crash(self, fault: BaseException) -> None:
        """Log a bug of ours on this connection and end the connection, so that no other is harmed."""
        told = about(self.address, connection=self.id)
        log.error(
            "%s (%s): closing after an internal error", self.id, self.address, exc_info=fault, extra=told
        )
        self.close("amqp:internal-error", "an internal error ended this connection")

    def close(self, condition: str, text: str, info: Any = None) -> None:
        """Close the connection with an error, which may say more; nothing is done for its client any more."""
        self._report.ends(condition, text)
        if not self._barred:
            self._barred = True
            self._closes()
        if self.wire.incoming.limit:
            self.container.quotas.refuse(self.wire.incoming.limit)
            self.wire.incoming.limit = ""
        self._shut_links()
        if not self.connection.state & Endpoint.LOCAL_CLOSED:
            if self.connection.state & Endpoint.LOCAL_UNINIT:
                self.connection.open()
            self.connection.condition = Condition(condition, text, info)
            self.connection.close()
        self.wire.mark()

    def send_back(self, condition: str, text: str) -> None:
        """Close the connection with an error after which the client connects again at once; not to be called
        in the middle of its own events.
        """
        self._sends_back(condition, text)

    def input_ended(self) -> None:
        """Close a connection of which nothing more can be read, unless the client or Proton said why."""
        if self.transport.condition is None and not self.connection.state & Endpoint.REMOTE_CLOSED:
            self.close("amqp:decode-error", "a frame could not be decoded")

    def lose(self, condition: str, reason: str) -> None:
        """Note why it is cut off, as its client can't be told."""
        self._report.ends(condition, reason)

    def say_closed(self) -> None:
        """Log in one line which connection is gone, and why."""
        self._report.closed(self.is_open)

    def pass_reply(self, cell: int, reply: bytes) -> bool:
        """Send an answer to the node that it names, which is in another cell; false where that can't be."""
        return self._foreign is not None and self._foreign.pass_reply(cell, reply)

    def _shut_links(self) -> None:
        """Give back all that links have: messages, credit, what ends with the connection.

        Of very many links, or very many messages they hold, a part in this turn, the rest in the next ones.
        """
        self.wire.parting = True
        self.container.sole.leave(self)
        if self._foreign is not None:
            self._foreign.end()
        if not self.shut_some():
            self.container.parting[self] = None

    def shut_some(self) -> bool:
        """Shut as many links as a turn may; whether none is left."""
        return self._links.shut_some()

    def free(self) -> None:
        """Let Proton's objects go, now that the socket is closed, once the links have gone."""
        self._shut_links()
        self._socket_is_closed = True
        if self not in self.container.parting:
            self._forget()

    def links_are_shut(self) -> None:
        """Let Proton's objects go, if the socket is closed."""
        if self._socket_is_closed:
            self._forget()

    def _forget(self) -> None:
        self._leave()
        self._sessions.forget()
        self.transport.unbind()
        self.connection.free()
        self.wire.forget()

    # --- its user's permissions

    def recheck(self) -> None:
        """Take from the client, after a change of the rules, what its user may not have any longer."""
        if self.is_open:  # else it is asked when it opens
            self._check_connects()
        if not self._barred:
            self._links.detach_forbidden()

    def _check_connects(self) -> None:
        """Close the connection of a user who may have none, here or at all."""
        refusal = self._permissions.connects(self._client.host)
        if refusal and not self._barred:
            self.close(UNAUTHORIZED, refusal)

    # --- Proton's events

    def _on_open(self, event: Event) -> None:
        client = self._client
        client.name = self.connection.remote_container or ""
        if self.connection.remote_hostname in self.container.settings.virtual_hosts:
            client.host = self.connection.remote_hostname or ""
        if not self._enter():
            return
        self.connection.container = self.container.name
        offered = [RELAY, SHARED_SUBSCRIPTIONS, DELAYED_DELIVERY]
        properties: dict[str, Any] = {"product": "sluice", "version": __version__}
        # A connection by which a cell passes links on is part of one that was asked there.
        refused = not self.relays and self._is_refused_for_another()
        if sole.desires(self.connection):
            offered.append(sole.CAPABILITY)
        if self.container.failover is not None:
            properties |= self.container.failover.properties()
        self.connection.offered_capabilities = offered
        self.connection.properties = properties | ({sole.FAILED: True} if refused else {})
        self.connection.open()
        self._opened()
        self._report.opened(self.identity.mechanism)
        self._check_connects()
        if refused and not self._barred:
            self._close_for(sole.refusal(client.name))

    def _enter(self) -> bool:
        """Count the connection among its user's, its listener's and its virtual host's, if it may be open.

        Otherwise it is closed as soon as it is opened: false.
        """
        quotas = self.container.quotas
        whose = (self.user, self.identity.groups, self.door.listener, self._client.host)
        over = quotas.over(*whose)
        if over is None or self.relays:
            self._entered = quotas.enter(*whose)
            return True
        quotas.refuse(over.limit)
        count = quotas.may_tell(f"{over.limit} {self.user}", self.container.engine.turn.now_ns)
        if count:
            self._report.refused(over.limit, over.most, count)
        self.close("amqp:resource-limit-exceeded", over.text)
        return False

    def _leave(self) -> None:
        """Count the connection no more, if it was counted."""
        if self._entered:
            self._entered = False
            self.container.quotas.leave(self.user, self.door.listener, self._client.host)
            self._report.left()

    def _is_refused_for_another(self) -> bool:
        """Whether another connection has this one's container-id to itself, and keeps it.

        Unless this one is refused, it has the container-id to itself from now on if it asks for that.
        """
        if self._permissions.connects(self._client.host):
            return False
        holder = self.container.sole.holder(self)
        asks = sole.desires(self.connection)
        if holder is not None:
            if not asks or not sole.closes_existing(self.connection):
                return True
            error = sole.closing(holder.name)
            holder.close(error.name, error.description or "", error.info)
        if asks:
            self.container.sole.claim(self)
        return False

    def _close_for(self, error: Condition) -> None:
        self.close(error.name, error.description or "", error.info)

    def _on_begin(self, event: Event) -> None:
        self._sessions.on_begin(_given(event.session))

    def _on_attach(self, event: Event) -> None:
        self._attach.on_attach(_given(event.link))

    def _on_detach(self, event: Event) -> None:
        self._attach.on_detach(_given(event.link), event.type == Event.LINK_REMOTE_CLOSE)

    def _on_end(self, event: Event) -> None:
        if self._foreign is not None:
            self._foreign.on_end(_given(event.session))
        self._sessions.on_end(_given(event.session))

    def _on_close(self, event: Event) -> None:
        condition = self.connection.remote_condition
        if condition is None:
            self._report.ends("", "by the client")
        else:
            reason = condition.description or "no reason given"
            self._report.ends(condition.name or "", f"by the client: {reason}")
        self._shut_links()
        # Its client may open another at once, before the socket of this one is gone.
        self._leave()
        if not self.connection.state & Endpoint.LOCAL_CLOSED:
            self.connection.close()

    def _on_transport_error(self, event: Event) -> None:
        condition = self.transport.condition
        if condition is not None:
            reason = condition.description or ""
            self._report.ends(condition.name or "", reason)
            limit = "idle_timeout" if "idle" in reason else LIMIT_OF.get(condition.name)
            if limit:
                self.container.quotas.refuse(limit)
        self._shut_links()


def _given(subject: Given | None) -> Given:
    """Return the subject of an event; Proton always says it for the events we handle."""
    if subject is None:
        raise RuntimeError("Proton sent an event without its subject")
    return subject


_HANDLERS: dict[int, Callable[[ConnectionControl, Event], None]] = {
    lib.PN_CONNECTION_REMOTE_OPEN: ConnectionControl._on_open,
    lib.PN_SESSION_REMOTE_OPEN: ConnectionControl._on_begin,
    lib.PN_LINK_REMOTE_OPEN: ConnectionControl._on_attach,
    lib.PN_LINK_REMOTE_CLOSE: ConnectionControl._on_detach,
    lib.PN_LINK_REMOTE_DETACH: ConnectionControl._on_detach,
    lib.PN_SESSION_REMOTE_CLOSE: ConnectionControl._on_end,
    lib.PN_CONNECTION_REMOTE_CLOSE: ConnectionControl._on_close,
    lib.PN_TRANSPORT_ERROR: ConnectionControl._on_transport_error,
}

_PARTING = frozenset((lib.PN_CONNECTION_REMOTE_CLOSE, lib.PN_TRANSPORT_ERROR))
