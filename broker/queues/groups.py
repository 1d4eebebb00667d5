"""Message groups: all messages of one group go to one consumer, in order, for as long as it is attached.

How a queue with groups hands out its messages:

1. One reader looks at each ready message once, in order, as long as a consumer has capacity. A message whose
   group belongs to a consumer with capacity is sent to it. One whose consumer has none waits in its group,
   and the look goes on behind it: a stuck group holds nobody else up.
2. The first message of a group that belongs to nobody binds the group to the consumer that has the fewest
   groups of all that have capacity. Messages without a group go to any consumer, as in other queues.
3. A consumer that has capacity again is first sent what waits in its groups, the oldest first.
4. A group is free again once its consumer is gone, when its messages have come back; or after a message with
   group-sequence -1, when everything that its consumer holds of it is settled. Until then nothing more of it
   is sent to anybody, so that no two consumers ever hold messages of one group.
5. A group of which nothing waits and nothing is held is remembered for the sake of its consumer, but only so
   many (``most_idle``), the least used are forgotten first.

Selectors: a group is bound to a consumer whose selector wants its message. Messages that the consumer of
their group doesn't want wait until the group is free; the others pass them. A message that its consumer calls
undeliverable there (§3.4.5) frees its group, in the manner of 4.

The work for a message is bounded: it is looked at once, goes into and out of its group once, and again
for each time that it comes back or its group is freed. A look at everything (``restart``) begins
anew where consumers with selectors come, and where a deep queue's gap opens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from broker import constants
from broker.codec.grouping import PropertyKey, closes_group, group_id
from broker.queues.dispatch import Consumer
from broker.queues.message_group import GroupMember, MessageGroup
from broker.queues.queue import Entry, Extra, Queue, QueueOrder, Reader

# How many messages may be put into their groups in one turn before others have theirs.
MOST_LOOKS = 4096
# Idle groups that are remembered where nobody says how many.
MOST_IDLE = 10_000
# Messages removed by others that stay in lists of waiting ones before all is looked at again.
MOST_STALE = 1000

# Where a group with waiting messages is listed: nowhere, with its consumer, or with those free to bind.
_NOWHERE = 0
_OWNED = 1
_FREE = 2
# The consumers that want a message, as bits: all of them.
_ALL = -1


class MessageGroups(QueueOrder):
    """The groups of one queue.

    ``property_key`` reads groups' names where they aren't the group-id, ``shared``: a group is free as
    soon as none of its messages is held (qpidd's way). ``first_key`` names the application property
    that marks the first message of a group at its consumer. ``rebalance``: groups of others move to a
    consumer that comes, as soon as none of their messages is held.
    """

    def __init__(self, queue: Queue) -> None:
        QueueOrder.__init__(self)
        self.queue = queue
        self.property_key: PropertyKey | None = None
        self.first_key = ""
        self.rebalance = False
        self.shared = False
        self.most_idle = MOST_IDLE
        self.groups: dict[bytes, MessageGroup] = {}
        self.held: dict[Entry, MessageGroup] = {}
        self.members: dict[Consumer, GroupMember] = {}
        # Of what is free to go: by the consumers that want it, heaps of groups and of messages without one.
        self.pools: dict[int, list[tuple[int, int, object]]] = {}
        self.selective = 0
        self.unwanted = 0
        self.looks = 0
        # Those that have messages waiting for their consumer.
        self.stuck_groups = 0
        self._stale = 0
        self._serial = 0
        self._moved = False
        self._idle: deque[MessageGroup] = deque()
        # Consumers that are gone, with groups that have yet to be freed.
        self._left: list[GroupMember] = []
        self.reader = Reader(self, None, True)
        queue.open_reader(self.reader)
        queue.order = self

    def close(self) -> None:
        """End: the queue's messages go out as they came. There is no consumer."""
        self.queue.close_reader(self.reader)
        self.queue.order = None

    # --- consumers come and go

    def join(self, consumer: Consumer) -> None:
        """Serve a consumer from now on."""
        if not consumer.joins_groups or consumer in self.members:
            return
        taken = 0
        for member in self.members.values():
            taken |= member.bit
        bit = 1
        while taken & bit:
            bit <<= 1
        member = GroupMember(consumer, bit)
        self.members[consumer] = member
        if member.wanted is not None:
            self.selective += 1
        if self.selective or self.unwanted or len(self.pools) > (_ALL in self.pools):
            # Some messages were looked at for consumers that wanted them.
            self.restart()
        if self.rebalance and len(self.members) > 1:
            self._rebalance()

    def leave(self, consumer: Consumer) -> None:
        """Serve a consumer no more: its groups are free. The caller has requeued what it held."""
        member = self.members.pop(consumer, None)
        if member is None:
            return
        member.gone = True
        if member.wanted is not None:
            self.selective -= 1
        if not self.members or len(self.pools) > (_ALL in self.pools):
            # Of the latter, what it alone wanted stands before what others want.
            member.listed = []
            if self.members:
                self.restart()
            else:
                self._forget_all()
            return
        if member.listed:
            self._left.append(member)
        if member.skips:
            for group in self.groups.values():
                if group.owner is member and group.held == 0:
                    self._free(group)

    def _forget_all(self) -> None:
        """Forget all groups: nobody is there to whom they belong."""
        self.restart()
        for group in self.groups.values():
            group.owner = None
        if not self.held:
            self.groups.clear()
            self._idle.clear()

    def _rebalance(self) -> None:
        """Free so many groups that each consumer may have as many as the others; none that is held."""
        total = 0
        for member in self.members.values():
            member.moving = 0
            total += member.groups
        share = (total + len(self.members) - 1) // len(self.members)
        for group in list(self.groups.values()):
            owner = group.owner
            if owner is None or owner.gone or group.closing:
                continue
            group.moves = False
            if owner.groups > share and group.held == 0:
                self._free(group)
        for group in self.groups.values():
            owner = group.owner
            if owner is None or owner.gone or group.held == 0 or group.closing:
                continue
            if owner.groups - owner.moving > share:
                group.moves = True
                owner.moving += 1

    # --- what the queue tells

    def taken(self, entry: Entry) -> None:
        """Somebody else acquires an entry."""
        if entry.state == constants.READY and entry.seq <= self.reader.passed:
            self._lost(entry)

    def gone(self, entry: Entry) -> None:
        """An entry leaves: it was settled, or dropped before it was sent."""
        if entry.state == constants.ACQUIRED:
            group = self.held.pop(entry, None)
            if group is not None:
                self._let_go(group)
        elif entry.state == constants.READY and entry.seq <= self.reader.passed:
            self._lost(entry)

    def let_go(self, entry: Entry) -> None:
        """A consumer is done with an entry that stays acquired: it is on its way elsewhere."""
        group = self.held.pop(entry, None)
        if group is not None:
            self._let_go(group)

    def returned(self, entry: Entry) -> None:
        """An entry is ready again: it goes to the consumer of its group, before what waits there."""
        group = self.held.pop(entry, None)
        if group is None:
            if entry.seq > self.reader.passed:
                return
            group = self._group_of(entry)
            if group is None:
                self._offer_message(entry)
            else:
                self._wait(group, entry)
            return
        owner = group.owner
        if owner is not None and entry.extra is not None and owner.consumer in entry.extra.not_for:
            group.closing = True
        if entry.seq <= self.reader.passed:
            self._wait(group, entry)
        self._let_go(group)

    def restart(self) -> None:
        """Look at everything again; groups stay whose they are."""
        for group in self.groups.values():
            group.waiting = None
            group.skipped = None
            group.head = 0
            self._set_place(group, _NOWHERE)
            if group.held == 0 and not group.idle:
                group.idle = True
                self._idle.append(group)
        for member in self.members.values():
            member.listed = []
            member.skips = False
        for member in self._left:
            # A circle: groups of it are found by others, too.
            member.listed = []
        self._left.clear()
        self.pools.clear()
        self.stuck = 0
        self.unwanted = 0
        self._stale = 0
        self.reader.position = self.queue.head
        self.reader.passed = 0

    def _lost(self, entry: Entry) -> None:
        """Others take an entry that waits: out of its group, if it is the first, so that the next one is.

        Others stay in their lists until those are used, or until they are too many.
        """
        self.stuck -= 1
        group = self.groups.get(self._key_of(entry))
        if group is not None and self._first(group) is entry:
            group.pop()
            if group.place == _FREE:
                self._offer(group)
            return
        self._stale += 1
        if self._stale > MOST_STALE and self._stale > self.stuck:
            self.restart()

    # --- handing out

    def dispatch(self, consumers: list[Consumer], only_first: bool, by_turn: bool, start: int) -> None:
        """Send what is ready, as far as consumers have capacity and there is something for them.

        ``only_first``: the first consumer alone is served; ``by_turn``: messages without a group go to the
        next in turn for a full batch. ``start`` breaks ties.
        """
        self.reader.unfinished = False
        self.looks = MOST_LOOKS
        takers = self._takers_of(consumers, only_first, start)
        try:
            while takers:
                if self._left:
                    self._free_left()
                if self._serve_own(takers) or (self.pools and self._serve_free(takers, by_turn)):
                    continue
                # A group may have become free meanwhile.
                if not self._look(takers, by_turn) and not (self.pools and self._serve_free(takers, by_turn)):
                    break
        finally:
            for member in takers:
                member.deals = False

    def has_more(self, consumer: Consumer) -> bool:
        """Whether there is something that the consumer could be sent, or that nobody has looked at yet."""
        member = self.members.get(consumer)
        if member is None:
            return self.queue.ready > 0
        if self._left or self.waits_for(consumer):
            return True
        self._moved = True
        while self._moved:
            self._moved = False
            for wanted_by in list(self.pools):
                if wanted_by & member.bit and self._first_of(wanted_by) is not None:
                    return True
        entry = self.reader.position
        while entry is not None and entry.state == constants.ACQUIRED:
            entry = entry.next
        if entry is not None and entry.state == constants.READY:
            return True
        return self.queue.gap and self.queue.disk is not None and self.queue.disk.brings_more()

    def waits_for(self, consumer: Consumer) -> bool:
        """Whether messages of the consumer's own groups wait for it."""
        member = self.members.get(consumer)
        if member is None:
            return False
        while member.listed:
            group = member.listed[0][2]
            if (
                group.owner is member
                and group.place == _OWNED
                and not group.closing
                and self._first(group) is not None
            ):
                return True
            heappop(member.listed)
            if group.owner is member:
                self._set_place(group, _NOWHERE)
        return False

    def _takers_of(self, consumers: list[Consumer], only_first: bool, start: int) -> list[GroupMember]:
        """Return those with capacity; what an operator moves goes first, whatever its group."""
        takers: list[GroupMember] = []
        count = len(consumers)
        served = count
        first = start
        if only_first:
            served = 1
            first = 0
            while first < count - 1 and not consumers[first].joins_groups:
                first += 1
        for i in range(served):
            consumer = consumers[(first + i) % count]
            consumer.left = consumer.capacity()
            consumer.load = consumer.in_flight
            if consumer.left <= 0:
                continue
            member = self.members.get(consumer)
            if member is not None:
                member.deals = True
                takers.append(member)
        for consumer in list(consumers):
            if not consumer.joins_groups:
                self._serve_any(consumer)
        return takers

    def _free_left(self) -> None:
        """Free groups of consumers that are gone, which may have many: so many in a turn."""
        while self._left:
            member = self._left[len(self._left) - 1]
            while member.listed:
                if self.looks <= MOST_LOOKS // 2:
                    self.reader.unfinished = True
                    return
                self.looks -= 1
                _, _, group = member.listed.pop()
                if group.owner is member and group.place == _OWNED:
                    self._set_place(group, _NOWHERE)
                    if group.held == 0:
                        self._free(group)
            self._left.pop()

    def _serve_any(self, consumer: Consumer) -> None:
        consumer.left = consumer.capacity()
        while consumer.left > 0:
            entry = self.queue.cursor
            if entry is None:
                return
            self.queue.take(entry)
            consumer.left -= 1
            consumer.send(entry)

    def _serve_own(self, takers: list[GroupMember]) -> bool:
        """Send each taker one message that waits in its groups; whether there was any."""
        found = False
        at = 0
        while at < len(takers):
            member = takers[at]
            if member.listed and self._may_send(member) and self._send_own(member):
                found = True
            if member.consumer.left <= 0:
                member.deals = False
                takers.pop(at)
            else:
                at += 1
        return found

    def _may_send(self, member: GroupMember) -> bool:
        """Whether it still has capacity, which what others were sent may have taken."""
        if member.consumer.shares and member.consumer.capacity() <= 0:
            member.consumer.left = 0
        return member.consumer.left > 0

    def _send_own(self, member: GroupMember) -> bool:
        while member.listed:
            if self.looks <= 0:
                self.reader.unfinished = True
                return False
            _, _, group = heappop(member.listed)
            if group.owner is not member or group.place != _OWNED:
                continue
            self._set_place(group, _NOWHERE)
            entry = self._first(group)
            if entry is None or group.closing:
                continue
            group.pop()
            wanted = self._wants(member, entry)
            if not wanted:
                self.looks -= 1
                self._skip(group, entry)
                if group.closing and group.held == 0:
                    self._free(group)
                    continue
            self._list(group)
            if wanted:
                self.stuck -= 1
                self._send(member, group, entry)
                return True
        return False

    def _serve_free(self, takers: list[GroupMember], by_turn: bool) -> bool:
        """Bind the oldest free group that a taker wants, or send the oldest message without a group."""
        self._moved = False
        bits = 0
        for member in takers:
            bits |= member.bit
        best: list[tuple[int, int, object]] | None = None
        for wanted_by in list(self.pools):
            if not wanted_by & bits:
                continue
            pool = self._first_of(wanted_by)
            if pool is not None and (best is None or pool[0] < best[0]):
                best = pool
        if best is None:
            return self._moved
        found = heappop(best)[2]
        if isinstance(found, Entry):
            self.stuck -= 1
            taker = self._least_loaded(takers, found, by_turn)
            if taker is None:
                self._offer_message(found)
                return self._still(takers)
            self._send(taker, None, found)
        else:
            assert isinstance(found, MessageGroup)
            entry = self._first(found)
            assert entry is not None, "it is free because of it"
            self._set_place(found, _NOWHERE)
            taker = self._fewest_groups(takers, entry)
            if taker is None:
                self._offer(found)
                return self._still(takers)
            self._bind(found, taker)
            self._list(found)
        self._drop_full(takers)
        return True

    def _still(self, takers: list[GroupMember]) -> bool:
        """One of the takers' connection has no room any more: go on with the others."""
        before = len(takers)
        self._drop_full(takers)
        return len(takers) < before

    def _drop_full(self, takers: list[GroupMember]) -> None:
        at = 0
        while at < len(takers):
            member = takers[at]
            if member.consumer.left <= 0:
                member.deals = False
                takers.pop(at)
            else:
                at += 1

    def _look(self, takers: list[GroupMember], by_turn: bool) -> bool:
        """Look at messages nobody has looked at until a taker is full; false where there are none left."""
        reader = self.reader
        while True:
            entry = reader.position
            while entry is not None and entry.state == constants.ACQUIRED:
                if self.queue.gap and entry.seq > self.queue.gap_first:
                    # It expired behind the gap: what is on disk stands before it.
                    return False
                reader.passed = entry.seq
                entry = entry.next
                reader.position = entry
            if entry is None or entry.state != constants.READY:
                return False
            if self.looks <= 0:
                reader.unfinished = True
                return False
            reader.position = entry.next
            reader.passed = entry.seq
            group = self._group_of(entry)
            if group is None:
                member = self._least_loaded(takers, entry, by_turn)
                if member is None:
                    self.looks -= 1
                    self._offer_message(entry)
            else:
                member = self._taker_of(group, takers, entry)
                if member is None:
                    self.looks -= 1
                    self._wait(group, entry)
            if member is not None:
                self._send(member, group, entry)
                if member.consumer.left > 0:
                    continue
            self._drop_full(takers)
            if not takers:
                return False

    def _taker_of(self, group: MessageGroup, takers: list[GroupMember], entry: Entry) -> GroupMember | None:
        """The consumer that may be sent a group's newest message now; None if it has to wait."""
        owner = group.owner
        if group.closing or group.waiting is not None:
            return None
        if owner is None:
            if group.held > 0:
                return None
            owner = self._fewest_groups(takers, entry)
            if owner is not None:
                self._bind(group, owner)
            return owner
        if owner.deals and self._wants(owner, entry) and self._may_send(owner):
            return owner
        return None

    def _least_loaded(self, takers: list[GroupMember], entry: Entry, by_turn: bool) -> GroupMember | None:
        best: GroupMember | None = None
        for member in takers:
            if best is not None and (by_turn or member.consumer.load >= best.consumer.load):
                continue
            if self._wants(member, entry) and self._may_send(member):
                best = member
        return best

    def _fewest_groups(self, takers: list[GroupMember], entry: Entry) -> GroupMember | None:
        best: GroupMember | None = None
        for member in takers:
            if best is not None and (
                member.groups > best.groups
                or (member.groups == best.groups and member.consumer.load >= best.consumer.load)
            ):
                continue
            if self._wants(member, entry) and self._may_send(member):
                best = member
        return best

    def _send(self, member: GroupMember, group: MessageGroup | None, entry: Entry) -> None:
        """Send an entry that is in no list any more. A pre-settled one has left when this returns."""
        consumer = member.consumer
        self.queue._take(entry)
        consumer.left -= 1
        consumer.load += 1
        if group is None:
            consumer.send(entry)
            return
        self.held[entry] = group
        group.held += 1
        group.used = True
        if closes_group(entry.data):
            group.closing = True
        if group.marked or not self.first_key:
            group.marked = True
            consumer.send(entry)
            return
        group.marked = True
        if entry.extra is None:
            entry.extra = Extra()
        entry.extra.mark = self.first_key
        consumer.send(entry)
        if entry.extra is not None:
            entry.extra.mark = ""

    def _wants(self, member: GroupMember, entry: Entry) -> bool:
        if entry.extra is not None and member.consumer in entry.extra.not_for:
            return False
        return member.wanted is None or member.wanted.matches(entry.data)

    def _wanted_by(self, entry: Entry) -> int:
        """The consumers that an entry may go to, as bits."""
        if not self.selective and (entry.extra is None or not entry.extra.not_for):
            return _ALL
        bits = 0
        for member in self.members.values():
            if self._wants(member, entry):
                bits |= member.bit
        return bits

    # --- groups

    def _group_of(self, entry: Entry) -> MessageGroup | None:
        key = self._key_of(entry)
        if not key:
            return None
        group = self.groups.get(key)
        if group is None:
            group = MessageGroup(key)
            self.groups[key] = group
        elif group.owner is not None and group.owner.gone and group.held == 0:
            group.owner = None
            group.closing = group.moves = group.marked = False
        return group

    def _set_place(self, group: MessageGroup, place: int) -> None:
        self.stuck_groups += (place == _OWNED) - (group.place == _OWNED)
        group.place = place

    def _key_of(self, entry: Entry) -> bytes:
        return group_id(entry.data) if self.property_key is None else self.property_key.of(entry.data)

    def _bind(self, group: MessageGroup, member: GroupMember) -> None:
        group.owner = member
        group.marked = False
        member.groups += 1

    def _free(self, group: MessageGroup) -> None:
        """Let a group of which nothing is held go to any consumer."""
        owner = group.owner
        if owner is not None:
            owner.groups -= 1
            group.owner = None
        group.closing = group.moves = group.marked = False
        if group.skipped is not None:
            group.take_skipped()
        self._offer(group)

    def _offer(self, group: MessageGroup) -> None:
        """List a free group with those that its first message may go to."""
        self._set_place(group, _NOWHERE)
        while True:
            entry = self._first(group)
            if entry is None:
                self._rest(group)
                return
            wanted_by = self._wanted_by(entry)
            if wanted_by != 0:
                break
            group.pop()
            self.unwanted += 1
        self._set_place(group, _FREE)
        group.wanted_by = wanted_by
        self._put(wanted_by, entry.seq, group)

    def _offer_message(self, entry: Entry) -> None:
        """List a message without a group with those that it may go to."""
        self.stuck += 1
        wanted_by = self._wanted_by(entry)
        if wanted_by == 0:
            self.unwanted += 1
        else:
            self._put(wanted_by, entry.seq, entry)

    def _put(self, wanted_by: int, seq: int, found: object) -> None:
        pool = self.pools.get(wanted_by)
        if pool is None:
            pool = []
            self.pools[wanted_by] = pool
        self._serial += 1
        heappush(pool, (seq, self._serial, found))

    def _first_of(self, wanted_by: int) -> list[tuple[int, int, object]] | None:
        """A pool whose first is there still; None, and the pool is gone, if it is empty."""
        pool = self.pools[wanted_by]
        while pool:
            found = pool[0][2]
            if isinstance(found, Entry):
                if found.state == constants.READY:
                    return pool
            else:
                assert isinstance(found, MessageGroup)
                if found.place == _FREE and found.wanted_by == wanted_by and self._is_first(found, wanted_by):
                    return pool
            heappop(pool)
        del self.pools[wanted_by]
        return None

    def _is_first(self, group: MessageGroup, wanted_by: int) -> bool:
        """Whether a free group still has a message for the same consumers; else it is listed anew."""
        entry = self._first(group)
        if entry is not None and self._wanted_by(entry) == wanted_by:
            return True
        if entry is None:
            self._set_place(group, _NOWHERE)
            self._rest(group)
        else:
            # In the pool of others: this one's is about to be taken out.
            self._moved = True
            self._offer(group)
        return False

    def _wait(self, group: MessageGroup, entry: Entry) -> None:
        """An entry waits in its group."""
        self.stuck += 1
        owner = group.owner
        if owner is not None and not owner.gone and not self._wants(owner, entry):
            self._skip(group, entry)
            if group.closing and group.held == 0:
                self._free(group)
            return
        is_first = self._insert(group, entry)
        if owner is not None:
            if group.place != _OWNED and not group.closing and not owner.gone:
                self._list(group)
        elif group.held == 0 and (is_first or group.place != _FREE):
            self._offer(group)

    def _skip(self, group: MessageGroup, entry: Entry) -> None:
        """An entry that its group's consumer doesn't want waits until the group is free."""
        if self._wanted_by(entry) == 0:
            self.unwanted += 1
            return
        if group.skipped is None:
            group.skipped = []
        group.skipped.append(entry)
        owner = group.owner
        if owner is None:
            return
        owner.skips = True
        if entry.extra is not None and owner.consumer in entry.extra.not_for:
            # No selector's choice: another consumer is to have it, and the group with it.
            group.closing = True

    def _list(self, group: MessageGroup) -> None:
        """List a group with its consumer if a message of it waits."""
        owner = group.owner
        if group.waiting is None or owner is None:
            return
        entry = self._first(group)
        if entry is not None:
            self._set_place(group, _OWNED)
            self._serial += 1
            heappush(owner.listed, (entry.seq, self._serial, group))

    def _let_go(self, group: MessageGroup) -> None:
        """One of its messages is held no more."""
        group.held -= 1
        if group.held > 0:
            return
        owner = group.owner
        if owner is None or owner.gone or group.closing or group.moves or self.shared:
            self._free(group)
        elif group.waiting is None and not group.idle:
            self._rest(group)

    def _rest(self, group: MessageGroup) -> None:
        """A group has nothing to do: of such the least used are forgotten beyond so many."""
        if not group.idle:
            group.idle = True
            self._idle.append(group)
        tries = 4
        while tries > 0 and len(self.groups) > self.most_idle and self._idle:
            tries -= 1
            found = self._idle.popleft()
            found.idle = False
            if found.held or found.waiting is not None or found.skipped is not None:
                continue
            if found.used and found.owner is not None and not found.owner.gone:
                found.used = False
                found.idle = True
                self._idle.append(found)
                continue
            if found.owner is not None:
                found.owner.groups -= 1
            if self.groups.get(found.key) is found:
                del self.groups[found.key]

    def _first(self, group: MessageGroup) -> Entry | None:
        """The first waiting entry that is ready still."""
        if group.waiting is None:
            return None
        self._stale -= group.drop_taken()
        return group.first()

    def _insert(self, group: MessageGroup, entry: Entry) -> bool:
        """Put an entry in its place among those that wait; whether it is the first."""
        if not group.insert(entry):
            # Somebody else took it and gave it back.
            self._stale -= 1
        return group.first() is entry

    # --- for operators

    def owned(self) -> int:
        """How many groups have a consumer."""
        return sum(member.groups for member in self.members.values())

    def waiting_in(self, group: MessageGroup) -> int:
        """How many of a group's messages wait for its consumer, of those that were looked at."""
        count = 0 if group.skipped is None else sum(e.state == constants.READY for e in group.skipped)
        if group.waiting is not None:
            count += sum(e is not None and e.state == constants.READY for e in group.waiting)
        return count

    def __iter__(self) -> Iterator[MessageGroup]:
        return iter(list(self.groups.values()))

    def reset(self, key: bytes) -> bool:
        """Free one group once nothing of it is held; whether it is free now. KeyError if there is none."""
        group = self.groups[key]
        if group.held:
            group.closing = True
            return False
        self._free(group)
        return True
