"""The loggers there are, the levels they may have, and who a line is about.

A line about a peer says which one in a field, so that lines can be counted and bounded by peer.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.errors import did_you_mean, listed
from broker.units import show

LEVELS = ("debug", "info", "warning", "error")
TEXT, JSON = "text", "json"
ROOT = "sluice"
TRACE = "sluice.trace"

LOGGERS = {
    ROOT: "the broker as a whole, and every logger below that has no level of its own",
    "sluice.cluster": "the replicated cell: who owns it, its log, how far a standby has come",
    "sluice.amqp": "connections: opened and closed by whom and why, links refused and detached",
    "sluice.channels": "topics sent out as datagrams",
    "sluice.events": "the file of events and their topic",
    "sluice.flow": "deadlocks",
    "sluice.http": "the HTTP port and AMQP over WebSocket",
    "sluice.http.access": "requests over HTTP by whom: writes and refusals at info, the rest at debug",
    "sluice.management": "requests to $management that could not be answered",
    "sluice.routes": "routes to other brokers: up, down and why",
    "sluice.security": "authentications that could not be worked out",
    "sluice.store": "the disk: what was restored, no room, faults",
    TRACE: "frames of the connections that are traced",
}

# Of lines that peers cause though nobody knows which of them did.
SOMEBODY = "some peer"

About = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """One logger's own level."""

    logger: str
    level: str


class LoggerLevelType:
    """``LOGGER=LEVEL``, for settings."""

    label = "logger=level"

    def parse(self, value: object) -> LoggerLevel:
        logger, equals, level = value.partition("=") if isinstance(value, str) else ("", "", "")
        if not equals:
            raise ValueError(f"expected LOGGER=LEVEL such as sluice.amqp=debug, not {show(value)}")
        return LoggerLevel(known_logger(logger.strip()), known_level(level.strip()))

    def schema(self) -> dict[str, object]:
        loggers = "|".join(name.replace(".", r"\.") for name in LOGGERS)
        return {"type": "string", "pattern": f"^({loggers})=({'|'.join(LEVELS)})$"}


def known_logger(name: str) -> str:
    """The name; ValueError if no logger bears it."""
    if name not in LOGGERS:
        raise ValueError(f"no logger {show(name)}{did_you_mean(name, LOGGERS)}; there are {listed(LOGGERS)}")
    return name


def known_level(name: str) -> str:
    """The level; ValueError if there is none of that name."""
    if name not in LEVELS:
        raise ValueError(f"expected {listed(LEVELS)}, not {show(name)}{did_you_mean(name, LEVELS)}")
    return name


def about(peer: str, **fields: object) -> About:
    """The ``extra`` of a log call about a peer, by its address; the fields stand in JSON lines."""
    return {"fields": {"peer": peer, **fields}}
