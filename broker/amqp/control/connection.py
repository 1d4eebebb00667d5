"""One connection's control plane: open, begin, attach, detach, end and close, on Proton's own classes.

What a link is for is decided here; what flows on it is ``wire``'s.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cproton_ffi import ffi, lib
from proton import (
    Collector,
    Condition,
    Connection,
    Delivery,
    Endpoint,
    Link,
    Session,
    Terminus,
    Transport,
)
from proton._events import Event

from broker import __version__
from broker.amqp.control import node_properties, sole
from broker.amqp.control.addresses import (
    GLOBAL,
    SHARED,
    as_topic,
    inside,
    is_foreign,
    kind_of,
    outside,
    parsed,
)
from broker.amqp.control.decoding import UNREADABLE, copy_terminus, offer, refusal_of, value_of
from broker.amqp.control.lifetimes import (
    CLOSED,
    CONNECTION_CLOSED,
    DETACHED,
    SESSION_ENDED,
    Kept,
    lifetime_of,
    tell_lifetime,
)
from broker.amqp.control.permissions import UNAUTHORIZED, DeniedError, LinkPermissions
from broker.amqp.control.temporary import Key
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.connection import ConsumerLink, ProducerLink, RelayLink, SinkLink
from broker.amqp.links.consumers import fit, wanted
from broker.amqp.links.filters import Filters, without_no_local
from broker.amqp.links.filters import read as read_filters
from broker.amqp.links.secure import SecureConnection
from broker.amqp.loop.client_quotas import OverLimitError
from broker.codec import message
from broker.config.patterns import is_pattern
from broker.engine.engine import SECOND_NS
from broker.engine.node import Node
from broker.errors import (
    ConflictError,
    LimitError,
    NotFoundError,
    OperatorError,
    PeerError,
    SelectorError,
)
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.window import Shared, Window
from broker.loggers import About, about
from broker.manage.access import TEMPORARY
from broker.manage.names import LONGEST, is_own
from broker.manage.subscriptions import Subscription, SubscriptionKey
from broker.queues.filters import compiled
from broker.queues.queue import Entry, Extra, Reader
from broker.security.acl import Action
from broker.security.exchange import ListenerTrust
from broker.security.identity import Identity

if TYPE_CHECKING:
    from broker.amqp.container import Container
    from broker.security.tlsstream import TlsStream

log = logging.getLogger("sluice.amqp")

Given = TypeVar("Given")

# Frames of incoming window a session has; they are consumed as they arrive, so this bounds what a
# peer may have under way, not what the broker holds.
SESSION_FRAMES = 2048
# Encoded but unsent bytes that one session may hold, and all sessions of a connection together.
SESSION_OUTPUT = 1 << 20
CONNECTION_OUTPUT = 64 << 20
# What consumers may add to a message's annotations by giving it back; more of it is not kept.
MOST_ANNOTATIONS = 1 << 16
# What links that go with their connection may take of a turn, about in microseconds, a link and each message
# that it gives back.
AT_ONCE = 2000
LINK_COST = 40
MESSAGE_COST = 8
# Credit on links that reserve nothing: to the management node, to a rejecting queue, to the relay.
MANAGEMENT_CREDIT = 20
OPEN_CREDIT = 500
RELAY = "ANONYMOUS-RELAY"
# JMS clients don't try to share a subscription where this isn't offered.
SHARED_SUBSCRIPTIONS = "SHARED-SUBS"
MANAGEMENT = "$management"
# Conditions that say which limit was reached.
LIMIT_OF = {
    "amqp:link:message-size-exceeded": "max_message_size",
    "amqp:connection:framing-error": "max_frame_size",
}
# How the containers of the command line's own connections are named (`TOOL` of broker/client/request.py).
# One is left out of events and log as long as it touches nothing but management, its replies and events: so
# the mark hides nobody who does more, and a fault of its is logged all the same.
TOOL = "sluice-cli-"
EVENTS = "$sluice/events"
STOLEN = ("amqp:link:stolen", "another link was attached by the same name")


class ConnectionControl:
    """A connection that has authenticated: its Proton engine and the links it has attached."""

    def __init__(
        self, container: Container, fd: int, address: str, identity: Identity, tls: TlsStream | None = None
    ) -> None:
        self.container = container
        self.address = address
        self.user = identity.user
        # Where it came in: whether it may stay is asked again when the users are read again.
        self.door = ListenerTrust()
        self.rights = LinkPermissions(container.model, identity)
        # Whether it was refused as a whole: nothing it says is heard then, but that it goes.
        self.barred = False
        self.number = container.next_number()
        self.id = f"c{self.number}"
        self.name = ""
        self.opened_ns = container.engine.now_ns
        # Whether it is the command line's own and has touched nothing else so far.
        self.is_tool = False
        # Why it ends: the first condition that either side, or Proton, gave for it.
        self.end = ("", "")
        # Sessions that the peer has begun and not ended, by channel.
        self.begun: dict[int, Session] = {}
        self.entered = False
        self.forgotten = False
        settings = container.settings
        self.transport = Transport(mode=Transport.SERVER)
        self.transport.max_frame_size = settings.limits.max_frame_size
        self.transport.channel_max = settings.limits.max_sessions - 1
        self.transport.idle_timeout = settings.limits.idle_timeout_ms / 1000
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        flow = settings.flow
        limit = flow.connection_flow_limit if flow.connection_flow_limit_enabled else 0
        self.attached: dict[int, ProducerLink | ConsumerLink] = {}
        # By handle: the session's channel, and what outlives the link; then what waits for its session
        # or for this connection to end, and the subscription it is about.
        self.kept: dict[int, tuple[int, Kept]] = {}
        self.left: dict[Kept, tuple[int, Subscription | None]] = {}
        self.joined: dict[int, Subscription] = {}
        # Nodes of its receivers on `$management`, by its names for them, which many tools share.
        self.replies: dict[str, Node] = {}
        self.host = ""
        self.names: dict[tuple[str, bool], ProducerLink | ConsumerLink] = {}
        self.on_open: Callable[[], None] = _ignore
        # Version and cipher; empty without TLS.
        self.tls = "" if tls is None else f"{tls.version} {tls.cipher}"
        make = Wire if tls is None else partial(SecureConnection, tls)
        self.wire = make(
            fd,
            _address_of(self.transport._impl),
            _address_of(self.connection._impl),
            _address_of(self.collector._impl),
            self.on_event,
            container.to_flush,
            container.answers,
        )
        self.wire.owner = self
        self.wire.session_bytes = SESSION_FRAMES * settings.limits.max_frame_size
        self.wire.incoming.bound(
            settings.limits.max_first_frame_size,
            settings.limits.max_frame_size,
            settings.limits.max_sessions,
            settings.limits.max_depth,
            settings.limits.max_elements,
            settings.limits.max_links,
        )
        self.wire.turns = container.turns
        self.wire.shared = Shared(limit, wanted) if limit else None
        if flow.connection_memory_limit:
            self.wire.budget = ConnectionBudget(flow.connection_memory_limit)

    @property
    def identity(self) -> Identity:
        """Who it is; with other groups once the users are read again."""
        return self.rights.identity

    @identity.setter
    def identity(self, found: Identity) -> None:
        self.rights.identity = found

    def on_event(self, kind: int, event: int) -> None:
        """Handle one of Proton's events; the message path never comes here."""
        handler = _HANDLERS.get(kind)
        if handler is None or (self.barred and kind not in _PARTING):
            return
        try:
            handler(self, Event.wrap(ffi.cast("pn_event_t *", event)))  # type: ignore[no-untyped-call]
        except UnicodeDecodeError:
            self.close("amqp:decode-error", "a string that is not UTF-8")

    # --- what the wire asks for

    def detach(
        self,
        link: ProducerLink | ConsumerLink,
        condition: str,
        text: str,
        info: Any = None,
    ) -> None:
        """Detach a link with an error, which may say more; the connection and its other links go on."""
        if condition in LIMIT_OF:
            self.container.quotas.refuse(LIMIT_OF[condition])
        self._gone(link, DETACHED)
        proton_link = Link.wrap(ffi.cast("pn_link_t *", link.handle()))  # type: ignore[no-untyped-call]
        self._mark_wronged(proton_link, refused=False)
        proton_link.condition = Condition(condition, text, info)
        proton_link.close()
        told = about(self.address, connection=self.id, link=link.name, condition=condition, reason=text)
        log.info("%s: detached '%s': %s: %s", self.id, link.name, condition, text, extra=told)
        self.wire.mark()

    def over(self, limit: str) -> None:
        """A link reached this limit."""
        self.container.quotas.refuse(limit)

    def on_link_fault(self, name: str, condition: str, text: str) -> None:
        """What the peer sent on this link can't be taken; its session goes on."""
        link = self.names.get((name, True))
        if isinstance(link, ProducerLink):
            link.fail(condition, text)

    def answer_sessions(self) -> None:
        """Tell the state of the sessions that were asked for theirs (§2.7.4)."""
        channels = set(self.wire.incoming.session_echoes)
        self.wire.incoming.session_echoes.clear()
        for channel in channels & self.begun.keys():
            # Setting it, to whatever, makes Proton say it.
            self.begun[channel].incoming_capacity = self.wire.session_bytes

    def annotate(self, delivery: int, entry: Entry) -> None:
        """Merge the annotations of a `modified` outcome into the message's (AMQP 1.0 §3.4.5)."""
        remote = lib.pn_delivery_remote(ffi.cast("pn_delivery_t *", delivery))
        added = _encoded(lib.pn_disposition_annotations(remote))
        if not added:
            return
        if entry.extra is None:
            entry.extra = Extra()
        present = entry.extra.annotations or message.annotations_of(entry.data)
        if len(present) + len(added) <= MOST_ANNOTATIONS:
            entry.extra.annotations = message.merged_maps(present, added)

    def crash(self, fault: BaseException) -> None:
        """A bug of ours on this connection: log it, end this connection, harm no other."""
        told = about(self.address, connection=self.id)
        log.error(
            "%s (%s): closing after an internal error", self.id, self.address, exc_info=fault, extra=told
        )
        self.close("amqp:internal-error", "an internal error ended this connection")

    def close(self, condition: str, text: str, info: Any = None) -> None:
        """Close the connection with an error, which may say more."""
        self._ends(condition, text)
        if self.wire.incoming.limit:
            self.container.quotas.refuse(self.wire.incoming.limit)
            self.wire.incoming.limit = ""
        self.shut_links()
        if not self.connection.state & Endpoint.LOCAL_CLOSED:
            if self.connection.state & Endpoint.LOCAL_UNINIT:
                self.connection.open()
            self.connection.condition = Condition(condition, text, info)
            self.connection.close()
        self.wire.mark()

    def input_ended(self) -> None:
        """Nothing more can be read: unless it closed or Proton said why itself, the peer is told so."""
        if self.transport.condition is None and not self.connection.state & Endpoint.REMOTE_CLOSED:
            self.close("amqp:decode-error", "a frame could not be decoded")

    def settled_msgs(self) -> int:
        """How many messages its consumers have settled, or taken pre-settled; browsers take none."""
        takers = [each for each in self.wire.links if isinstance(each, ConsumerLink) and not each.browses]
        return sum(each.delivered if each.presettled else each.settled for each in takers)

    def channels(self) -> list[int]:
        """The channels of the sessions that the peer has begun and not ended."""
        return list(self.begun)

    @property
    def is_open(self) -> bool:
        """True once the peer has opened its connection."""
        return not self.connection.state & Endpoint.REMOTE_UNINIT

    def shut_links(self) -> None:
        """Every link is gone: requeue, give back credit, forget what ends with the connection. Of very many
        links, or very many messages they hold, a part in this turn, the rest in the next ones.
        """
        self.wire.parting = True
        self.container.sole.leave(self)
        if self.shut_some():
            return
        self.container.parting[self] = None

    def shut_some(self) -> bool:
        """Shut as many links as a turn may; whether all are."""
        left = AT_ONCE
        for link in list(self.wire.links):
            if left <= 0:
                return False
            held = link.in_flight if isinstance(link, ConsumerLink) else link.kept
            left -= LINK_COST + held * MESSAGE_COST
            self._gone(link, CONNECTION_CLOSED)
        self._expire_left()
        return True

    def _expire_left(self) -> None:
        for kept, (_, subscription) in list(self.left.items()):
            self._expire(kept, CONNECTION_CLOSED, subscription)
        self.left.clear()

    def free(self) -> None:
        """The socket is closed: let Proton's objects go, once the links have."""
        self.shut_links()
        self.forgotten = True
        if self not in self.container.parting:
            self.forget()

    def forget(self) -> None:
        """No link is left, nor the socket."""
        self._leave()
        self.begun.clear()
        self.transport.unbind()
        self.connection.free()
        self.wire.forget()

    # --- Proton's events

    def _on_open(self, event: Event) -> None:
        self.name = self.connection.remote_container or ""
        if self.connection.remote_hostname in self.container.settings.virtual_hosts:
            self.host = self.connection.remote_hostname or ""
        if not self._enter():
            return
        self.connection.container = self.container.name
        offered, properties = [RELAY, SHARED_SUBSCRIPTIONS], {"product": "sluice", "version": __version__}
        refused = self._is_refused_for_another()
        if sole.desires(self.connection):
            offered.append(sole.CAPABILITY)
        self.connection.offered_capabilities = offered
        self.connection.properties = properties | ({sole.FAILED: True} if refused else {})
        self.connection.open()
        self.on_open()
        self.is_tool = self.name.startswith(TOOL)
        self._tell_opened()
        self._check_connects()
        if refused and not self.barred:
            self.barred = True
            self._close_for(sole.refusal(self.name))

    def _enter(self) -> bool:
        """Whether one more connection of this user, at this listener and virtual host, may be open; otherwise
        this one is closed as soon as it is opened.
        """
        quotas = self.container.quotas
        whose = (self.user, self.identity.groups, self.door.listener, self.host)
        over = quotas.over(*whose)
        if over is None:
            self.entered = quotas.enter(*whose)
            return True
        quotas.refuse(over.limit)
        self.barred = True
        count = quotas.may_tell(f"{over.limit} {self.user}", self.container.engine.now_ns)
        if count:
            told = {"limit": over.limit, "most": over.most, "user": self.user, "count": count}
            self._tell("connection_refused", {"container": self.name[:LONGEST], "peer": self.address, **told})
        self.close("amqp:resource-limit-exceeded", over.text)
        return False

    def _leave(self) -> None:
        """It isn't counted any more, if it was."""
        if self.entered:
            self.entered = False
            self.container.quotas.leave(self.user, self.door.listener, self.host)
            self._tell("connection_closed", {})

    def _is_refused_for_another(self) -> bool:
        """Whether another connection has this one's container-id to itself, and keeps it.

        Unless this one is refused, it has the container-id to itself from now on if it asks for that.
        """
        if self.rights.connects(self.host):
            return False
        holder = self.container.sole.holder(self)
        asks = sole.desires(self.connection)
        if holder is not None:
            if not asks or not sole.closes_existing(self.connection):
                return True
            holder._close_for(sole.closing(holder.name))
        if asks:
            self.container.sole.claim(self)
        return False

    def _close_for(self, error: Condition) -> None:
        self.close(error.name, error.description or "", error.info)

    def _check_connects(self) -> None:
        """Close the connection of one who may have none, here or at all."""
        refusal = self.rights.connects(self.host)
        if refusal and not self.barred:
            self.barred = True
            self.close(UNAUTHORIZED, refusal)

    def recheck(self) -> None:
        """The rules have changed: what its user may not have any longer goes, and nothing else."""
        if self.is_open:  # else it is asked when it opens
            self._check_connects()
        if self.barred:
            return
        relays = {handle: link for handle, link in self.attached.items() if isinstance(link, RelayLink)}
        relayed = {handle: [node.name for node, _ in each.open_accounts()] for handle, each in relays.items()}
        for handle, reason in self.rights.lost(relayed):
            link = self.attached.get(handle)
            if link is not None:
                self.detach(link, UNAUTHORIZED, reason)

    def _on_begin(self, event: Event) -> None:
        session = _given(event.session)
        self.wire.set_window(_address_of(session._impl), SESSION_FRAMES)
        session.open()
        session.sluice_channel = self.wire.book.begun.pop(0) if self.wire.book.begun else -1
        session.sluice_links = set()
        self.begun[session.sluice_channel] = session
        self._share_output()

    def _share_output(self) -> None:
        """Many sessions of one connection may hold no more unsent output together than a few."""
        self.wire.session_output = min(SESSION_OUTPUT, CONNECTION_OUTPUT // max(len(self.begun), 1))

    def _on_attach(self, event: Event) -> None:
        link = _given(event.link)
        if link.state & Endpoint.LOCAL_ACTIVE:
            return
        try:
            odd = self._take_note(self.wire.incoming.odd, link)
            if link.is_receiver and not self._take_note(self.wire.incoming.sourceless, link):
                # Proton takes one without an address for none.
                link.remote_source.type = Terminus.SOURCE
            limits = self.container.settings.limits
            links = link.session.sluice_links
            links.add(_address_of(link._impl))
            if len(links) > limits.max_links:
                raise OverLimitError("max_links", "too many links in this session")
            if len(self.attached) >= limits.max_connection_links:
                raise OverLimitError("max_connection_links", "too many links on this connection")
            self._steal(link)
            if odd:
                raise PeerError("amqp:not-implemented", "a source or target of an unknown type")
            if link.is_sender:
                self._attach_consumer(link)
            else:
                self._attach_producer(link)
            self._keep_name(link)
            self._tell_attached(self.attached.get(_address_of(link._impl)))
        except UnicodeDecodeError:
            self._refuse(link, PeerError("amqp:decode-error", "an address that is not UTF-8"))
        except SelectorError as fault:
            if fault.over:
                self.container.quotas.refuse("max_selector_length")
            self._refuse(link, fault)
        except PeerError as fault:
            if isinstance(fault, OverLimitError):
                self.container.quotas.refuse(fault.limit)
            self._refuse(link, fault)

    def _on_detach(self, event: Event) -> None:
        """The peer detached a link, for good (``closed``) or for now; it is answered in kind (§2.6.4)."""
        link = _given(event.link)
        closed = event.type == Event.LINK_REMOTE_CLOSE
        link.session.sluice_links.discard(_address_of(link._impl))
        stolen = self._take_note(self.wire.incoming.stolen, link)
        # Who loses a link to another of its name loses nothing that stands at the link's end.
        self._drop(_address_of(link._impl), CLOSED if closed and not stolen else DETACHED)
        if link.state & Endpoint.LOCAL_UNINIT:
            link.open()  # it left before the disk had what it attached for
        if link.state & Endpoint.LOCAL_ACTIVE:
            if stolen:
                told = about(self.address, connection=self.id, link=link.name, condition=STOLEN[0])
                text = "%s: '%s' attached again: the link that had the name is stolen"
                log.info(text, self.id, link.name, extra=told)
                link.condition = Condition(*STOLEN)
            if closed:
                link.close()
            else:
                link.detach()
        self.wire.part(_address_of(link._impl))
        link.free()

    def _on_end(self, event: Event) -> None:
        session = _given(event.session)
        for handle in list(session.sluice_links):
            self._drop(handle, SESSION_ENDED)
            self.wire.part(handle)
        channel = session.sluice_channel
        for kept, (its, subscription) in list(self.left.items()):
            if its == channel and kept.is_over(SESSION_ENDED):
                del self.left[kept]
                self._expire(kept, SESSION_ENDED, subscription)
        if self.begun.get(channel) == session:
            del self.begun[channel]
        self._share_output()
        fault = self.wire.incoming.ended.pop(session.sluice_channel, None)
        if fault is not None:
            told = about(self.address, connection=self.id, condition=fault[0], reason=fault[1])
            log.info("%s: ended a session: %s: %s", self.id, *fault, extra=told)
            session.condition = Condition(*fault)
        session.close()
        session.free()

    def _on_close(self, event: Event) -> None:
        condition = self.connection.remote_condition
        if condition is None:
            self._ends("", "by the client")
        else:
            self._ends(condition.name or "", f"by the client: {condition.description or 'no reason given'}")
        self.shut_links()
        # Its client may open another at once, before the socket of this one is gone.
        self._leave()
        if not self.connection.state & Endpoint.LOCAL_CLOSED:
            self.connection.close()

    def _on_transport_error(self, event: Event) -> None:
        condition = self.transport.condition
        if condition is not None:
            self._ends(condition.name or "", condition.description or "")
            limit = (
                "idle_timeout" if "idle" in (condition.description or "") else LIMIT_OF.get(condition.name)
            )
            if limit:
                self.container.quotas.refuse(limit)
        self.shut_links()

    # --- attaching

    def _attach_producer(self, link: Link) -> None:
        """The peer sends: to a node, to the anonymous relay or to the management node."""
        target = link.remote_target
        if target.type == Terminus.COORDINATOR:
            raise PeerError("amqp:not-implemented", "transactions are not available")
        if target.type == Terminus.UNSPECIFIED:
            raise PeerError("amqp:invalid-field", "a target is needed; one without an address is the relay")
        limit = self.container.settings.limits.max_message_size
        handle = _address_of(link._impl)
        port: ProducerLink
        if target.address == MANAGEMENT:
            manage = partial(self.container.manage, self)
            most = min(self.container.settings.limits.max_request_size, limit)
            port = SinkLink(self.wire, handle, self.container.engine, link.name, most, manage)
            self._open_producer(link, port, target.address)
            port.start_open(MANAGEMENT_CREDIT)
        elif not target.address and not target.dynamic:
            port = RelayLink(
                self.wire, handle, self.container.engine, link.name, limit, self._resolve_relayed
            )
            self._open_producer(link, port, None)
            port.start_open(OPEN_CREDIT)
        else:
            self._attach_to_node(link, handle, limit)

    def _attach_to_node(self, link: Link, handle: int, limit: int) -> None:
        target = link.remote_target
        node = self._dynamic_node(link, target) if target.dynamic else self._resolve(target, Action.SEND)
        self._check_open(node.name)
        engine = self.container.engine
        if node.settings is not None:
            limit = min(limit, node.settings.max_message_size)
        port = ProducerLink(self.wire, handle, engine, link.name, limit)
        self._open_producer(link, port, node.name if target.dynamic else target.address)
        if target.dynamic:
            tell_lifetime(link.target, lifetime_of(target))
        self._tell_settings(link.target, target, node)
        promised = port.presettled or not engine.rejects_at_once(node)
        port.node = node
        port.account = engine.open_producer(node, port, promised, self.wire.budget)
        port.account.origin = self
        if not target.dynamic:
            self.rights.hold(handle, Action.SEND, node.name)
        if not promised:
            port.start_open(OPEN_CREDIT)

    def _open_producer(self, link: Link, port: ProducerLink, address: str | None) -> None:
        self.attached[port.handle()] = port
        port.channel = link.session.sluice_channel
        copy_terminus(link.source, link.remote_source)
        copy_terminus(link.target, link.remote_target)
        self._choose_refusal(link, port)
        if address is not None:
            link.target.address = address
        link.target.dynamic = link.remote_target.dynamic
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.max_message_size = port.max_size
        port.presettled = link.remote_snd_settle_mode == Link.SND_SETTLED
        port.second = link.remote_rcv_settle_mode == Link.RCV_SECOND
        port.most_unconfirmed = self.container.settings.limits.max_unsettled
        link.open()

    def _choose_refusal(self, link: Link, port: ProducerLink) -> None:
        """Which outcome a message has that isn't taken: of those that the source offers (§3.5.3)."""
        handle = port.handle()
        refusal = refusal_of(link.source)
        if refusal == Delivery.REJECTED:
            if self.wire.refusals is not None:
                self.wire.refusals.pop(handle, None)
            return
        port.refusal = refusal
        if self.wire.refusals is None:
            self.wire.refusals = {}
        self.wire.refusals[handle] = refusal

    def _attach_consumer(self, link: Link) -> None:
        """The peer receives: from a queue, a topic or a node made for it."""
        source = link.remote_source
        if source.address == MANAGEMENT:
            try:
                node = self.container.temporary_node(self, user=self.user)
            except LimitError as fault:
                raise OverLimitError("max_nodes_per_user", str(fault)) from fault
            reply_to = link.remote_target.address or ""
            self._keep(link, Kept(DETACHED, 0, partial(self._forget_replies, reply_to, node)))
            if reply_to:
                self.replies[reply_to] = node
            self._open_consumer(link, node, MANAGEMENT, Filters())
        elif source.type == Terminus.UNSPECIFIED:
            self._come_back(link)
        elif not source.address and not source.dynamic:
            raise PeerError("amqp:invalid-field", "a source needs an address, or dynamic")
        else:
            self._attach_to_source(link, source)

    def _forget_replies(self, reply_to: str, node: Node) -> None:
        if self.replies.get(reply_to) is node:
            del self.replies[reply_to]
        self.container.forget_temporary(node)

    def _attach_to_source(self, link: Link, source: Terminus) -> None:
        filters = read_filters(source.filter)
        name = inside(self.host, parsed(source.address or "").name)
        if not source.dynamic and is_pattern(name):
            self._check_host(name)
            self.rights.require(Action.RECEIVE, name)
            self._subscribe(link, name, filters)
            return
        copies = source.distribution_mode == Terminus.DIST_MODE_COPY
        reading, place = self.rights.reading(name, copies)
        node = self._dynamic_node(link, source) if source.dynamic else self._resolve(source, reading)
        self._check_temporary(node)
        if node.is_topic:
            if copies and not is_own(name):  # a subscription is no queue to look into
                self.rights.require(Action.RECEIVE, name)
            self._subscribe(link, node.name, filters)
            return
        if node.exclusive and any(isinstance(each, ConsumerLink) for each in node.consumers):
            raise PeerError("amqp:resource-locked", f"'{node.name}' is exclusive and has a consumer")
        if filters.no_local:
            # Nobody knows any more who sent what is in a queue.
            filters = without_no_local(filters)
        # As the peer wrote it: some clients compare.
        self._open_consumer(link, node, node.name if source.dynamic else source.address or "", filters)
        if not source.dynamic:
            self.rights.hold(_address_of(link._impl), reading, place)

    def _subscribe(self, link: Link, address: str, filters: Filters) -> None:
        """Attach to a subscription: one the receiver comes back to, one that others share, or a new one."""
        source = link.remote_source
        capabilities = _capabilities(source)
        never = source.expiry_policy == Terminus.EXPIRE_NEVER
        wanted = SubscriptionKey(
            address=address,
            container=self.name,
            link=link.name,
            filters=filters.texts,
            no_local=filters.no_local,
            shared=SHARED in capabilities,
            shared_by_all=GLOBAL in capabilities,
            lasts=never or source.durability != Terminus.NONDURABLE or source.timeout > 0,
            durable=never and source.durability != Terminus.NONDURABLE,
            user=self.rights.subscriber,
            stays=source.expiry_policy != Terminus.EXPIRE_WITH_LINK,
        )
        try:
            subscription = self.container.subscriptions.join(wanted, self._may_end)
        except ConflictError as fault:
            raise PeerError("amqp:resource-locked", str(fault)) from fault
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault
        except OperatorError as fault:
            raise PeerError("amqp:invalid-field", str(fault)) from fault
        self._receive_from(link, subscription, Kept.of(source, self._end_of(subscription)), filters)

    def _come_back(self, link: Link) -> None:
        """No source: the peer asks for what it knows by this link's name, as JMS does to unsubscribe."""
        subscription = self.container.subscriptions.find(self.name, link.name, self.rights.subscriber)
        if subscription is None or self._is_elsewhere(subscription.wanted.address):
            raise PeerError("amqp:not-found", f"no subscription is known by '{link.name}'")
        self.rights.require(*self.rights.reading(subscription.wanted.address, False))
        if subscription.receivers:
            raise PeerError("amqp:resource-locked", f"'{subscription.node.name}' has a receiver")
        subscription.enter()
        kept = Kept(CLOSED, 0, self._end_of(subscription))
        self._receive_from(link, subscription, kept, Filters())
        if subscription.wanted.durable:
            link.source.durability = Terminus.DELIVERIES
        link.source.expiry_policy = Terminus.EXPIRE_NEVER

    def _receive_from(self, link: Link, subscription: Subscription, kept: Kept, filters: Filters) -> None:
        _, of_topic = self.kept.get(_address_of(link._impl), (0, None))
        if of_topic is not None:
            # The topic was made for this link too, and goes when its subscription does.
            kept = kept.followed_by(of_topic)
            self.container.temporary.replace(of_topic, kept)
        self._keep(link, kept)
        self.joined[_address_of(link._impl)] = subscription
        node = subscription.node
        if subscription.wanted.no_local:
            node.not_from = self
        given = link.remote_source
        address = given.address if given.address and not given.dynamic else outside(self.host, node.address)
        self._open_consumer(link, node, address, filters, on_topic=True)
        self.rights.hold(_address_of(link._impl), *self.rights.reading(node.address, False))

    def _may_end(self, wanted: SubscriptionKey) -> bool:
        """Whether a subscription may give way to this user's of the same name: its own may, and what it
        could take all messages from as well.
        """
        if self._is_elsewhere(wanted.address):
            return False
        reading = self.rights.reading(wanted.address, False)
        authority = self.container.model.authority
        return wanted.user == self.rights.subscriber or authority.allows(self.identity, *reading)

    def _is_elsewhere(self, address: str) -> bool:
        """Whether a subscription's address is in a virtual host that isn't this connection's."""
        foreign = is_foreign(self.host, address, self.container.settings.virtual_hosts)
        return foreign or inside(self.host, outside(self.host, address)) != address

    def _end_of(self, subscription: Subscription) -> Callable[[], None]:
        """What to do when the time of a subscription is over. A timer may hold it for years: it knows
        nothing of this connection.
        """
        subscriptions = self.container.subscriptions

        def end() -> None:
            if subscription.receivers == 0:
                subscriptions.remove(subscription)

        return end

    def _open_consumer(
        self, link: Link, node: Node, address: str, filters: Filters, on_topic: bool = False
    ) -> None:
        handle = _address_of(link._impl)
        source = link.remote_source
        browses = source.distribution_mode == Terminus.DIST_MODE_COPY and not on_topic
        # A subscription has its filter already; the messages in it fit.
        wanted = None if on_topic else compiled(filters.texts)
        settings = node.settings
        presettled = link.remote_snd_settle_mode == Link.SND_SETTLED
        window = Window(0, 50, self.wire.shared)
        consumer = ConsumerLink(
            self.wire,
            handle,
            self.container.engine,
            node,
            window,
            link.name,
            presettled,
            link.session.sluice_channel,
        )
        if settings is not None:
            fit(consumer, settings, self.container.engine.now_ns)
        consumer.origin = self
        self.attached[handle] = consumer
        if browses or wanted is not None:
            consumer.reader = Reader(consumer, wanted, browses)
        copy_terminus(link.source, source)
        link.source.type = Terminus.SOURCE
        link.source.address = address
        link.source.dynamic = source.dynamic
        if on_topic:
            offer(link.source, as_topic(_capabilities(source)))
        if source.dynamic:
            tell_lifetime(link.source, lifetime_of(source))
        self._tell_settings(link.source, source, node)
        link.source.filter.clear()
        if filters.applied:
            link.source.filter.put_object(filters.applied)
        copy_terminus(link.target, link.remote_target)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.max_message_size = self.container.settings.limits.max_message_size
        self._answer(link, consumer, on_topic)
        consumer.shares = window.shared is not None
        if browses:
            consumer.browses = True
            self.container.engine.add_browser(node, consumer)
        else:
            self.container.engine.add_consumer(node, consumer)

    def _answer(self, link: Link, consumer: ConsumerLink, on_topic: bool) -> None:
        """Answer an ATTACH, of a durable subscription once that is on disk: who was told of it has it,
        whatever happens to the broker then.
        """
        storing = self.container.engine.storing
        if storing is None or not on_topic or consumer.node.shelf is None:
            link.open()
            return
        handle = consumer.handle()

        def known() -> None:
            if self.attached.get(handle) is consumer and link.state & Endpoint.LOCAL_UNINIT:
                link.open()
                self.wire.mark()

        storing.known(consumer.node, known)

    def _asked_of(self, terminus: Terminus, is_target: bool) -> dict[str, object]:
        return node_properties.asked_of(terminus, "target" if is_target else "source", self.about())

    @staticmethod
    def _tell_settings(ours: Terminus, theirs: Terminus, node: Node) -> None:
        """Say in our terminus what holds of the settings that theirs asks for."""
        if node.settings is not None:
            node_properties.tell(ours, node_properties.answer_of(theirs, node.settings))

    def _resolve(self, terminus: Terminus, action: Action) -> Node:
        """The node of an address, made by policy if need be; PeerError if it can't be had."""
        address = parsed(terminus.address or "")
        name = inside(self.host, address.name)
        self._check_host(name)
        self.rights.require_node(action, name)
        kind = address.kind or kind_of(_capabilities(terminus)) or None
        asked = self._asked_of(terminus, action is Action.SEND)
        try:
            return self.container.resolve(name, kind, self.rights.maker, asked)
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault
        except NotFoundError as fault:
            raise PeerError("amqp:not-found", str(fault)) from fault
        except ConflictError as fault:
            raise PeerError("amqp:precondition-failed", str(fault)) from fault
        except OperatorError as fault:
            raise PeerError("amqp:invalid-field", str(fault)) from fault

    def _resolve_relayed(self, address: str) -> Node:
        if not address:
            raise PeerError(
                "amqp:invalid-field", "a message on an anonymous link needs 'to' in its properties"
            )
        to = parsed(address)
        name = inside(self.host, to.name)
        self._check_host(name)
        self._check_open(name)
        self.rights.require_node(Action.SEND, name)
        try:
            return self.container.resolve(name, to.kind or None, self.rights.maker)
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault
        except ConflictError as fault:
            raise PeerError("amqp:precondition-failed", str(fault)) from fault
        except OperatorError as fault:
            raise PeerError("amqp:not-found", str(fault)) from fault

    def _check_open(self, name: str) -> None:
        if is_own(name):
            raise PeerError("amqp:not-allowed", f"'{name}' is the broker's own: nobody may send to it")

    def _check_host(self, name: str) -> None:
        if is_foreign(self.host, name, self.container.settings.virtual_hosts):
            raise PeerError("amqp:not-found", f"'{name}' belongs to another virtual host")

    def _dynamic_node(self, link: Link, terminus: Terminus) -> Node:
        """The node this link had before it was detached, or one made for it, which outlives the link only as
        its lifetime policy says.
        """
        self.rights.require_temporary()
        policy = lifetime_of(terminus)
        known = self.container.temporary.come_back(self._key_of(link.name, link.is_receiver), self)
        if known is not None:
            node, before = known
            before.cancel()
            self.left.pop(before, None)
        else:
            asked = self._asked_of(terminus, link.is_receiver)
            node = self._make_node(kind_of(_capabilities(terminus)) or "queue", asked)
        kept = Kept.of(terminus, partial(self.container.abandon, node, policy))
        self.container.temporary.keep(node, kept)
        self._keep(link, kept)
        return node

    def _make_node(self, kind: str, asked: Mapping[str, object]) -> Node:
        try:
            return self.container.temporary_node(self, kind, user=self.rights.maker, asked=asked)
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault
        except OperatorError as fault:
            raise PeerError("amqp:invalid-field", f"dynamic-node-properties: {fault}") from fault

    def _key_of(self, name: str, peer_sends: bool) -> Key:
        """By what a link is known that comes back (§2.6.1)."""
        return self.user, self.name or self.id, name, peer_sends

    def _check_temporary(self, node: Node) -> None:
        """Nobody takes what another connection awaits at a node made for it; sending there is allowed."""
        if self.container.temporary.is_anothers(node, self):
            text = f"'{node.name}' was made for a link of another connection, which alone receives from it"
            raise PeerError("amqp:resource-locked", text)

    def _refuse(self, link: Link, fault: PeerError) -> None:
        """Attach with a null terminus, then detach with the error: the form clients expect (§2.6.3)."""
        terminus = link.remote_source if link.is_sender else link.remote_target
        told = about(
            self.address,
            connection=self.id,
            container=self.name,
            user=self.user,
            link=link.name,
            role="consumer" if link.is_sender else "producer",
            node=_readable(terminus),
            condition=fault.condition,
            reason=fault.description,
        )
        why = f"{fault} ({fault.rule})" if isinstance(fault, DeniedError) else str(fault)
        log.info("%s: refused link '%s': %s", self.id, link.name, why, extra=told)
        if link.is_sender:
            copy_terminus(link.target, link.remote_target)
            link.source.type = Terminus.UNSPECIFIED
        else:
            copy_terminus(link.source, link.remote_source)
            link.target.type = Terminus.UNSPECIFIED
        link.open()
        link.condition = Condition(fault.condition, fault.description)
        link.close()
        self._mark_wronged(link, refused=True)
        # What was made for it goes with it: nothing else will ask for it when the peer has detached.
        _, kept = self.kept.pop(_address_of(link._impl), (0, None))
        if kept is not None:
            kept.end()

    # --- names (§2.6.1)

    def _steal(self, link: Link) -> None:
        """Detach the link that has this one's name: on this connection, or where both claim what lasts."""
        holder = self.names.get((link.name, link.is_receiver))
        if holder is not None:
            self.detach(holder, *STOLEN)
        if self.name and _lasts(link):
            elsewhere = self.container.names.get((self.user, self.name, link.name, link.is_receiver))
            if elsewhere is not None:
                elsewhere[0].detach(elsewhere[1], *STOLEN)

    def _keep_name(self, link: Link) -> None:
        port = self.attached.get(_address_of(link._impl))
        if port is None:
            return
        self.names[link.name, link.is_receiver] = port
        if self.name and _lasts(link):
            self.container.names[self.user, self.name, link.name, link.is_receiver] = (self, port)

    def _forget_name(self, port: ProducerLink | ConsumerLink) -> None:
        key = (port.name, isinstance(port, ProducerLink))
        if self.names.get(key) is port:
            del self.names[key]
        if self.container.names.get((self.user, self.name, *key)) == (self, port):
            del self.container.names[self.user, self.name, *key]

    @staticmethod
    def _take_note(notes: set[tuple[int, str, bool]], link: Link) -> bool:
        """Whether there is a note of this link; it is gone then."""
        note = (link.session.sluice_channel, link.name, link.is_receiver)
        if note not in notes:
            return False
        notes.discard(note)
        return True

    def _mark_wronged(self, link: Link, *, refused: bool) -> None:
        self.wire.incoming.wrong(link.session.sluice_channel, link.name, link.is_receiver, refused)
        if link.is_receiver:
            session = link.session
            self.wire.repair_flows(_address_of(session._impl), session.sluice_channel, SESSION_FRAMES // 2)

    # --- what is said of it

    def about(self, **fields: object) -> About:
        """Who it is, for a line of the log."""
        return about(self.address, connection=self.id, container=self.name, user=self.user, **fields)

    def say_closed(self) -> None:
        """One line: who is gone, and why."""
        condition, reason = self.end
        why = ": ".join(filter(None, self.end)) or "the client went away without closing"
        opened = "" if self.is_open else " before it opened"
        text = "%s: closed%s, from %s, container '%s', user %s: %s"
        told = self.about(condition=condition, reason=reason or why)
        level = logging.INFO if condition else self._level()
        log.log(level, text, self.id, opened, self.address, self.name, self.user, why, extra=told)

    @property
    def names_its_product(self) -> bool:
        """Whether the properties of its `open` say what client it is, as those of Qpid JMS do."""
        try:
            properties: Any = self.connection.remote_properties
            return isinstance(properties, dict) and "product" in properties
        except UNREADABLE:
            return False

    def lose(self, condition: str, reason: str) -> None:
        """It is cut off, and can't be told why."""
        self._ends(condition, reason)

    def _ends(self, condition: str, reason: str) -> None:
        if self.end == ("", ""):
            self.end = condition, reason

    # --- events

    def _tell_opened(self) -> None:
        """Somebody is there, in the events and in the log."""
        self._tell("connection_opened", {"container": self.name[:LONGEST], "peer": self.address})
        text = "%s: open from %s, container '%s', user %s by %s%s"
        how = self.identity.mechanism or "no SASL"
        tls = f", {self.tls}" if self.tls else ""
        told = self.about(mechanism=how)
        log.log(self._level(), text, self.id, self.address, self.name, self.user, how, tls, extra=told)

    def _level(self) -> int:
        return logging.DEBUG if self.is_tool else logging.INFO

    def _is_own(self, link: ProducerLink | ConsumerLink | None) -> bool:
        """Whether a link is to management, to replies of it or to the broker's events."""
        if isinstance(link, SinkLink) or link is None:
            return True
        node = link.node
        return node is not None and (node.address == EVENTS or node.name.startswith(f"{TEMPORARY}/"))

    def _expose(self) -> None:
        """It does more than the command line does for itself: all that was left out is told now."""
        self.is_tool = False
        self._tell_opened()
        for link in self.attached.values():
            self._tell_link("link_opened", link)

    def _tell(self, kind: str, fields: Mapping[str, object], node: Node | None = None) -> None:
        if not self.is_tool or log.isEnabledFor(logging.DEBUG):
            self.container.engine.emit(kind, node, {"connection": self.id, **fields})

    def _tell_attached(self, link: ProducerLink | ConsumerLink | None) -> None:
        if self.is_tool and not self._is_own(link):
            self._expose()
        else:
            self._tell_link("link_opened", link)

    def _tell_link(self, kind: str, link: ProducerLink | ConsumerLink | None) -> None:
        if link is None:
            return
        role = "producer" if isinstance(link, ProducerLink) else "consumer"
        fields: dict[str, object] = {"link": link.id, "role": role, "name": link.name[:LONGEST]}
        if kind == "link_opened":
            fields["presettled"] = link.presettled
        self._tell(kind, fields, link.node)

    # --- links end

    def _drop(self, handle: int, how: int) -> None:
        if self.wire.refusals is not None:
            self.wire.refusals.pop(handle, None)
        attached = self.attached.get(handle)
        if attached is not None:
            self._gone(attached, how)

    def _gone(self, link: ProducerLink | ConsumerLink, how: int) -> None:
        handle = link.handle()
        self.attached.pop(handle, None)
        self.rights.drop(handle)
        self._forget_name(link)
        self._tell_link("link_closed", link)
        link.shut()
        subscription = self.joined.pop(handle, None)
        if subscription is not None:
            self.container.subscriptions.leave(subscription)
            subscription.node.not_from = None
        channel, kept = self.kept.pop(handle, (0, None))
        if subscription is not None and subscription.receivers:
            kept = None  # the last one to leave says how long it stays
        if kept is not None and kept.is_over(how):
            self._expire(kept, how, subscription)
        elif kept is not None and kept.is_over(CONNECTION_CLOSED):
            self.left[kept] = channel, subscription
            if subscription is not None:
                subscription.ends_later(partial(self.left.pop, kept, None))
        if kept is not None and not kept.is_ended:
            key = self._key_of(link.name, isinstance(link, ProducerLink))
            self.container.temporary.detached(kept, key)
        if self.container.orphans:
            self.container.look_after_orphans()

    def _keep(self, link: Link, kept: Kept) -> None:
        self.kept[_address_of(link._impl)] = link.session.sluice_channel, kept

    def _expire(self, kept: Kept, how: int, subscription: Subscription | None) -> None:
        """Its time begins, or is over already; of a subscription it is called off by whoever comes back."""
        if kept.timeout_s == 0 or how == CLOSED:
            kept.end()
            return
        container = self.container
        when_ns = container.engine.now_ns + kept.timeout_s * SECOND_NS
        timer = container.timers.at(when_ns, lambda _: kept.end())
        kept.ends_later(partial(container.timers.drop, timer))
        if subscription is not None:
            subscription.ends_later(kept.called_off)


def _given(subject: Given | None) -> Given:
    """What an event is about; Proton always says it for the events we handle."""
    if subject is None:
        raise RuntimeError("Proton sent an event without its subject")
    return subject


def _lasts(link: Link) -> bool:
    """Whether a terminus of the link, its alone, is there longer than its connection (§3.5.3, §3.5.4)."""
    termini = (link.remote_source, link.remote_target)
    if SHARED in _capabilities(link.remote_source):
        return False
    return any(
        each.durability != Terminus.NONDURABLE or each.expiry_policy == Terminus.EXPIRE_NEVER
        for each in termini
    )


def _capabilities(terminus: Terminus) -> list[str]:
    """What the terminus asks for, in its order."""
    capabilities = terminus.capabilities
    capabilities.rewind()
    wanted: list[Any] = []
    while capabilities.next() is not None:
        value = value_of(capabilities)
        wanted.extend(value if isinstance(value, list) else getattr(value, "elements", [value]))
    return [str(each) for each in wanted]


def _readable(terminus: Terminus) -> str:
    """Its address, which may be no text at all."""
    try:
        return terminus.address or ""
    except UnicodeDecodeError:
        return "?"


def _ignore() -> None:
    """Nobody waits for this connection to open."""


def _address_of(impl: object) -> int:
    return int(ffi.cast("uintptr_t", impl))


def _encoded(data: Any) -> bytes:
    """What a pn_data_t holds, as it stands on the wire; empty for nothing."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    buffer = ffi.new("char[]", size)
    return bytes(ffi.buffer(buffer, lib.pn_data_encode(data, buffer, size)))


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


def new_container_name() -> str:
    """A container id for a broker that wasn't given one."""
    return f"sluice-{uuid.uuid4()}"
