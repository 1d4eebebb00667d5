"""Settings that an attach brings for the node it has made: Qpid's arguments among the terminus' properties.

qpid::messaging sends those of ``x-declare`` as ``dynamic-node-properties``, of dynamic nodes and of others
that the attach creates (AMQP 1.0 §3.5.3 knows them for dynamic ones alone). Nothing here makes a node.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from proton import Terminus, symbol, ulong

from broker.amqp.control.decoding import first_of
from broker.config.node import NodeSettings, SettingError, normalise
from broker.config.synonyms import ARGUMENTS, PASSED_OVER, POLICY_TYPES, from_arguments
from broker.errors import PeerError
from broker.loggers import About

PREFIX = "qpid."
DURABLE = "durable"

# Qpid's word for what happens at the hard limit, where it has one.
_POLICY_TYPE = {ours: theirs for theirs, ours in reversed(POLICY_TYPES.items())}

log = logging.getLogger("sluice.amqp")


def asked_of(terminus: Terminus, role: str, told: About) -> dict[str, object]:
    """The settings that an attach asks for by its source or target, the ``role``; ``told`` is who asks.

    PeerError where one is no setting or has no such value; one of Qpid's that only advises is passed over.
    """
    asked: dict[str, object] = {}
    for key, value in _properties(terminus).items():
        name = str(key)
        if name in PASSED_OVER:
            text = "%s of a %s's dynamic-node-properties is passed over: it is not available"
            log.warning(text, name, role, extra=told)
        elif name == DURABLE or name.startswith(PREFIX):
            asked[name] = _plain(value)
    try:
        normalise(from_arguments(asked))
    except SettingError as fault:
        text = f"dynamic-node-properties of the {role}: {fault}"
        raise PeerError("amqp:invalid-field", text) from fault
    return asked


def answer_of(terminus: Terminus, settings: NodeSettings) -> dict[Any, Any]:
    """Return the settings that hold at the node, under the names they were asked for by."""
    asked = [name for name in map(str, _properties(terminus)) if name == DURABLE or name in ARGUMENTS]
    return {symbol(name): _shown(name, settings) for name in asked}


def tell_settings(ours: Terminus, theirs: Terminus, settings: NodeSettings) -> None:
    """Say in our terminus which of the settings that theirs asks for hold at the node."""
    tell(ours, answer_of(theirs, settings))


def tell(terminus: Terminus, properties: Mapping[Any, Any]) -> None:
    """Say it in our terminus, beside what is said there of a dynamic node."""
    if properties:
        said = first_of(terminus.properties)
        terminus.properties.clear()
        terminus.properties.put_object({**(said if isinstance(said, dict) else {}), **properties})


def _shown(name: str, settings: NodeSettings) -> object:
    value = getattr(settings, ARGUMENTS.get(name, name))
    if isinstance(value, bool):
        return value
    return ulong(value) if isinstance(value, int) else _POLICY_TYPE.get(value, value)


def _plain(value: object) -> object:
    """The value without the AMQP type it came in, as it is stored."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    return str(value) if isinstance(value, str) else value


def _properties(terminus: Terminus) -> dict[Any, Any]:
    found = first_of(terminus.properties)
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(key, str)}
