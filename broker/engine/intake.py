"""Messages arrive: each is put into its node, into a topic's subscriptions, over bridges, or refused."""

from __future__ import annotations

from functools import partial

from broker import constants
from broker.codec import message
from broker.engine.bodies import NodeBodies
from broker.engine.changes import Changes
from broker.engine.departure import Departure
from broker.engine.depths import Depths
from broker.engine.durability import SEEN, Answer, Durability
from broker.engine.expirations import Expirations
from broker.engine.large import LargeMessages
from broker.engine.last_values import LastValues
from broker.engine.letters import Letters
from broker.engine.node import Bridge, Node
from broker.engine.priorities import is_high
from broker.engine.schedules import Schedules
from broker.engine.streams import Streams
from broker.engine.transaction import Transaction
from broker.engine.turn import Turn
from broker.flow.producer_credit import ProducerCredit

# What Changes.emit says when a bridge's target begins to refuse copies.
REFUSED = "bridge_refused"


class Intake:
    """Takes messages in.

    ``origin`` is the connection of whoever sent the message that a topic is passing on. While it
    ``keeps_repeats`` no window of duplicates is asked: the message is a dead letter, whose only copy this is.
    """

    def __init__(
        self,
        turn: Turn,
        changes: Changes,
        depths: Depths,
        durability: Durability,
        bodies: NodeBodies,
        expirations: Expirations,
        departure: Departure,
        large: LargeMessages,
        letters: Letters,
        schedules: Schedules,
        last_values: LastValues,
        streams: Streams,
    ) -> None:
        self._turn = turn
        self._changes = changes
        self._depths = depths
        self._durability = durability
        self._bodies = bodies
        self._expirations = expirations
        self._departure = departure
        self._large = large
        self._letters = letters
        self._schedules = schedules
        self._last_values = last_values
        self._streams = streams
        self._crossing = False
        self.origin: object = None
        self.keeps_repeats = False

    def arrive(
        self,
        node: Node,
        account: ProducerCredit,
        data: bytes,
        bits: int,
        settled: bool,
        transaction: Transaction | None = None,
    ) -> int:
        """Take a whole message from a producer link; return what to tell the peer (constants.py).

        One that is sent in a ``transaction`` keeps its room, and is put in when that commits.
        """
        size = len(data)
        if node.subscriptions:
            self.origin = account.origin
        if bits >> constants.LARGE_SHIFT:
            size += self._large.size_of(bits)
            if self.too_small_for(node, data, account.origin) is not None:
                return self._refuse_large(node, account, size)
        if account.window_max == 0:
            return self._arrive_unpromised(node, account, data, bits, settled, size, transaction)
        # A message that can't be taken says nothing of those to come.
        learned = size if size <= node.hard_bytes else account.learned_bytes
        verdict = account.use(learned, self._turn.now_ns)
        if (
            node.reserves_room
            and verdict != constants.VIOLATION
            and self._waits_as_bulk(node, account, data, size)
        ):
            return constants.PARK
        if verdict == constants.TAKEN:
            if not self._fits(node, data, size, True) and node.allocator.room(size) == 0:
                # Larger than what its credit reserved: it waits, rather than be lost (FLOW §2 rule 7).
                return constants.PARK
            if transaction is not None:
                code = self.hold(transaction, node, account, data, bits)
            elif node.awaiting is None:
                code = self.put(node, data, bits)
            else:
                code = self.put_awaited(node, data, bits, settled)
                if code == constants.HOLD:
                    return constants.HOLD
            # Only now does the depth tell how much room is left to promise.
            if account.outstanding <= account.low:
                if code == constants.STORING and self._durability.is_behind():
                    node.allocator.wait(account, self._turn.now_ns)
                else:
                    node.allocator.renew(account, self._turn.now_ns)
            return code
        if verdict == constants.LATE:
            if settled:
                account.overrun_count += 1
                node.overrun += 1
            return constants.PARK
        return constants.OVERSENT

    def too_small_for(self, node: Node, data: bytes, origin: object) -> Node | None:
        """Return a stream that a large message to a node would come to, None where there is none.

        A body in a file of its own has no place among a stream's messages.
        """
        for taker in self.takers(node, data, origin):
            if taker.stream is not None:
                return taker
        return None

    def _refuse_large(self, node: Node, account: ProducerCredit, size: int) -> int:
        """Refuse a message that a stream among its takers can't take: REFUSED, and nobody gets it."""
        if account.window_max == 0:
            account.used += 1
            account.last_used_ns = self._turn.now_ns
        elif account.use(size, self._turn.now_ns) == constants.VIOLATION:
            return constants.OVERSENT
        elif account.outstanding <= account.low:
            node.allocator.renew(account, self._turn.now_ns)
        self._turn.wake(node)
        node.refused += 1
        return constants.REFUSED

    def _arrive_unpromised(
        self,
        node: Node,
        account: ProducerCredit,
        data: bytes,
        bits: int,
        settled: bool,
        size: int,
        transaction: Transaction | None,
    ) -> int:
        """Take a message on credit that promised no room: an anonymous relay, or a node that rejects."""
        account.used += 1
        account.last_used_ns = self._turn.now_ns
        allocator = node.allocator
        if (not allocator.line and allocator.room(size) > 0) or (
            node.reserves_room and is_high(node, data) and allocator.urgent_room(size) > 0
        ):
            if transaction is not None:
                return self.hold(transaction, node, account, data, bits)
            if node.awaiting is None:
                return self.put(node, data, bits)
            return self.put_awaited(node, data, bits, settled)
        if settled:
            # It can't be refused any more, so it waits whatever `when_full` says.
            account.overrun_count += 1
            node.overrun += 1
            return constants.PARK
        if node.hot.when_full == constants.FULL_REJECT and not allocator.is_only_promised(size):
            node.refused += 1
            return constants.REFUSED
        return constants.PARK

    def hold(
        self, transaction: Transaction, node: Node, account: ProducerCredit, data: bytes, bits: int
    ) -> int:
        """Keep a message that has room until its transaction commits: ACCEPTED."""
        size = len(data)
        body = None
        if bits >> constants.LARGE_SHIFT:
            body = self._large.of(bits)
            size += body.size
        node.allocator.hold_uncommitted(size)
        transaction.post(node, account.origin, data, bits, size, body)
        # Its sender may wait for more, which others have to give back.
        self._turn.mark_dirty(node)
        return constants.ACCEPTED

    def _waits_as_bulk(self, node: Node, account: ProducerCredit, data: bytes, size: int) -> bool:
        """Return whether a message of low priority came on credit of the reserve: it waits for other room."""
        if is_high(node, data):
            account.mixed = account.mixed or not account.urgent
            return False
        if not account.urgent or (not account.parked and node.allocator.room(size) > 0):
            return False
        account.parks_bulk = True
        return True

    def put_awaited(self, topic: Node, data: bytes, bits: int, settled: bool) -> int:
        """Put a message into a topic with channels; HOLD if it is settled only when they have sent it."""
        awaiting = topic.awaiting
        if settled or awaiting is None:
            return self.put(topic, data, bits)
        code: int = awaiting.put(data, bits)
        return constants.HOLD if code != constants.REFUSED and awaiting.wanted() else code

    def put(self, node: Node, data: bytes, bits: int, compared: bool = False) -> int:
        """Put in a message that has room; ACCEPTED, STORING (not on disk yet) or REFUSED (hard limit).

        ``compared``: it was looked at already which message of the node it repeats, or replaces.
        """
        if node.is_topic or node.subscriptions:
            return self._publish(node, data, bits)
        if not node.takes_as_is and not compared:
            if node.stream is not None:
                code = self._streams.put(node, data, bits)
                return self._cross(node, data, bits, code) if node.bridges else code
            if self._is_duplicate(node, data):
                self._turn.wake(node)
                # The first copy may be in a group that isn't on disk yet.
                return self._durability.answer_behind(node, bits)
            if node.last_values is not None:
                return self._put_value(node, data, bits)
        gate = node.gate
        size = len(data)
        if bits >> constants.LARGE_SHIFT:
            size += self._large.size_of(bits)
        if (
            gate.depth_msgs >= node.hard_msgs or gate.depth_bytes + size > node.hard_bytes
        ) and not self._make_room(node, size, data):
            code = self._overflow(node, data, bits)
            self._turn.wake(node)
            if not node.takes_as_is and code != constants.REFUSED:
                self._remember(node, data)
            return code
        if not node.takes_as_is:
            self._remember(node, data)
        if bits & constants.MAY_BE_DELAYED and (time_ms := self._schedules.time_ms(data)) > 0:
            code = self._schedules.put(node, data, bits, size, time_ms)
            return self._cross(node, data, bits, code) if node.bridges else code
        keep = bits & constants.IS_DURABLE != 0 and node.shelf is not None
        entry = node.queue.append(data, keep)
        node.received += 1
        node.received_bytes += size
        self._depths.enter(node, size)
        if bits >> constants.LARGE_SHIFT:
            self._bodies.add(node, entry, self._large.of(bits), keep)
        expires_ms = 0
        if bits & (constants.HAS_TTL | constants.HAS_EXPIRY) or node.limits_ttl:
            expires_ms = self._expirations.set_deadline(node, entry, data)
        if keep:
            self._durability.keep(node, entry, expires_ms)
        elif not node.dirty:
            self._turn.mark_dirty(node)
        code = constants.STORING if keep else constants.ACCEPTED
        if node.bridges:
            return self._cross(node, data, bits, code)
        return code

    def _put_value(self, node: Node, data: bytes, bits: int) -> int:
        """Put a message into a last-value queue, where it replaces the one of its key that nobody holds."""
        if bits & constants.MAY_BE_DELAYED and self._schedules.time_ms(data) > 0:
            # It is a value from its time on.
            return self.put(node, data, bits, True)
        queue = node.last_values
        older = None if queue is None else queue.replaceable(data)
        if older is None:
            return self.put(node, data, bits, True)
        size = len(data)
        if bits >> constants.LARGE_SHIFT:
            size += self._large.size_of(bits)
        # Where there is no room even so `overflow` says which messages go.
        out = self._last_values.make_way(node, older, size)
        code = self.put(node, data, bits, True)
        if out or older.state != constants.GONE:
            # The removal on disk stands behind the newer one, in the same group or a later one.
            self._last_values.settle(node, older)
        return code

    def put_waiting(self, node: Node, data: bytes, bits: int, size: int, time_ms: int) -> int:
        """Put in a message that an operator moves and that waits on, for a time of the wall clock; there is
        room for it. One that the node knows as a duplicate is counted, and not put in.
        """
        if self._is_duplicate(node, data):
            return self._durability.answer_behind(node, bits)
        self._remember(node, data)
        code = self._schedules.put(node, data, bits, size, time_ms)
        return self._cross(node, data, bits, code) if node.bridges else code

    def takers(self, node: Node, data: bytes, origin: object) -> list[Node]:
        """Return the queues and subscriptions where a message to a node would come to lie and for whose room
        its sender waits, those beyond bridges included.
        """
        self.origin = origin
        found: list[Node] = []
        self._add_takers(found, node, data, True)
        return found

    def _add_takers(self, found: list[Node], node: Node, data: bytes, crossing: bool) -> None:
        """Add the takers of a message at a node; ``crossing``: bridges take it further."""
        if node.is_topic or node.subscriptions:
            for each in node.subscriptions:
                if not each.never_blocks_publishers and self._wants(each, data):
                    self._add_takers(found, each, data, crossing)
        else:
            found.append(node)
        if not crossing:
            return
        origin = self.origin
        # As for a copy.
        self.origin = None
        for bridge in node.bridges:
            if bridge.crosses and (bridge.filter is None or bridge.filter.matches(data)):
                self._add_takers(found, bridge.target, data, False)
        self.origin = origin

    def put_behind(self, node: Node, data: bytes) -> None:
        """Put in a message nobody may see before all that was stored until now is on disk."""
        commit = self._durability.commit
        if commit is None or not commit.store.open_records:
            self.put(node, data, 0)
            return
        if node.last_values is not None or node.stream is not None:
            # It may replace one that somebody can see until then; a stream's log takes offsets in order.
            commit.wait(Answer(partial(self._put_late, node, data)))
            return
        entry = node.queue.append(data, True)
        entry.durable = False
        commit.delay(node, entry)
        node.received += 1
        node.received_bytes += len(data)
        self._depths.enter(node, len(data))

    def _put_late(self, node: Node, data: bytes) -> None:
        """Put in a message that has waited for the disk, if its node is still there."""
        if not node.deleted:
            self.put(node, data, 0)

    def confirmed(self, topic: Node, bits: int) -> int:
        """Return the answer for a message whose settlement was held: ACCEPTED, or STORING where a copy may
        not be on disk yet.
        """
        for subscription in topic.subscriptions:
            if subscription.shelf is not None:
                return self._durability.answer_behind(subscription, bits)
        return constants.STORING if self._durability.is_unstored(topic, bits) else constants.ACCEPTED

    def _publish(self, topic: Node, data: bytes, bits: int) -> int:
        """Put a copy into every subscription; the bytes are shared, the places in line are not."""
        if not topic.hot.always_enforced and not self._fits_unheeded(topic, data, bits):
            topic.refused += 1
            return constants.REFUSED
        if bits >> constants.LARGE_SHIFT and self._is_too_large(topic, data):
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
            if not topic.hot.always_enforced and subscription.gate.excess_msgs() > 0:
                # Others were promised this room: a bound queue's own producers, another topic's publishers.
                self._changes.overpromise(subscription)
        if not routed:
            topic.unrouted += 1
        if answer == constants.ACCEPTED and self._durability.is_unstored(topic, bits):
            # No copy waits for the disk, but the topic itself does.
            answer = constants.STORING
        if not topic.dirty:
            self._turn.mark_dirty(topic)
        if topic.bridges:
            return self._cross(topic, data, bits, answer)
        return answer

    def _cross(self, node: Node, data: bytes, bits: int, code: int) -> int:
        """Copy a message that has arrived at a bridge's source; ``code`` is what came of it there.

        STORING if it or a copy isn't on disk yet. A copy crosses no further bridge, as in TIBCO EMS. One that
        is refused is counted, and told when the target begins to refuse.
        """
        if self._crossing:
            return code
        self._crossing = True
        origin = self.origin
        # Whoever wants nothing from its own connection means what is sent to the topic itself.
        self.origin = None
        try:
            for bridge in node.bridges:
                if bridge.filter is not None and not bridge.filter.matches(data):
                    bridge.passed_by += 1
                    continue
                answer = self.put(bridge.target, data, bits)
                if answer == constants.REFUSED:
                    self._count_refused(bridge)
                    continue
                bridge.refusing = False
                bridge.copied += 1
                if not bridge.crosses:
                    self._withdraw_excess(bridge.target)
                if answer == constants.STORING:
                    code = constants.STORING
        finally:
            self._crossing = False
            # A topic may have further subscriptions behind one that is a bridge's source.
            self.origin = origin
        return code

    def _withdraw_excess(self, target: Node) -> None:
        """A copy came without a promise: the credit of the target's own producers may be too much now."""
        for taker in (target, *target.subscriptions):
            if taker.gate.excess_msgs() > 0:
                self._changes.overpromise(taker)

    def _count_refused(self, bridge: Bridge) -> None:
        bridge.refused += 1
        if not bridge.refusing:
            bridge.refusing = True
            fields = {"bridge": bridge.name, "refused": bridge.refused}
            self._changes.emit(REFUSED, bridge.target, fields)

    def _fits(self, node: Node, data: bytes, size: int, crossing: bool) -> bool:
        """Return whether no hard limit is in the way of a message, below which it may fit later.

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
            and node.hot.overflow == constants.OVERFLOW_REJECT
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

    def _fits_unheeded(self, topic: Node, data: bytes, bits: int) -> bool:
        """Return whether no hard limit is in the way at those whose room its publishers were not held to.

        Nobody gets a message that such a one rejects, as its `overflow` says, and the sender hears it.
        """
        size = len(data)
        if bits >> constants.LARGE_SHIFT:
            size += self._large.size_of(bits)
        for each in topic.subscriptions:
            if (
                not each.never_blocks_publishers
                and not self._fits(each, data, size, False)
                and not topic.heeds(each)
                and self._wants(each, data)
            ):
                return False
        return True

    def _is_too_large(self, topic: Node, data: bytes) -> bool:
        """Return whether a large message would come to a stream, and so nobody gets it."""
        takers: list[Node] = []
        self._add_takers(takers, topic, data, not self._crossing)
        return any(taker.stream is not None for taker in takers)

    def _wants(self, subscription: Node, data: bytes) -> bool:
        if subscription.not_from is not None and subscription.not_from is self.origin:
            return False
        return subscription.filter is None or subscription.filter.matches(data)

    def _make_room(self, node: Node, size: int, data: bytes) -> bool:
        """Drop the oldest ready messages of a ring; false if that doesn't help or isn't asked for."""
        if node.hot.overflow != constants.OVERFLOW_RING or size > node.hard_bytes:
            return False
        gate = node.gate
        while gate.depth_msgs >= node.hard_msgs or gate.depth_bytes + size > node.hard_bytes:
            oldest = node.queue.oldest_below(data)
            if oldest is not None:
                self._departure.drop(node, oldest)
            elif not self._schedules.drop_next(node):
                return False
        return True

    def _overflow(self, node: Node, data: bytes, bits: int) -> int:
        """Do with the newest message what `overflow` says: the node is at its hard limit."""
        if node.hot.overflow == constants.OVERFLOW_DROP_NEWEST or self._is_least(node, data):
            node.dropped += 1
            return constants.ACCEPTED
        if node.hot.overflow == constants.OVERFLOW_DEAD_LETTER:
            code = self._letters.take_overflow(node, data, bits)
            if code is not None:
                return code
        node.refused += 1
        return constants.REFUSED

    def _is_least(self, node: Node, data: bytes) -> bool:
        """Return whether a ring is full of higher priorities than the message's: it makes room itself."""
        if node.hot.overflow != constants.OVERFLOW_RING or len(data) > node.hard_bytes:
            return False
        queue = node.queue
        return queue.oldest_below(data) is None and queue.oldest() is not None

    def _is_duplicate(self, node: Node, data: bytes) -> bool:
        """Return whether the message came before, within the node's window."""
        if node.duplicates is None or self.keeps_repeats:
            return False
        message_id = message.message_id(data)
        if not message_id or not node.duplicates.knows(message_id, self._turn.wall_ms()):
            return False
        node.duplicated += 1
        return True

    def _remember(self, node: Node, data: bytes) -> None:
        """Remember a message the node takes; one that is refused may come again."""
        if node.duplicates is None:
            return
        message_id = message.message_id(data)
        if message_id:
            place, note, gone = node.duplicates.remember(message_id, self._turn.wall_ms())
            if node.shelf is not None:
                self._durability.note(f"{SEEN}{node.name}/{place}", note)
                if gone:
                    self._durability.forget_seen(node.name, gone)
