"""Bridges, routes and channels as somebody defined them: what carries messages on from a node.

Values and their parsers, for the broker's file and for management alike. A route's URL may hold a
password: no text here ever shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit

from broker.config.fields import (
    Count,
    Duration,
    Field,
    Flag,
    NonEmptyText,
    PathType,
    Schema,
    Size,
    Word,
    object_schema,
    parse_items,
)
from broker.config.node import FIELDS as NODE_FIELDS
from broker.units import show

PORTS = {"amqp": 5672, "amqps": 5671}
# The most that one datagram over IPv4 holds (RFC 768, RFC 791): 65,535 bytes less two headers.
LARGEST_DATAGRAM = 65_507
LONGEST_NAME = 200
FILES = ("ca", "certificate", "key")


@dataclass(frozen=True, slots=True)
class BridgeDefinition:
    """From a node into another; ``selector`` empty for all messages. A durable one survives a restart."""

    source: str
    target: str
    selector: str = ""
    durable: bool | None = None


@dataclass(frozen=True, slots=True)
class Remote:
    """Another broker. Printed, it shows neither user nor password."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def url(self) -> str:
        """The URL with its password: for the client alone."""
        if self.user is None:
            return str(self)
        credentials = quote(self.user, "") + ("" if self.password is None else ":" + quote(self.password, ""))
        return str(self).replace("://", f"://{credentials}@", 1)


@dataclass(frozen=True, slots=True)
class RouteDefinition:
    """To (``out``) or from (``in``) a node of another broker; ``limits`` are those of a topic's route."""

    name: str
    remote_broker: Remote
    local: str
    remote: str
    direction: str = "out"
    kind: str = "any"
    durable: bool = True
    window: int = 1000
    retry_min_ms: int = 250
    retry_max_ms: int = 30_000
    idle_timeout_ms: int = 30_000
    limits: Mapping[str, object] = field(default_factory=dict)
    # For amqps://; None: the system's authorities, no certificate of its own.
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class ChannelDefinition:
    """A topic as datagrams to ``host``:``port``, at no more than ``max_rate`` bytes a second."""

    name: str
    topic: str
    host: str
    port: int
    max_rate: int
    ttl: int = 1
    interface: str = ""


@dataclass(frozen=True, slots=True)
class RemoteType:
    """A broker's URL. A faulty one is never shown: it may hold a password."""

    label = "amqp://[user:password@]host[:port]"

    def parse(self, value: object) -> Remote:
        wanted = "expected something like amqp://user:password@host:5672"
        try:
            parts = urlsplit(value) if isinstance(value, str) else None
            if parts is None or parts.scheme not in PORTS or not parts.hostname:
                raise ValueError
            port = parts.port
            if parts.path.strip("/") or parts.query or parts.fragment:
                raise ValueError
        except ValueError:
            raise ValueError(wanted) from None
        return Remote(
            parts.scheme,
            parts.hostname,
            PORTS[parts.scheme] if port is None else port,
            None if parts.username is None else unquote(parts.username),
            None if parts.password is None else unquote(parts.password),
        )

    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^amqps?://"}


@dataclass(frozen=True, slots=True)
class DestinationType:
    """Where datagrams go: a numeric address and a port."""

    label = "address:port"

    def parse(self, value: object) -> tuple[str, int]:
        text = value if isinstance(value, str) else ""
        host, _, port = text.rpartition(":")
        try:
            address = ip_address(host.strip("[]"))
        except ValueError:
            raise ValueError(
                f"expected an IP address and a port such as 239.1.2.3:5000, not {show(value)}"
            ) from None
        if not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"expected a port from 1 to 65535, not {show(port)}")
        return str(address), int(port)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^(\[[0-9A-Fa-f:.]+\]|[0-9.]+):[0-9]{1,5}$"}


@dataclass(frozen=True, slots=True)
class InterfaceType:
    """The address of one of this machine's interfaces."""

    label = "address"

    def parse(self, value: object) -> str:
        try:
            return str(ip_address(value)) if isinstance(value, str) else ""
        except ValueError:
            raise ValueError(f"expected the IP address of an interface, not {show(value)}") from None

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


_NAME = NonEmptyText(LONGEST_NAME)
_LIMIT = "a topic's route: as for any subscription"

BRIDGE_FIELDS = (
    Field("from", _NAME, "required", "The node whose messages are copied"),
    Field("to", _NAME, "required", "The node that gets the copies"),
    Field("selector", NonEmptyText(), "none: all messages", "Only messages that it selects"),
)
ROUTE_FIELDS = (
    Field("name", _NAME, "required", "What it is called, here and as the client it is to both brokers"),
    Field("url", RemoteType(), "required", "The other broker"),
    Field(
        "direction", Word(("out", "in")), "out", "out: messages go to the other broker; in: they come from it"
    ),
    Field(
        "address", _NAME, "required, or local and remote", "The node here and there, where both bear one name"
    ),
    Field("local", _NAME, "address", "The node here"),
    Field("remote", _NAME, "address", "The node there"),
    Field("remote_kind", Word(("any", "queue", "topic")), "any", "What the other broker is told the node is"),
    Field(
        "remote_durable",
        Flag(),
        "true",
        "Whether the node there, or the subscription of a topic there, is to last",
    ),
    Field("window", Count(1, 100_000), "1000", "Most messages under way"),
    Field("retry_min", Duration(1), "250 ms", "The first pause after a failure; the next ones double"),
    Field("retry_max", Duration(1), "30 s", "The longest pause"),
    Field(
        "idle_timeout",
        Duration(),
        "30 s",
        "The other broker is given up after this long without a sign; 0: never",
    ),
    Field(
        "ca", PathType(), "the system's", "amqps://: PEM file of who may sign the other broker's certificate"
    ),
    Field(
        "certificate", PathType(), "none", "amqps://: PEM file of a certificate to show to the other broker"
    ),
    Field("key", PathType(), "the certificate's file", "PEM file of its key"),
    *(
        Field(name, NODE_FIELDS[name].type, "the topic's", _LIMIT)
        for name in (
            *("max_count", "max_size"),
            *("flow_stop_count", "flow_resume_count", "flow_stop_size", "flow_resume_size"),
        )
    ),
    Field("flow_control", Flag(), "the topic's", "a topic's route: false never stops its publishers"),
    Field("overflow", Word(("reject", "ring", "drop_newest", "page")), "the topic's", _LIMIT),
)
LIMITS = tuple(row.name for row in ROUTE_FIELDS[-8:])
CHANNEL_FIELDS = (
    Field("name", _NAME, "required", "What it is called"),
    Field("topic", _NAME, "required", "The topic that is sent out"),
    Field("to", DestinationType(), "required", "Where to: a host's address or a multicast group, and a port"),
    Field("max_rate", Size(1), "required", "Most bytes a second, headers of IP and UDP not counted"),
    Field("ttl", Count(0, 255), "1", "How many routers a datagram to a multicast group may pass"),
    Field("interface", InterfaceType(), "the system's choice", "The address of the interface they leave by"),
)


@dataclass(frozen=True, slots=True)
class BridgeType:
    """One item of ``bridges``."""

    label = "bridge"

    def parse(self, value: object) -> BridgeDefinition:
        given = _given(value, BRIDGE_FIELDS, ("from", "to"))
        return BridgeDefinition(str(given["from"]), str(given["to"]), str(given.get("selector", "")), False)

    def schema(self) -> Schema:
        return object_schema(BRIDGE_FIELDS) | {"required": ["from", "to"]}


@dataclass(frozen=True, slots=True)
class RouteType:
    """One item of ``routes``."""

    label = "route"

    def parse(self, value: object) -> RouteDefinition:
        given = _given(value, ROUTE_FIELDS, ("name", "url"))
        address = given.get("address", "")
        local, remote = given.get("local", address), given.get("remote", address)
        if not local or not remote:
            raise ValueError("needs an 'address', or 'local' and 'remote'")
        limits = {key: given[key] for key in LIMITS if key in given}
        if limits and given.get("direction") == "in":
            raise ValueError(f"{next(iter(limits))} is for routes out; coming in, the node's own limits hold")
        timed = {
            f"{key}_ms": given[key] for key in ("retry_min", "retry_max", "idle_timeout") if key in given
        }
        plain: dict[str, Any] = {key: given[key] for key in ("direction", "window", *FILES) if key in given}
        scheme = cast("Remote", given["url"]).scheme
        if scheme != "amqps" and any(key in given for key in FILES):
            raise ValueError(
                f"{', '.join(FILES)} are for amqps://; {scheme}:// shows and checks no certificate"
            )
        names = {"name": given["name"], "remote_broker": given["url"], "local": local, "remote": remote}
        kind = given.get("remote_kind", "any")
        lasts = given.get("remote_durable", True)
        words: dict[str, Any] = names | {"durable": lasts}
        words |= timed
        words |= plain
        found = RouteDefinition(**words, kind=str(kind), limits=limits)
        if found.retry_min_ms > found.retry_max_ms:
            if "retry_min" in given and "retry_max" in given:
                raise ValueError("retry_min is more than retry_max")
            # One that nobody set gives way.
            pause_ms = found.retry_min_ms if "retry_min" in given else found.retry_max_ms
            return replace(found, retry_min_ms=pause_ms, retry_max_ms=pause_ms)
        return found

    def schema(self) -> Schema:
        return object_schema(ROUTE_FIELDS) | {"required": ["name", "url"]}


@dataclass(frozen=True, slots=True)
class ChannelType:
    """One item of ``channels``."""

    label = "channel"

    def parse(self, value: object) -> ChannelDefinition:
        given: dict[str, Any] = _given(value, CHANNEL_FIELDS, ("name", "topic", "to", "max_rate"))
        host, port = given.pop("to")
        return ChannelDefinition(**given, host=host, port=port)

    def schema(self) -> Schema:
        return object_schema(CHANNEL_FIELDS) | {"required": ["name", "topic", "to", "max_rate"]}


def _given(value: object, rows: tuple[Field, ...], required: tuple[str, ...]) -> dict[str, object]:
    """Parse a mapping. ValueError with the first fault, which never shows the whole: URLs have passwords."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping with {', '.join(required)}")
    given = parse_items(value, rows)
    missing = [key for key in required if key not in given]
    if missing:
        raise ValueError(f"{missing[0]!r} is missing")
    return given
