"""The live connections and their links, as the management model shows them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from broker.amqp.control.live import LiveConnection
from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.producer import ProducerLink
from broker.amqp.links.relay import RelayLink
from broker.engine.node import Node
from broker.flow.producer_credit import ProducerCredit
from broker.manage.views import ConnectionView, ConsumerView, ProducerView, SessionView
from broker.units import SECOND_NS

log = logging.getLogger("sluice.amqp")

Link = TypeVar("Link", ProducerLink, ConsumerLink)


class ConnectionRegistry:
    """Every connection that has authenticated; implements ``manage.views.Links``.

    A connection by which another cell passes links of its client on is no client's: its links are listed.
    """

    def __init__(self) -> None:
        self.peers: set[LiveConnection] = set()
        # The number of this cell, where it is one of several.
        self.cell = -1

    def every(self, kind: str) -> Iterator[object]:
        """The views of one kind, each made when it is asked for: connections may come and go between two."""
        for peer in sorted(self.peers, key=lambda peer: peer.number):
            if peer not in self.peers:
                continue
            if kind == "link":
                yield from self._link_views(peer)
            elif not peer.relays:
                yield from [_connection_view(peer)] if kind == "connection" else _session_views(peer)

    def connections(self) -> list[ConnectionView]:
        """One view a connection, oldest first."""
        return [_connection_view(peer) for peer in self._clients()]

    def sessions(self) -> list[SessionView]:
        """One view a session, connection by connection."""
        return [view for peer in self._clients() for view in _session_views(peer)]

    def _clients(self) -> list[LiveConnection]:
        return sorted((peer for peer in self.peers if not peer.relays), key=lambda peer: peer.number)

    def close(self, connection_id: str) -> bool:
        """Close a connection by an operator's hand; false if there is none of that id."""
        for peer in list(self.peers):
            if peer.id == connection_id:
                log.info("%s: closed by an operator", peer.id)
                peer.close("amqp:connection:forced", "an operator closed this connection")
                return True
        return False

    def detach(self, link_id: str) -> bool:
        """Detach a link by an operator's hand; false if there is none of that id."""
        connection_id = link_id.partition(".")[0]
        for peer in [peer for peer in self.peers if peer.id == connection_id]:
            for link in list(peer.wire.links):
                if link.id == link_id:
                    peer.detach(link, "amqp:link:detach-forced", "an operator detached this link")
                    return True
        return False

    def nodes_of(self, link_id: str) -> list[str]:
        """The names of a link's nodes, of a relay all it has sent to; empty if there is none of that id."""
        connection_id = link_id.partition(".")[0]
        for peer in [peer for peer in self.peers if peer.id == connection_id]:
            for link in peer.wire.links:
                if link.id == link_id:
                    return _nodes(link)
        return []

    def producers(
        self, node_name: str | None, only: Callable[[object], bool] | None = None
    ) -> list[ProducerView]:
        """The producer links of one node, or of all; a relay shows once for each node it sent to."""
        return [
            self._producer_view(peer, link, node, account)
            for peer, link in self._links(ProducerLink)
            for node, account in _accounts(link)
            if (node_name is None or node.name == node_name) and (only is None or only(node))
        ]

    def consumers(
        self, node_name: str | None, only: Callable[[object], bool] | None = None
    ) -> list[ConsumerView]:
        """The consumer links of one node, or of all."""
        return [
            self._consumer_view(peer, link)
            for peer, link in self._links(ConsumerLink)
            if (node_name is None or link.node.name == node_name) and (only is None or only(link.node))
        ]

    def _links(self, kind: type[Link]) -> Iterator[tuple[LiveConnection, Link]]:
        for peer in sorted(self.peers, key=lambda peer: peer.number):
            for link in peer.wire.links:
                if isinstance(link, kind):
                    yield peer, link

    def _link_views(self, peer: LiveConnection) -> Iterator[object]:
        for link in list(peer.wire.links):
            if link not in peer.wire.links:
                continue  # gone since the last view, and Proton's part of it with it
            if isinstance(link, ConsumerLink):
                yield self._consumer_view(peer, link)
            elif isinstance(link, ProducerLink):
                yield from [self._producer_view(peer, link, *each) for each in _accounts(link)]

    def _producer_view(
        self, peer: LiveConnection, link: ProducerLink, node: Node, account: ProducerCredit
    ) -> ProducerView:
        return ProducerView.of(
            account,
            id=link.id,
            connection=peer.id,
            container=peer.name,
            peer=peer.address,
            node=node.name,
            link=link.name,
            presettled=link.presettled,
            credit=link.credit() if link.open_credit else None,
            passed_to=self.cell if peer.relays else -1,
        )

    def _consumer_view(self, peer: LiveConnection, link: ConsumerLink) -> ConsumerView:
        return ConsumerView.of(
            link.window,
            id=link.id,
            connection=peer.id,
            container=peer.name,
            peer=peer.address,
            node=link.node.name,
            link=link.name,
            credit=link.credit(),
            delivered=link.delivered,
            settled=link.settled,
            presettled=link.presettled,
            settle_rate=link.rate,
            timed_out=link.timed_out,
            round_trip_s=0.0 if link.pace is None else link.pace.trip_ns / SECOND_NS,
            slow=link.slow,
            attached_ns=link.attached_ns,
            served_ns=link.served_ns,
            settled_ns=link.settled_ns,
            active=link.browses or link.node.active_consumer() is link,
            browses=link.browses,
            finished=_is_finished(link),
            selects=link.reader is not None and link.reader.wanted is not None,
            unseen_msgs=_unseen_msgs(link),
            choked=link.is_choked(),
            priority=link.priority,
            streaming=link.is_streaming(),
            unsent_bytes=link.unsent_bytes(),
            passed_to=self.cell if peer.relays else -1,
        )


def _nodes(link: ProducerLink | ConsumerLink) -> list[str]:
    if isinstance(link, ConsumerLink):
        return [link.node.name]
    return [node.name for node, _ in _accounts(link)]


def _accounts(link: ProducerLink) -> list[tuple[Node, ProducerCredit]]:
    if isinstance(link, RelayLink):
        return link.open_accounts()
    if link.node is None or link.account is None:
        return []
    return [(link.node, link.account)]


def _connection_view(peer: LiveConnection) -> ConnectionView:
    transactions = list((peer.wire.transactions or {}).values())
    began_ns = [each.began_ns for each in transactions if not each.is_empty()]
    return ConnectionView(
        id=peer.id,
        container=peer.name,
        peer=peer.address,
        opened_ns=peer.opened_ns,
        sessions=len(peer.channels()),
        links=len(peer.wire.links),
        messages_in=peer.wire.received,
        messages_out=peer.wire.sent,
        user=peer.user,
        mechanism=peer.identity.mechanism,
        tls=peer.tls,
        open_transactions=len(transactions),
        oldest_transaction_ns=min(began_ns, default=0),
        uncommitted_msgs=sum(len(each.posts) for each in transactions),
        uncommitted_bytes=sum(each.posted_bytes for each in transactions),
    )


def _session_views(peer: LiveConnection) -> list[SessionView]:
    found = []
    for channel in peer.channels():
        links = [link for link in peer.wire.links if link.channel == channel]
        takers = [link for link in links if isinstance(link, ConsumerLink)]
        found.append(
            SessionView(
                id=f"{peer.id}/{channel}",
                connection=peer.id,
                container=peer.name,
                peer=peer.address,
                channel=channel,
                producers=len(links) - len(takers),
                consumers=len(takers),
                unsettled=sum(link.window.unsettled for link in takers),
            )
        )
    return found


def _is_finished(link: ConsumerLink) -> bool:
    """Whether a link that doesn't take everything has looked at all there is."""
    order = link.node.queue.order
    if order is not None and not link.browses:
        return link.reader is not None and not order.has_more(link)
    return link.reader is not None and not link.node.queue.has_more(link.reader)


def _unseen_msgs(link: ConsumerLink) -> int:
    """How many messages on disk a reader has yet to look at."""
    spool = link.node.spool
    return 0 if link.reader is None or spool is None else spool.left_for(link.reader)
