"""Where a broker is: ``amqp://[user[:password]@]host[:port]``."""

from __future__ import annotations

from dataclasses import dataclass
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
    password: str | None = None

    def __str__(self) -> str:
        """The address without its password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse(text: str) -> BrokerUrl:
    """Reads a broker's address; the scheme may be left out. Raises OperatorError."""
    try:
        parts = urlsplit(text if "://" in text else f"amqp://{text}")
        port = parts.port
    except ValueError as error:
        raise OperatorError(f"{text!r} is no broker address: {error}") from error
    if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/"):
        raise OperatorError(f"{text!r} is no broker address; expected something like {DEFAULT}")
    return BrokerUrl(
        parts.scheme,
        parts.hostname,
        PORTS[parts.scheme] if port is None else port,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )
