"""The table of a node's settings: each is one row of ``NodeSettings``.

A row has a setting's type, which knows its unit, its default, what it means and the words that other brokers
have for it. The parser of policies and of declare arguments, the JSON Schema, the reference, the attributes
of `$management`, the API and the command line are made from it (``FIELDS``), so that a new setting is a row
here and the one place that acts on it; one that is read for every message is in ``HotSettings`` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from broker import constants
from broker.config.fields import (
    Count,
    Duration,
    Field,
    Flag,
    Percent,
    Size,
    Type,
    Word,
    default_text,
    key_of,
    unknown_key,
)
from broker.config.node_types import (
    NO_CELL,
    REJECT_AFTER,
    CellNumber,
    DuplicateWindow,
    Factor,
    FlowControl,
    MaxAge,
    NodeName,
    PropertyName,
    SlowConsumer,
    Value,
    WhenFull,
    flow_control,
    group_key,
    kind,
    reject_after,
    send_fail,
    when_full,
)
from broker.errors import OperatorError
from broker.units import MB, format_size, show

# Each is a node, and is looked at for every message.
MOST_PARTITIONS = 256
# Defaults of the broker's own: the hard limit in bytes, and the thresholds in percent of a hard limit.
MAX_SIZE = 100 * MB
STOP_PERCENT, RESUME_PERCENT = 80, 70
# Failed deliveries after which a message is a dead letter (as in Artemis).
DELIVERIES = 10
# Where dead letters go that nobody named a place for.
DEAD_LETTERS = "DLQ"

# A link's credit is a 32-bit serial difference (AMQP 1.0 §2.6.7).
_WINDOW = Count(minimum=1, maximum=(1 << 31) - 1)

Meaning = Callable[[object], Mapping[str, Value]]


class SettingError(OperatorError):
    """A setting was refused. ``names`` are the keys it is about, the one to change first."""

    def __init__(self, reason: str, *names: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.names = names


@dataclass(frozen=True, slots=True)
class NodeField(Field):
    """A key that users type, and the attributes of ``NodeSettings`` that its value sets."""

    sets: tuple[str, ...] = ()
    # Qpid's name for it as a declare argument; empty for none.
    argument: str = ""
    means: Meaning | None = None

    @property
    def is_shorthand(self) -> bool:
        """Whether it is more, or called otherwise, than one attribute."""
        return self.means is not None or self.sets != (self.name,)

    def meaning_of(self, parsed: object) -> Mapping[str, Any]:
        """Map the attributes that a parsed value sets to their values."""
        if self.means is not None:
            return self.means(parsed)
        values = parsed if isinstance(parsed, tuple) else (parsed,)
        return dict(zip(self.sets, values, strict=True))


@dataclass(frozen=True, slots=True)
class Given:
    """A value someone set, and the key they set it with."""

    value: Value
    key: str


def setting(
    type_: Type,
    default: Value,
    meaning: str,
    *,
    shown: str = "",
    key: str = "",
    argument: str = "",
    means: Meaning | None = None,
    synonyms: tuple[NodeField, ...] = (),
) -> Any:
    """Make a row of ``NodeSettings``.

    ``shown`` is the default in words, where it is not the number; ``key`` what users type, where it is not
    the attribute without its unit; ``argument``, ``means`` as in ``NodeField``; ``synonyms`` are further
    keys, which stand behind this one.
    """
    is_none = default == 0 and not isinstance(default, bool)
    text = shown or ("none" if is_none else default_text(type_, default))
    row = NodeField(key, type_, text, meaning, (), argument, means)
    return field(default=default, metadata={"row": row, "synonyms": synonyms})


def part(default: Value) -> Any:
    """Make one more attribute of the row above, whose type gives several values."""
    return field(default=default)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The effective settings of one node; 0 means none, or disabled. Sizes in bytes.

    ``flow_control`` is false as well where the broker's global switch is off; the thresholds are
    resolved all the same. Where a stop threshold is set, ``0 < resume <= stop <= hard limit``.
    """

    kind: str = setting(
        Word(("queue", "topic", "subscription", "stream")),
        "queue",
        "What the node is; in a policy, `subscription` is for those of the topics it matches, and `stream`"
        " is short for a queue whose queue_type is stream",
        means=kind,
    )
    queue_type: str = setting(
        Word(("classic", "stream")),
        "classic",
        "classic hands each message to one consumer; in a stream messages stay, and receivers read them from"
        " any offset on, until max_size, max_count or max_age lets go of the oldest. It is decided when the"
        " queue is made",
        argument="x-queue-type",
    )
    max_age_ms: int = setting(
        MaxAge(),
        0,
        "How long a stream keeps messages; they go in whole files, oldest first. 0 means no end. Days, months"
        " and years are written as 7D, 6M, 1Y",
        argument="x-max-age",
    )
    partitions: int = setting(
        Count(0, MOST_PARTITIONS),
        0,
        "Into how many streams, NAME/0 and so on, a stream is split: a topic of its own name shares messages"
        " out to them by their group-id. 0 is one stream that isn't split. Decided when the node is made",
        argument="x-partitions",
    )
    durable: bool = setting(Flag(), False, "The node and its durable messages survive a restart")
    cell: int = setting(
        CellNumber(),
        NO_CELL,
        "Which of several cells nodes of this pattern belong to, for a policy alone. It is decided when a"
        " node is made; one that is there stays where it is, until `sluice cluster move`",
        shown="the cell that the name decides",
    )
    max_count: int = setting(Count(), 0, "Hard limit in messages; 0 means none", argument="qpid.max_count")
    max_size: int = setting(
        Size(),
        0,
        "Hard limit in bytes; 0 means none",
        shown=format_size(MAX_SIZE),
        argument="qpid.max_size",
    )
    flow_control: bool = setting(
        FlowControl(),
        True,
        "false never throttles this node; a size is both its flow_stop_size and its flow_resume_size",
        means=flow_control,
    )
    flow_stop_count: int = setting(
        Count(),
        0,
        "Producers stop at so many messages; 0 disables",
        shown=f"{STOP_PERCENT} % of max_count",
        argument="qpid.flow_stop_count",
    )
    flow_resume_count: int = setting(
        Count(),
        0,
        "They go on below so many; 0 means equal to stop",
        shown=f"{RESUME_PERCENT} % of max_count",
        argument="qpid.flow_resume_count",
    )
    flow_stop_size: int = setting(
        Size(),
        0,
        "Producers stop at so many bytes; 0 disables",
        shown=f"{STOP_PERCENT} % of max_size",
        argument="qpid.flow_stop_size",
    )
    flow_resume_size: int = setting(
        Size(),
        0,
        "They go on below so many; 0 means equal to stop",
        shown=f"{RESUME_PERCENT} % of max_size",
        argument="qpid.flow_resume_size",
    )
    enforce_flow: str = setting(
        Word(("always", "with_active_consumers")),
        "always",
        "Whether the thresholds hold while nobody consumes",
    )
    producer_window: int = setting(_WINDOW, 1000, "Most credit one producer link may hold")
    initial_credit: int = setting(
        _WINDOW,
        100,
        "First credit of a producer link; at most `flow_stop_count` divided by the links there are",
    )
    byte_reservation: str = setting(
        Word(("expected", "strict")),
        "expected",
        "What a credit reserves: the size learned on its link, or max_message_size",
    )
    when_full: str = setting(WhenFull(), "block", "What a send to a stopped node meets", means=when_full)
    reject_after_ms: int = setting(
        REJECT_AFTER,
        0,
        "Short for when_full: reject_after with that time",
        means=reject_after,
        synonyms=(
            NodeField(
                "send_fail_if_no_space",
                Flag(),
                "false",
                "ActiveMQ's word for when_full: reject",
                means=send_fail,
            ),
            NodeField(
                "send_fail_if_no_space_after_timeout",
                Duration(),
                "none",
                "ActiveMQ's word for reject_after, in milliseconds; 0 means block",
                means=reject_after,
            ),
        ),
    )
    overflow: str = setting(
        Word(("reject", "ring", "drop_newest", "dead_letter", "page")),
        "reject",
        "What happens at the hard limit",
        shown="reject; page without flow control, or where it is enforced with active consumers only",
        argument="qpid.policy_type",
    )
    pending_message_limit: int = setting(
        Count(),
        0,
        "Of what waits to be sent the oldest beyond so many are dropped; what was sent doesn't count. A"
        " subscription with one never stops publishers. 0 means none",
    )
    consumer_flow_limit: int = setting(
        Count(), 1000, "Most unsettled messages on a consumer link; 0 means no limit"
    )
    consumer_flow_threshold: int = setting(Percent(), 50, "A full window reopens at this share of its limit")
    consumer_flow_min: int = setting(
        Count(minimum=1),
        10,
        "Smallest window that dispatch: adaptive gives a consumer link; consumer_flow_limit is the largest",
    )
    dispatch: str = setting(
        Word(("fair", "fill", "adaptive")),
        "fair",
        "Which consumer is next: the one with the fewest unsettled, or the next in turn for a full batch;"
        " adaptive is fair with windows that follow each consumer's rate and round trip",
    )
    slow_consumer_rate: int = setting(
        SlowConsumer(),
        0,
        "Settles fewer a second, over so long, though it has work: say so, or detach it. Empty: none",
        key="slow_consumer",
    )
    slow_consumer_for_ms: int = part(0)
    slow_consumer_action: str = part("notify")
    consumer_timeout_ms: int = setting(
        Duration(),
        0,
        "How long a consumer may hold a message unsettled: then the broker takes it back, for others, as a"
        " failed delivery, and tells the consumer. Looked at once a second. 0 means no limit",
    )
    consumers: str = setting(
        Word(("shared", "exclusive", "single_active")),
        "shared",
        "Who may consume: all share the messages; one, and a second is refused; or all attach and the"
        " longest attached gets everything until it leaves",
    )
    priority: str = setting(
        Word(("none", "strict", "fair")),
        "none",
        "The order in which messages leave: none is first in, first out; strict sends the highest of the ten"
        " priorities first; fair sends more of the higher ones, and lets none of the lower starve",
    )
    priority_reserve: int = setting(
        Percent(maximum=90),
        0,
        "The part of the flow_stop thresholds, in percent, that is kept for producers that say they send high"
        " priorities only (link property sluice:priority); 0 means none",
    )
    priority_reserve_from: int = setting(
        Count(minimum=1, maximum=9), 5, "The lowest priority that priority_reserve is kept for"
    )
    message_groups: str = setting(
        Word(("none", "sticky", "shared")),
        "none",
        "Whether all messages of one group-id go to one consumer, in order: sticky for as long as it is"
        " attached (Artemis, ActiveMQ), shared until it has settled what it holds of the group (qpidd)."
        " Changes while the node has no consumer",
    )
    group_key: str = setting(
        PropertyName(),
        "",
        "The application property that names the group, instead of group-id; alone it means message_groups:"
        " shared",
        argument="qpid.group_header_key",
        means=group_key,
    )
    group_first_key: str = setting(
        PropertyName(),
        "",
        "An application property that is set to true in the first message of a group that a consumer is sent,"
        " such as JMSXGroupFirstForConsumer",
    )
    group_rebalance: bool = setting(
        Flag(),
        False,
        "Whether groups move to a consumer that comes, each when none of its messages is held, until all"
        " consumers have as many",
    )
    group_max_idle: int = setting(
        Count(minimum=1),
        10_000,
        "So many groups are remembered of which no message is there; beyond that the least used may get"
        " another consumer",
    )
    last_value_key: str = setting(
        PropertyName(),
        "",
        "The application property, or else message annotation, that makes it a last-value queue: a message"
        " replaces the one with the same value there that no consumer holds. Changes while the node has no"
        " message",
        argument="qpid.last_value_queue_key",
    )
    last_value_position: str = setting(
        Word(("renewed", "kept")),
        "renewed",
        "Where a message that replaces another stands: renewed is the end of the queue, as in Broker-J, kept"
        " the place of the one that it replaces, as in Artemis; kept is for nodes that aren't durable",
    )
    non_destructive: bool = setting(
        Flag(),
        False,
        "Whether receivers read the queue's messages and take none, as those do that ask for"
        " distribution-mode: copy; holds for receivers that attach from then on",
    )
    max_message_size: int = setting(Size(minimum=1), 100 * MB, "Largest message taken in")
    memory_limit: int = setting(
        Size(),
        0,
        "Message bytes held in memory. With overflow: page the backlog goes to disk from 70 % of it on; any"
        " other node has all its messages in memory, so it bounds max_size. 0 means none",
    )
    max_delivery_count: int = setting(
        Count(),
        DELIVERIES,
        "After so many failed deliveries a message is a dead letter, or dropped where there is no"
        " dead_letter_address; 0 means it is tried for ever",
        shown=f"{DELIVERIES}; 0 without a dead_letter_address",
    )
    redelivery_delay_ms: int = setting(
        Duration(),
        0,
        "How long a message waits after a failed delivery before it is tried again; others pass it meanwhile,"
        " and it comes back at the end of the queue. 0 means it is tried again at once, in its place",
    )
    redelivery_multiplier: float = setting(
        Factor(),
        1.0,
        "Each further failure multiplies the delay by this",
    )
    max_redelivery_delay_ms: int = setting(
        Duration(),
        0,
        "The longest that redelivery_multiplier makes a delay",
        shown="10 times redelivery_delay",
    )
    redelivery_jitter: int = setting(
        Percent(),
        0,
        "Each delay is shortened at random by up to this share, so that messages that failed together are not"
        " tried again together",
    )
    dead_letter_address: str = setting(
        NodeName(),
        DEAD_LETTERS,
        "The node that takes in messages that were rejected or failed too often. The default is a durable"
        " queue, one in each virtual host, which is made with its first message; a node that dead letters go"
        " to and a temporary one have none by default. Empty means none",
    )
    dead_letter_expired: bool = setting(
        Flag(),
        False,
        "Whether messages that expired go there too",
        shown="true where dead_letter_address is set",
    )
    duplicate_window_count: int = setting(
        DuplicateWindow(),
        0,
        "A message whose id came among the last so many, or within that time (of at most 1,000,000), is"
        " accepted and not kept a second time; 0 means none",
        key="duplicate_window",
    )
    duplicate_window_ms: int = part(0)
    message_ttl_ms: int = setting(
        Duration(),
        0,
        "How long a message that brings neither a ttl nor an absolute-expiry-time is kept; 0 means no end",
    )
    max_ttl_ms: int = setting(
        Duration(),
        0,
        "The longest that any message is kept: a later expiry, or none, is cut to it; 0 means any",
    )
    expire_after_ms: int = setting(
        Duration(),
        0,
        "A queue that is empty and has had no link, or a subscription that has had no receiver, for so long"
        " is deleted. A subscription goes with its messages; a topic stays. 0 means never",
    )

    @property
    def blocks_publishers(self) -> bool:
        """Whether a subscription with these settings holds publishers back, by its own thresholds (FLOW §6).

        One that drops, or has room on disk, never does. One that pages because nothing holds while nobody
        receives does while somebody receives: it has thresholds, and one that was told to page has none.
        """
        if not self.flow_control or self.pending_message_limit > 0:
            return False
        if self.overflow == "page" and self.enforce_flow != "always":
            return bool(self.flow_stop_count or self.flow_stop_size)
        return self.overflow not in ("ring", "drop_newest", "page")

    def enforces(self, is_subscription: bool, has_takers: bool) -> bool:
        """Return whether thresholds hold at such a node; ``has_takers`` while somebody receives from it."""
        if is_subscription:
            return has_takers and self.blocks_publishers
        return self.flow_control and (has_takers or self.enforce_flow == "always")


class HotSettings:
    """Settings that the code reads for every message, as the flags and numbers by which it does.

    A node has them as C numbers; ``engine/hot.pxd`` gives each its type.
    """

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings

    @property
    def by_turn(self) -> bool:
        """Whether consumers are served in turn, a full batch each."""
        return self._settings.dispatch == "fill"

    @property
    def single_active(self) -> bool:
        """Whether the longest attached consumer gets everything."""
        return self._settings.consumers == "single_active"

    @property
    def always_enforced(self) -> bool:
        """Whether the thresholds hold while nobody consumes, too."""
        return self._settings.enforce_flow == "always"

    @property
    def pending_limit(self) -> int:
        """The most messages that wait to be sent, 0 for no bound."""
        return self._settings.pending_message_limit

    @property
    def overflow(self) -> int:
        """One of ``constants.OVERFLOW_…``."""
        return _OVERFLOW[self._settings.overflow]

    @property
    def when_full(self) -> int:
        """One of ``constants.FULL_…``."""
        return _WHEN_FULL[self._settings.when_full]


HOT = tuple(name for name, each in vars(HotSettings).items() if isinstance(each, property))
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


def _rows() -> Iterator[NodeField]:
    """Yield every row, named and with its attributes as it stands in ``NodeSettings``, and its synonyms."""
    attributes = fields(NodeSettings)
    starts = [at for at, each in enumerate(attributes) if each.metadata]
    for start, end in zip(starts, [*starts[1:], len(attributes)], strict=True):
        first = attributes[start]
        row: NodeField = first.metadata["row"]
        sets = tuple(each.name for each in attributes[start:end])
        yield replace(row, name=row.name or key_of(first.name), sets=sets)
        yield from first.metadata["synonyms"]


FIELDS: Mapping[str, NodeField] = {row.name: row for row in _rows()}


def read(key: str, value: object) -> object:
    """Parse the value of one key. SettingError if there is no such key or no such value."""
    if key not in FIELDS:
        raise SettingError(unknown_key(key, FIELDS), key)
    try:
        return FIELDS[key].type.parse(value)
    except ValueError as error:
        raise SettingError(f"{key}: {error}", key) from None


def normalise(settings: Mapping[str, object]) -> dict[str, Given]:
    """Turn one source's settings into attributes of ``NodeSettings``.

    SettingError if a key or a value is wrong, or if two keys say different things about one attribute.
    """
    given: dict[str, Given] = {}
    meanings = {key: _meaning(key, value) for key, value in settings.items()}
    for key in sorted(meanings, key=lambda key: _rank(key, meanings[key])):
        for name, value in meanings[key].items():
            if name in given and _is_implied(key, name, value):
                continue
            earlier = given.setdefault(name, Given(value, key))
            if earlier.value != value:
                one, other = (f"{k} {show(settings[k])}" for k in (key, earlier.key))
                raise SettingError(f"{one} and {other} disagree", key, earlier.key)
    return given


def _meaning(key: str, value: object) -> Mapping[str, Any]:
    parsed = read(key, value)
    return FIELDS[key].meaning_of(parsed)


def _is_implied(key: str, name: str, value: Value) -> bool:
    """Whether a key only implies this, so that another key that spells it out holds."""
    if key == "flow_control":
        return name == "flow_resume_size"
    if key == "group_key":
        return name == "message_groups"
    return key.startswith("send_fail") and value == "block"


def _rank(key: str, meaning: Mapping[str, Value]) -> int:
    """Order the keys of one source: those that only imply something come last."""
    if not FIELDS[key].is_shorthand:
        return 0
    return 2 if any(_is_implied(key, name, value) for name, value in meaning.items()) else 1
