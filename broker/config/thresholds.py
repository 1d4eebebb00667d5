"""The effective settings of one node, every number resolved, from those that somebody set.

Only this file knows the defaults and the clamps of thresholds (FLOW §2). Pure values: no YAML, no
files, no addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise

from broker.config.flow import BrokerDefaults
from broker.config.node import DELIVERIES, FIELDS, NodeSettings, SettingError, normalise
from broker.config.node_types import Value
from broker.units import format_size, show

# The defaults of a node of which neither its policies nor the broker's file say anything.
_PLAIN = NodeSettings()


@dataclass(frozen=True, slots=True)
class Completed:
    """Effective settings; ``notes`` says of each value that nobody set, or that was changed, why it is so."""

    settings: NodeSettings
    notes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Number:
    """A resolved number and the reason for it; no reason where it stands as it was set."""

    value: int
    note: str = ""


def resolve(explicit: Mapping[str, object], defaults: BrokerDefaults) -> NodeSettings:
    """Make the effective settings of a node that sets ``explicit``, in any of the words users know.

    SettingError, with the keys and both numbers, if a key or value is wrong or two contradict each other.
    """
    given = normalise(explicit)
    return complete({name: item.value for name, item in given.items()}, defaults).settings


def contradictions(given: Mapping[str, Value]) -> list[SettingError]:
    """Find settings that cannot hold together, whatever the defaults are; ``given`` is normalised."""
    found = []
    for unit in ("count", "size"):
        hard, stop, resume = f"max_{unit}", f"flow_stop_{unit}", f"flow_resume_{unit}"
        if given.get(stop) == 0:
            continue  # disabled: nothing to contradict
        found += _more(given, stop, hard)
        found += _more(given, resume, stop) or _more(given, resume, hard)
    found += _more(given, "consumer_flow_min", "consumer_flow_limit")
    return found + _more(given, "initial_credit", "producer_window")


def bounded(asked: Mapping[str, Value], said: Mapping[str, Value]) -> dict[str, Value]:
    """Bound the settings that a client asks for by those that policies have for the node; both normalised.

    1. A hard limit or a threshold is at most the policies' of its name, and of those above it: resume below
       stop, stop below the hard limit. 0, which is none, becomes the policies' number of that name.
    2. A threshold of the policies that is above a lower one that was asked for becomes that one.
    3. Of everything else, such as `overflow`, the policies' word stands where they have one.

    Numbers that are asked for and contradict each other are left to be refused.
    """
    found = {name: value for name, value in asked.items() if name in _BOUNDS or name not in said}
    for names in _CHAINS:
        most = 0
        for name in names:
            theirs = _int(said, name) or 0
            most = min(filter(None, (most, theirs)), default=0)
            value = _int(found, name)
            if value == 0 and theirs and not name.startswith("flow_resume"):
                found[name] = most
            elif value and most:
                found[name] = min(value, most)
        for above, name in pairwise(names):
            limit, theirs = _int(found, above) or 0, _int(said, name) or 0
            if name not in found and 0 < limit < theirs:
                found[name] = limit
    return found


def complete(given: Mapping[str, Value], defaults: BrokerDefaults) -> Completed:
    """Fill in what is not given; ``given`` is normalised. SettingError if it contradicts itself."""
    for contradiction in contradictions(given):
        raise contradiction
    overflow, why_so = _overflow(given, defaults)
    letters = given.get("dead_letter_address", defaults.dead_letter_address)
    numbers = _numbers(given, defaults)
    plain = (each.name for each in fields(NodeSettings) if each.name not in numbers)
    words = {name: given.get(name, getattr(_PLAIN, name)) for name in plain}
    words |= {"overflow": overflow, "dead_letter_address": letters}
    _check_words(words, given)
    if words["partitions"]:
        # Senders know a topic, which shares out among streams of their own.
        words |= {"kind": "topic", "queue_type": "classic"}
    strict = words["byte_reservation"] == "strict" and numbers["flow_control"].value
    if strict:
        numbers["max_message_size"] = _reservable(
            numbers["max_message_size"], numbers["flow_stop_size"].value
        )
    values = {**words, **{name: number.value for name, number in numbers.items()}}
    values |= {name: bool(values[name]) for name in values if isinstance(getattr(_PLAIN, name), bool)}
    notes = {name: _default(name, defaults) for name in words if name not in given} | why_so
    notes |= {name: number.note for name, number in numbers.items() if number.note}
    return Completed(NodeSettings(**values), notes)


# Of each unit the hard limit and the thresholds below it: a client may ask for less than policies say.
_CHAINS = tuple((f"max_{unit}", f"flow_stop_{unit}", f"flow_resume_{unit}") for unit in ("count", "size"))
_BOUNDS = frozenset(name for names in _CHAINS for name in names)


def _numbers(given: Mapping[str, Value], defaults: BrokerDefaults) -> dict[str, _Number]:
    numbers = {
        "flow_control": _switch(given, defaults),
        "reject_after_ms": _reject_after(given),
        **_windows(given, defaults),
        "consumer_flow_threshold": _plain("consumer_flow_threshold", given, defaults),
        "max_message_size": _plain("max_message_size", given, defaults),
        "max_delivery_count": _deliveries(given, defaults),
        "message_ttl_ms": _message_ttl(given),
        "dead_letter_expired": _dead_letter_expired(given),
    }
    return {
        **numbers,
        **_credit(given, defaults),
        **_unit("count", given, defaults),
        **_unit("size", given, defaults),
    }


def _unit(unit: str, given: Mapping[str, Value], defaults: BrokerDefaults) -> dict[str, _Number]:
    """Resolve hard limit and thresholds of one unit (FLOW §2, rules 1 and 10).

    1. A given number stands; that it fits together was checked before.
    2. A default hard limit rises to the largest threshold given.
    3. The default stop is the broker's percentage of the hard limit, rounded half up, and rises to a
       resume that is given. Ring queues, and units without a hard limit, have none.
    4. The default resume is the broker's percentage of the hard limit, truncated, and falls to stop.
       A resume of 0 is equal to stop.
    5. No size is above memory_limit, unless the node pages or is a stream on disk: otherwise all its
       messages are in memory.
    """
    bound = _held_in_memory(given, defaults) if unit == "size" else 0
    hard = _lowered(_hard_limit(unit, given, defaults), bound, unset=bound)
    stop = _lowered(_stop(unit, hard.value, given, defaults), bound)
    resume = _lowered(_resume(unit, hard.value, stop.value, given, defaults), bound)
    return {f"max_{unit}": hard, f"flow_stop_{unit}": stop, f"flow_resume_{unit}": resume}


def _held_in_memory(given: Mapping[str, Value], defaults: BrokerDefaults) -> int:
    pages = _overflow(given, defaults)[0] == "page" and not _pages_unread(given, defaults)
    return 0 if pages or _is_stream_on_disk(given) else _int(given, "memory_limit") or 0


def _is_stream_on_disk(given: Mapping[str, Value]) -> bool:
    return given.get("queue_type") == "stream" and bool(given.get("durable"))


def _pages_unread(given: Mapping[str, Value], defaults: BrokerDefaults) -> bool:
    """Whether it pages by default for the times when nobody receives, in which no threshold holds."""
    return (
        "overflow" not in given
        and given.get("enforce_flow") == "with_active_consumers"
        and bool(_switch(given, defaults).value)
    )


def _overflow(given: Mapping[str, Value], defaults: BrokerDefaults) -> tuple[Value, dict[str, str]]:
    """Resolve `overflow`, with the note where it is no plain default (FLOW §3).

    Without flow control nothing stops producers there, and while nobody receives nothing does where it is
    enforced for active consumers only: unless somebody said what to drop, the rest goes to disk. Thresholds
    that nobody enforces stay as they are, for whenever it is switched on again.
    """
    if "overflow" in given:
        return given["overflow"], {}
    if given.get("last_value_key"):
        return _PLAIN.overflow, {"overflow": "default (a last-value queue isn't paged)"}
    if not defaults.flow_control:
        return "page", {"overflow": "default (page: flow control is switched off for the whole broker)"}
    if _int(given, "flow_control") == 0:
        return "page", {"overflow": "default (page: flow_control is false)"}
    if _pages_unread(given, defaults):
        return "page", {"overflow": "default (page: enforce_flow is with_active_consumers)"}
    return _PLAIN.overflow, {"overflow": "default"}


def _lowered(number: _Number, memory_limit: int, unset: int = 0) -> _Number:
    """Lower a number to memory_limit where that is less; 0, which is none, becomes ``unset``."""
    value = number.value or unset
    if memory_limit == 0 or number.value == value <= memory_limit:
        return number
    return _Number(memory_limit, f"{number.note} lowered to memory_limit".strip())


def _hard_limit(unit: str, given: Mapping[str, Value], defaults: BrokerDefaults) -> _Number:
    name = f"max_{unit}"
    explicit = _int(given, name)
    if explicit is not None:
        return _Number(explicit)
    if unit == "count":
        return _Number(0, "default (none)")
    if _is_stream_on_disk(given):
        return _Number(0, "default (none: a durable stream keeps all there is)")
    default = defaults.max_size
    stop, resume = _int(given, f"flow_stop_{unit}"), _int(given, f"flow_resume_{unit}") or 0
    wanted = 0 if stop == 0 else max(stop or 0, resume)
    if 0 < default < wanted:
        raised_to = f"flow_stop_{unit}" if wanted == stop else f"flow_resume_{unit}"
        return _Number(wanted, f"{_default(name, defaults)} raised to {raised_to}")
    return _Number(default, _default(name, defaults))


def _stop(unit: str, hard: int, given: Mapping[str, Value], defaults: BrokerDefaults) -> _Number:
    name = f"flow_stop_{unit}"
    explicit = _int(given, name)
    if explicit is not None:
        return _Number(explicit)
    resume = _int(given, f"flow_resume_{unit}") or 0
    percent = defaults.default_flow_stop_threshold
    reason = _why_no_stop(unit, hard, percent, given)
    if reason and resume:
        text = f"{tell(f'flow_resume_{unit}', resume)} needs a {name}: there is no default one, {reason}"
        raise SettingError(text, f"flow_resume_{unit}", name)
    if reason:
        return _Number(0, f"default (none: {reason})")
    share = max((hard * percent + 50) // 100, 1)
    if share < resume:
        return _Number(resume, f"default raised to flow_resume_{unit}")
    return _Number(share, _share("default_flow_stop_threshold", percent, unit, defaults))


def _why_no_stop(unit: str, hard: int, percent: int, given: Mapping[str, Value]) -> str:
    if given.get("queue_type") == "stream":
        return "a stream lets go of its oldest messages"
    if given.get("overflow") == "ring":
        return "a ring queue has no thresholds by default"
    if given.get("overflow") == "page":
        return "what is beyond the limit goes to disk"
    if given.get("pending_message_limit"):
        return "what is beyond pending_message_limit is dropped"
    if hard == 0:
        return f"max_{unit} is not set"
    return "" if percent else "default_flow_stop_threshold is 0"


def _resume(unit: str, hard: int, stop: int, given: Mapping[str, Value], defaults: BrokerDefaults) -> _Number:
    name = f"flow_resume_{unit}"
    explicit = _int(given, name)
    if stop == 0:
        return _Number(0, f"none: flow_stop_{unit} is 0")
    if explicit is not None:
        return _Number(explicit) if explicit else _Number(stop, f"0: equal to flow_stop_{unit}")
    percent = defaults.default_flow_resume_threshold
    share = hard * percent // 100
    if share == 0:
        return _Number(stop, f"default (equal to flow_stop_{unit})")
    if share > stop:
        return _Number(stop, f"default lowered to flow_stop_{unit}")
    return _Number(share, _share("default_flow_resume_threshold", percent, unit, defaults))


def _credit(given: Mapping[str, Value], defaults: BrokerDefaults) -> dict[str, _Number]:
    window = _plain("producer_window", given, defaults)
    first = _plain("initial_credit", given, defaults)
    if first.value > window.value and first.note:
        first = _Number(window.value, "default lowered to producer_window")
    elif first.value > window.value:
        window = _Number(first.value, "default raised to initial_credit")
    return {"producer_window": window, "initial_credit": first}


def _windows(given: Mapping[str, Value], defaults: BrokerDefaults) -> dict[str, _Number]:
    """Resolve the bounds of a consumer link's window; a limit of 0 bounds nothing."""
    limit = _plain("consumer_flow_limit", given, defaults)
    least = _plain("consumer_flow_min", given, defaults)
    if 0 < limit.value < least.value and least.note:
        least = _Number(limit.value, "default lowered to consumer_flow_limit")
    elif 0 < limit.value < least.value:
        limit = _Number(least.value, "default raised to consumer_flow_min")
    return {"consumer_flow_limit": limit, "consumer_flow_min": least}


def _switch(given: Mapping[str, Value], defaults: BrokerDefaults) -> _Number:
    if not defaults.flow_control:
        return _Number(0, f"switched off for the whole broker: {_default('flow_control', defaults)}")
    explicit = _int(given, "flow_control")
    return _Number(explicit) if explicit is not None else _Number(1, _default("flow_control", defaults))


def _reject_after(given: Mapping[str, Value]) -> _Number:
    if given.get("when_full") != "reject_after":
        return _Number(0, "none: when_full is not reject_after")
    return _Number(_int(given, "reject_after_ms") or 0)


def _deliveries(given: Mapping[str, Value], defaults: BrokerDefaults) -> _Number:
    """Resolve `max_delivery_count`: without a place to go, messages are tried for ever (as in qpidd)."""
    explicit = _int(given, "max_delivery_count")
    if explicit is not None:
        return _Number(explicit)
    if given.get("dead_letter_address", defaults.dead_letter_address):
        return _Number(DELIVERIES, "default")
    return _Number(0, "default (none: there is no dead_letter_address)")


def _message_ttl(given: Mapping[str, Value]) -> _Number:
    """Resolve `message_ttl`: no message is given more than `max_ttl`."""
    explicit, most = _int(given, "message_ttl_ms"), _int(given, "max_ttl_ms") or 0
    if not explicit:
        return _Number(0) if explicit == 0 else _Number(0, "default")
    return _Number(most, "lowered to max_ttl") if 0 < most < explicit else _Number(explicit)


def _dead_letter_expired(given: Mapping[str, Value]) -> _Number:
    """Resolve `dead_letter_expired`.

    A sender that gives a message a time to live has it dropped: it is kept only where somebody named a place
    for dead letters. A default place would fill with messages that nobody wants.
    """
    explicit = _int(given, "dead_letter_expired")
    if explicit is not None:
        return _Number(explicit)
    if given.get("dead_letter_address"):
        return _Number(1, "default (a dead_letter_address was named)")
    return _Number(0, "default (no dead_letter_address was named)")


def _check_words(words: Mapping[str, object], given: Mapping[str, Value]) -> None:
    if words["when_full"] == "reject_after" and not given.get("reject_after_ms"):
        raise SettingError("when_full: reject_after needs a time, such as reject_after: 3s", "when_full")
    if words["overflow"] == "dead_letter" and not given.get("dead_letter_address"):
        text = "overflow: dead_letter needs a dead_letter_address"
        raise SettingError(text, "overflow", "dead_letter_address")
    if words["priority"] != "none" and words["message_groups"] != "none":
        text = "priority and message_groups can't be combined: a group's messages keep the order of arrival"
        raise SettingError(text, "priority", "message_groups")
    if words["non_destructive"] and words["kind"] == "topic":
        text = (
            "non_destructive is for queues: a topic's subscription has its messages for its receivers alone"
        )
        raise SettingError(text, "non_destructive", "kind")
    if words["last_value_key"]:
        _check_last_value(words)
    if words["queue_type"] == "stream":
        _check_stream(words, given)
    if words["partitions"] and words["kind"] != "topic" and words["queue_type"] != "stream":
        raise SettingError("only a stream has partitions", "partitions", "queue_type")
    if words["partitions"] and words["expire_after_ms"]:
        text = "a stream with partitions doesn't go when it is idle: each of them may have messages"
        raise SettingError(text, "expire_after_ms", "partitions")


# Settings that say which message goes to whom and when, or which one goes: in a stream all stay, in the order
# they came, and every reader reads all of them.
_NOT_OF_STREAMS = (
    *("priority", "priority_reserve", "priority_reserve_from", "pending_message_limit"),
    *("message_groups", "group_key", "group_first_key", "group_rebalance", "group_max_idle"),
    *("last_value_key", "last_value_position", "duplicate_window_count", "duplicate_window_ms"),
    *("redelivery_delay_ms", "redelivery_multiplier", "max_redelivery_delay_ms", "redelivery_jitter"),
    *("message_ttl_ms", "max_ttl_ms", "dead_letter_expired"),
    *("non_destructive", "slow_consumer_rate", "consumer_timeout_ms"),
)
# The same of single words.
_WORDS_NOT_OF_STREAMS = {"consumers": ("exclusive", "single_active"), "dispatch": ("fill",)}
# By attribute, the key that users type.
_KEYS = {attribute: row.name for row in FIELDS.values() for attribute in row.sets}


def _check_stream(words: Mapping[str, object], given: Mapping[str, Value]) -> None:
    """Refuse settings that a stream can't have."""
    if words["kind"] != "queue":
        raise SettingError(f"a {words['kind']} can't be a stream", "queue_type", "kind")
    for name in _NOT_OF_STREAMS:
        if given.get(name, getattr(_PLAIN, name)) != getattr(_PLAIN, name):
            raise SettingError(f"a stream has no {_KEYS[name]}", name, "queue_type")
    for name, wrong in _WORDS_NOT_OF_STREAMS.items():
        if given.get(name) in wrong:
            raise SettingError(f"a stream has no {name}: {given[name]}", name, "queue_type")
    if given.get("overflow", "ring") != "ring":
        raise SettingError("a stream has no overflow but ring: its oldest messages go", "overflow")


def _check_last_value(words: Mapping[str, object]) -> None:
    """Refuse settings that contradict a last-value queue."""
    if words["priority"] != "none":
        text = "last_value_key and priority can't be combined: the newer value of a key may have another one"
        raise SettingError(text, "last_value_key", "priority")
    if words["message_groups"] != "none":
        text = "last_value_key and message_groups can't be combined: all messages of a group are delivered"
        raise SettingError(text, "last_value_key", "message_groups")
    if words["overflow"] == "page":
        text = "last_value_key and overflow: page can't be combined: values that are replaced are in memory"
        raise SettingError(text, "last_value_key", "overflow")
    if words["last_value_position"] == "kept" and words["durable"]:
        text = (
            "last_value_position: kept needs durable: false: after a restart messages stand in the order in"
            " which they came"
        )
        raise SettingError(text, "last_value_position", "durable")


def _reservable(largest: _Number, stop_bytes: int) -> _Number:
    """Lower the largest message to the threshold: in strict reservation a larger credit is never granted."""
    if stop_bytes == 0 or largest.value <= stop_bytes:
        return largest
    return _Number(stop_bytes, "lowered to flow_stop_size: byte_reservation is strict")


def _plain(name: str, given: Mapping[str, Value], defaults: BrokerDefaults) -> _Number:
    explicit = _int(given, name)
    return (
        _Number(getattr(defaults, name), _default(name, defaults)) if explicit is None else _Number(explicit)
    )


def _int(given: Mapping[str, Value], name: str) -> int | None:
    value = given.get(name)
    assert value is None or isinstance(value, int)
    return value


def _default(name: str, defaults: BrokerDefaults) -> str:
    return defaults.places.get(name, "default")


def _share(threshold: str, percent: int, unit: str, defaults: BrokerDefaults) -> str:
    return f"{_default(threshold, defaults)} ({percent} % of max_{unit})"


def _more(given: Mapping[str, Value], name: str, bound: str) -> list[SettingError]:
    value, limit = _int(given, name), _int(given, bound)
    if not value or not limit or value <= limit:
        return []
    return [SettingError(f"{tell(name, value)} is more than {tell(bound, limit)}", name, bound)]


def tell(name: str, value: Value) -> str:
    """Show a setting and its value as messages do: ``flow_stop_size 80 MB``."""
    return f"{name} {format_size(int(value)) if name.endswith('_size') else show(value)}"
