"""What the connections of one broker share: its engine, its model of nodes and its reactor's lists."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.amqp.control import lifetimes
from broker.amqp.control.connection import ConnectionControl, new_container_name
from broker.amqp.control.sole import SoleConnections
from broker.amqp.control.temporary import TemporaryNodes
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.connection import ConsumerLink, ProducerLink
from broker.amqp.links.consumers import Sampler, fit
from broker.amqp.loop.client_quotas import Quotas
from broker.amqp.loop.control_quota import ControlQuota
from broker.amqp.loop.later import LongAnswers
from broker.amqp.loop.timers import Timers
from broker.amqp.management import Awaited, ManagementNode, Pending, at_once
from broker.amqp.registry import ConnectionRegistry
from broker.amqp.trace import FrameReader, Tap
from broker.config.synonyms import from_arguments
from broker.config.thresholds import resolve
from broker.engine.engine import SECOND_NS, Engine
from broker.engine.node import Node
from broker.manage.access import TEMPORARY
from broker.manage.address_settings import NOTHING
from broker.security.acl import Action

if TYPE_CHECKING:
    from broker.config.broker import Settings
    from broker.manage.model import Model
    from broker.manage.tracing import TraceRequest

log = logging.getLogger("sluice.amqp")

# Answers that wait for one connection that asked, wherever it wants them; more are dropped.
UNREAD_BYTES = 16 << 20
# The same where the broker's memory is used up: it is then that operators ask.
UNREAD_TIGHT_BYTES = 1 << 20
# What the name of a node that is made for a link is drawn from.
NAME_BYTES = 18
# How often connections that wait for each other are dealt to in one turn.
ROUNDS = 8


class Container:
    """The AMQP face of a broker. ``peers`` is the roster's set of connections.

    ``to_flush``, ``answers`` and ``turns`` are the reactor's: connections with output, consumers that wait
    for an answer to a drain, connections whose links take turns. ``timers`` are what it looks at.
    """

    def __init__(self, engine: Engine, model: Model, roster: ConnectionRegistry, settings: Settings) -> None:
        self.engine = engine
        self.model = model
        self.peers = roster.peers
        self.settings = settings
        self.name = new_container_name()
        self.quotas = Quotas(settings.limits, settings.connection_limits)
        self.to_flush: list[Wire] = []
        self.answers: list[ConsumerLink] = []
        self.turns: list[Wire] = []
        # Connections that are over, and some of whose links are still there.
        self.parting: dict[ConnectionControl, None] = {}
        # What is done beside messages has its time from here; and the requests that wait for it.
        self.lane = ControlQuota(settings.limits.control_share, time.monotonic_ns())
        self.requests: deque[tuple[ConnectionControl, bytes, Callable[[], None]]] = deque()
        self._sampler = Sampler(engine)
        # Dynamic nodes whose link is gone, and what they still wait for.
        self.orphans: dict[Node, int] = {}
        self.temporary = TemporaryNodes(self.peers)
        self.sole = SoleConnections()
        self.at: Callable[[int, Callable[[int], None]], None] = _no_timers
        self.timers = Timers()
        self.subscriptions = model.subscriptions
        # Links whose terminus lasts, by user, container-id, link name and whether the peer sends.
        self.names: dict[
            tuple[str, str, str, bool], tuple[ConnectionControl, ProducerLink | ConsumerLink]
        ] = {}
        self._numbers = itertools.count(1)
        limits = settings.limits
        # Brings a function to the reactor's thread, once there is one.
        self.post: Callable[[Callable[[], None]], None] | None = None
        # Apart for trials, which need no right to change anything and hold up nobody who has it.
        self._long_answers: dict[bool, LongAnswers] = {}
        self._management = ManagementNode(
            model, limits.max_request_size, limits.max_depth, limits.max_elements
        )
        model.nodes.on_delete = self.detach_all
        model.nodes.on_change = self.rewindow
        model.tracing.begin = self.trace

    def next_number(self) -> int:
        """A number nothing else of this run has."""
        return next(self._numbers)

    def next_id(self, prefix: str) -> str:
        """A name no other connection or subscription of this run has."""
        return f"{prefix}{self.next_number()}"

    def resolve(
        self, address: str, wanted_kind: str | None, user: str = "", asked: Mapping[str, object] = NOTHING
    ) -> Node:
        """The node of an address, with what is ``asked`` for where it is made; OperatorError (or
        NotFoundError) says why it can't be had, LimitError that the user has made too many.
        """
        return self.model.nodes.resolve(address, wanted_kind, user, asked)

    def temporary_node(
        self,
        peer: ConnectionControl,
        kind: str = "queue",
        *,
        user: str = "",
        asked: Mapping[str, object] = NOTHING,
    ) -> Node:
        """A node that is made for a link of this connection; it goes by its lifetime policy.

        Its name can't be guessed: whoever is to send there is told it. SettingError where what is ``asked``
        for contradicts itself.
        """
        self.model.ownership.check(user, for_a_link=True)
        arguments = from_arguments(asked)
        defaults = self.settings.flow.defaults.without_letters("temporary")
        settings = replace(resolve(arguments, defaults), kind=kind, durable=False)
        node = self.engine.create(f"{TEMPORARY}/{secrets.token_urlsafe(NAME_BYTES)}", settings)
        node.arguments = arguments
        self.model.ownership.made(node, user)
        self.temporary.add(node, peer)
        return node

    def recheck(self) -> None:
        """The rules have changed: whoever lost a right loses the links that needed it."""
        for peer in list(self.peers):
            peer.recheck()

    def abandon(self, node: Node, policy: int) -> None:
        """The link a node was made for is gone, and so is the node, once its policy allows it."""
        self.orphans[node] = policy
        self.look_after_orphans()

    def look_after_orphans(self) -> None:
        """Delete those whose policy allows it now; called when a link goes, and once a second."""
        for node, policy in list(self.orphans.items()):
            if node.deleted:
                del self.orphans[node]
            elif _may_go(node, policy):
                del self.orphans[node]
                self.forget_temporary(node)

    def forget_temporary(self, node: Node) -> None:
        """The node is gone with its links."""
        if node.name in self.engine.nodes:
            self.model.nodes.delete(node.name, anyway=True)

    def detach_all(self, node: Node) -> None:
        """A node was deleted: detach its links with `amqp:resource-deleted`."""
        self.temporary.gone(node)
        for peer in list(self.peers):
            for link in list(peer.wire.links):
                if link.node is node:
                    peer.detach(link, "amqp:resource-deleted", f"'{node.name}' was deleted")

    def take_turns(self) -> None:
        """Deal out what came free of connections' windows; it is dispatched."""
        for _ in range(ROUNDS):
            wires = self.turns[:]
            self.turns.clear()
            for wire in wires:
                wire.turning = False
                self._take_turns(wire)

    def _take_turns(self, wire: Wire) -> None:
        shared = wire.shared
        idle = 0
        # Whoever took nothing of its share has had its turn: when all have, nobody can take more.
        while shared is not None and shared.due() and idle <= len(wire.links):
            before = shared.unsettled
            wire.turning = True
            wire.take_turns()
            self.engine.end_turn()
            wire.turning = False
            idle = 0 if shared.unsettled > before else idle + 1

    def sample(self, now_ns: int) -> None:
        """Once a second: the rates of all consumers, and who is slow."""
        self._sampler.sample(self.peers, now_ns)

    def trace(self, order: TraceRequest) -> bool:
        """Log a connection's frames for a while; whether there is such a connection."""
        peer = next((each for each in self.peers if each.id == order.connection), None)
        if peer is None:
            return False
        wire = peer.wire
        if wire.tap is not None:
            wire.tap.finish("another order came")
        if order.frames == 0:
            return True

        def end() -> None:
            wire.tap = None

        readers = FrameReader(*wire.incoming.position()), FrameReader(*wire.outgoing.position())
        tap = wire.tap = Tap(peer.id, peer.address, order.frames, readers, end)
        due_ns = self.engine.now_ns + order.seconds * SECOND_NS
        self.at(due_ns, lambda _: tap.finish("its time is over"))
        return True

    def rewindow(self, node: Node) -> None:
        """A node has new settings: its consumers get their new windows."""
        settings = node.settings
        if settings is None:
            return
        for consumer in (*node.consumers, *node.browsers):
            if isinstance(consumer, ConsumerLink):
                fit(consumer, settings, self.engine.now_ns)
        self.engine.mark_dirty(node)

    def manage(self, peer: ConnectionControl, request: bytes, done: Callable[[], None] | None) -> bool:
        """Answer a peer's management request if there is time for it: true. With ``done``, which is called
        afterwards, it waits until there is; false where too many do.
        """
        if done is not None:
            if len(self.requests) >= self.settings.limits.max_waiting_requests:
                self.quotas.refuse("max_waiting_requests")
                return False
            self.requests.append((peer, request, done))
            return True
        began_ns = time.monotonic_ns()
        if self.requests or not self.lane.may_serve(began_ns):
            return False
        self._manage(peer, request)
        self.lane.charge(time.monotonic_ns() - began_ns)
        return True

    def part(self) -> None:
        """Shut more links of the connection that has been over for longest."""
        peer = next(iter(self.parting))
        if peer.shut_some():
            del self.parting[peer]
            if peer.forgotten:
                peer.forget()

    def answer_request(self) -> None:
        """The oldest management request that waits."""
        peer, request, done = self.requests.popleft()
        if peer in self.peers:
            self._manage(peer, request)
            done()

    def _manage(self, peer: ConnectionControl, request: bytes) -> None:
        awaited: list[Awaited] = []
        answer = self._management.begin(request, peer.identity, awaited.append)
        if isinstance(answer, Pending):
            self._manage_later(peer, answer)
        elif answer is not None:
            self._reply(peer, *answer)
        elif awaited:
            self._await(peer, awaited[0])
        else:
            text = "a management request without a usable reply-to was ignored"
            log.info(text, extra=peer.about())

    def _manage_later(self, peer: ConnectionControl, pending: Pending) -> None:
        """Answer what takes long, without the loop."""
        if self.post is None:
            self._reply(peer, pending.reply_to, pending.answer(at_once))
            return
        answers = self._long_answers.get(pending.dry_run)
        if answers is None:
            answers = self._long_answers[pending.dry_run] = LongAnswers(self.post, self.lane.charge)

        def done(reply: bytes) -> None:
            if peer in self.peers:
                self._reply(peer, pending.reply_to, reply)

        if not answers.submit(pending.answer, done):
            self._reply(peer, pending.reply_to, pending.refused("too much is being worked out; try again"))

    def _await(self, peer: ConnectionControl, awaited: Awaited) -> None:
        """Answer when the disk has been read."""

        def go_on() -> None:
            answer = self._management.resume(awaited)
            if answer is not None and peer in self.peers:
                self._reply(peer, *answer)

        awaited.browsing.told = go_on

    def _reply(self, peer: ConnectionControl, reply_to: str, reply: bytes) -> None:
        """Send an answer; one nobody waits for any more, or reads, is dropped."""
        node = peer.replies.get(reply_to)
        if node is None and self._may_answer_at(peer, reply_to):
            node = self.engine.nodes.get(reply_to)
        if node is None or node.is_topic:
            text = "the management reply has nowhere to go: no node %a"
            log.info(text, reply_to, extra=peer.about())
            return
        if node.gate.closed or not self._has_room(peer, node):
            text = "a management reply to %a was dropped: those before it are not read"
            log.info(text, reply_to, extra=peer.about())
            return
        # What the answer promises is on disk before anybody can read it.
        self.engine.put_behind(node, reply)

    def _may_answer_at(self, peer: ConnectionControl, reply_to: str) -> bool:
        """Whether who asks may send there, or had the node made for answers."""
        authority, ownership = self.model.authority, self.model.ownership
        if authority.allows(peer.identity, Action.SEND, reply_to):
            return True
        node = self.engine.nodes.get(reply_to) if reply_to.startswith(f"{TEMPORARY}/") else None
        return node is not None and bool(peer.rights.maker) and ownership.user(node) == peer.rights.maker

    def _has_room(self, peer: ConnectionControl, node: Node) -> bool:
        """Whether one more answer may wait there."""
        waiting = sum(each.gate.depth_bytes for each in {node, *peer.replies.values()})
        return waiting <= (UNREAD_TIGHT_BYTES if self.engine.memory.closed else UNREAD_BYTES)


def _may_go(node: Node, policy: int) -> bool:
    """Whether a node whose link is gone goes too, by its lifetime policy (AMQP 1.0 §3.5.10)."""
    links = len(node.consumers) + len(node.browsers) + len(node.subscriptions) + len(node.ledger.accounts)
    if policy == lifetimes.ON_NO_LINKS:
        return links == 0
    if policy == lifetimes.ON_NO_MESSAGES:
        return node.gate.depth_msgs == 0
    if policy == lifetimes.ON_NO_LINKS_OR_MESSAGES:
        return links == 0 and node.gate.depth_msgs == 0
    return True


def _no_timers(when_ns: int, function: Callable[[int], None]) -> None:
    """Nobody runs the loop yet."""
