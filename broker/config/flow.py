"""The `flow` section of the broker's file: defaults of nodes, and bounds of a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker.config.fields import Count, Flag, Percent, Size, row
from broker.config.node import (
    DEAD_LETTERS,
    FIELDS,
    MAX_SIZE,
    RESUME_PERCENT,
    STOP_PERCENT,
    NodeSettings,
)

_PLAIN = NodeSettings()
# Why a node has no place of dead letters by default: ``BrokerDefaults.without_letters``.
TAKES_DEAD_LETTERS = "dead letters come here"


def _of_node(name: str, meaning: str = "") -> Any:
    """Make a row from that of a node: the broker's file gives the default of the same setting."""
    of_node = FIELDS[name]
    return row(of_node.type, getattr(_PLAIN, name), meaning or of_node.meaning)


@dataclass(frozen=True, slots=True)
class BrokerDefaults:
    """Settings of nodes that say nothing themselves. Percentages are of the hard limit; sizes in bytes.

    ``places`` names the line that set each of them, for those that someone set. An
    ``auto_…_consumer_flow_limit`` of None is the same as ``consumer_flow_limit``. ``dead_letter_address`` is
    where dead letters go that nobody named a place for; empty for nowhere.
    """

    flow_control: bool = row(Flag(), True, "false enforces no threshold on any node")
    default_flow_stop_threshold: int = row(
        Percent(),
        STOP_PERCENT,
        "Default stop threshold, of the hard limit; 0 together with the next: no defaults",
    )
    default_flow_resume_threshold: int = row(Percent(), RESUME_PERCENT, "Default resume threshold, likewise")
    max_size: int = row(Size(), MAX_SIZE, "Default hard limit of a node; 0 means none")
    producer_window: int = _of_node("producer_window")
    initial_credit: int = _of_node("initial_credit")
    consumer_flow_limit: int = _of_node(
        "consumer_flow_limit", "Most unsettled messages of a consumer link; 0: none"
    )
    consumer_flow_threshold: int = _of_node(
        "consumer_flow_threshold", "A full window reopens at this share of it"
    )
    consumer_flow_min: int = _of_node("consumer_flow_min", "Smallest window of dispatch: adaptive")
    auto_queue_consumer_flow_limit: int | None = row(
        Count(), None, "The same of queues that clients make by using them", shown="consumer_flow_limit"
    )
    auto_topic_consumer_flow_limit: int | None = row(
        Count(), None, "The same of topics that clients make by using them", shown="consumer_flow_limit"
    )
    max_message_size: int = _PLAIN.max_message_size
    dead_letter_address: str = DEAD_LETTERS
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def of_auto_created(self, kind: str) -> BrokerDefaults:
        """Make those of a node of this kind that a client's attach or message creates, and no operator."""
        name = f"auto_{kind}_consumer_flow_limit"
        limit: int | None = getattr(self, name)
        if limit is None:
            return self
        place = self.places.get(name, f"default of {name}")
        return replace(self, consumer_flow_limit=limit, places={**self.places, "consumer_flow_limit": place})

    def takes_letters(self) -> bool:
        """Return whether these are the defaults of a node that dead letters come to."""
        return self.places.get("dead_letter_address") == f"default (none: {TAKES_DEAD_LETTERS})"

    def without_letters(self, reason: str) -> BrokerDefaults:
        """Make those of a node whose failed messages stay where they are."""
        places = {**self.places, "dead_letter_address": f"default (none: {reason})"}
        return replace(self, dead_letter_address="", places=places)


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Flow control as the broker's file sets it."""

    defaults: BrokerDefaults = field(default_factory=BrokerDefaults)
    connection_flow_limit: int = row(Count(1), 1000, "Most unsettled messages of one connection")
    connection_flow_limit_enabled: bool = row(Flag(), False, "Whether that limit holds")
    connection_memory_limit: int = row(
        Size(),
        0,
        "Message bytes that all producers of one connection may have promised or parked; 0 means none",
        shown="none",
    )


def flow_settings(
    defaults: Mapping[str, Any], of_connections: Mapping[str, Any], places: Mapping[str, str]
) -> FlowSettings:
    """Make the settings of flow control from the attributes that somebody set.

    A threshold nobody set gives way to one that somebody did (FLOW §2, rule 1).
    """
    given = dict(defaults)
    _give_way(given, "default_flow_resume_threshold", "default_flow_stop_threshold")
    _give_way(given, "initial_credit", "producer_window")
    return FlowSettings(BrokerDefaults(**given, places=places), **of_connections)


def _give_way(given: dict[str, Any], lower: str, upper: str) -> None:
    """Where one of a pair is set, clamp the default of the other."""
    clamp = min if upper in given else max
    told, default = (upper, lower) if upper in given else (lower, upper)
    if told in given and default not in given:
        given[default] = clamp(given[told], getattr(_DEFAULTS, default))


_DEFAULTS = BrokerDefaults()
