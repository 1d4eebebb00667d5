"""Credit over several nodes: who is dealt first, and who waits for the room of a budget that nodes share.

The credit of one address is its allocator's (``flow.allocator``). Here are the rules between addresses
(FLOW §2 rules 4 and 5): nodes take turns, room of a short budget goes to the node that has least of it, and
idle producers of one node lend their credit to those of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter

from broker.engine.durability import GroupCommit
from broker.engine.node import Node, memory_of
from broker.engine.turn import Turn
from broker.flow.allocator import PATIENCE, CreditAllocator
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.gate import Gate
from broker.flow.level import Level
from broker.flow.producer_credit import IDLE_NS
from broker.flow.reclaim import lend_in_connection

# How long room of a budget is kept for a node that was passed over, and how often at most.
KEEP_NS = 100_000_000
KEEP_EVERY_NS = 1_000_000_000
# How long a node may get no room of a budget beside others that have less of it.
OVERDUE_NS = 1_000_000_000

_SERVED = attrgetter("served")


class CreditDealer:
    """Deals credit to the nodes of a turn: ``look_at_budgets``, then ``deal`` and ``deal_in_turn``.

    ``timed_nodes``: those that something is to be done for at some time though no message moves.
    ``wanted``: budgets that somebody waits for, with the least room, in bytes, that would serve one who
    does; ``contested`` the one that has room in this turn. ``keeper`` has room of the budget ``kept`` kept
    for it. ``entering_bytes``: the least that a parked message would take in memory, where memory alone
    keeps it out; 0 for none. ``budgets_in_demand``: connections some of whose producers wait for the
    connection's own budget. ``borrowing``: nodes whose producers wait for room that those of other nodes
    hold. ``lend_ns``: when idle credit is next looked for over several nodes. Sets keep their order, for
    turns are taken in it.

    ``budgets`` are memory, disk and temporary store; ``bridges`` all there are, and ``rivals`` returns the
    nodes whose producers share room with a node's because of one.
    """

    def __init__(
        self,
        turn: Turn,
        budgets: tuple[Gate, Gate, Gate],
        storing: GroupCommit | None,
        bridges: Collection[object],
        rivals: Callable[[Node], list[Node]],
    ) -> None:
        self._turn = turn
        self._memory, self._disk, self._temp = budgets
        self._storing = storing
        self._rivals = rivals
        self._bridges = bridges
        self.timed_nodes: dict[Node, None] = {}
        self.wanted: dict[Gate, int] = {}
        self.contested: Gate | None = None
        self.keeper: Node | None = None
        self.kept = self._memory
        self.entering_bytes = 0
        self.lend_ns = 1
        self.budgets_in_demand: dict[ConnectionBudget, None] = {}
        self.borrowing: dict[Node, None] = {}
        self._sharers_turn = 0

    def is_waited_for(self) -> bool:
        """Whether somebody waits for room that producers of other nodes may hold in vain."""
        return bool(self.wanted or self.entering_bytes or self.borrowing or self.budgets_in_demand)

    def add_sharer(self, sharing: list[Node] | None, node: Node) -> list[Node] | None:
        """Those of a turn that share a gate with others, and for whom there is something to do."""
        allocator = node.allocator
        if not (allocator.line or allocator.rest or allocator.overpromised):
            return sharing
        if sharing is None:
            return [node]
        sharing.append(node)
        return sharing

    def deal_in_turn(self, sharing: list[Node]) -> None:
        """Whoever is dealt first may take all there is: who went longest without is (FLOW §2 rule 4).

        Where a budget is short it is who has the least of it, so that the room comes to be shared max-min
        fair; but whoever got none for ``OVERDUE_NS`` is before those.
        """
        if len(sharing) > 1:
            sharing.sort(key=_SERVED)
            if self.contested is not None:
                sharing.sort(key=self._rank)
        if self.keeper is not None and not self._goes_on_keeping(self.keeper):
            self.keeper = None
        for node in sharing:
            allocator = node.allocator
            if allocator.line and self._leaves_room(node):
                allocator.wait_its_turn(self._turn.now_ns)
                self.timed_nodes[node] = None
                self._want(allocator)
                continue
            before = allocator.promised_msgs - allocator.parked_msgs
            self.deal(node)
            if allocator.promised_msgs - allocator.parked_msgs > before:
                self._sharers_turn += 1
                node.served = self._sharers_turn
                node.served_ns = self._turn.now_ns
                node.passed_over = 0
                node.kept_ns = 0
                if self.keeper is node:
                    self.keeper = None
            elif allocator.line:
                self._pass_over(node)

    def deal(self, node: Node) -> None:
        allocator = node.allocator
        if allocator.line or allocator.rest or allocator.overpromised:
            if node.shelf is not None and self._storing is not None and self._storing.behind:
                self.timed_nodes[node] = None
                return
            allocator.settle_turn(self._turn.now_ns)
            if allocator.budgets_in_demand:
                self.budgets_in_demand.update(dict.fromkeys(allocator.budgets_in_demand))
                allocator.budgets_in_demand.clear()
            if allocator.line or allocator.rest:
                self.timed_nodes[node] = None
            if allocator.line:
                self._want(allocator)
                # Nothing more than this for a queue of its own (bench: one queue, many blocked producers).
                if (node.topics or node.shared > 0 or self._bridges) and self._lenders(node):
                    self.borrowing[node] = None

    def _want(self, allocator: CreditAllocator) -> None:
        """Somebody waits: where a budget has no room for what comes next, it is looked at in every turn."""
        account = allocator.line[0]
        size = account.parked[0][1] if account.parked else account.reserve_bytes
        for gate in (self._memory, self._disk, self._temp):
            if account.parked and gate is self._memory:
                continue
            taken = allocator.takes(gate, size)
            if taken > 0 and gate.room(taken) == 0:
                self.wanted[gate] = min(taken, self.wanted.get(gate, taken))
                gate.wanted = True
        if allocator.parked_msgs > 0:
            self._want_entry(allocator)

    def _want_entry(self, allocator: CreditAllocator) -> None:
        """What is parked is in memory already, and may be all there is room for: that isn't in its way."""
        for account in allocator.line:
            if account.parked:
                taken = allocator.takes(self._memory, account.parked[0][1])
                if taken > 0 and not self._memory.takes_parked(taken):
                    self.entering_bytes = min(taken, self.entering_bytes or taken)
                return

    def look_at_budgets(self, nodes: Iterable[Node]) -> None:
        """Wake nodes that wait for a budget; budgets are shared by ``nodes`` that don't know of each other.

        1. Once a budget that is waited for has room for the smallest message, every timed node is dealt.
        2. Until then idle links of all nodes lose their credit (FLOW §2 rule 5 across nodes).
        """
        idle = self._turn.now_ns >= self.lend_ns
        if self.budgets_in_demand:
            self._serve_connections(idle)
        if self.borrowing and idle:
            self._borrow()
        if not self.wanted and not self.entering_bytes:
            return
        if self._has_room():
            for gate in self.wanted:
                gate.wanted = False
            self.contested = self._memory if self._memory in self.wanted else self._disk
            self.wanted.clear()
            self.entering_bytes = 0
            for node in self.timed_nodes:
                self._turn.mark_dirty(node)
        elif idle:
            self.lend_ns = self._turn.now_ns + IDLE_NS
            every = list(nodes)
            for gate in self._short_of():
                room = max(gate.stop_bytes - gate.depth_bytes - gate.promised_bytes, 0)
                self._lend(every, room, gate.stop_bytes, gate, self._spared(every, gate))

    def _has_room(self) -> bool:
        """Whether a budget that is waited for has room for the smallest message."""
        if self.entering_bytes and self._memory.takes_parked(self.entering_bytes):
            return True
        return any(gate.room(size) > 0 for gate, size in self.wanted.items())

    def _short_of(self) -> list[Gate]:
        """The budgets that somebody waits for."""
        short = list(self.wanted)
        if self.entering_bytes and self._memory not in self.wanted:
            short.append(self._memory)
        return short

    def _spared(self, nodes: list[Node], budget: Gate) -> set[Node]:
        """Those that have less of a budget than any other node that waits for it, and so lend it nothing."""
        waiting = [
            node for node in self.timed_nodes if node.allocator.line and node.allocator.takes(budget, 1) > 0
        ]
        least = sorted((self._taken(node, budget), number) for number, node in enumerate(waiting))[:2]
        if not least:
            return set()
        neediest = waiting[least[0][1]]
        others = least[1][0] if len(least) > 1 else 0
        holding = [node for node in nodes if node.allocator.promised_msgs > 0]
        return {
            node
            for node in holding
            if self._taken(node, budget) < (others if node is neediest else least[0][0])
        }

    def _serve_connections(self, idle: bool) -> None:
        """Connections whose own budget was used up: who waits for it goes on, or borrows from idle links."""
        if idle:
            self.lend_ns = self._turn.now_ns + IDLE_NS
        for budget in list(self.budgets_in_demand):
            changed = lend_in_connection(budget, self._turn.now_ns) if idle else []
            changed += budget.serve(self._turn.now_ns)
            if not budget.budget_queue:
                self.budgets_in_demand.pop(budget, None)
            for account in changed:
                if isinstance(account.place, Node):
                    self._turn.mark_dirty(account.place)

    def _borrow(self) -> None:
        """Nodes share the room of a queue, or of a subscription to several topics: what idle producers of one
        hold in vain, those of another get (FLOW §2 rule 5 across nodes).
        """
        self.lend_ns = self._turn.now_ns + IDLE_NS
        for node in self.borrowing:
            for gate, lenders in self._lenders(node):
                whole = gate.stop_msgs if gate is not None else 0
                self._lend([*lenders, node], 0, whole, None)
            self._turn.mark_dirty(node)
        self.borrowing.clear()

    def _lenders(self, node: Node) -> list[tuple[Gate | None, list[Node]]]:
        """Whose producers may hold what this node's wait for, by the gate that has no room left for the first
        in line. Nobody while one is closed: borrowing doesn't help, its opening wakes everybody.
        """
        found: list[tuple[Gate | None, list[Node]]] = []
        if self._bridges:
            rivals = self._rivals(node)
            if rivals:
                found.append((None, rivals))
        allocator = node.allocator
        if not allocator.line:
            return found
        size = allocator.line[0].reserve_bytes
        for each in (node, *node.subscriptions):
            gate = each.gate
            if each.never_blocks_publishers or gate.room(size) > 0:
                continue
            if gate.closed:
                return []
            if gate.promised_msgs > allocator.promised_msgs:
                owners = [owner for owner in each.owners() if owner is not node]
                if owners:
                    found.append((gate, owners))
        return found

    def _lend(
        self, nodes: list[Node], room: int, whole: int, budget: Gate | None, spared: Collection[Node] = ()
    ) -> None:
        """Take back what their idle links hold beyond their share; those that never used any rest, and are
        asked again from time to time. Those that are ``spared`` lose only what is held in vain.
        """
        accounts = [account for node in nodes for account in node.allocator.accounts]
        shares = Level(accounts, room, whole, self._turn.now_ns, budget)
        for node in nodes:
            if node.allocator.lend(self._turn.now_ns, shares, node in spared) > 0:
                self.timed_nodes[node] = None

    def _rank(self, node: Node) -> int:
        """Who has least of the budget that has room again is first, but for those overdue."""
        if self._turn.now_ns - node.served_ns > OVERDUE_NS or self.contested is None:
            return -1
        return self._taken(node, self.contested)

    def _leaves_room(self, node: Node) -> bool:
        """Whether room of a budget is kept for another: it is owed to who would have less of it than this
        node even then; to any other for ``KEEP_NS``, for all it needs may never come.
        """
        keeper = self.keeper
        if keeper is None or keeper is node:
            return False
        if node.allocator.takes(self.kept, node.allocator.line[0].reserve_bytes) == 0:
            return False
        if self._turn.now_ns - keeper.kept_ns < KEEP_NS:
            return True
        return self._taken(node, self.kept) > self._goal(keeper, self.kept)

    def _pass_over(self, node: Node) -> None:
        """A node that needs room of a budget got none. Where others took each crumb that came free, and its
        messages are larger than theirs, they leave it what comes.
        """
        gate = self._short_for(node.allocator)
        if gate is None:
            return
        node.passed_over += 1
        if node.passed_over <= PATIENCE:
            return
        if self.keeper is None or self._comes_before(node, gate, self.keeper):
            self.keeper = node
            self.kept = gate
        if node is self.keeper and self._turn.now_ns - node.kept_ns >= KEEP_EVERY_NS:
            node.kept_ns = self._turn.now_ns

    def _comes_before(self, node: Node, budget: Gate, keeper: Node) -> bool:
        """Whether it would have less than the one that room is kept for now, whose time isn't running."""
        if self._turn.now_ns - keeper.kept_ns < KEEP_NS:
            return False
        return self._goal(node, budget) < self._goal(keeper, self.kept)

    def _goes_on_keeping(self, node: Node) -> bool:
        return bool(node.allocator.line) and not node.deleted and self._short_for(node.allocator) is self.kept

    def _goal(self, node: Node, budget: Gate) -> int:
        """What it will take of a budget once it has room for its next message."""
        return self._taken(node, budget) + node.allocator.takes(budget, node.allocator.line[0].reserve_bytes)

    def _taken(self, node: Node, budget: Gate) -> int:
        """What messages and promises of a node take of a budget, in bytes."""
        taken = 0
        for part in node.subscriptions if node.is_topic else (node,):
            taken += memory_of(part) if budget is self._memory else part.gate.depth_bytes
            taken += part.gate.promised_bytes
        return taken

    def _short_for(self, allocator: CreditAllocator) -> Gate | None:
        """The budget without room for what comes next, where the node's own threshold has some."""
        account = allocator.line[0]
        size = account.reserve_bytes
        if account.parked or allocator.gate.room(size) == 0:
            return None
        for gate in (self._memory, self._disk, self._temp):
            taken = allocator.takes(gate, size)
            if taken > 0 and gate.room(taken) == 0:
                return gate
        return None
