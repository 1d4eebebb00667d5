"""Listeners of the broker: hosts, ports and what a client may do there.

Parses and prints addresses; opens no socket and asks no resolver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_address

from broker.config.fields import Schema
from broker.units import show

DEFAULT_PORT = 5672
PORTS = {"amqp": DEFAULT_PORT, "amqps": 5671}

# A host is a name, an IPv4 address, or an IPv6 address in brackets; nothing is the same as 0.0.0.0.
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9._-]*)(:(?P<port>[0-9]{1,5}))?", re.ASCII)
# RFC 6454 §6.2: no path, no slash at the end, no default port.
_ORIGIN = re.compile(r"\*|https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII)
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}"
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?P<address>[^/?#]*)/?(\?allow_plain=(?P<plain>true|false))?")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a port to listen at; port 0 takes a free one."""

    host: str
    port: int
    secure: bool = False

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def url(self) -> str:
        """The address as a browser takes it."""
        return f"{'https' if self.secure else 'http'}://{self}"


@dataclass(frozen=True, slots=True)
class Listener:
    """A port for AMQP. ``allow_plain``: a client may begin without a SASL header. ``secure``: with TLS."""

    host: str
    port: int
    allow_plain: bool
    secure: bool = False

    def __str__(self) -> str:
        return f"{'amqps' if self.secure else 'amqp'}://{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class AddressType:
    """``host:port``, or ``https://host:port``."""

    label = "host:port or https://host:port"

    def parse(self, value: object) -> ListenAddress:
        text = value if isinstance(value, str) else ""
        secure = text.startswith("https://")
        found = _ADDRESS.fullmatch(text.removeprefix("https://" if secure else "http://").removesuffix("/"))
        if found is None or found["port"] is None:
            raise ValueError(f"expected host:port such as 127.0.0.1:8672 or [::1]:8672, not {show(value)}")
        return replace(_address(found, DEFAULT_PORT), secure=secure)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^(https?://)?(\[[^\]]+\]|[A-Za-z0-9._-]*):[0-9]{1,5}/?$"}


@dataclass(frozen=True, slots=True)
class ListenerType:
    """``amqp[s]://host:port``, with ``?allow_plain=`` where the default is not meant."""

    label = "amqp://host:port"

    def parse(self, value: object) -> Listener:
        found = _URL.fullmatch(value) if isinstance(value, str) else None
        address = _ADDRESS.fullmatch(found["address"]) if found is not None else None
        if found is None or address is None or found["scheme"] not in PORTS:
            raise ValueError(
                "expected amqp://host:port such as amqp://127.0.0.1:5672 or amqps://[::1]:5671, "
                f"with ?allow_plain=true or false if need be, not {show(value)}"
            )
        where = _address(address, PORTS[found["scheme"]])
        plain_too = found["plain"] == "true" if found["plain"] else is_loopback(where.host)
        return Listener(where.host, where.port, plain_too, found["scheme"] == "amqps")

    def schema(self) -> Schema:
        address = r"(\[[^\]]+\]|[A-Za-z0-9._-]*)(:[0-9]{1,5})?"
        return {"type": "string", "pattern": f"^amqps?://{address}/?(\\?allow_plain=(true|false))?$"}


@dataclass(frozen=True, slots=True)
class OriginType:
    """``http://host`` or ``https://host``, with a port if need be, as browsers write it; or ``*``, any."""

    label = "origin"

    def parse(self, value: object) -> str:
        text = value.lower() if isinstance(value, str) else value
        if not isinstance(text, str) or not _ORIGIN.fullmatch(text):
            raise ValueError(
                f"expected an origin such as https://console.example.org, or '*', not {show(value)}"
            )
        return text

    def schema(self) -> Schema:
        return {
            "type": "string",
            "pattern": r"^(\*|https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?)$",
        }


class HostName:
    """The name of a virtual host, as clients say it when they open a connection."""

    label = "host name"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(_NAME, value):
            raise ValueError(f"expected the name of a host such as shop or eu.example.org, not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{_NAME}$"}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(found: re.Match[str], default_port: int) -> ListenAddress:
    host = found["host"]
    if host.startswith("["):
        host = host[1:-1]
        _check_ip6(host)
    port = int(found["port"] or default_port)
    if port > 65_535:
        raise ValueError(f"port {port} is beyond 65535")
    return ListenAddress(host or "0.0.0.0", port)  # noqa: S104 — the operator wrote no host


def _check_ip6(host: str) -> None:
    try:
        IPv6Address(host)
    except ValueError:
        raise ValueError(f"{host!r} in brackets is no IPv6 address") from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
