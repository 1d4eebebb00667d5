"""Addresses as clients write them: which node they mean, of which kind, in which virtual host.

Addresses that worked with other brokers work: `queue://orders` and `topic://news` (ActiveMQ), `/orders`.
A node of a virtual host has the host's name in front of its own, `shop/orders`. `flights::billing` is the
reader `billing` of the stream `flights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KINDS = {"queue://": "queue", "topic://": "topic"}
# Capabilities of a terminus, and the kind each of them asks for (Qpid JMS, Artemis).
CAPABILITIES = {
    "queue": "queue",
    "topic": "topic",
    "temporary-queue": "queue",
    "temporary-topic": "topic",
}
READER_MARK = "::"
SHARED = "shared"
GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class Address:
    """A node's name and the kind the address itself says, empty if it says none."""

    name: str
    kind: str = ""


def parsed(text: str) -> Address:
    """An address as a client writes it; what starts with `$` is the broker's own and taken as it is."""
    for prefix, kind in KINDS.items():
        if text.startswith(prefix):
            return Address(text.removeprefix(prefix), kind)
    return Address(text[1:] if text.startswith("/") and len(text) > 1 else text)


def kind_of(capabilities: Sequence[str]) -> str:
    """The kind the first capability that names one asks for; empty for none."""
    return next((CAPABILITIES[each] for each in capabilities if each in CAPABILITIES), "")


def as_topic(capabilities: Sequence[str]) -> list[str]:
    """Return the capabilities that a receiver which asked for these is told: its links get every message."""
    kept = [each for each in capabilities if CAPABILITIES.get(each) != "queue"]
    return kept if kind_of(kept) else [*kept, "topic"]


def inside(host: str, name: str) -> str:
    """The name, in the broker, of a node that a virtual host's client calls so; the default host is ''."""
    return f"{host}/{name}" if host and not name.startswith("$") else name


def outside(host: str, name: str) -> str:
    """Return the name by which a client of a virtual host calls that node."""
    return name.removeprefix(f"{host}/") if host else name


def is_foreign(host: str, name: str, hosts: Sequence[str]) -> bool:
    """Whether a name, in the broker, belongs to a virtual host that isn't this one."""
    first, mark, _ = name.partition("/")
    return bool(mark) and first in hosts and first != host
