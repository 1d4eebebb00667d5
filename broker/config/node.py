"""The settings of a node: the words users type, and what each of them stands for.

The table ``FIELDS`` is the source of the parser, of the JSON Schema and of the documentation. Several
older systems' words mean the same thing here; ``normalise`` turns every one of them into the names of
``NodeSettings``, so that nothing behind it knows a synonym.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.config.fields import (
    Count,
    Duration,
    Field,
    Flag,
    Percent,
    Schema,
    Size,
    Word,
    from_text,
    unknown_key,
)
from broker.config.fields import table as fields_table
from broker.errors import OperatorError, did_you_mean
from broker.units import KB, format_duration, format_size, show

Value = int | str

# What `flow_control: {}` means: EMS takes 256 KB where the property is present without a value.
EMS_STOP_BYTES = 256 * KB

# Where dead letters go that nobody named a place for.
DEAD_LETTERS = "DLQ"


class SettingError(OperatorError):
    """A setting was refused. ``names`` are the keys it is about, the one to change first."""

    def __init__(self, reason: str, *names: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.names = names


@dataclass(frozen=True, slots=True)
class Given:
    """A value someone set, and the key they set it with."""

    value: Value
    key: str


@dataclass(frozen=True, slots=True)
class FlowControl:
    """True, false, or a size as in EMS; empty stands for 256 KB."""

    label = "true, false or a size"

    def parse(self, value: object) -> int:
        if isinstance(value, bool):
            return value
        if value in (None, "", {}):
            return EMS_STOP_BYTES
        try:
            size = Size().parse(value)
        except ValueError:
            raise ValueError(f"expected true, false or a size such as 60MB, not {show(value)}") from None
        if size == 0:
            raise ValueError("expected true, false or a size above 0; write false to switch it off")
        return size

    def schema(self) -> Schema:
        sizes = Size(minimum=1).schema()["anyOf"]
        assert isinstance(sizes, list)
        empty: list[Schema] = [{"type": "boolean"}, {"type": "null"}, {"type": "object", "maxProperties": 0}]
        return {"anyOf": [*empty, {"const": ""}, *sizes]}


@dataclass(frozen=True, slots=True)
class NodeName:
    """A node's name; empty for none."""

    label = "name of a node"

    def parse(self, value: object) -> str:
        if value is None or value == "":
            return ""
        if not isinstance(value, str) or not re.fullmatch(NAME_PATTERN, value):
            raise ValueError(f"expected the name of a node, not {show(value)}")
        return str(value)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "null"}, {"const": ""}, {"type": "string", "pattern": NAME_PATTERN}]}


# What the broker calls its own begins with '$'; the rest is checked where nodes are made.
NAME_PATTERN = r"^[^$\x00-\x1f\x7f\ud800-\udfff][^\x00-\x1f\x7f\ud800-\udfff]{0,254}$"


@dataclass(frozen=True, slots=True)
class DuplicateWindow:
    """A count, a time, or both: `10000`, `10m`, `10000 10m` or `{count: 10000, time: 10m}`."""

    label = "a count such as 10000, a time such as 10m, or both"

    def parse(self, value: object) -> tuple[int, int]:
        """How many ids, and milliseconds; 0 where one isn't given."""
        if isinstance(value, int) and not isinstance(value, bool):
            return COUNT.parse(value), 0
        if isinstance(value, Mapping) and value and value.keys() <= {"count", "time"}:
            span_ms = SPAN.parse(value["time"]) if "time" in value else 0
            return COUNT.parse(value.get("count", 0)), span_ms
        text = re.fullmatch(WINDOW_PATTERN, value, re.ASCII) if isinstance(value, str) else None
        if text:
            return int(text[1] or 0), SPAN.parse(text[2]) if text[2] else 0
        raise ValueError(f"expected {self.label}, not {show(value)}")

    def schema(self) -> Schema:
        both: Schema = {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "properties": {"count": COUNT.schema(), "time": SPAN.schema()},
        }
        return {"anyOf": [COUNT.schema(), {"type": "string", "pattern": WINDOW_PATTERN}, both]}


@dataclass(frozen=True, slots=True)
class SlowConsumer:
    """``{rate: 10, for: 30s, action: notify}`` or ``10/s for 30s notify``; without an action it is notify."""

    label = "a rate, a time and an action such as `10/s for 30s notify`"

    def parse(self, value: object) -> tuple[int, int, str]:
        """Messages a second, milliseconds and the action; a rate of 0 for none."""
        if value is None or value == "":
            return 0, 0, "notify"
        if isinstance(value, Mapping) and {"rate", "for"} <= value.keys() <= {"rate", "for", "action"}:
            return self._of(value["rate"], value["for"], value.get("action", "notify"))
        text = re.fullmatch(SLOW_PATTERN, value, re.ASCII) if isinstance(value, str) else None
        if text:
            return self._of(int(text[1]), text[2], text[3] or "notify")
        raise ValueError(f"expected {self.label}, not {show(value)}")

    def schema(self) -> Schema:
        parts: Schema = {
            "type": "object",
            "additionalProperties": False,
            "required": ["rate", "for"],
            "properties": {
                "rate": SLOW_RATE.schema(),
                "for": SLOW_SPAN.schema(),
                "action": SLOW_ACTION.schema(),
            },
        }
        text: Schema = {"type": "string", "pattern": SLOW_PATTERN}
        return {"anyOf": [{"type": "null"}, {"const": ""}, text, parts]}

    @staticmethod
    def _of(rate: object, span: object, action: object) -> tuple[int, int, str]:
        return SLOW_RATE.parse(rate), SLOW_SPAN.parse(span), SLOW_ACTION.parse(action)


COUNT = Count()
# Links are looked at once a second (server.py).
SLOW_RATE = Count(minimum=1, maximum=1_000_000_000)
SLOW_SPAN = Duration(minimum=1000)
SLOW_ACTION = Word(("notify", "detach"))
SPAN = Duration(minimum=1)
# A count, or a time with its unit, or one behind the other.
_TIME = r"[0-9]{1,18}(?:\.[0-9]{1,9})?\s*(?:[mM][sS]|[sSmMhH])"
SLOW_PATTERN = rf"^\s*([0-9]{{1,9}})\s*(?:/\s*s)?\s+for\s+({_TIME})(?:\s+(notify|detach))?\s*$"
WINDOW_PATTERN = rf"^(?=.*[0-9])\s*(?:([0-9]{{1,15}})(?:\s+|$))?({_TIME})?\s*$"


@dataclass(frozen=True, slots=True)
class WhenFull:
    """A word, or ``reject_after`` with a time: as ``{reject_after: 3s}`` or as ``reject_after 3s``."""

    label = "`block`, `reject` or `reject_after: 3s`"

    def parse(self, value: object) -> tuple[str, int]:
        """The word and its milliseconds; 0 where no time was given."""
        if isinstance(value, Mapping) and list(value) == ["reject_after"]:
            return "reject_after", REJECT_AFTER.parse(value["reject_after"])
        timed = re.fullmatch(r"reject_after\s*[:\s]\s*(\S.*)", value) if isinstance(value, str) else None
        if timed:
            text = timed[1]
            return "reject_after", REJECT_AFTER.parse(text)
        return WHEN_FULL.parse(value), 0

    def schema(self) -> Schema:
        timed = {
            "type": "object",
            "required": ["reject_after"],
            "additionalProperties": False,
            "properties": {"reject_after": REJECT_AFTER.schema()},
        }
        return {"anyOf": [WHEN_FULL.schema(), {"type": "string", "pattern": "^reject_after[: ]"}, timed]}


WHEN_FULL = Word(("block", "reject", "reject_after"))
REJECT_AFTER = Duration(minimum=1)

# A link's credit is a 32-bit serial difference (AMQP 1.0 §2.6.7).
_WINDOW = Count(minimum=1, maximum=(1 << 31) - 1)

FIELDS = fields_table(
    Field(
        "kind",
        Word(("queue", "topic", "subscription")),
        "queue",
        "What the node is; in a policy, `subscription` is for those of the topics it matches",
    ),
    Field("durable", Flag(), "false", "The node and its durable messages survive a restart"),
    Field("max_count", Count(), "none", "Hard limit in messages; 0 means none"),
    Field("max_size", Size(), "100 MB", "Hard limit in bytes; 0 means none"),
    Field(
        "flow_control",
        FlowControl(),
        "true",
        "false never throttles this node; a size is both its flow_stop_size and its flow_resume_size",
    ),
    Field("flow_stop_count", Count(), "80 % of max_count", "Producers stop at so many messages; 0 disables"),
    Field(
        "flow_resume_count", Count(), "70 % of max_count", "They go on below so many; 0 means equal to stop"
    ),
    Field("flow_stop_size", Size(), "80 % of max_size", "Producers stop at so many bytes; 0 disables"),
    Field("flow_resume_size", Size(), "70 % of max_size", "They go on below so many; 0 means equal to stop"),
    Field(
        "enforce_flow",
        Word(("always", "with_active_consumers")),
        "always",
        "Whether the thresholds hold while nobody consumes",
    ),
    Field("producer_window", _WINDOW, "1000", "Most credit one producer link may hold"),
    Field("initial_credit", _WINDOW, "100", "First credit of a producer link"),
    Field(
        "byte_reservation",
        Word(("expected", "strict")),
        "expected",
        "What a credit reserves: the size learned on its link, or max_message_size",
    ),
    Field("when_full", WhenFull(), "block", "What a send to a stopped node meets"),
    Field("reject_after", REJECT_AFTER, "none", "Short for when_full: reject_after with that time"),
    Field("send_fail_if_no_space", Flag(), "false", "ActiveMQ's word for when_full: reject"),
    Field(
        "send_fail_if_no_space_after_timeout",
        Duration(),
        "none",
        "ActiveMQ's word for reject_after, in milliseconds; 0 means block",
    ),
    Field(
        "overflow",
        Word(("reject", "ring", "drop_newest", "dead_letter", "page")),
        "reject; page without flow control, or where it is enforced with active consumers only",
        "What happens at the hard limit",
    ),
    Field(
        "pending_message_limit",
        Count(),
        "none",
        "Of what waits to be sent the oldest beyond so many are dropped; what was sent doesn't count. A"
        " subscription with one never stops publishers. 0 means none",
    ),
    Field(
        "consumer_flow_limit", Count(), "1000", "Most unsettled messages on a consumer link; 0 means no limit"
    ),
    Field("consumer_flow_threshold", Percent(), "50 %", "A full window reopens at this share of its limit"),
    Field(
        "consumer_flow_min",
        Count(minimum=1),
        "10",
        "Smallest window that dispatch: adaptive gives a consumer link; consumer_flow_limit is the largest",
    ),
    Field(
        "dispatch",
        Word(("fair", "fill", "adaptive")),
        "fair",
        "Which consumer is next: the one with the fewest unsettled, or the next in turn for a full batch;"
        " adaptive is fair with windows that follow each consumer's rate and round trip",
    ),
    Field(
        "slow_consumer",
        SlowConsumer(),
        "none",
        "Settles fewer a second, over so long, though it has work: say so, or detach it. Empty: none",
    ),
    Field(
        "consumers",
        Word(("shared", "exclusive", "single_active")),
        "shared",
        "Who may consume: all share the messages; one, and a second is refused; or all attach and the"
        " longest attached gets everything until it leaves",
    ),
    Field("max_message_size", Size(minimum=1), "100 MB", "Largest message taken in"),
    Field(
        "memory_limit",
        Size(),
        "none",
        "Message bytes held in memory. With overflow: page the backlog goes to disk from 70 % of it on; any"
        " other node has all its messages in memory, so it bounds max_size. 0 means none",
    ),
    Field(
        "max_delivery_count",
        Count(),
        "10; 0 without a dead_letter_address",
        "After so many failed deliveries a message is a dead letter, or dropped where there is no"
        " dead_letter_address; 0 means it is tried for ever",
    ),
    Field(
        "dead_letter_address",
        NodeName(),
        DEAD_LETTERS,
        "The node that takes in messages that were rejected or failed too often. The default is a durable"
        " queue, one in each virtual host, which is made with its first message; a node that dead letters go"
        " to and a temporary one have none by default. Empty means none",
    ),
    Field(
        "dead_letter_expired",
        Flag(),
        "true where dead_letter_address is set",
        "Whether messages that expired go there too",
    ),
    Field(
        "duplicate_window",
        DuplicateWindow(),
        "none",
        "A message whose id came among the last so many, or within that time (of at most 1,000,000), is"
        " accepted and not kept a second time; 0 means none",
    ),
    Field(
        "message_ttl",
        Duration(),
        "none",
        "How long a message that brings neither a ttl nor an absolute-expiry-time is kept; 0 means no end",
    ),
    Field(
        "max_ttl",
        Duration(),
        "none",
        "The longest that any message is kept: a later expiry, or none, is cut to it; 0 means any",
    ),
    Field(
        "expire_after",
        Duration(),
        "none",
        "A queue that is empty and has had no link, or a subscription that has had no receiver, for so long"
        " is deleted. A subscription goes with its messages; a topic stays. 0 means never",
    ),
)

# Declare arguments of Qpid's clients and tools, and the key each of them stands for.
ARGUMENTS = {
    "qpid.flow_stop_size": "flow_stop_size",
    "qpid.flow_resume_size": "flow_resume_size",
    "qpid.flow_stop_count": "flow_stop_count",
    "qpid.flow_resume_count": "flow_resume_count",
    "qpid.max_count": "max_count",
    "qpid.max_size": "max_size",
    "qpid.policy_type": "overflow",
}

# Those of qpidd's that say nothing about which messages a queue takes, keeps and hands out, and have nothing
# that answers to them here: when to alert, how files are made, when an idle queue goes.
PASSED_OVER = frozenset(
    (
        *("qpid.alert_count", "qpid.alert_size", "qpid.alert_repeat_gap"),
        *("qpid.alert_count_up", "qpid.alert_count_down", "qpid.alert_size_up", "qpid.alert_size_down"),
        *("qpid.file_count", "qpid.file_size", "qpid.max_pages_loaded", "qpid.page_factor"),
        *("qpid.persist_last_node", "qpid.auto_delete_timeout"),
    )
)

# Qpid's words for a queue that is full; `none` leaves it to the broker.
POLICY_TYPES = {
    "reject": "reject",
    "ring": "ring",
    "ring_strict": "ring",
    "ring-strict": "ring",
    "flow_to_disk": "page",
    "flow-to-disk": "page",
}


def read(key: str, value: object) -> object:
    """The parsed value of one key. SettingError if there is no such key or no such value."""
    if key not in FIELDS:
        raise SettingError(unknown_key(key, FIELDS), key)
    try:
        return FIELDS[key].type.parse(value)
    except ValueError as error:
        raise SettingError(f"{key}: {error}", key) from None


def normalise(settings: Mapping[str, object]) -> dict[str, Given]:
    """One source's settings under the names of ``NodeSettings``.

    SettingError if a key or a value is wrong, or if two keys say different things about one name.
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


def from_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Declare arguments under our own names, ``qpid.*`` ones and ours alike; values may be text.

    Values are checked by ``resolve``. SettingError if an argument is unknown or contradicts its synonym.
    """
    settings: dict[str, object] = {}
    origin: dict[str, str] = {}
    for argument, value in arguments.items():
        if argument == "qpid.policy_type" and value == "none":
            continue
        key = argument_key(argument)
        meant = _argument_value(argument, key, value)
        if key in settings and settings[key] != meant:
            raise SettingError(f"{argument} and {origin[key]} disagree", argument, origin[key])
        settings[key] = meant
        origin[key] = argument
    return settings


def argument_key(argument: str) -> str:
    """Our name for a declare argument. SettingError if there is none."""
    key = ARGUMENTS.get(argument, argument)
    if key in FIELDS:
        return key
    known = [*ARGUMENTS, *FIELDS]
    raise SettingError(f"unknown argument {argument!r}{did_you_mean(argument, known)}", argument)


def tell(name: str, value: Value) -> str:
    """``flow_stop_size 80 MB``: a setting and its value, as messages show them."""
    if name.endswith("_size"):
        return f"{name} {format_size(int(value))}"
    return f"{name} {format_duration(int(value)) if name.endswith('_ms') else show(value)}"


def _is_implied(key: str, name: str, value: Value) -> bool:
    """Whether a key only implies this, so that another key that spells it out holds."""
    if key == "flow_control":
        return name == "flow_resume_size"
    return key.startswith("send_fail") and value == "block"


def _rank(key: str, meaning: Mapping[str, Value]) -> int:
    if key not in SHORTHANDS:
        return 0
    return 2 if any(_is_implied(key, name, value) for name, value in meaning.items()) else 1


def _argument_value(argument: str, key: str, value: object) -> object:
    if argument == "qpid.policy_type":
        if not isinstance(value, str) or value not in POLICY_TYPES:
            words = ", ".join(["none", *POLICY_TYPES])
            raise SettingError(f"qpid.policy_type: expected one of {words}, not {show(value)}", argument)
        return POLICY_TYPES[str(value)]
    if isinstance(value, str) and key in FIELDS:
        return from_text(FIELDS[key].type, value)
    return value


def _meaning(key: str, value: object) -> dict[str, Value]:
    parsed = read(key, value)
    if key in SHORTHANDS:
        return SHORTHANDS[key](parsed)
    assert isinstance(parsed, (int, str))
    return {key: parsed}


def _flow_control(parsed: object) -> dict[str, Value]:
    assert isinstance(parsed, int)
    if isinstance(parsed, bool):
        return {"flow_control": parsed}
    return {"flow_control": True, "flow_stop_size": parsed, "flow_resume_size": 0}


def _when_full(parsed: object) -> dict[str, Value]:
    assert isinstance(parsed, tuple)
    word, after_ms = parsed
    return {"when_full": word, **({"reject_after_ms": after_ms} if after_ms else {})}


def _reject_after(parsed: object) -> dict[str, Value]:
    assert isinstance(parsed, int)
    return {"when_full": "reject_after", "reject_after_ms": parsed} if parsed else {"when_full": "block"}


def _send_fail(parsed: object) -> dict[str, Value]:
    return {"when_full": "reject" if parsed else "block"}


def _slow_consumer(parsed: object) -> dict[str, Value]:
    assert isinstance(parsed, tuple)
    rate, span_ms, action = parsed
    return {
        "slow_consumer_rate": rate,
        "slow_consumer_for_ms": span_ms,
        "slow_consumer_action": action,
    }


def _milliseconds(name: str) -> Callable[[object], dict[str, Value]]:
    """The meaning of a key that is a duration and nothing else."""

    def meaning(parsed: object) -> dict[str, Value]:
        assert isinstance(parsed, int)
        return {name: parsed}

    return meaning


def _duplicate_window(parsed: object) -> dict[str, Value]:
    assert isinstance(parsed, tuple)
    count, span_ms = parsed
    return {"duplicate_window_count": count, "duplicate_window_ms": span_ms}


SHORTHANDS: dict[str, Callable[[object], dict[str, Value]]] = {
    "flow_control": _flow_control,
    "duplicate_window": _duplicate_window,
    "slow_consumer": _slow_consumer,
    "when_full": _when_full,
    "reject_after": _reject_after,
    "send_fail_if_no_space": _send_fail,
    "send_fail_if_no_space_after_timeout": _reject_after,
    "message_ttl": _milliseconds("message_ttl_ms"),
    "max_ttl": _milliseconds("max_ttl_ms"),
    "expire_after": _milliseconds("expire_after_ms"),
}
