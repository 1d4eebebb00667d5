"""The words that older systems have for a node's settings, and ours, as the attributes of ``NodeSettings``.

Qpid's declare arguments become our keys (``from_arguments``); every key, EMS's and ActiveMQ's included,
becomes the attributes it sets (``normalise``). Nothing behind this file knows a synonym.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.config.fields import from_text
from broker.config.node import FIELDS, SettingError, read
from broker.config.node_types import Value
from broker.errors import did_you_mean
from broker.units import show

# Declare arguments of Qpid's clients and tools, and the key each of them stands for.
ARGUMENTS = {row.argument: row.name for row in FIELDS.values() if row.argument}

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


@dataclass(frozen=True, slots=True)
class Given:
    """A value someone set, and the key they set it with."""

    value: Value
    key: str


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


def from_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Turn declare arguments, ``qpid.*`` ones and ours alike, into our keys; values may be text.

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
    """Find our key for a declare argument. SettingError if there is none."""
    key = ARGUMENTS.get(argument, argument)
    if key in FIELDS:
        return key
    known = [*ARGUMENTS, *FIELDS]
    raise SettingError(f"unknown argument {argument!r}{did_you_mean(argument, known)}", argument)


def _meaning(key: str, value: object) -> Mapping[str, Any]:
    parsed = read(key, value)
    return FIELDS[key].meaning_of(parsed)


def _is_implied(key: str, name: str, value: Value) -> bool:
    """Whether a key only implies this, so that another key that spells it out holds."""
    if key == "flow_control":
        return name == "flow_resume_size"
    return key.startswith("send_fail") and value == "block"


def _rank(key: str, meaning: Mapping[str, Value]) -> int:
    """Order the keys of one source: those that only imply something come last."""
    if not FIELDS[key].is_shorthand:
        return 0
    return 2 if any(_is_implied(key, name, value) for name, value in meaning.items()) else 1


def _argument_value(argument: str, key: str, value: object) -> object:
    if argument == "qpid.policy_type":
        if not isinstance(value, str) or value not in POLICY_TYPES:
            words = ", ".join(["none", *POLICY_TYPES])
            raise SettingError(f"qpid.policy_type: expected one of {words}, not {show(value)}", argument)
        return POLICY_TYPES[str(value)]
    if isinstance(value, str):
        return from_text(FIELDS[key].type, value)
    return value
