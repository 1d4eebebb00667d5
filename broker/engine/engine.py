"""The one composer of flow and queues: a message arrives, is ready, is sent and is settled.

All of it runs on the reactor's thread, in turns: ``begin_turn`` takes the time, links report what
happened, ``end_turn`` dispatches what became ready and deals out the room that came free. Nothing
here knows a socket; links are ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from broker import constants
from broker.codec import message
from broker.codec.bodyscan import body_start
from broker.engine.bridges import Bridges
from broker.engine.credit import CreditDealer
from broker.engine.durability import GroupCommit, Waiter
from broker.engine.large import Body, BodyRelease, LargeMessages, dress, note_key, note_value
from broker.engine.node import DeadLetters, Node
from broker.engine.paging import Paging
from broker.engine.transfer import (
    BODY_LOST,
    EXPIRED,
    OVERFLOW,
    REJECTED,
    UNDELIVERABLE,
    DeadLetterTransfer,
    MoveTransfer,
    Transfer,
)
from broker.engine.turn import Turn
from broker.errors import ConflictError, NotFoundError, OperatorError
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.gate import Gate
from broker.flow.producer_credit import IDLE_NS, Port, ProducerCredit
from broker.queues.dispatch import Consumer, fair, fill, only
from broker.queues.duplicates import Duplicates
from broker.queues.expiry import Expiry, deadline_ms
from broker.queues.queue import Entry, Extra
from broker.store.port import FAILED, LARGE, REDELIVERED, SPARED, UNSURE, WRITING, Store

if TYPE_CHECKING:
    from broker.config.node import NodeSettings
    from broker.store.port import QueueLog

_OVERFLOW = {
    "reject": constants.OVERFLOW_REJECT,
    "ring": constants.OVERFLOW_RING,
    "drop_newest": constants.OVERFLOW_DROP_NEWEST,
    "dead_letter": constants.OVERFLOW_DEAD_LETTER,
    "page": constants.OVERFLOW_PAGE,
}

_WHEN_FULL = {
    "block": constants.FULL_BLOCK,
    "reject": constants.FULL_REJECT,
    "reject_after": constants.FULL_REJECT_AFTER,
}

# A subscription that drops, or has room on disk, never holds publishers (FLOW §6).
_APART = (constants.OVERFLOW_RING, constants.OVERFLOW_DROP_NEWEST, constants.OVERFLOW_PAGE)

SECOND_NS = 1_000_000_000
# How long a message waits at a node that rejects where only others' credit is in its way: until what they
# used last is idle, and once more for the look at it.
LENDING_NS = 2 * IDLE_NS
# The store's note of a node whose messages may have been sent: any of them, or those up to a number.
SENT = "sent/"
SENT_ANY = b"*"
# The store's notes of message-ids, by node and place in its window of duplicates.
SEEN = "seen/"
# When to look again at a message that expired before it was on disk.
PENDING_NS = 500_000_000


class Engine:
    """Every node of the broker and the verbs that change them; one thread owns it.

    ``on_gate`` is told of every gate that opens or closes: ``on_gate(node, now_ns)``; ``watch`` that there
    are nodes whose gate or links changed (``take_changed_nodes``). ``emit`` is told of
    what else is rare and worth knowing, ``emit(kind, node, fields)``: kinds and fields are those of
    docs/events.md, never of a single message; it returns at once. ``disk`` is the
    gate of all durable nodes together: what is on disk against the store's limit, and held while the
    store can't write. Without a store nothing is durable. ``memory`` is the gate of all message bytes
    held in memory, each message with ``HELD_BYTES`` for its place; ``temp`` that of what is paged out,
    held while that can't be written. ``limit`` sets all limits.
    """

    def __init__(self, flow_control: bool = True, store: Store | None = None) -> None:
        self.nodes: dict[str, Node] = {}
        self.flow_control = flow_control
        self.now_ns = 0
        self.turn = Turn()
        self.on_gate: Callable[[Node, int], None] | None = None
        self.watch: Callable[[], None] | None = None
        self.changed_nodes: list[Node] = []
        self.emit: Callable[[str, Node | None, Mapping[str, object]], None] = _untold
        self.sampled_ns = 0
        self.winding_down = False
        self.storing = None if store is None else GroupCommit(store)
        self.store_state = WRITING
        self.disk = Gate("store_limit")
        self.memory = Gate("memory_limit")
        self.temp = Gate("temp_limit")
        # The wall clock at monotonic zero, as it was when the broker started: a clock that is set
        # later doesn't make messages expire.
        self.epoch_ns = 0
        self.expiring: set[Node] = set()
        # Queues and subscriptions that are deleted once nobody has used them for so long.
        self.fading: set[Node] = set()
        self.moves: list[MoveTransfer] = []
        # What is to be a dead letter at the next turn, and why: it expired while it was on its way to another
        # node that didn't take it, or survived without its body.
        self.overdue: list[tuple[Node, Entry, str]] = []
        self.paging = Paging(self)
        self.find: Callable[[str], Node] = self.node
        self.unfinished: list[Node] = []
        self.subscriptions: dict[str, Node] = {}
        # Who sent the message that a topic is passing on.
        self.origin: object = None
        self.large = LargeMessages(self.memory, self.temp, self.disk)
        self.bridging = Bridges(self)
        budgets = (self.memory, self.disk, self.temp)
        self.credit = CreditDealer(self.turn, budgets, self.storing, self.bridging.all, self.bridging.rivals)

    # --- the message path

    def arrive(self, node: Node, account: ProducerCredit, data: bytes, bits: int, settled: bool) -> int:
        """A whole message came in on a producer link; what to tell the peer (constants.py)."""
        size = len(data)
        if node.subscriptions:
            self.origin = account.origin
        if bits >> constants.LARGE_SHIFT:
            size += self.large.size_of(bits)
        if account.window_max == 0:
            return self._arrive_unpromised(node, account, data, bits, settled, size)
        verdict = account.use(size, self.now_ns)
        if verdict == constants.TAKEN:
            if not self._fits(node, data, size, True) and node.ledger.room(size) == 0:
                # Larger than what its credit reserved: it waits, rather than be lost (FLOW §2 rule 7).
                return constants.PARK
            if node.awaiting is None:
                code = self.put(node, data, bits)
            else:
                code = self.put_awaited(node, data, bits, settled)
                if code == constants.HOLD:
                    return constants.HOLD
            # Only now does the depth tell how much room is left to promise.
            if account.outstanding <= account.low:
                if code == constants.STORING and self.storing is not None and self.storing.behind:
                    node.ledger.wait(account, self.now_ns)
                else:
                    node.ledger.renew(account, self.now_ns)
            return code
        if verdict == constants.LATE:
            if settled:
                account.overrun_count += 1
                node.overrun += 1
            return constants.PARK
        return constants.OVERSENT

    def _fits(self, node: Node, data: bytes, size: int, crossing: bool) -> bool:
        """Whether no hard limit is in the way where a message comes to lie, below which it may fit later.

        ``crossing``: bridges take it further. Where `overflow` knows what to do at the limit, it fits.
        """
        if node.is_topic or node.subscriptions:
            for each in node.subscriptions:
                if (
                    not each.never_blocks_publishers
                    and not self._fits(each, data, size, crossing)
                    and self._wants(each, data)
                ):
                    return False
        elif (
            (node.gate.depth_bytes + size > node.hard_bytes or node.gate.depth_msgs >= node.hard_msgs)
            and size <= node.hard_bytes
            and node.overflow == constants.OVERFLOW_REJECT
        ):
            return False
        if crossing and node.bridges:
            for bridge in node.bridges:
                if (
                    bridge.crosses
                    and not self._fits(bridge.target, data, size, False)
                    and (bridge.filter is None or bridge.filter.matches(data))
                ):
                    return False
        return True

    def put(self, node: Node, data: bytes, bits: int) -> int:
        """Enqueue a message that has room; ACCEPTED, STORING (not on disk yet) or REFUSED (hard limit)."""
        if node.is_topic or node.subscriptions:
            return self._publish(node, data, bits)
        if not node.skips_duplicate_check and self._is_duplicate(node, data):
            # The first copy may be in a group that isn't on disk yet.
            return self._answer_behind(node, bits)
        gate = node.gate
        size = len(data)
        if bits >> constants.LARGE_SHIFT:
            size += self.large.size_of(bits)
        if (
            gate.depth_msgs >= node.hard_msgs or gate.depth_bytes + size > node.hard_bytes
        ) and not self._make_room(node, size):
            code = self._overflow(node, data, bits)
            if not node.skips_duplicate_check and code != constants.REFUSED:
                self._remember(node, data)
            return code
        if not node.skips_duplicate_check:
            self._remember(node, data)
        keep = bits & constants.IS_DURABLE != 0 and node.shelf is not None
        entry = node.queue.append(data, keep)
        node.received += 1
        node.received_bytes += size
        self.memory.depth_bytes += size + constants.HELD_BYTES
        self.memory.depth_msgs += 1
        if gate.enter(size, self.now_ns):
            self.gate_changed(node)
        if bits >> constants.LARGE_SHIFT:
            self._have_body(node, entry, self.large.of(bits), keep)
        expires_ms = 0
        if bits & (constants.HAS_TTL | constants.HAS_EXPIRY) or node.limits_ttl:
            expires_ms = self._set_expiry(node, entry, data)
        if keep:
            self._keep(node, entry, expires_ms)
        elif not node.dirty:
            self.mark_dirty(node)
        code = constants.STORING if keep else constants.ACCEPTED
        if node.bridges:
            return self.bridging.cross(node, data, bits, code)
        return code

    def put_behind(self, node: Node, data: bytes) -> None:
        """Enqueue a message nobody may see before all that was stored until now is on disk."""
        if self.storing is None or not self.storing.store.open_records:
            self.put(node, data, 0)
            return
        entry = node.queue.append(data, True)
        entry.durable = False
        self.storing.delay(node, entry)
        node.received += 1
        node.received_bytes += len(data)
        self.memory.depth_bytes += len(data) + constants.HELD_BYTES
        self.memory.depth_msgs += 1
        if node.gate.enter(len(data), self.now_ns):
            self.gate_changed(node)

    def acknowledge(self, node: Node, entry: Entry) -> None:
        """A consumer took responsibility: the message is gone."""
        node.accepted += 1
        self._remove(node, entry)

    def reject(self, node: Node, entry: Entry) -> None:
        """A consumer refused the message for good."""
        node.rejected += 1
        self.dead_letter(node, entry, REJECTED)

    def requeue(self, node: Node, entry: Entry, failed: bool) -> None:
        """Back in its place; ``failed`` counts a delivery attempt (§3.4.4, §3.4.5, connection loss)."""
        if failed:
            entry.delivery_count += 1
        self._take_back(node, entry)

    def spare(self, node: Node, entry: Entry) -> None:
        """Back in its place from a link that is gone, and that had begun on another message for all we know.

        Its receiver may have seen it, so that it reads a delivery-count of 1 at least; but however often this
        happens to it, it is no failed delivery that makes it a dead letter.
        """
        if entry.delivery_count == 0:
            entry.delivery_count = 1
            entry.spared = True
        self._take_back(node, entry)

    def _take_back(self, node: Node, entry: Entry) -> None:
        if node.deleted:
            return
        entry.redelivered = True
        if 0 < node.max_delivery_count <= entry.delivery_count - entry.spared:
            self.dead_letter(node, entry, UNDELIVERABLE)
            return
        if entry.extra is not None and 0 < entry.extra.expires_ns <= self.now_ns:
            self.dead_letter(node, entry, EXPIRED)
            return
        if entry.durable and node.shelf is not None:
            node.shelf.update(entry.seq, entry.delivery_count, entry.spared)
        node.queue.release(entry)
        self.mark_dirty(node)

    def dead_letter(self, node: Node, entry: Entry, reason: str) -> None:
        """An acquired message can't be delivered: it goes to the dead-letter node, or away."""
        if node.deleted:
            return
        if reason == EXPIRED:
            node.expired += 1
        way = None
        if reason != EXPIRED or node.dead_letter_expired:
            way = self._way_of_letters(node)
        if way is None:
            if reason in (UNDELIVERABLE, BODY_LOST):
                node.dropped += 1
            self._remove(node, entry)
            return
        data = entry.data
        if entry.extra is not None and entry.extra.annotations:
            data = message.with_annotations(data, entry.extra.annotations)
        way.send(entry, self._letter(node, data, reason))

    def put_back(self, node: Node, entry: Entry) -> None:
        """What was on its way to another node stays here: in its place again, as it was."""
        if node.deleted:
            return
        if entry.extra is not None and 0 < entry.extra.expires_ns <= self.now_ns:
            # Its letter may need a node made for it, which is no matter for whoever is deleting one.
            self.overdue.append((node, entry, EXPIRED))
            return
        if entry.redelivered and entry.durable and node.shelf is not None:
            node.shelf.update(entry.seq, entry.delivery_count, entry.spared)
        node.queue.release(entry)
        self.mark_dirty(node)

    def give_up(self, node: Node, entry: Entry) -> None:
        """An acquired message goes nowhere: it is dropped, and counted."""
        if not node.deleted:
            node.dropped += 1
            self._remove(node, entry)

    def passed_on(self, node: Node, entry: Entry, way: object) -> None:
        """A message that was on its way to another node is there."""
        if way is node.letters:
            node.dead_lettered += 1
        self._remove(node, entry)

    def mark_dirty(self, node: Node) -> None:
        """The node has something to do at the end of this turn."""
        self.turn.mark_dirty(node)

    def mark_dirty_later(self, node: Node) -> None:
        """The node has something to do in the next turn: this one has done its part."""
        if node not in self.unfinished:
            self.unfinished.append(node)

    def begin_turn(self, now_ns: int) -> None:
        """All that is reported until ``end_turn`` happened at ``now_ns``."""
        self.now_ns = self.turn.now_ns = now_ns
        if self.credit.timed_nodes:
            self._wake_timed_nodes()
        if self.expiring:
            self._expire()
        if self.overdue:
            self._dead_letter_overdue()
        if self.credit.is_waited_for() and now_ns >= self.credit.lend_ns:
            self._look_at_budgets()

    def end_turn(self) -> None:
        """Dispatch what is ready, then deal out room; admitted messages are dispatched as well."""
        self._look_at_budgets()
        credit = self.credit
        while self.turn.dirty:
            nodes = self.turn.take_dirty()
            sharing = None
            for node in nodes:
                node.dirty = False
                queue = node.queue
                if (
                    (queue.ready > 0 or (queue.gap and queue.readers))
                    and node.consumers
                    and self._may_serve(node)
                ):
                    self._dispatch(node)
                if node.pending_limit:
                    self._shed(node)
                if node.browsers:
                    self._show(node)
                if node.spool is not None:
                    self.paging.look(node)
                if node.topics or node.shared > 0 or node in credit.timed_nodes:
                    sharing = credit.add_sharer(sharing, node)
                else:
                    credit.deal(node)
            if sharing is not None:
                credit.deal_in_turn(sharing)
        credit.contested = None
        if self.paging.scans.asked:
            self.paging.scans.read()
        if self.unfinished:
            # A long search, or an operator's move, goes on in the next turn.
            for node in self.unfinished:
                self.mark_dirty(node)
            self.unfinished.clear()

    def recover(self) -> None:
        """After ``end_turn`` raised: every node may be touched again; the next turn goes on."""
        self.turn.take_dirty()
        for node in self.every_node():
            node.dirty = False

    def next_deadline(self) -> int:
        """When a turn is due though nothing happened, in the caller's nanoseconds; 0 for never."""
        if self.overdue:
            return 1
        earliest = self.credit.lend_ns if self.credit.is_waited_for() else 0
        for node in self.expiring:
            due = _expiry_of(node).next_deadline()
            if due and (earliest == 0 or due < earliest):
                earliest = due
        behind = self.storing is not None and self.storing.behind
        for node in self.credit.timed_nodes:
            # Nothing is dealt while too much waits for the disk; attend_store says when it is over.
            due = 0 if behind and node.shelf is not None else node.ledger.next_deadline()
            if node.refuse_ns and (due == 0 or node.refuse_ns < due):
                due = node.refuse_ns
            if due and (earliest == 0 or due < earliest):
                earliest = due
        return earliest

    def _arrive_unpromised(
        self, node: Node, account: ProducerCredit, data: bytes, bits: int, settled: bool, size: int
    ) -> int:
        """A message on credit that promised no room: an anonymous relay, or a node that rejects."""
        account.used += 1
        account.last_used_ns = self.now_ns
        ledger = node.ledger
        if not ledger.line and ledger.room(size) > 0:
            if node.awaiting is None:
                return self.put(node, data, bits)
            return self.put_awaited(node, data, bits, settled)
        if settled:
            # It can't be refused any more, so it waits whatever `when_full` says.
            account.overrun_count += 1
            node.overrun += 1
            return constants.PARK
        if node.when_full == constants.FULL_REJECT and not ledger.is_only_promised(size):
            node.refused += 1
            return constants.REFUSED
        return constants.PARK

    def put_awaited(self, topic: Node, data: bytes, bits: int, settled: bool) -> int:
        """Bring a message into a topic with channels; HOLD if it is settled only when they have sent it."""
        awaiting = topic.awaiting
        if settled or awaiting is None:
            return self.put(topic, data, bits)
        code: int = awaiting.put(data, bits)
        return constants.HOLD if code != constants.REFUSED and awaiting.wanted() else code

    def hold_settlement(self, topic: Node, account: ProducerCredit, held: object) -> None:
        """Keep what arrive() answered HOLD to; its account's port is told when it may be settled."""
        if topic.awaiting is not None:
            topic.awaiting.hold(account, held)

    def forget_held(self, node: Node, account: ProducerCredit) -> None:
        """The link is gone: nobody waits for these settlements any more."""
        if node.awaiting is not None:
            node.awaiting.forget(account)

    def confirmed(self, topic: Node, bits: int) -> int:
        """What to answer now for a message whose settlement was held: ACCEPTED, or STORING where a copy may
        not be on disk yet.
        """
        for subscription in topic.subscriptions:
            if subscription.shelf is not None:
                return self._answer_behind(subscription, bits)
        return constants.STORING if self._is_unstored(topic, bits) else constants.ACCEPTED

    def _is_unstored(self, topic: Node, bits: int) -> bool:
        """Whether a topic isn't on disk itself yet, which an answer to a durable message says it is."""
        return (
            bits & constants.IS_DURABLE != 0
            and topic.shelf is not None
            and self.storing is not None
            and topic.group > self.storing.store.synced
        )

    def park(self, node: Node, account: ProducerCredit, message: object, size: int, settled: bool) -> None:
        """Keep what arrive() answered PARK to, until there is room or the time `when_full` gives it is over.

        A pre-settled message has no deadline: nobody could be told that it was refused.
        """
        patient = settled or account.window_max > 0
        account.park(message, size, self.now_ns, patient)
        node.parked += 1
        if account.budget is not None:
            self.credit.budgets_in_demand[account.budget] = None
        if node.park_timeout_ns and not patient:
            node.timed_parked.add(account)
            due_ns = self.now_ns + node.park_timeout_ns
            if node.refuse_ns == 0 or due_ns < node.refuse_ns:
                node.refuse_ns = due_ns
        self.credit.timed_nodes[node] = None
        self.mark_dirty(node)

    def _publish(self, topic: Node, data: bytes, bits: int) -> int:
        """A copy to every subscription; the bytes are shared, the places in line are not."""
        if not topic.always_enforced and not self._fits_unheeded(topic, data, bits):
            topic.refused += 1
            return constants.REFUSED
        topic.received += 1
        topic.received_bytes += len(data)
        routed = bool(topic.bridges)
        answer = constants.ACCEPTED
        for subscription in topic.subscriptions:
            if (subscription.filter is not None or subscription.not_from is not None) and not self._wants(
                subscription, data
            ):
                continue
            routed = True
            code = self.put(subscription, data, bits)
            if code == constants.STORING:
                answer = constants.STORING
            elif code != constants.ACCEPTED:
                subscription.dropped += 1
            if not topic.always_enforced and subscription.gate.excess_msgs() > 0:
                # Others were promised this room: a bound queue's own producers, another topic's publishers.
                self.overpromise(subscription)
        if not routed:
            topic.unrouted += 1
        if answer == constants.ACCEPTED and self._is_unstored(topic, bits):
            # No copy waits for the disk, but the topic itself does.
            answer = constants.STORING
        if not topic.dirty:
            self.mark_dirty(topic)
        if topic.bridges:
            return self.bridging.cross(topic, data, bits, answer)
        return answer

    def _fits_unheeded(self, topic: Node, data: bytes, bits: int) -> bool:
        """Whether no hard limit is in the way at those whose room its publishers were not held to: what such
        a one rejects, as its `overflow` says, nobody gets, and the sender hears it.
        """
        size = len(data)
        if bits >> constants.LARGE_SHIFT:
            size += self.large.size_of(bits)
        for each in topic.subscriptions:
            if (
                not each.never_blocks_publishers
                and not self._fits(each, data, size, False)
                and not topic.heeds(each)
                and self._wants(each, data)
            ):
                return False
        return True

    def _wants(self, subscription: Node, data: bytes) -> bool:
        if subscription.not_from is not None and subscription.not_from is self.origin:
            return False
        return subscription.filter is None or subscription.filter.matches(data)

    def _make_room(self, node: Node, size: int) -> bool:
        """A ring drops its oldest ready messages; false if that doesn't help or isn't asked for."""
        if node.overflow != constants.OVERFLOW_RING or size > node.hard_bytes:
            return False
        gate = node.gate
        while gate.depth_msgs >= node.hard_msgs or gate.depth_bytes + size > node.hard_bytes:
            oldest = node.queue.oldest()
            if oldest is None:
                return False
            self._drop(node, oldest)
        return True

    def _shed(self, node: Node) -> None:
        """Whoever could be sent messages was: of those that still wait, the oldest beyond the limit go."""
        queue = node.queue
        spooled = 0 if node.spool is None else node.spool.count
        excess = queue.ready + queue.behind + queue.aside + spooled - node.pending_limit
        while excess > 0 and queue.cursor is not None:
            self._drop(node, queue.cursor)
            excess -= 1

    def _drop(self, node: Node, entry: Entry) -> None:
        node.dropped += 1
        node.queue.drop(entry)
        if entry.durable:
            self._forget(node, entry)
        if entry.extra is not None:
            self._strip(node, entry)
        self._leave(node, len(entry.data))

    def _remove(self, node: Node, entry: Entry) -> None:
        if node.deleted:
            return
        node.queue.settle(entry)
        if entry.durable:
            self._forget(node, entry)
        if entry.extra is not None:
            self._strip(node, entry)
        self._leave(node, len(entry.data))

    def _strip(self, node: Node, entry: Entry) -> None:
        """An entry that has more than its bytes leaves."""
        extra = entry.extra
        if extra is None:
            return
        if extra.expires_ns:
            _expiry_of(node).left()
        if extra.body is not None:
            # The heap of expiries may know the entry a while longer.
            extra.body = None
            self.let_go(node, entry.seq)

    def _have_body(self, node: Node, entry: Entry, body: Body, keep: bool) -> None:
        """The entry is a large message, which put() has counted as if all of it were in memory."""
        self.memory.depth_bytes -= body.size
        node.bodies[entry.seq] = (body, keep)
        node.file_bytes += body.size
        dress(entry, body)
        if keep:
            body.kept += 1
            self.note(note_key(body, node.name, entry.seq), note_value(body))

    def let_go(self, node: Node, seq: int) -> None:
        """A large message leaves its node; once that is on disk nothing of it needs the file."""
        body, noted = node.bodies.pop(seq)
        node.file_bytes -= body.size
        node.gate.depth_bytes -= body.size
        self._unnote(node, seq, body, noted)

    def _unnote(self, node: Node, seq: int, body: Body, noted: bool) -> None:
        if noted and self.storing is not None:
            body.kept -= 1
            self.note(note_key(body, node.name, seq), b"")
            self.storing.wait(BodyRelease(body))

    def _leave(self, node: Node, size: int) -> None:
        self.memory.depth_bytes -= size + constants.HELD_BYTES
        self.memory.depth_msgs -= 1
        if node.gate.leave(size, self.now_ns):
            self.gate_changed(node)
        if node.bridge_sources:
            self._wake_in_turn(node)
            return
        ledger = node.ledger
        if ledger.line or ledger.rest:
            self.mark_dirty(node)
        if node.topics:
            if len(node.topics) > 1:
                # Whose publishers are first to be dealt what came free changes each time.
                node.topics.append(node.topics.pop(0))
            for topic in node.topics:
                ledger = topic.ledger
                # Where another gate leaves no room this one's makes no difference (bench: subscribers).
                if (
                    not node.never_blocks_publishers
                    and (ledger.line or ledger.rest)
                    and not ledger.is_shut_by_other(node.gate)
                ):
                    self.mark_dirty(topic)
                if topic.awaiting is not None:
                    topic.awaiting.moved()

    def _wake_in_turn(self, node: Node) -> None:
        """Room came free that others' producers share over bridges: each of them is first in its turn."""
        owners = node.owners()
        first = node.queue.next_seq % len(owners)
        for owner in owners[first:] + owners[:first]:
            ledger = owner.ledger
            if ledger.line or ledger.rest:
                self.mark_dirty(owner)

    def _overflow(self, node: Node, data: bytes, bits: int) -> int:
        """No room at the hard limit and none to be made: what `overflow` says of the newest message."""
        if node.overflow == constants.OVERFLOW_DROP_NEWEST:
            node.dropped += 1
            return constants.ACCEPTED
        if node.overflow == constants.OVERFLOW_DEAD_LETTER and not message.is_dead_lettered(data):
            way = self._way_of_letters(node)
            if way is not None:
                node.dead_lettered += 1
                return way.take_in(self._letter(node, data, OVERFLOW), bits)
        node.refused += 1
        return constants.REFUSED

    def _way_of_letters(self, node: Node) -> DeadLetters | None:
        """The way to the dead-letter node, which is made by policy if need be; None without one."""
        address = node.dead_letter_address
        way = node.letters
        if way is not None and not way.target.deleted and way.target.name == address:
            return way
        if not address or address == node.name:
            return None
        try:
            target = self.find(address)
        except OperatorError:
            return None
        waiting = [] if way is None else way.leave()
        letters = node.letters = DeadLetterTransfer(self, node, target)
        for each in waiting:
            letters.send(each.entry, each.data)
        return letters

    def _look_after_letters(self, node: Node) -> None:
        """What waits goes to where letters go now, and what was refused is offered again."""
        if node.letters is not None and node.letters.waiting_msgs() > 0:
            self._way_of_letters(node)
            node.letters.retry()

    def _letter(self, node: Node, data: bytes, reason: str) -> bytes:
        return message.dead_lettered(data, reason, node.address, self._wall_ms())

    def _wall_ms(self) -> int:
        return (self.epoch_ns + self.now_ns) // 1_000_000

    def _set_expiry(self, node: Node, entry: Entry, data: bytes) -> int:
        """When the message expires, in wall-clock milliseconds; 0 for never (AMQP 1.0 §3.2.1, §3.2.4)."""
        ttl_ms = message.ttl_ms(data)
        expires_ms = self._wall_ms() + ttl_ms if ttl_ms else 0
        absolute_ms = 0 if message.is_dead_lettered(data) else message.absolute_expiry_ms(data)
        if node.limits_ttl:
            expires_ms = deadline_ms(
                self._wall_ms(), ttl_ms, absolute_ms, node.message_ttl_ms, node.max_ttl_ms
            )
        elif absolute_ms and (expires_ms == 0 or absolute_ms < expires_ms):
            expires_ms = absolute_ms
        if expires_ms:
            self._expire_at(node, entry, expires_ms)
        return expires_ms

    def _expire_at(self, node: Node, entry: Entry, expires_ms: int) -> None:
        if entry.extra is None:
            entry.extra = Extra()
        entry.extra.expires_ns = max(expires_ms * 1_000_000 - self.epoch_ns, 1)
        self.watch_expiry(node, entry)

    def watch_expiry(self, node: Node, entry: Entry) -> None:
        if entry.extra is not None:
            _expiry_of(node).add(entry, entry.extra.expires_ns)
            self.expiring.add(node)

    def _expire(self) -> None:
        for node in list(self.expiring):
            expiry = _expiry_of(node)
            for entry in expiry.due(self.now_ns):
                if entry.state == constants.PENDING:
                    expiry.add(entry, self.now_ns + PENDING_NS)
                    continue
                node.queue.take(entry)
                self.dead_letter(node, entry, EXPIRED)
            if not len(expiry) or node.deleted:
                self.expiring.discard(node)

    def _dead_letter_overdue(self) -> None:
        overdue, self.overdue = self.overdue, []
        for node, entry, reason in overdue:
            self.dead_letter(node, entry, reason)

    def _is_duplicate(self, node: Node, data: bytes) -> bool:
        """Whether the message came before, within the node's window."""
        if node.duplicates is None:
            return False
        message_id = message.message_id(data)
        if not message_id or not node.duplicates.knows(message_id, self._wall_ms()):
            return False
        node.duplicated += 1
        return True

    def _remember(self, node: Node, data: bytes) -> None:
        """The node takes it: one that is refused may come again."""
        if node.duplicates is None:
            return
        message_id = message.message_id(data)
        if message_id:
            place, note = node.duplicates.remember(message_id, self._wall_ms())
            if node.shelf is not None:
                self.note(f"{SEEN}{node.name}/{place}", note)

    def _answer_behind(self, node: Node, bits: int) -> int:
        """What to answer where a message is kept already, perhaps in a group that isn't on disk yet."""
        if not bits & constants.IS_DURABLE or node.shelf is None or self.storing is None:
            return constants.ACCEPTED
        store = self.storing.store
        if store.synced >= store.group - 1 and not store.open_records:
            return constants.ACCEPTED
        if not store.open_records:
            # A group of nothing new, so that the answer has one to wait for.
            self.note(SEEN, b"%d" % self.now_ns)
        return constants.STORING

    def _keep(self, node: Node, entry: Entry, expires_ms: int) -> None:
        size = len(entry.data)
        self.count_kept(node, 1, size)
        if self.storing is not None:
            self.storing.keep(node, entry, expires_ms)

    def _forget(self, node: Node, entry: Entry) -> None:
        size = len(entry.data)
        self.count_kept(node, -1, -size)
        if node.shelf is not None:
            node.shelf.forget(entry.seq, size)

    def count_kept(self, node: Node, msgs: int, nbytes: int) -> None:
        node.stored_msgs += msgs
        node.kept_bytes += nbytes
        self.disk.depth_msgs += msgs
        self.disk.depth_bytes += nbytes

    def _may_serve(self, node: Node) -> bool:
        """Whether messages may go out: not in a shutdown, and once it is on disk that they may have."""
        if self.winding_down:
            return False
        if node.shelf is None:
            return True
        return self.storing is not None and node.attended_group <= self.storing.store.synced

    def is_noted(self, node: Node) -> bool:
        """Whether it is on disk that the node's messages may have been sent; else none is yet."""
        return node.shelf is None or self._may_serve(node)

    def _dispatch(self, node: Node) -> None:
        consumers = node.consumers
        if len(consumers) == 1 or node.single_active:
            only(node.queue, consumers[0])
        else:
            node.turn += 1
            if node.by_turn:
                fill(node.queue, consumers, node.turn)
            else:
                fair(node.queue, consumers, node.turn)
        if node.queue.readers:
            self._look_for_unfinished(node)

    def _show(self, node: Node) -> None:
        """Send browsers what they have not seen yet, as far as they may be sent."""
        for browser in list(node.browsers):
            reader = browser.reader
            browser.left = browser.capacity()
            while reader is not None and browser.left > 0:
                entry = node.queue.look(reader)
                if entry is None:
                    break
                browser.left -= 1
                browser.send(entry)
        self._look_for_unfinished(node)

    def _look_for_unfinished(self, node: Node) -> None:
        for reader in node.queue.readers:
            if reader.unfinished:
                self.mark_dirty_later(node)
                return

    def _look_at_budgets(self) -> None:
        """Page where memory gets short, open and close budgets, and wake nodes that wait for one."""
        if self.paging.nodes:
            self.paging.make_room()
        for gate in (self.memory, self.disk, self.temp):
            if (gate.closed or (gate.stop_bytes and gate.depth_bytes >= gate.stop_bytes)) and gate.look(
                self.now_ns
            ):
                self.budget_changed(gate)
        if self.credit.is_waited_for():
            self.credit.look_at_budgets(self.nodes.values())

    def _wake_timed_nodes(self) -> None:
        behind = self.storing is not None and self.storing.behind
        for node in list(self.credit.timed_nodes):
            ledger = node.ledger
            if node.refuse_ns and node.refuse_ns <= self.now_ns:
                self._refuse_overdue(node)
            if not ledger.line and not ledger.rest and not node.refuse_ns:
                self.credit.timed_nodes.pop(node, None)
                continue
            due = 0 if behind and node.shelf is not None else ledger.next_deadline()
            if due and due <= self.now_ns:
                self.mark_dirty(node)

    def _refuse_overdue(self, node: Node) -> None:
        node.refuse_ns = 0
        for account in list(node.timed_parked):
            before = len(account.parked)
            oldest_ns = account.refuse_until(self.now_ns - node.park_timeout_ns)
            node.refused += before - len(account.parked)
            if oldest_ns == 0:
                node.timed_parked.discard(account)
            elif node.refuse_ns == 0 or oldest_ns + node.park_timeout_ns < node.refuse_ns:
                node.refuse_ns = oldest_ns + node.park_timeout_ns

    def _set_park_timeout(self, node: Node) -> None:
        """How long a parked message may wait now, those that do already included."""
        park_timeout_ns = 0
        if node.when_full == constants.FULL_REJECT:
            park_timeout_ns = LENDING_NS
        elif node.when_full == constants.FULL_REJECT_AFTER:
            park_timeout_ns = node.reject_after_ns
        if park_timeout_ns == node.park_timeout_ns:
            return
        node.park_timeout_ns = park_timeout_ns
        node.timed_parked.clear()
        node.refuse_ns = 0
        if park_timeout_ns:
            node.timed_parked.update(account for account in node.ledger.accounts if account.parked)
            # The next turn finds out when each is due.
            node.refuse_ns = 1 if node.timed_parked else 0

    def gate_changed(self, node: Node) -> None:
        gate = node.gate
        for owner in node.owners():
            if gate.closed and gate.promised_msgs > 0:
                owner.ledger.overpromised = True
            self.mark_dirty(owner)
        if self.on_gate is not None:
            self.on_gate(node, self.now_ns)
        self._links_changed(node)

    def _links_changed(self, node: Node) -> None:
        """Its gate or its links changed. A gate may open and close with every message: it is noted once."""
        if node.changed_nodes or self.watch is None:
            return
        node.changed_nodes = True
        self.changed_nodes.append(node)
        if len(self.changed_nodes) == 1:
            self.watch()

    def take_changed_nodes(self) -> list[Node]:
        """The nodes whose gate or links changed since the last time."""
        found = self.changed_nodes
        self.changed_nodes = []
        for node in found:
            node.changed_nodes = False
        return found

    def budget_changed(self, gate: Gate) -> None:
        self.emit("stopped" if gate.closed else "opened", None, {"budget": gate.name})

    # --- paging

    def overpromise(self, node: Node) -> None:
        """Less than is promised may be covered now: the next deal takes back what isn't."""
        for owner in node.owners():
            owner.ledger.overpromised = True
            self.mark_dirty(owner)

    def restore_large(self, node: Node, seq: int, body: Body) -> None:
        """A message that survived has its body in a file; before the message itself is restored."""
        node.bodies[seq] = (body, True)
        body.kept += 1
        node.file_bytes += body.size
        node.gate.depth_bytes += body.size

    def is_without_body(self, node: Node, seq: int, flags: int, data: bytes) -> bool:
        """Whether a message that survived is large and its body is lost: nobody may be sent what is left.

        One that nobody knows this of for certain, for some messages never had a body, becomes a dead letter
        where the node has a place for them and stays otherwise.
        """
        if seq in node.bodies:
            return False
        if flags & LARGE:
            return True
        if flags & UNSURE and body_start(data) < 0:
            return self._way_of_letters(node) is not None
        return False

    # --- the disk

    def seal(self) -> None:
        """Have what this turn stored written; the reactor calls it whenever a turn's part is done."""
        if self.storing is not None and self.storing.seal():
            self.attend_store()

    def wait_for_disk(self, waiter: Waiter) -> int:
        """The open group, whose writing the link will be told of."""
        if self.storing is None:
            raise RuntimeError("nothing is stored without a store")
        self.storing.wait(waiter)
        return self.storing.last_group()

    def attend_store(self) -> None:
        """The store's bell rang: groups are on disk, or its state changed."""
        if self.storing is None:
            return
        was_behind = self.storing.behind
        for node in self.storing.attend():
            self.mark_dirty(node)
        if was_behind and not self.storing.behind:
            for node in self.credit.timed_nodes:
                self.mark_dirty(node)
        store = self.storing.store
        if self.store_state != store.state:
            self.store_state = store.state
            self._hold_disk(store.state)

    def _hold_disk(self, state: str) -> None:
        """Nothing can be kept: no durable node grants credit; none at all once the store has failed."""
        if self.disk.hold(state != WRITING, self.now_ns):
            self.budget_changed(self.disk)
        for node in self.nodes.values():
            self.update_claims(node)
            if node.ledger.takes(self.disk, 1) > 0:
                node.ledger.overpromised = True
                self.mark_dirty(node)

    # --- links come and go

    def open_producer(
        self, node: Node, port: Port, promised: bool, budget: ConnectionBudget | None = None
    ) -> ProducerCredit:
        """A producer's account; ``promised`` false for links whose credit reserves nothing.

        ``budget`` is its connection's, if that has one.
        """
        settings = _settings_of(node)
        window = settings.producer_window if promised else 0
        account = node.ledger.open(port, window, settings.initial_credit, self.now_ns, budget)
        account.place = node
        node.used_ns = self.now_ns
        self.mark_dirty(node)
        self._links_changed(node)
        return account

    def close_producer(self, node: Node, account: ProducerCredit) -> None:
        """The link is gone; its promises go to whoever waits, at this node or where its room is shared."""
        if account.outstanding > 0 and (node.topics or node.shared > 0):
            for each in (node, *node.subscriptions):
                for owner in each.owners():
                    self.mark_dirty(owner)
        account.close()
        node.timed_parked.discard(account)
        node.used_ns = self.now_ns
        self.mark_dirty(node)
        self._links_changed(node)

    def rejects_at_once(self, node: Node) -> bool:
        """True if credit at this node promises no room, because sends are to fail instead."""
        return node.when_full != constants.FULL_BLOCK

    def add_consumer(self, node: Node, consumer: Consumer) -> None:
        """A consumer attached."""
        node.used_ns = self.now_ns
        node.consumers.append(consumer)
        if consumer.reader is not None:
            node.queue.open_reader(consumer.reader)
        if node.shelf is not None and len(node.consumers) == 1:
            self._mark(node, SENT_ANY)
        self.consumers_changed(node)

    def remove_consumer(self, node: Node, consumer: Consumer) -> None:
        """A consumer is gone; the caller has requeued what it held."""
        node.used_ns = self.now_ns
        if consumer.reader is not None:
            node.queue.close_reader(consumer.reader)
        if consumer in node.consumers:
            node.consumers.remove(consumer)
            if node.shelf is not None and not node.consumers and not node.deleted:
                self._mark(node, b"%d" % node.maybe_delivered_upto if node.maybe_delivered_upto else b"")
        self.consumers_changed(node)

    def add_browser(self, node: Node, browser: Consumer) -> None:
        """Somebody looks at the node's messages without taking any."""
        if browser.reader is not None:
            node.queue.open_reader(browser.reader)
        node.browsers.append(browser)
        node.used_ns = self.now_ns
        self.mark_dirty(node)

    def remove_browser(self, node: Node, browser: Consumer) -> None:
        """It looks no more."""
        node.used_ns = self.now_ns
        if browser.reader is not None:
            node.queue.close_reader(browser.reader)
        if browser in node.browsers:
            node.browsers.remove(browser)

    def subscribe(
        self,
        name: str,
        address: str,
        settings: NodeSettings,
        definition: bytes = b"",
        shelf: QueueLog | None = None,
    ) -> Node:
        """A new, empty subscription, to be bound to topics. With a ``definition`` it is durable.

        ``address`` is the topic's, or a pattern. ConflictError if there is one of that name.
        """
        if self.has(name):
            raise ConflictError(f"'{name}' exists already")
        subscription = Node(name, "subscription", address)
        self._apply(subscription, settings)
        if shelf is not None:
            subscription.shelf = shelf
        elif definition and self.storing is not None:
            subscription.shelf = self.storing.store.open_log(name, definition)
            self.storing.watch(subscription)
        self.subscriptions[name] = subscription
        return subscription

    def bind(self, topic: Node, node: Node) -> None:
        """What is published to the topic goes to this node too: publishing now needs room there as well."""
        topic.subscriptions.append(node)
        node.topics.append(topic)
        self._count_shared(node, topic, 1)
        topic.ledger.copy(len(topic.subscriptions))
        self._update_enforcement(topic)
        self._attach_gates(node)
        self.update_claims(topic)
        self.mark_dirty(topic)
        self._links_changed(node)
        self._look_at_bridges(topic, node)

    def unbind(self, topic: Node, node: Node) -> None:
        """Publishers that the node held back go on."""
        self._count_shared(node, topic, -1)
        topic.subscriptions.remove(node)
        node.topics.remove(topic)
        topic.ledger.copy(len(topic.subscriptions))
        if self._is_attached(topic, node):
            topic.ledger.detach_gate(node.gate)
        self._update_enforcement(topic)
        self.update_claims(topic)
        self.mark_dirty(topic)
        self._links_changed(node)
        self._look_at_bridges(topic, node)

    def _count_shared(self, node: Node, topic: Node, change: int) -> None:
        """A topic is the newest of the node's, or is about to be none of them."""
        if not node.is_subscription:
            # A queue's own producers share it with the first topic already.
            topic.shared += change
        elif len(node.topics) == 2:
            for each in node.topics:
                each.shared += change
        elif len(node.topics) > 2:
            topic.shared += change

    def _update_enforcement(self, topic: Node) -> None:
        """Whether a topic's publishers need room where its messages go: not where that is to hold only
        while somebody receives, and nobody does (`enforce_flow`). At which subscriptions, `heeds` says.
        """
        reserves_at_subscriptions = topic.always_enforced or topic.is_active()
        if reserves_at_subscriptions != topic.reserves_at_subscriptions:
            topic.reserves_at_subscriptions = reserves_at_subscriptions
            self._enforce(topic)
            for each in topic.subscriptions:
                self._attach_gates(each)

    def _attach_gates(self, node: Node) -> None:
        """Where a node takes messages from topics: whose publishers need room here."""
        self._enforce(node)
        for topic in node.topics:
            wanted = topic.heeds(node)
            attached = self._is_attached(topic, node)
            if wanted and not attached:
                topic.ledger.attach_gate(node.gate, self.now_ns)
            elif attached and not wanted:
                topic.ledger.detach_gate(node.gate)
            if wanted != attached:
                self.mark_dirty(topic)

    def _is_attached(self, topic: Node, node: Node) -> bool:
        """Whether the topic's publishers need room at the node as it is bound, whatever bridges do."""
        return topic.ledger.ways_to(node.gate) > node.bridge_sources.count(topic)

    def _look_at_bridges(self, *nodes: Node) -> None:
        if self.bridging.all:
            for node in nodes:
                self.bridging.look(node)

    def unsubscribe(self, subscription: Node) -> None:
        """The subscription and its backlog are gone."""
        if subscription.deleted:
            return
        subscription.deleted = True
        del self.subscriptions[subscription.name]
        for topic in list(subscription.topics):
            self.unbind(topic, subscription)
        self._clear_shelf(subscription)
        self._release_memory(subscription)
        self._end_passages(subscription)
        subscription.queue.clear()

    def update_claims(self, node: Node) -> None:
        """Have a message to this address need room on disk too where it, or who gets it, is kept there."""
        failed = self.storing is not None and self.storing.store.state == FAILED
        takers = list(self.bridging.takers(node)) if self.bridging.all else [node, *node.subscriptions]
        stored = sum(each.shelf is not None and not each.is_topic for each in takers)
        if stored == 0 and (failed or any(each.shelf is not None for each in takers)):
            # Nothing is kept, yet what is sent here is to wait while nothing can be.
            stored = 1
        node.ledger.claim(self.disk, stored)
        node.ledger.claim(self.temp, sum(each in self.paging.nodes for each in takers))
        if node.ledger.overpromised:
            self.mark_dirty(node)

    # --- nodes come, change and go

    def has(self, name: str) -> bool:
        """Whether a queue, a topic or a subscription has that name: no two of them do."""
        return name in self.nodes or name in self.subscriptions

    def node(self, name: str) -> Node:
        """The node of that name; NotFoundError if there is none."""
        node = self.nodes.get(name)
        if node is None:
            raise NotFoundError(f"no queue or topic named '{name}'")
        return node

    def create(
        self, name: str, settings: NodeSettings, definition: bytes = b"", shelf: QueueLog | None = None
    ) -> Node:
        """A new node; ConflictError if the name is taken, by a subscription too.

        ``definition`` is what the store keeps of a durable one; ``shelf`` is where a recovered one stands.
        """
        if self.has(name):
            raise ConflictError(f"'{name}' exists already")
        node = Node(name, settings.kind)
        node.ledger.budget(self.memory, self.large.most)
        self._apply(node, settings)
        if shelf is not None:
            self._set_on(node, shelf)
        else:
            self.define(node, definition)
        self.update_claims(node)
        self.nodes[name] = node
        return node

    def define(self, node: Node, definition: bytes) -> None:
        """What is to be known of a durable node after a restart."""
        if self.storing is None or node.settings is None:
            return
        if node.shelf is not None:
            self.storing.store.redefine(node.shelf, definition)
        elif node.settings.durable:
            self._set_on(node, self.storing.store.open_log(node.name, definition))
            self.storing.watch(node)
            if node.consumers:
                self._mark(node, SENT_ANY)

    def restore(self, node: Node, messages: Iterable[tuple[int, int, int, int, bytes]]) -> None:
        """Messages that survived, in order, each (seq, flags, delivery count, expiry, data).

        Before any link is there; a gate may close by it.
        """
        queue = node.queue
        following = queue.next_seq
        redelivered, spared, large = REDELIVERED, SPARED, LARGE
        for seq, flags, delivery_count, expires_ms, data in messages:
            queue.next_seq = seq
            entry = queue.append(data)
            entry.durable = True
            entry.delivery_count = delivery_count
            entry.redelivered = flags & redelivered != 0 or seq <= node.maybe_delivered_upto
            entry.spared = flags & spared != 0
            if node.bodies and seq in node.bodies:
                dress(entry, node.bodies[seq][0])
            if flags & large and self.is_without_body(node, seq, flags, data):
                queue.take(entry)
                self.overdue.append((node, entry, BODY_LOST))
            elif expires_ms:
                self._expire_at(node, entry, expires_ms)
            size = len(data)
            self.memory.depth_bytes += size + constants.HELD_BYTES
            self.memory.depth_msgs += 1
            self.count_kept(node, 1, size)
            if node.gate.enter(size, self.now_ns):
                self.gate_changed(node)
        queue.next_seq = max(following, queue.next_seq)

    def withdraw(self, node: Node) -> None:
        """Take out a node that was being restored and can't be served: what the store has of it stays.

        Whoever withdraws it holds on to the files of its large messages (``keep_aside``).
        """
        self.count_kept(node, -node.stored_msgs, -node.kept_bytes)
        node.shelf = None
        for body, noted in node.bodies.values():
            body.kept -= noted
        node.bodies.clear()
        if node.is_subscription:
            self.unsubscribe(node)
        else:
            self.delete(node.name)

    def stand_in(self, node: Node, settings: NodeSettings) -> None:
        """Have a node that nobody finds take nothing: whatever is sent to it waits."""
        node.ledger.budget(self.memory, self.large.most)
        self._apply(node, settings)
        self.hold(node, True)

    def keep_aside(self, msgs: int, nbytes: int, bodies: Iterable[Body]) -> None:
        """What the store has of a node that isn't served takes room on disk, and its files stay."""
        self.disk.depth_msgs += msgs
        self.disk.depth_bytes += nbytes
        for body in bodies:
            body.kept += 1

    def drop_aside(self, msgs: int, nbytes: int, bodies: Iterable[Body]) -> None:
        """The store has it no more, or will serve it no more from here."""
        self.disk.depth_msgs -= msgs
        self.disk.depth_bytes -= nbytes
        for body in bodies:
            body.kept -= 1
            if self.storing is not None:
                self.storing.wait(BodyRelease(body))

    def _set_on(self, node: Node, shelf: QueueLog) -> None:
        node.shelf = shelf
        for owner in node.owners():
            self.update_claims(owner)
        self._look_at_bridges(node)

    def _mark(self, node: Node, mark: bytes) -> None:
        """Note that this node's messages may be sent, before one is; after a crash they are flagged."""
        if self.storing is not None:
            self.storing.store.note(SENT + node.name, mark)
            store = self.storing.store
            # Where it was noted before, nothing is in the open group for it.
            node.attended_group = store.group if store.open_records else store.group - 1
            self.storing.watch(node)
            self.mark_dirty(node)

    def change(self, node: Node, settings: NodeSettings) -> None:
        """New settings at runtime: what is promised beyond them is withdrawn, who waits is let in."""
        if settings.kind != node.kind and not node.is_subscription:
            raise OperatorError(f"'{node.name}' is a {node.kind} and can't become a {settings.kind}")
        self._apply(node, settings)

    def delete(self, name: str) -> Node:
        """Forget a node and its messages; the caller detaches its links."""
        node = self.node(name)
        del self.nodes[name]
        node.deleted = True
        self._close_accounts(node)
        for subscription in list(node.subscriptions):
            if subscription.is_subscription and subscription.address == node.name:
                self.unsubscribe(subscription)
            else:
                self.unbind(node, subscription)
        for topic in list(node.topics):
            self.unbind(topic, node)
        self.bridging.drop(node)
        self._clear_shelf(node)
        self._release_memory(node)
        self._end_passages(node)
        node.queue.clear()
        self.credit.timed_nodes.pop(node, None)
        self._links_changed(node)
        return node

    def _close_accounts(self, node: Node) -> None:
        """What was parked here has its answer, or is where it came from; so has what channels hold back."""
        for account in list(node.ledger.accounts):
            if isinstance(account.port, Transfer):
                account.port.close(f"'{node.name}' was deleted")
                continue
            while account.parked:
                parked, _ = account.next_parked()
                account.port.refuse(parked)
            account.close()
        node.timed_parked.clear()
        if node.awaiting is not None:
            node.awaiting.end()
            node.awaiting = None

    def _end_passages(self, node: Node) -> None:
        self.expiring.discard(node)
        self.fading.discard(node)
        self.paging.nodes.discard(node)
        reason = f"'{node.name}' was deleted"
        if node.letters is not None:
            node.letters.close(reason)
        for move in [each for each in self.moves if each.source is node]:
            move.close(reason)

    def _release_memory(self, node: Node) -> None:
        """A node is gone with all it held."""
        if node.spool is not None:
            node.gate.depth_msgs -= node.spool.count
            node.gate.depth_bytes -= node.spool.nbytes
            node.spool.drop()
        held_bytes = node.gate.depth_bytes - node.file_bytes
        self.memory.depth_bytes -= held_bytes + node.gate.depth_msgs * constants.HELD_BYTES
        self.memory.depth_msgs -= node.gate.depth_msgs
        for seq, (body, noted) in node.bodies.items():
            self._unnote(node, seq, body, noted)
        node.bodies.clear()

    def _clear_shelf(self, node: Node) -> None:
        if node.shelf is None or self.storing is None:
            return
        self.count_kept(node, -node.stored_msgs, -node.kept_bytes)
        if node.duplicates is not None:
            for place in node.duplicates.places():
                self.note(f"{SEEN}{node.name}/{place}", b"")
        self.storing.store.remove(node.shelf)
        self.storing.store.note(SENT + node.name, b"")
        node.shelf = None

    def purge(self, node: Node) -> int:
        """Drop every ready message; how many there were."""
        count = 0
        entry = node.queue.head
        while entry is not None:
            following = entry.next
            if entry.state in (constants.READY, constants.BEHIND, constants.ASIDE):
                self._drop(node, entry)
                count += 1
            entry = following
        paged = self.paging.drop(node)
        if paged:
            node.dropped += paged
            self._recount(node)
        return count + paged

    def _recount(self, node: Node) -> None:
        """What is kept of the node, counted anew: the sizes of what was dropped unread are not known."""
        kept = [len(entry.data) for entry in node.queue if entry.durable]
        self.count_kept(node, len(kept) - node.stored_msgs, sum(kept) - node.kept_bytes)
        if node.gate.look(self.now_ns):
            self.gate_changed(node)
        for owner in node.owners():
            self.mark_dirty(owner)
        self.mark_dirty(node)

    def move(self, source: Node, target: Node, count: int) -> int:
        """Move the oldest ready messages to another node, in order, as it has room; how many will go."""
        spooled = 0 if source.spool is None else source.spool.count
        count = min(count, source.queue.ready + source.queue.behind + source.queue.aside + spooled)
        if count > 0:
            move = MoveTransfer(self, source, target, count)
            self.moves.append(move)
            self.add_consumer(source, move.mover)
        return count

    def hold(self, node: Node, held: bool) -> None:
        """An operator's gate: stop or start this node's producers."""
        if node.gate.hold(held, self.now_ns):
            self.gate_changed(node)
        node.ledger.overpromised = True
        self.mark_dirty(node)

    def wind_down(self) -> None:
        """Take no more from producers and send no more to consumers; what is out may still settle."""
        self.winding_down = True
        for node in self.nodes.values():
            self.hold(node, True)

    def limit(self, memory_bytes: int, store_bytes: int, temp_bytes: int = 0) -> None:
        """The budgets over all nodes (FLOW §4): message bytes in memory, durable ones on disk, and paged
        out; 0 is none.
        """
        limits = ((self.memory, memory_bytes), (self.disk, store_bytes), (self.temp, temp_bytes))
        for gate, limit in limits:
            # Who waits for a budget goes on when a twentieth is free, not at every message that leaves.
            gate.configure(0, 0, limit, limit - limit // 20, 0, self.now_ns)
        self.credit.wanted = dict.fromkeys((self.memory, self.disk, self.temp), 1)

    def note(self, key: str, value: bytes) -> None:
        """Keep a small fact across restarts; empty bytes take it away. Nothing without a store."""
        if self.storing is not None:
            self.storing.store.note(key, value)

    def switch_flow(self, enabled: bool) -> None:
        """The global switch: with ``False`` no threshold is enforced anywhere."""
        self.flow_control = enabled
        for node in self.every_node():
            self._enforce(node)
            if node.awaiting is not None:
                node.awaiting.heed()

    def every_node(self) -> Iterator[Node]:
        """Queues, topics and subscriptions."""
        yield from list(self.nodes.values())
        yield from list(self.subscriptions.values())

    def sample(self, now_ns: int) -> int:
        """Update every node's rates (messages per second) from its counters; call it once a second.

        How many messages came and went since the last call.
        """
        moved = 0
        seconds = (now_ns - self.sampled_ns) / SECOND_NS
        if self.sampled_ns == 0 or seconds <= 0:
            seconds = 1.0
        self.sampled_ns = now_ns
        if self.temp.held:
            self.paging.hold_temp()
        self.paging.scans.sweep()
        for node in self.every_node():
            if node.spool is not None:
                self.paging.retry(node, node.spool)
            if node.letters is not None:
                self._look_after_letters(node)
            out = node.accepted + node.rejected + node.dropped
            moved += node.received - node.sampled_in + out - node.sampled_out
            node.rate_in = (node.received - node.sampled_in) / seconds
            node.rate_out = (out - node.sampled_out) / seconds
            node.sampled_in = node.received
            node.sampled_out = out
        return moved

    def _apply(self, node: Node, settings: NodeSettings) -> None:
        node.settings = settings
        node.hard_msgs = settings.max_count or constants.UNBOUNDED
        node.hard_bytes = settings.max_size or constants.UNBOUNDED
        node.overflow = _OVERFLOW[settings.overflow]
        if node.overflow == constants.OVERFLOW_PAGE:
            node.page_bytes = settings.memory_limit or node.hard_bytes
            node.hard_msgs = node.hard_bytes = constants.UNBOUNDED
        if not node.is_topic:
            self.paging.set(node, node.overflow == constants.OVERFLOW_PAGE)
        node.when_full = _WHEN_FULL[settings.when_full]
        node.reject_after_ns = settings.reject_after_ms * 1_000_000
        self._set_park_timeout(node)
        node.by_turn = settings.dispatch == "fill"
        node.single_active = settings.consumers == "single_active"
        node.exclusive = settings.consumers == "exclusive"
        node.always_enforced = settings.enforce_flow == "always"
        node.flow_control = settings.flow_control
        node.pending_limit = settings.pending_message_limit
        node.never_blocks_publishers = _would_never_block(node, settings)
        node.dead_letter_address = settings.dead_letter_address
        node.dead_letter_expired = settings.dead_letter_expired
        node.max_delivery_count = settings.max_delivery_count
        self._watch_duplicates(node, settings)
        self._limit_lives(node, settings)
        strict = settings.max_message_size if settings.byte_reservation == "strict" else 0
        if node.is_topic:
            # It has no depth of its own, but its publishers' credit reserves as it says.
            node.gate.configure(0, 0, 0, 0, strict, self.now_ns)
        else:
            changed = node.gate.configure(
                settings.flow_stop_count,
                settings.flow_resume_count,
                settings.flow_stop_size,
                settings.flow_resume_size,
                strict,
                self.now_ns,
            )
            if changed:
                self.gate_changed(node)
        for account in node.ledger.accounts:
            account.resize(settings.producer_window)
        self._update_enforcement(node)
        self._attach_gates(node)
        self.overpromise(node)
        if node.awaiting is not None:
            node.awaiting.heed()
        self._look_at_bridges(node)

    def _watch_duplicates(self, node: Node, settings: NodeSettings) -> None:
        count, span_ms = settings.duplicate_window_count, settings.duplicate_window_ms
        if not count and not span_ms:
            node.duplicates = None
        elif node.duplicates is None:
            node.duplicates = Duplicates(count, span_ms)
        else:
            node.duplicates.resize(count, span_ms)
        node.skips_duplicate_check = node.duplicates is None

    def _limit_lives(self, node: Node, settings: NodeSettings) -> None:
        """How long messages that come from now on are kept, and how long the node itself while it is idle.

        The time of idleness begins anew where another one holds.
        """
        node.message_ttl_ms = settings.message_ttl_ms
        node.max_ttl_ms = settings.max_ttl_ms
        node.limits_ttl = settings.message_ttl_ms > 0 or settings.max_ttl_ms > 0
        expire_ns = settings.expire_after_ms * 1_000_000
        if expire_ns != node.expire_ns:
            node.expire_ns = expire_ns
            node.used_ns = self.now_ns
        if expire_ns and not node.is_topic:
            self.fading.add(node)
        else:
            self.fading.discard(node)

    def _enforce(self, node: Node) -> None:
        assert node.settings is not None
        enforced = would_enforce(node, node.settings, self.flow_control)
        if node.gate.enforced != enforced:
            if node.gate.enforce(enforced, self.now_ns):
                self.gate_changed(node)
            self.overpromise(node)

    def consumers_changed(self, node: Node) -> None:
        """A consumer came, went or started: flow control may hold from now on, or not any more."""
        self._enforce(node)
        for topic in node.topics:
            if not topic.always_enforced:
                self._update_enforcement(topic)
                if node.is_subscription:
                    # It holds its publishers from now on, or does no more, beside others that do as before.
                    self._attach_gates(node)
        self.mark_dirty(node)
        self._links_changed(node)


def would_enforce(node: Node, settings: NodeSettings, flow_control: bool) -> bool:
    """Whether flow control holds at a node, as it is linked now, with these settings; ``flow_control`` is the
    broker's own switch.
    """
    if node.is_subscription:
        # What its topics say holds for it.
        active = not node.topics or node.is_active() or any(topic.always_enforced for topic in node.topics)
    else:
        active = settings.enforce_flow == "always" or node.is_active()
    return flow_control and settings.flow_control and active and not _would_never_block(node, settings)


def _would_never_block(node: Node, settings: NodeSettings) -> bool:
    """Whether it is a subscription that never blocks publishers.

    One that pages because nothing holds while nobody receives blocks them while somebody does: it has
    thresholds, which one that was told to page has not.
    """
    if not node.is_subscription:
        return False
    if not settings.flow_control or settings.pending_message_limit > 0:
        return True
    if _OVERFLOW[settings.overflow] == constants.OVERFLOW_PAGE and settings.enforce_flow != "always":
        return not (settings.flow_stop_count or settings.flow_stop_size)
    return _OVERFLOW[settings.overflow] in _APART


def _untold(kind: str, node: Node | None, fields: Mapping[str, object]) -> None:
    """Nobody listens to events."""


def _expiry_of(node: Node) -> Expiry:
    if node.expiry is None:
        node.expiry = Expiry()
    return node.expiry


def _settings_of(node: Node) -> NodeSettings:
    if node.settings is None:
        raise RuntimeError(f"node '{node.name}' was never configured")
    return node.settings
