"""Requests of connections to the management node, and the answers that go back to them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from broker.amqp.control.addresses import inside, is_foreign, parsed
from broker.amqp.control.live import LiveConnection
from broker.amqp.control.placement import CLIENT_CELL, NodeDirectory
from broker.amqp.loop.client_quotas import Quotas
from broker.amqp.loop.control_quota import ControlQuota
from broker.amqp.loop.later import LongAnswers, Post
from broker.amqp.management import Awaited, ManagementNode, Pending
from broker.codec.message import address_of
from broker.config.limits import Limits
from broker.engine.node import Node
from broker.manage.access import TEMPORARY
from broker.manage.model import Model
from broker.security.acl import Action

log = logging.getLogger("sluice.amqp")

# Answers that wait for one connection that asked, wherever it wants them; more are dropped.
UNREAD_BYTES = 16 << 20
# The same where the broker's memory is used up: it is then that operators ask.
UNREAD_TIGHT_BYTES = 1 << 20


class ManagementRequests:
    """Takes connections' requests to the management node, when there is time, and delivers its answers.

    ``peers`` are the connections that are alive; ``post`` brings a function to the loop's thread.
    """

    def __init__(
        self,
        model: Model,
        limits: Limits,
        virtual_hosts: Sequence[str],
        quotas: Quotas,
        lane: ControlQuota,
        peers: Collection[LiveConnection],
        post: Post,
    ) -> None:
        self._model = model
        self._engine = model.engine
        self._most_waiting = limits.max_waiting_requests
        self._hosts = virtual_hosts
        self._quotas = quotas
        self._lane = lane
        self._peers = peers
        self._post = post
        # None where there is one cell.
        self._cells: NodeDirectory | None = None
        # Those that wait for time, each with the function to call afterwards.
        self.waiting: deque[tuple[LiveConnection, bytes, Callable[[], None]]] = deque()
        self._node = ManagementNode(model, limits.max_request_size, limits.max_depth, limits.max_elements)
        # Trials apart: they need no right to change anything and hold up nobody who has it.
        self._long_answers: dict[bool, LongAnswers] = {}

    def join(self, cells: NodeDirectory) -> None:
        """Answer as one of several cells."""
        self._cells = cells
        self._node.cell, self._node.cells = cells.own, cells.cells

    def manage(self, peer: LiveConnection, request: bytes, done: Callable[[], None] | None) -> bool:
        """Answer a client's request if there is time for it: true.

        With ``done``, which is called afterwards, it waits until there is; false where too many do.
        """
        if done is not None:
            if len(self.waiting) >= self._most_waiting:
                self._quotas.refuse("max_waiting_requests")
                return False
            self.waiting.append((peer, request, done))
            return True
        began_ns = time.monotonic_ns()
        if self.waiting or not self._lane.may_serve(began_ns):
            return False
        self._answer(peer, request)
        self._lane.charge(time.monotonic_ns() - began_ns)
        return True

    def answer_oldest(self) -> None:
        """Answer the oldest request that waits."""
        peer, request, done = self.waiting.popleft()
        # One that the broker has closed, as with its user, stays among them until its socket goes.
        if peer in self._peers and not peer.wire.parting:
            self._answer(peer, request)
            done()

    def _answer(self, peer: LiveConnection, request: bytes) -> None:
        awaited: list[Awaited] = []
        answer = self._node.begin(request, peer.identity, awaited.append)
        if isinstance(answer, Pending):
            self._answer_later(peer, answer)
        elif answer is not None:
            self._reply(peer, *answer)
        elif awaited:
            self._await(peer, awaited[0])
        else:
            text = "a management request without a usable reply-to was ignored"
            log.info(text, extra=peer.about())

    def _answer_later(self, peer: LiveConnection, pending: Pending) -> None:
        """Work out a long answer beside the loop."""
        answers = self._long_answers.get(pending.dry_run)
        if answers is None:
            answers = self._long_answers[pending.dry_run] = LongAnswers(self._post, self._lane.charge)

        def done(reply: bytes) -> None:
            if peer in self._peers:
                self._reply(peer, pending.reply_to, reply)

        if not answers.submit(pending.answer, done):
            self._reply(peer, pending.reply_to, pending.refused("too much is being worked out; try again"))

    def _await(self, peer: LiveConnection, awaited: Awaited) -> None:
        """Answer when the disk has been read."""

        def go_on() -> None:
            answer = self._node.resume(awaited)
            if answer is not None and peer in self._peers:
                self._reply(peer, *answer)

        awaited.browsing.told = go_on

    def _reply(self, peer: LiveConnection, reply_to: str, reply: bytes) -> None:
        """Send an answer; one that nobody waits for any more, or reads, is dropped."""
        node = peer.replies.get(reply_to)
        if node is None:
            node = self._node_of(peer, reply_to)
        if node is None and peer.relays:
            # The client's cell knows its replies, and may pass them on.
            node = peer.replies.get(CLIENT_CELL)
        if node is None and self._pass_on(peer, reply_to, reply):
            return
        if node is None or node.is_topic:
            text = "the management reply has nowhere to go: no node %a"
            log.info(text, reply_to, extra=peer.about())
            return
        if node.gate.closed or not self._has_room(peer, node):
            self._log_unread(peer, reply_to)
            return
        # Everything that the answer promises is on disk before anybody can read it.
        self._engine.intake.put_behind(node, reply)

    def deliver(self, peer: LiveConnection, reply: bytes) -> None:
        """Send a client the answer that another cell has given it."""
        if peer in self._peers:
            self._reply(peer, address_of(reply), reply)

    def _pass_on(self, peer: LiveConnection, reply_to: str, reply: bytes) -> bool:
        """Send an answer to the cell of its node, if that is another one and this is the client's; whether
        it is. One that would be too much there is dropped.
        """
        if self._cells is None or peer.relays:
            return False
        cell, _ = self._place_of(peer, reply_to, self._cells)
        if cell == self._cells.own:
            return False
        if not peer.pass_reply(cell, reply):
            self._log_unread(peer, reply_to)
        return True

    def _log_unread(self, peer: LiveConnection, reply_to: str) -> None:
        text = "a management reply to %a was dropped: those before it are not read"
        log.info(text, reply_to, extra=peer.about())

    def _place_of(self, peer: LiveConnection, reply_to: str, cells: NodeDirectory) -> tuple[int, str]:
        """Return the cell of an address and the node's name there; of a cell that there isn't, this one."""
        try:
            cell, address = cells.split(reply_to)
        except ValueError:
            cell, address = cells.own, reply_to
        name = inside(peer.host, parsed(address).name)
        return (cells.cell_of(name) if cell is None else cell), name

    def _node_of(self, peer: LiveConnection, reply_to: str) -> Node | None:
        """The node of an address as a client of its virtual host writes it; None if nothing goes there, or if
        it is in another cell.
        """
        if self._cells is None:
            name = inside(peer.host, parsed(reply_to).name)
        else:
            cell, name = self._place_of(peer, reply_to, self._cells)
            if cell != self._cells.own:
                return None
        if is_foreign(peer.host, name, self._hosts) or not self._may_answer_at(peer, name):
            return None
        return self._engine.topology.nodes.get(name)

    def _may_answer_at(self, peer: LiveConnection, reply_to: str) -> bool:
        """Whether the client may send there, or had the node made for answers."""
        authority, ownership = self._model.authority, self._model.ownership
        if authority.allows(peer.identity, Action.SEND, reply_to):
            return True
        node = self._engine.topology.nodes.get(reply_to) if reply_to.startswith(f"{TEMPORARY}/") else None
        return node is not None and bool(peer.maker) and ownership.user(node) == peer.maker

    def _has_room(self, peer: LiveConnection, node: Node) -> bool:
        """Whether one more answer may wait there."""
        waiting = sum(each.gate.depth_bytes for each in {node, *peer.replies.values()})
        return waiting <= (UNREAD_TIGHT_BYTES if self._engine.depths.memory.closed else UNREAD_BYTES)
