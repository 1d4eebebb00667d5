"""Local transactions: each commits as a whole or not at all (AMQP 1.0 §4).

Committing puts in all messages and applies all outcomes between two groups of the store, so that all of it is
on disk or nothing. Rolling back gives room and messages back, and counts each message as a failed delivery.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker import constants
from broker.codec.message import is_dead_lettered
from broker.engine.annotations import add_annotations
from broker.engine.delivery import Delivery
from broker.engine.durability import Durability
from broker.engine.intake import Intake
from broker.engine.letters import Letters
from broker.engine.node import Node
from broker.engine.settlement import Settlement
from broker.engine.transaction import (
    COMMITTED,
    ROLLED_BACK,
    Owner,
    Post,
    Retirement,
    Transaction,
    TransactionLimits,
    UserTransactions,
)
from broker.engine.turn import Turn

# Outcomes by the codes of their descriptors (§3.4).
REJECTED = 0x25
RELEASED = 0x26
MODIFIED = 0x27


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """What open transactions hold of one node: messages posted there, and messages retired from there.

    ``began_ns`` is when the oldest of them began, ``deadline_ns`` when that is rolled back (0: never).
    """

    posted_msgs: int = 0
    retired_msgs: int = 0
    began_ns: int = 0
    deadline_ns: int = 0


class Transactions:
    """Transactions that are open, and how many have ended: ``committed``, ``rolled_back``, ``timed_out``.

    ``users`` has the shares of those users that have open ones; ``limits`` bounds each of them.
    """

    def __init__(
        self,
        turn: Turn,
        durability: Durability,
        intake: Intake,
        settlement: Settlement,
        delivery: Delivery,
        letters: Letters,
    ) -> None:
        self._turn = turn
        self._durability = durability
        self._intake = intake
        self._settlement = settlement
        self._delivery = delivery
        self._letters = letters
        self.open: set[Transaction] = set()
        self.limits = TransactionLimits()
        self.users: dict[str, UserTransactions] = {}
        self.complete: list[Transaction] = []
        self.committed = 0
        self.rolled_back = 0
        self.timed_out = 0

    def declare(
        self, name: bytes, owner: Owner, timeout_ns: int, most_bytes: int, user: str = ""
    ) -> Transaction:
        """Begin a transaction; 0 nanoseconds is no time limit. ``user`` is whose it is, '' for nobody's."""
        now_ns = self._turn.now_ns
        begun = Transaction(name, owner, now_ns, now_ns + timeout_ns if timeout_ns else 0, most_bytes)
        self.open.add(begun)
        if user:
            begun.user = self.users.setdefault(user, UserTransactions(user, self.limits))
            begun.user.count += 1
        return begun

    def may_declare(self, user: str) -> bool:
        """Return whether a user may have one more open transaction."""
        share, most = self.users.get(user), self.limits.most_per_user
        return share is None or most == 0 or share.count < most

    def commit(self, transaction: Transaction) -> int:
        """Do all of it: ACCEPTED, or STORING if it counts only once it is on disk; REFUSED if it was rolled
        back, and ``fault`` says why.
        """
        fault = transaction.fault or self._obstacle(transaction)
        if fault:
            transaction.fault = fault
            self.roll_back(transaction)
            return constants.REFUSED
        self._end(transaction, COMMITTED)
        self.committed += 1
        commit = self._durability.commit
        before = None if commit is None else commit.mark()
        intake = self._intake
        self._release(transaction)
        for post in transaction.posts:
            intake.origin = post.origin
            if intake.put(post.node, post.data, post.bits) == constants.REFUSED:
                post.node.dropped += 1
        for retired in transaction.retirements:
            self._apply(retired)
        transaction.posts = []
        transaction.retirements = []
        return constants.ACCEPTED if commit is None or commit.mark() == before else constants.STORING

    def roll_back(self, transaction: Transaction) -> None:
        """Undo all of it: messages that were posted are gone, messages that were retired are back."""
        self._end(transaction, ROLLED_BACK)
        self.rolled_back += 1
        for message, account in list(transaction.parked.items()):
            if account.unpark(message):
                account.port.refuse(message)
                if isinstance(account.place, Node):
                    self._turn.wake(account.place)
        transaction.parked.clear()
        self._release(transaction)
        for node in {post.node for post in transaction.posts}:
            self._turn.wake(node)
        for retired in transaction.retirements:
            if retired.link is not None:
                # It is still the link's: its receiver may tell another outcome (§4.4.2).
                retired.link.discharged(retired.number, False)
            else:
                # A stop of the broker is no failed delivery.
                self._settlement.requeue(retired.node, retired.entry, not self._delivery.winding_down)
        transaction.posts = []
        transaction.retirements = []

    def leave(self, transaction: Transaction) -> None:
        """Forget one that has ended in another cell, which had all of its work and counts it."""
        self._end(transaction, COMMITTED)

    def finish_later(self, transaction: Transaction) -> None:
        """Have its owner discharge it in the next turn: in this one room is being dealt."""
        self.complete.append(transaction)

    def finish(self) -> None:
        """Have transactions discharged whose last message came in."""
        complete, self.complete = self.complete, []
        for each in complete:
            each.owner.finish(each)

    def end_overdue(self, now_ns: int) -> None:
        """Have transactions rolled back whose time is over.

        That of an empty one hasn't begun: a JMS session declares the next when it has ended one, and may wait
        for a message for hours.
        """
        for each in self.open:
            if each.is_empty():
                if each.deadline_ns:
                    each.deadline_ns += now_ns - each.began_ns
                each.began_ns = now_ns
        for each in [each for each in self.open if 0 < each.deadline_ns <= now_ns]:
            self.timed_out += 1
            each.owner.timed_out(each)

    def uncommitted(self, node: Node) -> Uncommitted:
        """Return what open transactions hold of a node and those below it; looks at every message."""
        nodes = {node, *node.subscriptions}
        posted = retired = 0
        oldest: Transaction | None = None
        for each in {each for part in nodes for each in part.transactions or ()}:
            here = sum(1 for post in each.posts if post.node in nodes)
            gone = sum(1 for kept in each.retirements if kept.node in nodes)
            if here or gone:
                posted += here
                retired += gone
                if oldest is None or each.began_ns < oldest.began_ns:
                    oldest = each
        if oldest is None:
            return Uncommitted()
        return Uncommitted(posted, retired, oldest.began_ns, oldest.deadline_ns)

    def _release(self, transaction: Transaction) -> None:
        """Give back the room that its messages kept, of those like each other at once."""
        first: Post | None = None
        msgs = 0
        for post in transaction.posts:
            if first is None or post.node is not first.node or post.size != first.size:
                if first is not None:
                    first.node.allocator.release_uncommitted(first.size, msgs)
                first = post
                msgs = 0
            msgs += 1
        if first is not None:
            first.node.allocator.release_uncommitted(first.size, msgs)

    def _end(self, transaction: Transaction, state: str) -> None:
        transaction.state = state
        self.open.discard(transaction)
        for node in transaction.nodes:
            others = node.transactions
            if others is not None:
                others.discard(transaction)
                if not others:
                    node.transactions = None
        user = transaction.user
        if user is not None:
            user.count -= 1
            user.nbytes -= transaction.nbytes
            transaction.user = None
            if user.count == 0:
                del self.users[user.user]

    def _apply(self, retired: Retirement) -> None:
        node = retired.node
        entry = retired.entry
        settlement = self._settlement
        if retired.outcome == REJECTED:
            settlement.reject(node, entry)
        elif retired.outcome == RELEASED:
            node.released += 1
            settlement.requeue(node, entry, False)
        elif retired.outcome == MODIFIED:
            node.modified += 1
            if not node.deleted:
                if retired.forbids is not None:
                    node.queue.forbid(entry, retired.forbids)
                if retired.annotations:
                    add_annotations(entry, retired.annotations)
            settlement.requeue(node, entry, retired.failed)
        else:
            settlement.acknowledge(node, entry)
        if node.queue.order is not None:
            # A group may be another consumer's now.
            self._turn.mark_dirty(node)
        if retired.link is not None:
            # Only now is known what its settlement waits for on disk.
            retired.link.discharged(retired.number, True)

    def _obstacle(self, transaction: Transaction) -> str:
        """Return why it can't commit: a node is gone, or one would refuse a message at its hard limit, also
        over a bridge for whose target senders wait.
        """
        wanted: dict[Node, tuple[int, int]] = {}
        last: Node | None = None
        msgs = nbytes = 0
        for post in transaction.posts:
            node = post.node
            if node is not last:
                if node.deleted:
                    return f"'{node.name}' was deleted"
                if last is not None:
                    _add(wanted, last, msgs, nbytes)
                last = node
                msgs = nbytes = 0
            if node.is_topic or node.subscriptions or node.bridges:
                for each in self._intake.takers(node, post.data, post.origin):
                    if each.stream is not None and post.bits >> constants.LARGE_SHIFT:
                        # It was bound since.
                        return f"'{each.name}' is a stream, for which a message is too large"
                    _add(wanted, each, 1, post.size)
            else:
                msgs += 1
                nbytes += post.size
        if last is not None:
            _add(wanted, last, msgs, nbytes)
        letters: dict[Node, tuple[int, int]] = {}
        for node, (wanted_msgs, wanted_bytes) in wanted.items():
            gate = node.gate
            if (
                gate.depth_msgs + wanted_msgs <= node.hard_msgs
                and gate.depth_bytes + wanted_bytes <= node.hard_bytes
            ):
                continue
            if node.hot.overflow == constants.OVERFLOW_DEAD_LETTER and not node.is_subscription:
                way = self._letters.way(node)
                if way is not None and not self._has_letters(transaction, node):
                    # How many of them it will be depends on their sizes: room for all is enough.
                    _add(letters, way.target, wanted_msgs, wanted_bytes)
                    continue
            elif node.hot.overflow != constants.OVERFLOW_REJECT:
                continue
            return f"'{node.name}' is at its hard limit"
        for node, (wanted_msgs, wanted_bytes) in letters.items():
            if not self._letters.has_room(node, wanted_msgs, wanted_bytes):
                return f"'{node.name}' has no room for messages beyond another queue's hard limit"
        return ""

    def _has_letters(self, transaction: Transaction, node: Node) -> bool:
        """Return whether a message for a node is a dead letter already: it can't become one again."""
        return any(post.node is node and is_dead_lettered(post.data) for post in transaction.posts)


def _add(wanted: dict[Node, tuple[int, int]], node: Node, msgs: int, nbytes: int) -> None:
    before = wanted.get(node, (0, 0))
    wanted[node] = (before[0] + msgs, before[1] + nbytes)
