"""Where a broker is: ``amqp://[user[:password]@]host[:port]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from urllib.parse import unquote, urlsplit

from broker.errors import OperatorError

DEFAULT = "amqp://127.0.0.1:5672"
PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """A parsed broker address; ``user`` is None for ANONYMOUS."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The address without its password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def without_login(text: str) -> str:
    """An address, or what was meant as one, without what may be a user and a password in it."""
    scheme, separator, rest = text.rpartition("://") if "://" in text else ("", "", text)
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def parse(text: str) -> BrokerUrl:
    """Reads a broker's address; the scheme may be left out. Raises OperatorError."""
    try:
        parts = urlsplit(text if "://" in text else f"amqp://{text}")
        port = parts.port
    except ValueError as error:
        # What is wrong is shown with the piece where it stands, which may be of a password.
        why = f"expected something like {DEFAULT}" if "@" in text else str(error)
        raise OperatorError(f"{without_login(text)!r} is no broker address: {why}") from None
    host = parts.hostname
    if parts.scheme not in PORTS or not host or not _is_host(host) or parts.path.strip("/"):
        raise OperatorError(
            f"{without_login(text)!r} is no broker address; expected something like {DEFAULT}"
        )
    return BrokerUrl(
        parts.scheme,
        host,
        PORTS[parts.scheme] if port is None else port,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )


def _is_host(name: str) -> bool:
    """Whether it can be a host's name or address: what ``urlsplit`` leaves of strange brackets can't."""
    if re.search(r"[\[\]@\x00-\x20\x7f]", name):
        return False
    try:
        return ":" not in name or bool(IPv6Address(name))
    except ValueError:
        return False
