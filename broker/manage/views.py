"""The views of a broker: frozen values, taken in one turn and safe to read on any thread.

Times are monotonic nanoseconds where the name says so and seconds elsewhere; sizes are bytes.
``attributes.py`` gives the names under which users meet these fields.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from broker.config.node import NodeSettings
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.engine.priority_spool import PrioritySpool
from broker.flow.gate import Gate
from broker.flow.producer_credit import ProducerCredit
from broker.flow.window import Window
from broker.manage.aside import AsideView
from broker.manage.stats import STATS, parts_of
from broker.manage.why.cause import GateCause, bars, budgets
from broker.manage.why.deadlocks import DeadlockView
from broker.queues.priority import PriorityQueue
from broker.queues.queue import Entry
from broker.units import SECOND_NS


@dataclass(frozen=True, slots=True)
class Counters:
    """The events at a node since it came to be, in messages."""

    received: int = 0
    received_bytes: int = 0
    delivered: int = 0
    accepted: int = 0
    rejected: int = 0
    released: int = 0
    modified: int = 0
    refused: int = 0
    dropped: int = 0
    unrouted: int = 0
    expired: int = 0
    dead_lettered: int = 0
    duplicated: int = 0
    replaced: int = 0
    timed_out: int = 0

    @classmethod
    def of(cls, node: Node) -> Counters:
        """The node's counters as they stand."""
        return cls(*(getattr(node, name) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue, a topic, or one subscription of a topic. ``stats.py`` says how its figures are read.

    A topic holds no messages itself: its depths and promises are those of its subscriptions, and it is
    stopped when one of them, or an operator, stops its publishers.
    """

    name: str
    kind: str
    topic: str | None
    settings: NodeSettings
    counters: Counters
    flow_stopped: bool
    stopped_by: str
    flow_stopped_count: int
    flow_stopped_since_ns: int
    flow_stopped_for_s: float
    flow_stopped_seconds: float
    enforced: bool
    held_by: str
    depth_msgs: int
    depth_bytes: int
    ready_msgs: int
    unsettled_msgs: int
    peak_msgs: int
    peak_bytes: int
    promised_msgs: int
    promised_bytes: int
    parked_msgs: int
    parked_bytes: int
    overrun_msgs: int
    late_msgs: int
    revocations: int
    producers: int
    blocked_producers: int
    consumers: int
    subscriptions: int
    rate_in: float
    rate_out: float
    paged_msgs: int = 0
    paged_bytes: int = 0
    delayed_msgs: int = 0
    # When the first of them is due; 0 for none.
    delayed_next_ns: int = 0
    slow_consumers: int = 0
    uncommitted_msgs: int = 0
    uncommitted_bytes: int = 0
    open_transactions: int = 0
    # When the oldest of them began; 0 for none.
    oldest_transaction_ns: int = 0
    groups: int = 0
    stuck_groups: int = 0
    group_stuck_msgs: int = 0
    last_values: int = 0
    stream_msgs: int = 0
    first_offset: int = 0
    next_offset: int = 0
    # What tells it from other streams that had its name: when it was made, in ms since the epoch; 0 where an
    # older version made it.
    stream_id: int = 0
    # Of a topic: its own subscription that holds the most messages; a bound queue isn't everybody's to see.
    deepest: str | None = None
    # Of a queue that delivers by priority: the messages that wait of each of the ten, 0 first.
    priority_msgs: list[int] | None = None

    @property
    def held(self) -> bool:
        """Whether an operator stops its producers."""
        return bool(self.held_by)


@dataclass(frozen=True, slots=True)
class ProducerView:
    """A client's sender. ``blocked_since_ns`` is 0 unless it waits for credit, or for a parked message.

    ``window`` is 0 where credit promises no room (anonymous relay, a node that rejects);
    ``reserve_bytes`` is the size one credit reserves; ``resting``: it lay idle and has lost its credit.
    ``connection_bar`` is there while it waits for room in its connection's budget. ``priority`` is the lowest
    that it says it sends, -1 where it doesn't say.
    """

    id: str
    connection: str
    container: str
    peer: str
    node: str
    link: str
    credit: int
    window: int
    withdrawn: int
    parked: int
    used: int
    blocked_since_ns: int
    presettled: bool
    parked_bytes: int = 0
    overrun: int = 0
    late: int = 0
    reserve_bytes: int = 1
    resting: bool = False
    last_used_ns: int = 0
    connection_bar: GateCause | None = None
    priority: int = -1
    # This cell, where another one passes the link on to it.
    passed_to: int = -1
    # The link's credit itself, for questions that few ask.
    account: ProducerCredit | None = field(default=None, repr=False, compare=False)

    @property
    def blocked(self) -> bool:
        """True if it waits."""
        return self.blocked_since_ns > 0 or self.parked > 0

    @property
    def lacks_credit(self) -> bool:
        """True if it may not send, or waits. Where credit promises no room it is the link's, at all nodes."""
        return self.blocked or (self.credit <= 0 and self.window > 0)

    @classmethod
    def of(
        cls,
        account: ProducerCredit,
        *,
        id: str,  # noqa: A002 - the field's name
        connection: str,
        container: str,
        peer: str,
        node: str,
        link: str,
        presettled: bool,
        credit: int | None = None,
        passed_to: int = -1,
    ) -> ProducerView:
        """A link's view from its account; ``credit`` where the link and not the allocator counts it."""
        waits = (account.waiting or account.waits_for_budget) and account.outstanding == 0
        return cls(
            id=id,
            connection=connection,
            container=container,
            peer=peer,
            node=node,
            link=link,
            credit=account.outstanding if credit is None else credit,
            window=account.window,
            withdrawn=account.withdrawn,
            parked=len(account.parked),
            used=account.used,
            blocked_since_ns=account.blocked_since_ns if waits or account.parked else 0,
            presettled=presettled,
            parked_bytes=account.parked_bytes,
            overrun=account.overrun_count,
            late=account.late_count,
            reserve_bytes=account.reserve_bytes,
            resting=bool(account.resting),
            last_used_ns=account.last_used_ns,
            connection_bar=_connection_bar(account),
            priority=account.stated,
            passed_to=passed_to,
            account=account,
        )


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """A client's receiver; ``shut`` while its window is full and has not drained to ``reopen`` yet.

    ``connection_limit`` is the limit over all consumers of its connection, 0 for none. ``settle_rate`` is
    messages a second, of the last second that was sampled; ``round_trip_s`` from sending a message to its
    settlement, at best, known where `dispatch` is `adaptive`. ``slow``: as `slow_consumer` says. ``active``
    is false for one that waits behind the node's single active consumer, ``finished`` true for one with a
    selector, or a browser, that has looked at all there is; ``selects`` says that it has a selector,
    ``unseen_msgs`` how many messages on disk it has yet to look at. ``choked``: its peer doesn't read.
    ``priority`` is its own among the node's consumers.
    """

    id: str
    connection: str
    container: str
    peer: str
    node: str
    link: str
    credit: int
    unsettled: int
    window_limit: int
    shut: bool
    delivered: int
    settled: int
    presettled: bool = False
    reopen: int = 0
    shut_count: int = 0
    connection_limit: int = 0
    connection_unsettled: int = 0
    connection_shut: bool = False
    settle_rate: float = 0.0
    round_trip_s: float = 0.0
    slow: bool = False
    attached_ns: int = 0
    served_ns: int = 0
    settled_ns: int = 0
    active: bool = True
    browses: bool = False
    finished: bool = False
    selects: bool = False
    unseen_msgs: int = 0
    choked: bool = False
    priority: int = 0
    streaming: bool = False
    unsent_bytes: int = 0
    # This cell, where another one passes the link on to it.
    passed_to: int = -1
    # How many messages were taken back since it attached (`consumer_timeout`).
    timed_out: int = 0

    @classmethod
    def of(
        cls,
        window: Window,
        *,
        id: str,  # noqa: A002 - the field's name
        connection: str,
        container: str,
        peer: str,
        node: str,
        link: str,
        credit: int,
        delivered: int,
        settled: int,
        presettled: bool = False,
        **state: Any,
    ) -> ConsumerView:
        """A link's view from its window, and the rest of its state by the fields' names."""
        shared = window.shared
        return cls(
            id=id,
            connection=connection,
            container=container,
            peer=peer,
            node=node,
            link=link,
            credit=credit,
            unsettled=window.unsettled,
            window_limit=window.limit,
            shut=window.shut,
            delivered=delivered,
            settled=settled,
            presettled=presettled,
            reopen=window.reopen,
            shut_count=window.shut_count,
            connection_limit=0 if shared is None else shared.limit,
            connection_unsettled=0 if shared is None else shared.unsettled,
            connection_shut=shared is not None and shared.shut,
            **state,
        )


@dataclass(frozen=True, slots=True)
class ConnectionView:
    """A client's connection; messages are counted both ways.

    ``oldest_transaction_ns`` is when the oldest of its open transactions that aren't empty began, 0 for none.
    """

    id: str
    container: str
    peer: str
    opened_ns: int
    sessions: int
    links: int
    messages_in: int
    messages_out: int
    user: str
    mechanism: str = ""
    # Version and cipher; empty without TLS.
    tls: str = ""
    open_transactions: int = 0
    oldest_transaction_ns: int = 0
    uncommitted_msgs: int = 0
    uncommitted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session of a client's connection, with what its consumers hold."""

    id: str
    connection: str
    container: str
    peer: str
    channel: int
    producers: int
    consumers: int
    unsettled: int


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """One message as it lies in its queue, encoded; ``number`` is its sequence number.

    ``state`` is `ready`, `acquired` by a consumer, `pending` (it isn't on disk yet), `behind` others that are
    on disk only, `aside` among them, or `on disk` only itself.
    """

    number: int
    state: str
    bytes: int
    durable: bool
    delivery_count: int
    redelivered: bool
    message: builtins.bytes


@dataclass(frozen=True, slots=True)
class Browsed:
    """Messages of a queue, and how many of all it has are on disk only."""

    messages: tuple[BrowsedMessage, ...]
    paged: int


def _in_file(entry: Entry) -> int:
    """The bytes of a large message in its file; a look shows only what stands before the body."""
    body = None if entry.extra is None else entry.extra.body
    return 0 if body is None else body.size


def browsed(entry: Entry) -> BrowsedMessage:
    """An entry for whoever looks."""
    return BrowsedMessage(
        number=entry.seq,
        state=("ready", "acquired", "gone", "pending", "behind", "aside")[entry.state],
        bytes=len(entry.data) + _in_file(entry),
        durable=bool(entry.durable),
        delivery_count=entry.delivery_count,
        redelivered=bool(entry.redelivered),
        message=entry.data,
    )


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """One message that waits for its time, encoded.

    ``number`` names it until it is due; ``due_ms`` is when that is, in milliseconds since the epoch.
    """

    number: int
    due_ms: int
    bytes: int
    durable: bool
    delivery_count: int
    message: builtins.bytes


@dataclass(frozen=True, slots=True)
class DelayedMessages:
    """Messages of a queue that wait for their time, the next first, and how many there are of them."""

    messages: tuple[DelayedMessage, ...]
    total: int


@dataclass(frozen=True, slots=True)
class StoreView:
    """The store. ``state`` is writing, full or failed, ``reason`` why it isn't writing.

    ``held_bytes`` is what all messages in memory take, each with its place; limits of 0 are none.
    """

    state: str = "none"
    reason: str = ""
    held_bytes: int = 0
    store_bytes: int = 0
    store_msgs: int = 0
    store_limit_bytes: int = 0
    temp_bytes: int = 0
    temp_limit_bytes: int = 0
    syncs: int = 0
    sync_seconds: float = 0.0
    groups: int = 0
    written_bytes: int = 0

    @classmethod
    def of(cls, engine: Engine) -> StoreView:
        """The store as the engine sees it."""
        store = None if engine.durability.commit is None else engine.durability.commit.store
        return cls(
            state="none" if store is None else store.state,
            reason="" if store is None else store.reason,
            held_bytes=engine.depths.memory.depth_bytes,
            store_bytes=engine.depths.disk.depth_bytes,
            store_msgs=engine.depths.disk.depth_msgs,
            store_limit_bytes=engine.depths.disk.stop_bytes,
            temp_bytes=engine.depths.temp.depth_bytes,
            temp_limit_bytes=engine.depths.temp.stop_bytes,
            syncs=0 if store is None else store.syncs,
            sync_seconds=0.0 if store is None else store.sync_ns / SECOND_NS,
            groups=0 if store is None else store.groups_written,
            written_bytes=0 if store is None else store.written_bytes,
        )


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The broker as a whole; ``memory_limit_bytes`` is 0 where there is none. Rates are messages a second.

    ``cluster_role`` is empty where the broker is no member of a cluster.
    """

    name: str
    version: str
    pid: int
    uptime_s: float
    flow_control: bool
    holds: tuple[str, ...]
    policy_files: tuple[str, ...]
    connections: int
    producers: int
    consumers: int
    queues: int
    topics: int
    subscriptions: int
    stopped_nodes: int
    blocked_producers: int
    depth_msgs: int
    depth_bytes: int
    promised_msgs: int
    parked_msgs: int
    parked_bytes: int
    memory_bytes: int
    memory_limit_bytes: int
    totals: Counters
    store: StoreView = StoreView()
    slow_consumers: int = 0
    deadlocks: tuple[DeadlockView, ...] = ()
    deadlocks_found: int = 0
    set_aside: tuple[AsideView, ...] = ()
    open_transactions: int = 0
    committed_transactions: int = 0
    rolled_back_transactions: int = 0
    timed_out_transactions: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    cluster_role: str = ""
    cluster_owner: str = ""
    cluster_epoch: int = 0
    cluster_suspended: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment, without its links."""

    broker: BrokerView
    queues: tuple[QueueView, ...] = field(default=())


class Links(Protocol):
    """The connections and links as the wire's package shows them; ``None`` asks for every node's links.

    ``every`` gives the views of all connections, sessions or links one by one, for whoever pauses between
    two of them. ``close`` and ``detach`` end a connection or a link of that id: false if there is none.
    ``nodes_of`` names the nodes of a link of that id, of a relay all it has sent to. ``only`` sorts out the
    nodes whose links are shown.
    """

    def every(self, kind: str) -> Iterator[object]: ...

    def connections(self) -> list[ConnectionView]: ...

    def sessions(self) -> list[SessionView]: ...

    def close(self, connection_id: str) -> bool: ...

    def detach(self, link_id: str) -> bool: ...

    def nodes_of(self, link_id: str) -> list[str]: ...

    def producers(
        self, node_name: str | None, only: Callable[[object], bool] | None = None
    ) -> list[ProducerView]: ...

    def consumers(
        self, node_name: str | None, only: Callable[[object], bool] | None = None
    ) -> list[ConsumerView]: ...


def _connection_bar(account: ProducerCredit) -> GateCause | None:
    if not account.waits_for_budget or account.budget is None:
        return None
    gate = account.budget.gate
    return GateCause(gate.name, gate.depth_bytes + gate.promised_bytes, gate.stop_bytes, gate.stop_bytes)


def queue_view(node: Node, held_by: str, now_ns: int) -> QueueView:
    """A node as it stands; ``held_by`` names the operator's hold on it, empty for none."""
    gates = [part.gate for part in parts_of(node)]
    stopped = [gate for gate in gates if gate.closed]
    since_ns = min((gate.closed_since_ns for gate in stopped), default=0)
    held = bool(held_by)
    return QueueView(
        name=node.name,
        kind=node.kind,
        topic=node.address if node.is_subscription else None,
        settings=node.settings,
        counters=Counters.of(node),
        stopped_by=", ".join(_stopped_by(gates) + _spent(node)),
        flow_stopped_since_ns=since_ns,
        flow_stopped_for_s=(now_ns - since_ns) / SECOND_NS if stopped else 0.0,
        held_by=held_by,
        deepest=_deepest(node),
        priority_msgs=_by_priority(node),
        **{stat.path: stat.whole(node, now_ns, held) for stat in _FIGURES},
    )


# The rows of the table of figures that are fields of the view itself.
_FIGURES = tuple(stat for stat in STATS if stat.path in QueueView.__slots__)


def _by_priority(node: Node) -> list[int] | None:
    """The messages of each priority that no consumer holds; None where messages leave as they came."""
    queue, spool = node.queue, node.spool
    if not isinstance(queue, PriorityQueue):
        return None
    waiting = [each.ready + each.pending + each.behind + each.aside for each in queue.levels]
    if isinstance(spool, PrioritySpool):
        waiting = [msgs + of_level.count for msgs, of_level in zip(waiting, spool.levels, strict=True)]
    return waiting


def _deepest(node: Node) -> str | None:
    own = [part for part in node.subscriptions if part.is_subscription]
    return max(own, key=lambda part: part.gate.depth_msgs).name if own else None


def _stopped_by(gates: list[Gate]) -> list[str]:
    """The thresholds, or `operator`, that stop it, each once."""
    return list(dict.fromkeys(bar.setting for gate in gates for bar in bars(gate)))


def _spent(node: Node) -> list[str]:
    """The budgets that stop it, `store` where nothing can be kept on disk."""
    return ["store" if gate.held else gate.name for gate in budgets(node) if gate.closed]
