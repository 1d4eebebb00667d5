"""The engine: credit, order and disk meet here, on one thread, in turns.

``begin_turn`` takes the time, links report what happened, ``end_turn`` dispatches what became ready and deals
out the room that came free. Nothing here knows a socket; links are ports. Each subject has a part of its own,
which ``Engine`` makes and hands to those that need it.
"""

from __future__ import annotations

from broker.engine.actions import OperatorActions
from broker.engine.bodies import NodeBodies
from broker.engine.changes import Changes
from broker.engine.configuring import Configurator
from broker.engine.credit import CreditDealer
from broker.engine.delivery import Delivery
from broker.engine.departure import Departure
from broker.engine.depths import Depths
from broker.engine.durability import Durability
from broker.engine.expirations import Expirations
from broker.engine.intake import Intake
from broker.engine.large import LargeMessages
from broker.engine.last_values import LastValues
from broker.engine.letters import Letters
from broker.engine.lifecycle import Lifecycle
from broker.engine.paging import Paging
from broker.engine.parking import Parking
from broker.engine.producers import Producers
from broker.engine.reader_commits import ReaderCommits
from broker.engine.sampling import RateSampler
from broker.engine.schedules import Schedules
from broker.engine.settlement import Settlement
from broker.engine.streams import Streams
from broker.engine.topology import Topology
from broker.engine.transactions import Transactions
from broker.engine.transfer import MoveTransfer
from broker.engine.turn import Turn
from broker.store.port import WRITING, Store


class Engine:
    """Every node of the broker, with the parts that act on them; one thread owns it.

    ``turn`` is the time and what is to be done; ``changes`` tells observers; ``depths`` has the budgets over
    all nodes; ``topology`` finds nodes. A producer's message comes through ``producers`` and ``intake``, and
    waits in ``parking``; a consumer's goes through ``delivery`` and ``settlement``; both may wait in one of
    the ``transactions``. ``lifecycle`` makes and deletes nodes, ``configurator`` applies their settings,
    ``actions`` are operators', whose moves are ``moves``.
    """

    def __init__(self, flow_control: bool = True, store: Store | None = None) -> None:
        turn = self.turn = Turn()
        changes = self.changes = Changes(turn)
        depths = self.depths = Depths(turn, changes)
        durability = self.durability = Durability(store, turn, depths)
        topology = self.topology = Topology(turn, changes, depths, durability, flow_control)
        budgets = (depths.memory, depths.disk, depths.temp)
        bridging = topology.bridging
        credit = self.credit = CreditDealer(turn, budgets, durability.commit, bridging.all, bridging.rivals)
        large = self.large = LargeMessages(depths.memory, depths.temp, depths.disk)
        bodies = self.bodies = NodeBodies(depths, durability)
        expirations = self.expirations = Expirations(turn)
        letters = self.letters = Letters(self, turn, topology.node)
        departure = Departure(turn, depths, durability, bodies, expirations)
        last_values = LastValues(turn, departure)
        streams = self.streams = Streams(turn, depths, durability, ReaderCommits(turn, changes, durability))
        schedules = self.schedules = Schedules(
            turn, changes, depths, durability, bodies, expirations, departure, large, letters, last_values
        )
        self.settlement = Settlement(
            turn, durability, expirations, departure, letters, schedules, last_values
        )
        self.intake = Intake(
            turn,
            changes,
            depths,
            durability,
            bodies,
            expirations,
            departure,
            large,
            letters,
            schedules,
            last_values,
            streams,
        )
        self.parking = Parking(turn, credit)
        self.producers = Producers(turn, changes)
        self.delivery = Delivery(turn, durability, departure, topology)
        self.transactions = Transactions(
            turn, durability, self.intake, self.settlement, self.delivery, letters
        )
        paging = self.paging = Paging(
            turn, changes, depths, bodies, expirations, letters, self.settlement, topology
        )
        self.configurator = Configurator(
            turn, changes, durability, topology, paging, self.parking, last_values, streams.commits
        )
        self.moves: list[MoveTransfer] = []
        self.lifecycle = Lifecycle(
            turn,
            changes,
            depths,
            durability,
            bodies,
            expirations,
            topology,
            credit,
            large,
            letters,
            self.settlement,
            self.configurator,
            self.moves,
            schedules,
            last_values,
            streams,
        )
        self.actions = OperatorActions(
            self, turn, changes, depths, departure, self.delivery, topology, paging, schedules
        )
        self.sampler = RateSampler(topology, paging, letters, depths, streams)
        self.store_state = WRITING

    def begin_turn(self, now_ns: int) -> None:
        """All that is reported until ``end_turn`` happened at ``now_ns``."""
        self.turn.now_ns = now_ns
        if self.credit.timed_nodes:
            self._wake_timed_nodes()
        self.settlement.expire()
        if self.transactions.complete:
            self.transactions.finish()
        if self.schedules.has_due():
            self.schedules.release()
        if self.credit.is_waited_for() and now_ns >= self.credit.lend_ns:
            self._look_at_budgets()

    def end_turn(self) -> None:
        """Dispatch what is ready, then deal out room; admitted messages are dispatched as well."""
        self._look_at_budgets()
        if self.moves:
            for move in list(self.moves):
                move.look()
        credit = self.credit
        while self.turn.dirty:
            nodes = self.turn.take_dirty()
            sharing = None
            for node in nodes:
                node.dirty = False
                self.delivery.serve(node)
                if node.spool is not None:
                    self.paging.look(node)
                if node.topics or node.shared > 0 or node in credit.timed_nodes:
                    sharing = credit.add_sharer(sharing, node)
                else:
                    credit.deal(node)
            if sharing is not None:
                credit.deal_in_turn(sharing)
            if self.streams.nodes and not self.turn.dirty:
                # Messages that were sent settled, or passed over: producers may wait for that.
                self.streams.commits.commit()
                self.streams.commits.look()
        credit.contested = None
        if self.paging.scans.asked:
            self.paging.scans.read()
        if self.turn.unfinished:
            # A long search, or an operator's move, goes on in the next turn.
            self.turn.go_on()

    def recover(self) -> None:
        """After ``end_turn`` raised: every node may be touched again; the next turn goes on."""
        self.turn.take_dirty()
        for node in self.topology.every_node():
            node.dirty = False

    def next_deadline(self) -> int:
        """Return when a turn is due though nothing happened, in the caller's nanoseconds; 0 for never."""
        if self.settlement.overdue or self.transactions.complete:
            return 1
        earliest = self.credit.lend_ns if self.credit.is_waited_for() else 0
        due = self.expirations.next_deadline()
        if due and (earliest == 0 or due < earliest):
            earliest = due
        due = self.schedules.next_ns
        if due and (earliest == 0 or due < earliest):
            earliest = due
        behind = self.durability.is_behind()
        for node in self.credit.timed_nodes:
            # Nothing is dealt while too much waits for the disk; attend_store says when it is over.
            due = 0 if behind and node.shelf is not None else node.allocator.next_deadline()
            if node.refuse_ns and (due == 0 or node.refuse_ns < due):
                due = node.refuse_ns
            if due and (earliest == 0 or due < earliest):
                earliest = due
        return earliest

    def seal(self) -> None:
        """Have what this turn stored written; the reactor calls it whenever a turn's part is done."""
        commit = self.durability.commit
        if commit is not None and commit.seal():
            self.attend_store()

    def attend_store(self) -> None:
        """Let go on who waited for the disk: groups are on it, or the store's state changed."""
        commit = self.durability.commit
        if commit is None:
            return
        was_behind = commit.behind
        for node in commit.attend():
            self.turn.mark_dirty(node)
        if was_behind and not commit.behind:
            for node in self.credit.timed_nodes:
                self.turn.mark_dirty(node)
        if self.store_state != commit.store.state:
            self.store_state = commit.store.state
            self.topology.hold_disk(self.store_state != WRITING)

    def limit(self, memory_bytes: int, store_bytes: int, temp_bytes: int = 0) -> None:
        """Set the budgets over all nodes, in bytes; 0 is none (``Depths.limit``)."""
        self.depths.limit(memory_bytes, store_bytes, temp_bytes)
        self.credit.wanted = dict.fromkeys((self.depths.memory, self.depths.disk, self.depths.temp), 1)

    def _look_at_budgets(self) -> None:
        """Page where memory gets short, open and close budgets, and wake nodes that wait for one."""
        if self.paging.nodes:
            self.paging.make_room()
        if self.streams.nodes:
            self.streams.commits.commit()
            self.streams.make_room()
        self.depths.look_at_budgets()
        if self.credit.is_waited_for():
            self.credit.look_at_budgets(self.topology.nodes.values())

    def _wake_timed_nodes(self) -> None:
        behind = self.durability.is_behind()
        for node in list(self.credit.timed_nodes):
            allocator = node.allocator
            if node.refuse_ns and node.refuse_ns <= self.turn.now_ns:
                self.parking.refuse_overdue(node)
            if not allocator.line and not allocator.rest and not node.refuse_ns:
                self.credit.timed_nodes.pop(node, None)
                continue
            due = 0 if behind and node.shelf is not None else allocator.next_deadline()
            if due and due <= self.turn.now_ns:
                self.turn.mark_dirty(node)
