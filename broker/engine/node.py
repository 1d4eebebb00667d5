"""A queue, a topic or a subscription: its flow, its messages, what is counted of them; bridges between two.

Plain state; the engine alone changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from broker import constants
from broker.config.node import HotSettings, NodeSettings
from broker.engine.hot import hot_numbers
from broker.engine.large import Body
from broker.engine.spool import Spool
from broker.flow.allocator import CreditAllocator
from broker.flow.gate import Gate
from broker.flow.producer_credit import ProducerCredit
from broker.queues.dispatch import Consumer
from broker.queues.duplicates import Duplicates
from broker.queues.expiry import Expiry
from broker.queues.last_value import LastValueQueue
from broker.queues.queue import Entry, Filter, Queue
from broker.queues.redelivery import RedeliveryDelay
from broker.queues.schedule import Schedule
from broker.queues.stream import StreamQueue
from broker.store.port import QueueLog

# The settings of a node that was never given any: nothing is limited, and no dead letter goes anywhere.
UNCONFIGURED = NodeSettings(max_delivery_count=0, dead_letter_address="")
_UNCONFIGURED_HOT = hot_numbers(HotSettings(UNCONFIGURED))


class Unsent(Protocol):
    """A message on its way to another node that waits for room; ``entry`` is where it still is."""

    entry: Entry
    data: bytes
    reason: str


class DeadLetters(Protocol):
    """The way of a node's dead letters (``transfer.DeadLetterTransfer``)."""

    target: Node

    def send(self, entry: Entry, data: bytes, reason: str = "") -> None:
        """Send an acquired entry, now or when there is room."""

    def take_in(self, data: bytes, bits: int) -> int:
        """Bring in a message that has no room at its own node; return its code."""

    def waiting_msgs(self) -> int:
        """Return how many messages wait for room."""

    def retry(self) -> None:
        """Offer again what was refused."""

    def leave(self) -> Sequence[Unsent]:
        """End, and return what waited, in order."""

    def close(self, reason: str) -> None:
        """End, and put back what waits."""


class Settlements(Protocol):
    """Settlements that a topic's channels hold back (``deferred.DeferredSettlement``)."""

    channels: list[Node]

    def __len__(self) -> int: ...

    def wanted(self) -> bool:
        """Return whether a message that has just come has to wait."""

    def put(self, data: bytes, bits: int) -> int:
        """Bring in a message whose sender waits."""

    def hold(self, account: ProducerCredit, held: object) -> None:
        """Hold back the settlement of the message that came last."""

    def forget(self, account: ProducerCredit) -> None:
        """Drop what is held for a producer that is gone."""

    def moved(self) -> None:
        """Tell producers whose messages have left every channel."""

    def end(self) -> None:
        """Tell everybody: nothing is held any more."""

    def heed(self) -> None:
        """Apply the topic's settings."""


class Node:
    """A queue, a topic, or a subscription (a queue that belongs to topics).

    Names: ``name`` is unique in the broker, ``address`` is what clients call the node.

    Settings: ``settings`` has all of them, and each is read there by the code that acts on it; ``hot`` has
    those that are read for every message.

    Topology: ``topics`` are those whose messages come here (a subscription's, more than one where its
    address is a pattern, or those a queue is bound to), ``subscriptions`` the other side of it. A
    subscription takes in what its ``filter`` wants, and nothing that comes from ``not_from``. ``bridges``
    begin here; ``bridge_sources`` are nodes whose producers need room here because of a bridge.
    ``browsers`` read messages and take none.

    Durable: ``shelf`` is the node's log in the store, None unless it is durable; ``group`` the last group
    it put a message in, ``kept_seq`` the last message it put there. Consumers are served once
    ``attended_group`` is on disk. Every message up to ``maybe_delivered_upto`` may have been sent before a
    crash. ``spool`` is the part of the backlog that is on disk only, None where nothing ever was.
    ``schedule`` has the messages that are to be delivered later, None where none ever was.
    ``bodies`` has the files of large messages, by message, each with whether the store has a note of it;
    ``file_bytes`` is their size together, which the depth counts and memory doesn't.

    Transactions: ``transactions`` has those that are open and have messages of the node, None for none.

    Delivery: ``redelivery`` says how long a message waits after a failed delivery, None for not at all.

    Arrival: ``takes_as_is`` where no message that comes is compared with others: there is no window of
    duplicates, and ``last_values`` is None; else that is the queue, which keeps one a key. ``stream`` is the
    queue where messages stay in it, None for all others. ``letters`` is the
    way its dead letters take, once there was one. ``awaiting`` has the settlements that a topic's channels
    hold back, None for a node without any.

    Credit: ``never_blocks_publishers`` is a subscription that holds nobody, whatever its backlog. A topic
    that ``reserves_at_subscriptions`` gives credit where its messages have room everywhere else they go
    too, or at the subscriptions somebody receives from (`enforce_flow`, ``heeds``); ``shared`` counts those
    of its subscriptions whose room others need too: other topics, or a bound queue's own producers.
    ``served`` is a running number of the last time producers here got room, ``served_ns`` the time of it,
    ``passed_over`` how often they got none since, and ``kept_ns`` when room was last kept for them.

    Priority: ``ordered`` where messages leave by it; ``reserves_room`` where part of the room is kept for
    messages from priority ``reserve_from`` on; ``ranked`` where its consumers, the highest first, have
    priorities of their own.

    Parking: messages that the accounts in ``timed_parked`` have parked are refused at the age of
    ``park_timeout_ns`` (`when_full`; 0 for never), which is looked at when it is ``refuse_ns``; 0 for never.

    Counters are integers since the node was made; anybody may read them.
    """

    def __init__(self, name: str, kind: str, address: str = "") -> None:
        self.name = name
        self.address = address or name
        self.kind = kind
        self.is_topic = kind == "topic"
        self.gate = Gate(name)
        self.allocator = CreditAllocator(self.gate)
        self.queue = Queue()
        self.consumers: list[Consumer] = []
        self.subscriptions: list[Node] = []
        self.topics: list[Node] = []
        self.browsers: list[Consumer] = []
        self.bridges: list[Bridge] = []
        self.bridge_sources: list[Node] = []
        self.filter: Filter | None = None
        self.not_from: object = None
        self.settings = UNCONFIGURED
        self.hot = _UNCONFIGURED_HOT
        self.origins: dict[str, str] = {}
        self.arguments: dict[str, object] = {}
        self.shelf: QueueLog | None = None
        self.group = 0
        self.kept_seq = 0
        self.stored_msgs = 0
        self.kept_bytes = 0
        self.attended_group = 0
        self.maybe_delivered_upto = 0
        self.expiry: Expiry | None = None
        self.duplicates: Duplicates | None = None
        self.letters: DeadLetters | None = None
        self.takes_as_is = True
        self.last_values: LastValueQueue | None = None
        self.stream: StreamQueue | None = None
        self.limits_ttl = False
        self.expire_ns = 0
        self.used_ns = 0
        self.used_mark = 0
        self.schedule: Schedule | None = None
        self.redelivery: RedeliveryDelay | None = None
        self.spool: Spool | None = None
        self.page_bytes = constants.UNBOUNDED
        self.bodies: dict[int, tuple[Body, bool]] = {}
        self.file_bytes = 0
        self.awaiting: Settlements | None = None
        # Those are `Transaction`, which knows nodes.
        self.transactions: set[Any] | None = None
        self.dirty = False
        self.changed_nodes = False
        self.deleted = False
        self.ranked = False
        self.ordered = False
        self.reserves_room = False
        self.reserve_from = 0
        self.turn = 0
        self.hard_msgs = constants.UNBOUNDED
        self.hard_bytes = constants.UNBOUNDED
        self.never_blocks_publishers = False
        self.reserves_at_subscriptions = True
        self.shared = 0
        self.served = 0
        self.served_ns = 0
        self.passed_over = 0
        self.kept_ns = 0
        self.park_timeout_ns = 0
        self.refuse_ns = 0
        self.timed_parked: set[ProducerCredit] = set()
        self.received = 0
        self.received_bytes = 0
        self.delivered = 0
        self.accepted = 0
        self.rejected = 0
        self.released = 0
        self.modified = 0
        self.refused = 0
        self.dropped = 0
        self.unrouted = 0
        self.overrun = 0
        self.parked = 0
        self.expired = 0
        self.dead_lettered = 0
        self.duplicated = 0
        self.replaced = 0
        self.timed_out = 0
        self.sampled_in = 0
        self.sampled_out = 0
        self.rate_in = 0.0
        self.rate_out = 0.0

    @property
    def is_subscription(self) -> bool:
        """True for what belongs to its topics and has no producers of its own."""
        return self.kind == "subscription"

    def is_active(self) -> bool:
        """Whether somebody who has given credit receives from it, or from where a topic's messages go."""
        takers = self.consumers if self.stream is None else self.browsers
        return any(consumer.started for consumer in takers) or any(
            each.is_active() for each in self.subscriptions
        )

    def active_consumer(self) -> Consumer | None:
        """Return the consumer that is served where one at a time is; never an operator's move, which takes
        messages elsewhere. None without any.
        """
        for consumer in self.consumers:
            if consumer.joins_groups:
                return consumer
        return None

    def heeds(self, part: Node) -> bool:
        """Whether a topic's publishers need room at one of its subscriptions, or queues, as it is now."""
        if part.never_blocks_publishers or not self.reserves_at_subscriptions:
            return False
        return self.hot.always_enforced or not part.is_subscription or part.is_active()

    def mean_bytes(self) -> int:
        """The mean size of its messages, of a stream those in memory; 0 while it has none."""
        if self.stream is not None:
            return self.stream.mean_bytes()
        return self.gate.depth_bytes // self.gate.depth_msgs if self.gate.depth_msgs > 0 else 0

    def owners(self) -> list[Node]:
        """Whose producers need room here: a node's own, and those of the topics it takes messages from."""
        if self.is_subscription:
            return [*self.topics, *self.bridge_sources]
        return [self, *self.topics, *self.bridge_sources]


class Bridge:
    """From ``source`` into ``target``, all messages or those that ``filter`` passes.

    ``coupled`` has a pair (whose producers, which node) for each room that is reserved because of it;
    nothing while backpressure doesn't cross. Counters are plain integers, read by whoever looks.
    """

    def __init__(self, source: Node, target: Node, keep: Filter | None) -> None:
        self.source = source
        self.target = target
        self.filter = keep
        self.coupled: list[tuple[Node, Node]] = []
        self.crosses = False
        self.copied = 0
        self.passed_by = 0
        self.refused = 0
        self.refusing = False

    @property
    def name(self) -> str:
        """What operators call it; there is one for each pair of nodes."""
        return bridge_name(self.source.name, self.target.name)


def bridge_name(source: str, target: str) -> str:
    """The name of the bridge between two nodes."""
    return f"{source}->{target}"


def is_empty(node: Node) -> bool:
    """Return whether nothing would be lost with a node: no message, and no named reader's place."""
    stream = node.stream
    if stream is not None and (stream.count > 0 or stream.named.by_name):
        return False
    return node.gate.depth_msgs == 0


def memory_of(node: Node) -> int:
    """Return the bytes that the node's messages take in memory, each with ``HELD_BYTES`` for its place."""
    if node.stream is not None:
        return node.stream.tail_bytes + node.stream.loaded_bytes
    spool = node.spool
    msgs, nbytes = node.gate.depth_msgs, node.gate.depth_bytes
    if spool is not None:
        msgs -= spool.count
        nbytes -= spool.nbytes
    return nbytes - node.file_bytes + constants.HELD_BYTES * msgs
