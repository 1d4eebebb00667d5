"""The `cluster` section of the broker's file: the log that several members share, and this member's place.

Values and their parsers; no file is read here, and no host is looked up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from broker.config.fields import Count, Duration, PathType, Schema, Several, row
from broker.config.listeners import AddressType, ListenAddress, Listener, ListenerType
from broker.units import show

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_ENGINE = re.compile(r"(nats|tls)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?", re.ASCII)
REPLICAS = (1, 3, 5)


@dataclass(frozen=True, slots=True)
class ClusterName:
    """A name of letters, digits, ``-`` and ``_``: it is part of subjects and of a stream's name."""

    label = "name"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ValueError(f"expected a name of letters, digits, - and _, not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{_NAME.pattern}$"}


@dataclass(frozen=True, slots=True)
class EngineUrl:
    """``nats://host:port``, or ``tls://host:port``."""

    label = "nats://host:port"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not _ENGINE.fullmatch(value):
            raise ValueError(f"expected a server such as nats://10.0.0.1:4222, not {show(value)}")
        return value.rstrip("/")

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{_ENGINE.pattern}$"}


@dataclass(frozen=True, slots=True)
class ReplicasType:
    """1, 3 or 5."""

    label = "1, 3 or 5"

    def parse(self, value: object) -> int:
        if isinstance(value, bool) or value not in REPLICAS or not isinstance(value, int):
            raise ValueError(f"expected 1, 3 or 5, not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"enum": list(REPLICAS)}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The `cluster` section. Without servers of the log the broker is a single one. Times are in milliseconds."""

    engine: tuple[str, ...] = row(
        Several(EngineUrl()), (), "The NATS servers that keep the cell's log; with them the broker is a member"
    )
    cell: str = row(ClusterName(), "main", "The cell's name; the log's stream is `SLUICE_` and this")
    member: str = row(ClusterName(), "", "This member's name, another one for each", shown="the host's name")
    credentials_file: Path | None = row(
        PathType(), None, "File whose first line is `user:password` for the servers, or a token"
    )
    engine_ca: Path | None = row(PathType(), None, "PEM file: who signs the servers' certificates")
    replicas: int = row(ReplicasType(), 3, "How many servers keep each record of the log")
    ttl: int = row(Duration(500, 600_000), 3_000, "After so long a silence of the owner a standby takes over", shown="3s")
    margin: int = row(
        Duration(10, 60_000), 500, "How much earlier the owner itself stops acting", shown="500ms"
    )
    mark: int = row(Duration(10, 60_000), 500, "How often an idle owner says that it is there", shown="500ms")
    rank: int = row(Count(0, 100), 0, "Standbys of lower ranks take over first, 0.3 s earlier for each")
    listen: ListenAddress = row(
        AddressType(),
        ListenAddress("127.0.0.1", 5680),
        "Where other members pass on the connections of their clients",
        shown="127.0.0.1:5680",
    )
    advertise: ListenAddress | None = row(
        AddressType(), None, "The same as others reach it", shown="`cluster.listen`"
    )
    secret_file: Path | None = row(
        PathType(), None, "File whose first line is the secret by which members know each other"
    )
    addresses: tuple[Listener, ...] = row(
        Several(ListenerType()),
        (),
        "Where clients reach this member, for `failover-server-list`",
        shown="`listeners`",
    )

    @property
    def is_configured(self) -> bool:
        """Whether this broker is a member of a cell."""
        return bool(self.engine)
