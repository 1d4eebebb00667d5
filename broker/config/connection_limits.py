"""`connection_limits` of the broker's file: most connections of a user, a listener or a virtual host.

Values and their parser; counting is ``amqp/loop/client_quotas.py``'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from broker.config.fields import Count, Field, Schema, object_schema, unknown_key
from broker.config.listeners import AddressType, HostName, ListenerType
from broker.errors import listed
from broker.units import show


@dataclass(frozen=True, slots=True)
class NameType:
    """The name of a user or of a group; ``*`` stands for any number of characters."""

    label = "name"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= 255:
            raise ValueError(f"expected a name, or a pattern with '*', not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": 255}


@dataclass(frozen=True, slots=True)
class PortType:
    """One of ``listeners``, or the port for HTTP with AMQP over WebSocket, as its setting has it."""

    label = "amqp://host:port"

    def parse(self, value: object) -> str:
        if isinstance(value, str) and value.startswith("http"):
            return AddressType().parse(value).url
        return str(ListenerType().parse(value))

    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^(amqps?|https?)://"}


LIMIT_FIELDS = (
    Field("user", NameType(), "", "Each user of that name or pattern"),
    Field("group", NameType(), "", "Each user in such a group"),
    Field("listener", PortType(), "", "All who come by this one of `listeners`, or by HTTP's port"),
    Field("virtual_host", HostName(), "", "All who open to this one of `virtual_hosts`"),
    Field("max_connections", Count(), "required", "Most connections at once; 0: no bound"),
)
_KINDS = ("user", "group", "listener", "virtual_host")


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """At most ``most`` connections of each or all that ``kind`` and ``name`` say; 0 is no bound."""

    kind: str
    name: str
    most: int

    def is_for(self, user: str, groups: Collection[str]) -> bool:
        """Whether it limits the connections of a user."""
        if self.kind == "user":
            return _fits(user, self.name)
        return self.kind == "group" and any(_fits(group, self.name) for group in groups)


class ConnectionLimitType:
    """One item of ``connection_limits``."""

    label = "connection limit"

    def parse(self, value: object) -> ConnectionLimit:
        if not isinstance(value, Mapping):
            raise ValueError(
                f"expected a mapping such as {{user: till, max_connections: 10}}, not {show(value)}"
            )
        rows = {row.name: row for row in LIMIT_FIELDS}
        for key in value:
            if key not in rows:
                raise ValueError(unknown_key(str(key), rows))
        kinds = [kind for kind in _KINDS if kind in value]
        if len(kinds) != 1 or "max_connections" not in value:
            raise ValueError(f"needs max_connections and one of {listed(_KINDS)}")
        [kind] = kinds
        found = {}
        for name in (kind, "max_connections"):
            try:
                found[name] = rows[name].type.parse(value[name])
            except ValueError as fault:
                raise ValueError(f"{name}: {fault}") from None
        most = found["max_connections"]
        assert isinstance(most, int)
        return ConnectionLimit(kind, str(found[kind]), most)

    def schema(self) -> Schema:
        ways: list[Schema] = [{"required": [kind, "max_connections"]} for kind in _KINDS]
        return object_schema(LIMIT_FIELDS) | {"oneOf": ways}


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))
