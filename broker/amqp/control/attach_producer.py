"""Attaching of links on which a client sends: to a node, to the anonymous relay or to the management node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from proton import Delivery, Link, Terminus

from broker.amqp.control.attached import AttachedLinks
from broker.amqp.control.decoding import copy_terminus, offer, refusal_of
from broker.amqp.control.handles import handle_of
from broker.amqp.control.lifetimes import lifetime_of, tell_lifetime
from broker.amqp.control.link_priority import lowest_sent
from broker.amqp.control.names import AddressResolver
from broker.amqp.control.node_properties import tell_settings
from broker.amqp.control.permissions import LinkPermissions
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.coordinator import CoordinatorLink
from broker.amqp.links.producer import ProducerLink
from broker.amqp.links.relay import RelayLink
from broker.amqp.links.sink import SinkLink
from broker.amqp.management import ADDRESS as MANAGEMENT
from broker.amqp.requests import ManagementRequests
from broker.config.limits import Limits
from broker.engine.engine import Engine
from broker.engine.priorities import classify
from broker.engine.transaction import Transaction
from broker.errors import PeerError
from broker.security.acl import Action

# Credit on links that reserve nothing: to the management node, the coordinator, a rejecting queue, the relay.
MANAGEMENT_CREDIT = 20
COORDINATOR_CREDIT = 100
# The coordinator's capabilities (AMQP 1.0 §4.5.9): transactions of one connection, on any of its sessions.
TRANSACTIONS = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
OPEN_CREDIT = 500


# A cell, a message, whom to tell its outcome, and the transaction that it is sent in.
PassOn = Callable[[int, bytes, Callable[[int, bytes, bytes], None], Transaction | None], None]


class ProducerAttach:
    """Attaches the links on which one client sends."""

    __slots__ = (
        *("_engine", "_limits", "_links", "_names", "_permissions", "_requests", "_wire"),
        *("pass_on", "prepare_transactions"),
    )

    def __init__(
        self,
        wire: Wire,
        links: AttachedLinks,
        names: AddressResolver,
        permissions: LinkPermissions,
        engine: Engine,
        limits: Limits,
        requests: ManagementRequests,
    ) -> None:
        self._wire = wire
        self._links = links
        self._names = names
        self._permissions = permissions
        self._engine = engine
        self._limits = limits
        self._requests = requests
        # Passes messages on to other cells; None where there is one cell, or the connection is another's.
        self.pass_on: PassOn | None = None
        # Has other cells take the client's transactions, and calls the function once they do; None likewise.
        self.prepare_transactions: Callable[[Callable[[], None]], None] | None = None

    def attach(self, link: Link) -> None:
        """Attach a link and answer it. PeerError says why it can't be."""
        target = link.remote_target
        if target.type == Terminus.COORDINATOR:
            self._attach_to_coordinator(link)
            return
        if target.type == Terminus.UNSPECIFIED:
            raise PeerError("amqp:invalid-field", "a target is needed; one without an address is the relay")
        if self._names.local(target.address or "") == MANAGEMENT:
            self._attach_to_management(link, target)
        elif not target.address and not target.dynamic:
            self._attach_to_relay(link)
        else:
            self._attach_to_node(link, target)

    def _attach_to_management(self, link: Link, target: Terminus) -> None:
        manage = partial(self._requests.manage, self._wire.owner)
        most = min(self._limits.max_request_size, self._limits.max_message_size)
        producer = SinkLink(self._wire, handle_of(link), self._engine, link.name, most, manage)
        self._answer(link, producer, target.address)
        producer.start_open(MANAGEMENT_CREDIT)

    def _attach_to_coordinator(self, link: Link) -> None:
        limits = self._limits
        most = min(limits.max_request_size, limits.max_message_size)
        coordinator = CoordinatorLink(self._wire, handle_of(link), self._engine, link.name, most, limits)
        self._answer(link, coordinator, None)
        if self._wire.owner.relays:
            # More than there may be requests: no message may overtake its transaction's declaration.
            coordinator.start_open(COORDINATOR_CREDIT + 8 * limits.max_transactions)
        elif self.prepare_transactions is None:
            coordinator.start_open(COORDINATOR_CREDIT)
        else:
            self.prepare_transactions(partial(coordinator.start_open, COORDINATOR_CREDIT))

    def _attach_to_relay(self, link: Link) -> None:
        resolve, most = self._names.relayed_node_of, self._limits.max_message_size
        producer = RelayLink(self._wire, handle_of(link), self._engine, link.name, most, resolve)
        producer.foreign = self.pass_on
        self._answer(link, producer, None)
        producer.start_open(OPEN_CREDIT)

    def _attach_to_node(self, link: Link, target: Terminus) -> None:
        if target.dynamic:
            node = self._names.dynamic_node(link, target)
        else:
            node = self._names.node_of(target, Action.SEND)
        self._names.check_takes_messages(node.name)
        limit = min(self._limits.max_message_size, node.settings.max_message_size)
        if node.stream is not None or node.settings.partitions:
            # A body in a file of its own has no place among a stream's messages.
            limit = min(limit, self._engine.large.most)
        handle = handle_of(link)
        stated = lowest_sent(link)
        producer = ProducerLink(self._wire, handle, self._engine, link.name, limit)
        self._answer(link, producer, node.name if target.dynamic else target.address)
        if target.dynamic:
            tell_lifetime(link.target, lifetime_of(target))
        tell_settings(link.target, target, node.settings)
        promised = producer.presettled or not self._engine.producers.reject_at_once(node)
        producer.node = node
        producer.account = self._engine.producers.open(node, producer, promised, self._wire.budget)
        producer.account.origin = self._wire.owner
        if stated >= 0:
            producer.account.stated = stated
            classify(node, producer.account)
        if not target.dynamic:
            self._permissions.hold(handle, Action.SEND, node.name)
        if not promised:
            producer.start_open(OPEN_CREDIT)

    def _answer(self, link: Link, producer: ProducerLink, address: str | None) -> None:
        """Answer the attach; its target has this address, or none."""
        self._links.by_handle[producer.handle()] = producer
        producer.channel = link.session.sluice_channel
        copy_terminus(link.source, link.remote_source)
        copy_terminus(link.target, link.remote_target)
        self._choose_refusal(link, producer)
        if address is not None:
            link.target.address = address
        if link.target.type == Terminus.COORDINATOR:
            offer(link.target, TRANSACTIONS)
        link.target.dynamic = link.remote_target.dynamic
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.max_message_size = producer.max_size
        producer.presettled = link.remote_snd_settle_mode == Link.SND_SETTLED
        producer.second = link.remote_rcv_settle_mode == Link.RCV_SECOND
        producer.most_unconfirmed = self._limits.max_unsettled
        link.open()

    def _choose_refusal(self, link: Link, producer: ProducerLink) -> None:
        """Choose the outcome of a message that isn't taken, of those that the source offers (§3.5.3)."""
        handle = producer.handle()
        refusal = refusal_of(link.source)
        if refusal == Delivery.REJECTED:
            if self._wire.refusals is not None:
                self._wire.refusals.pop(handle, None)
            return
        producer.refusal = refusal
        if self._wire.refusals is None:
            self._wire.refusals = {}
        self._wire.refusals[handle] = refusal
