"""Attaching of links on which a client receives: from a queue, a subscription or a node made for the link."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from proton import Endpoint, Link, Terminus, symbol

from broker.amqp.control.addresses import GLOBAL, SHARED, as_topic
from broker.amqp.control.attached import AttachedLinks
from broker.amqp.control.client import ClientDetails
from broker.amqp.control.decoding import capabilities_of, copy_terminus, offer
from broker.amqp.control.handles import handle_of
from broker.amqp.control.lifetimes import CLOSED, DETACHED, Kept, lifetime_of, tell_lifetime
from broker.amqp.control.link_priority import of_receiver
from broker.amqp.control.names import AddressResolver
from broker.amqp.control.node_properties import tell_settings
from broker.amqp.control.permissions import LinkPermissions
from broker.amqp.control.placement import CLIENT_CELL
from broker.amqp.control.temporary import TemporaryNodes
from broker.amqp.control.termini import KeptTermini
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.consumer_settings import fit
from broker.amqp.links.filters import NO_LOCAL, Filters, without
from broker.amqp.links.filters import read as read_filters
from broker.amqp.loop.client_quotas import OverLimitError
from broker.amqp.management import ADDRESS as MANAGEMENT
from broker.codec.offsets import CHUNK_SPEC, OFFSET_SPEC
from broker.config.fields import Duration
from broker.config.patterns import is_pattern
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ConflictError, LimitError, OperatorError, PeerError
from broker.flow.window import Window
from broker.manage.names import is_own
from broker.manage.subscriptions import Subscription, SubscriptionKey, Subscriptions
from broker.queues.filters import compiled
from broker.queues.queue import Reader
from broker.security.acl import Action

# The link property by which a client limits how long its link may hold a message.
CONSUMER_TIMEOUT = "consumer_timeout"


class ConsumerAttach:
    """Attaches the links on which one client receives.

    ``replies`` are the nodes of its receivers on the management node, by its own names for them.
    """

    __slots__ = (
        *("_client", "_engine", "_links", "_max_message_size", "_names", "_permissions", "_replies"),
        *("_subscriptions", "_temporary", "_termini", "_wire"),
    )

    def __init__(
        self,
        wire: Wire,
        client: ClientDetails,
        links: AttachedLinks,
        names: AddressResolver,
        permissions: LinkPermissions,
        termini: KeptTermini,
        temporary: TemporaryNodes,
        subscriptions: Subscriptions,
        engine: Engine,
        max_message_size: int,
        replies: dict[str, Node],
    ) -> None:
        self._wire = wire
        self._client = client
        self._links = links
        self._names = names
        self._permissions = permissions
        self._termini = termini
        self._temporary = temporary
        self._subscriptions = subscriptions
        self._engine = engine
        self._max_message_size = max_message_size
        self._replies = replies

    def attach(self, link: Link) -> None:
        """Attach a link and answer it. PeerError says why it can't be."""
        source = link.remote_source
        if self._names.local(source.address or "") == MANAGEMENT:
            self._attach_for_replies(link)
        elif source.type == Terminus.UNSPECIFIED:
            self._come_back(link)
        elif not source.address and not source.dynamic:
            raise PeerError("amqp:invalid-field", "a source needs an address, or dynamic")
        else:
            self._attach_to_source(link, source)

    # --- the management node

    def _attach_for_replies(self, link: Link) -> None:
        reply_to = link.remote_target.address or ""
        is_cells = self._wire.owner.relays and reply_to == CLIENT_CELL and reply_to not in self._replies
        node = self._names.node_for_replies(counts=not is_cells)
        self._keep(link, Kept(DETACHED, 0, partial(self._forget_replies, reply_to, node)))
        if reply_to:
            self._replies[reply_to] = node
        self._open(link, node, link.remote_source.address or MANAGEMENT, Filters())

    def _forget_replies(self, reply_to: str, node: Node) -> None:
        if self._replies.get(reply_to) is node:
            del self._replies[reply_to]
        self._temporary.delete(node)

    # --- queues, and topics by their address

    def _attach_to_source(self, link: Link, source: Terminus) -> None:
        filters = read_filters(source.filter)
        copies = source.distribution_mode == Terminus.DIST_MODE_COPY
        address = "" if source.dynamic else self._names.local(source.address or "")
        stream, reader = ("", "") if source.dynamic else self._names.reader_of(address, copies)
        name = self._names.name_of(stream)
        if not source.dynamic and is_pattern(name):
            self._names.check_host(name)
            self._permissions.require(Action.RECEIVE, name)
            self._subscribe(link, name, filters)
            return
        reading, place = self._permissions.reading(name, copies)
        if source.dynamic:
            node = self._names.dynamic_node(link, source)
        else:
            node = self._names.node_of(source, reading, stream)
        self._names.check_receives(node)
        if node.is_topic and reader:
            text = f"'{node.name}' has partitions, and a reader reads one: '{node.name}/0::{reader}'"
            raise PeerError("amqp:invalid-field", text)
        if node.is_topic:
            if copies and not is_own(name):  # a subscription is no queue to look into
                self._permissions.require(Action.RECEIVE, name)
            self._subscribe(link, node.name, filters)
            return
        if node.settings.consumers == "exclusive" and any(
            isinstance(each, ConsumerLink) for each in node.consumers
        ):
            raise PeerError("amqp:resource-locked", f"'{node.name}' is exclusive and has a consumer")
        if reader:
            self._check_reader(node, reader)
        if filters.no_local:
            # Nobody knows any more who sent what is in a queue.
            filters = without(filters, NO_LOCAL)
        # As the peer wrote it: some clients compare.
        self._open(link, node, node.name if source.dynamic else source.address or "", filters, reader=reader)
        if not source.dynamic:
            self._permissions.hold(handle_of(link), reading, place)

    def _check_reader(self, node: Node, reader: str) -> None:
        try:
            self._engine.streams.commits.check(node, reader)
        except ConflictError as fault:
            raise PeerError("amqp:resource-locked", str(fault)) from fault
        except LimitError as fault:
            raise PeerError("amqp:resource-limit-exceeded", str(fault)) from fault

    # --- subscriptions

    def _subscribe(self, link: Link, address: str, filters: Filters) -> None:
        """Attach to a subscription: one the receiver comes back to, one that others share, or a new one."""
        source = link.remote_source
        wanted = self._wanted(link, address, filters)
        try:
            subscription = self._subscriptions.join(wanted, self._may_end)
        except ConflictError as fault:
            raise PeerError("amqp:resource-locked", str(fault)) from fault
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault
        except OperatorError as fault:
            raise PeerError("amqp:invalid-field", str(fault)) from fault
        self._receive_from(link, subscription, Kept.of(source, self._end_of(subscription)), filters)

    def _wanted(self, link: Link, address: str, filters: Filters) -> SubscriptionKey:
        source = link.remote_source
        capabilities = capabilities_of(source)
        never = source.expiry_policy == Terminus.EXPIRE_NEVER
        return SubscriptionKey(
            address=address,
            container=self._client.name,
            link=link.name,
            filters=filters.texts,
            no_local=filters.no_local,
            shared=SHARED in capabilities,
            shared_by_all=GLOBAL in capabilities,
            lasts=never or source.durability != Terminus.NONDURABLE or source.timeout > 0,
            durable=never and source.durability != Terminus.NONDURABLE,
            user=self._permissions.subscriber,
            stays=source.expiry_policy != Terminus.EXPIRE_WITH_LINK,
        )

    def _come_back(self, link: Link) -> None:
        """Attach to the subscription known by this link's name: JMS gives no source when it unsubscribes."""
        subscription = self._subscriptions.find(self._client.name, link.name, self._permissions.subscriber)
        if subscription is None or self._names.is_elsewhere(subscription.wanted.address):
            raise PeerError("amqp:not-found", f"no subscription is known by '{link.name}'")
        self._permissions.require(*self._permissions.reading(subscription.wanted.address, False))
        if subscription.receivers:
            raise PeerError("amqp:resource-locked", f"'{subscription.node.name}' has a receiver")
        subscription.enter()
        kept = Kept(CLOSED, 0, self._end_of(subscription))
        self._receive_from(link, subscription, kept, Filters())
        if subscription.wanted.durable:
            link.source.durability = Terminus.DELIVERIES
        link.source.expiry_policy = Terminus.EXPIRE_NEVER

    def _receive_from(self, link: Link, subscription: Subscription, kept: Kept, filters: Filters) -> None:
        handle = handle_of(link)
        of_topic = self._termini.kept_of(handle)
        if of_topic is not None:
            # The topic was made for this link too, and goes when its subscription does.
            kept = kept.followed_by(of_topic)
            self._temporary.replace(of_topic, kept)
        self._keep(link, kept)
        self._termini.join(handle, subscription)
        node = subscription.node
        if subscription.wanted.no_local:
            node.not_from = self._wire.owner
        given = link.remote_source
        is_named = given.address and not given.dynamic
        address = given.address if is_named else self._names.shown(node.address)
        self._open(link, node, address or "", filters, on_topic=True)
        self._permissions.hold(handle, *self._permissions.reading(node.address, False))

    def _may_end(self, wanted: SubscriptionKey) -> bool:
        """Whether a subscription may give way to this user's of the same name.

        The user's own may, and one from which the user could take all messages as well.
        """
        if self._names.is_elsewhere(wanted.address):
            return False
        is_own_user = wanted.user == self._permissions.subscriber
        return is_own_user or self._permissions.allows(*self._permissions.reading(wanted.address, False))

    def _end_of(self, subscription: Subscription) -> Callable[[], None]:
        """Return a function that ends a subscription when its time is over.

        A timer may hold it for years: it knows nothing of this connection.
        """
        subscriptions = self._subscriptions

        def end() -> None:
            if subscription.receivers == 0:
                subscriptions.remove(subscription)

        return end

    def _keep(self, link: Link, kept: Kept) -> None:
        self._termini.keep(handle_of(link), link.session.sluice_channel, kept)

    # --- the link itself

    def _open(
        self,
        link: Link,
        node: Node,
        address: str,
        filters: Filters,
        *,
        on_topic: bool = False,
        reader: str = "",
    ) -> None:
        """Begin to send from a node, or its subscription, that the client calls by this address.

        ``reader`` is the name of the reader for which the link reads a stream, if it has one.
        """
        source = link.remote_source
        browses = not on_topic and _browses(source, node)
        # A subscription has its filter already; the messages in it fit.
        wanted = None if on_topic else compiled(filters.texts)
        priority = of_receiver(link)
        consumer = self._consumer(link, node)
        consumer.priority = priority
        if browses or wanted is not None:
            consumer.reader = Reader(consumer, wanted, browses)
        reads = consumer.reader
        if node.stream is not None and reads is not None:
            filters = self._begin_reading(consumer, reads, filters, reader)
        elif filters.start is not None or filters.chunk is not None:
            filters = without(without(filters, OFFSET_SPEC), CHUNK_SPEC)
        self._describe(link, node, address, filters, on_topic)
        self._answer(link, consumer, on_topic)
        consumer.shares = consumer.window.shared is not None
        if browses:
            consumer.browses = True
            self._engine.delivery.add_browser(node, consumer)
            if reader and reads is not None and consumer.named is None:
                self._engine.streams.commits.begin(node, reader, consumer, reads.passed)
        else:
            self._engine.delivery.add_consumer(node, consumer)

    def _begin_reading(self, consumer: ConsumerLink, reads: Reader, filters: Filters, reader: str) -> Filters:
        """Say where a link begins in a stream: where its filter says, or where its reader has been.

        Return the filters that hold.
        """
        start = filters.start or ("next", 0)
        known = self._engine.streams.commits.join(consumer.node, reader, consumer) if reader else None
        if known is not None:
            start = ("offset", known.committed)
            filters = without(filters, OFFSET_SPEC)
        if filters.chunk is not None and (reader or filters.texts):
            # A place is a message's, and so is what a selector passes.
            filters = without(filters, CHUNK_SPEC)
        self._engine.streams.begin(reads, *start)
        if filters.chunk is not None:
            reads.run.chunk_bytes, reads.run.until = filters.chunk
            consumer.chunk_bytes = reads.run.chunk_bytes
        return filters

    def _consumer(self, link: Link, node: Node) -> ConsumerLink:
        handle = handle_of(link)
        presettled = link.remote_snd_settle_mode == Link.SND_SETTLED
        window = Window(0, 50, self._wire.shared)
        channel = link.session.sluice_channel
        # Before there is a link of ours: it may be no time.
        asked_timeout_ns = _asked_timeout_ms(link) * 1_000_000
        consumer = ConsumerLink(
            self._wire, handle, self._engine, node, window, link.name, presettled, channel
        )
        consumer.asked_timeout_ns = asked_timeout_ns
        fit(consumer, node.settings, self._engine.turn.now_ns)
        consumer.origin = self._wire.owner
        self._links.by_handle[handle] = consumer
        return consumer

    def _describe(self, link: Link, node: Node, address: str, filters: Filters, on_topic: bool) -> None:
        """Fill in our side of the link: what holds of all that the client has asked for."""
        source = link.remote_source
        copy_terminus(link.source, source)
        link.source.type = Terminus.SOURCE
        link.source.address = address
        link.source.dynamic = source.dynamic
        if not on_topic and _browses(source, node):
            link.source.distribution_mode = Terminus.DIST_MODE_COPY
        if on_topic:
            offer(link.source, as_topic(capabilities_of(source)))
        if source.dynamic:
            tell_lifetime(link.source, lifetime_of(source))
        tell_settings(link.source, source, node.settings)
        link.source.filter.clear()
        if filters.applied:
            link.source.filter.put_object(filters.applied)
        copy_terminus(link.target, link.remote_target)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.max_message_size = self._max_message_size

    def _answer(self, link: Link, consumer: ConsumerLink, on_topic: bool) -> None:
        """Answer an attach, of a durable subscription once that is on disk.

        A client that was told of its subscription has it, whatever happens to the broker then.
        """
        storing = self._engine.durability.commit
        if storing is None or not on_topic or consumer.node.shelf is None:
            link.open()
            return
        handle = consumer.handle()

        def known() -> None:
            attached = self._links.by_handle.get(handle) is consumer
            if attached and link.state & Endpoint.LOCAL_UNINIT:
                link.open()
                self._wire.mark()

        storing.known(consumer.node, known)


def _browses(source: Terminus, node: Node) -> bool:
    """Return whether a receiver takes nothing: it asks for copies, or its queue gives nothing else."""
    if node.stream is not None or node.settings.non_destructive:
        return True
    return bool(source.distribution_mode == Terminus.DIST_MODE_COPY)


def _asked_timeout_ms(link: Link) -> int:
    """Return how long the link may hold a message as its own properties say; 0 where they don't.

    PeerError where that is no duration.
    """
    properties = link.remote_properties
    value = properties.get(symbol(CONSUMER_TIMEOUT)) if isinstance(properties, dict) else None
    if value is None:
        return 0
    try:
        # An AMQP type of Proton's is no plain number; a truth value is none at all.
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return Duration().parse(int(value) if is_number else value)
    except ValueError as fault:
        raise PeerError("amqp:invalid-field", f"the link property {CONSUMER_TIMEOUT}: {fault}") from fault
