"""Qpid's words for a node's settings: the arguments of a declaration, under our keys.

EMS's and ActiveMQ's words are keys of their own in the table of ``broker.config.node``.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.config.fields import from_text
from broker.config.node import FIELDS, SettingError
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

# Settings that only a policy may have: all cells read the same policies, and a node's arguments are in one.
OF_POLICIES = frozenset({"cell"})

# Qpid's words for a queue that is full; `none` leaves it to the broker.
POLICY_TYPES = {
    "reject": "reject",
    "ring": "ring",
    "ring_strict": "ring",
    "ring-strict": "ring",
    "flow_to_disk": "page",
    "flow-to-disk": "page",
}


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
    if key in OF_POLICIES:
        raise SettingError(f"{key}: only a policy can say this, for all cells read the same ones", argument)
    if key in FIELDS:
        return key
    known = [*ARGUMENTS, *FIELDS.keys() - OF_POLICIES]
    raise SettingError(f"unknown argument {argument!r}{did_you_mean(argument, known)}", argument)


def _argument_value(argument: str, key: str, value: object) -> object:
    if argument == "qpid.policy_type":
        if not isinstance(value, str) or value not in POLICY_TYPES:
            words = ", ".join(["none", *POLICY_TYPES])
            raise SettingError(f"qpid.policy_type: expected one of {words}, not {show(value)}", argument)
        return POLICY_TYPES[str(value)]
    if isinstance(value, str):
        return from_text(FIELDS[key].type, value)
    return value
