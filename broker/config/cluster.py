"""The `cluster` section of the broker's file: this member, the engine that keeps the log, and who may relay.

Values, their parsers and what contradicts itself; no file is read here, but to check the secret's.
"""

from __future__ import annotations

import re
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from broker.config.fields import Count, Duration, NonEmptyText, PathType, Schema, Several, Size, row
from broker.config.listeners import AddressType, ListenAddress, ListenerType, is_loopback
from broker.config.sources import SetValue
from broker.errors import OperatorError, Problem
from broker.units import MB, format_duration, show

ENGINE_PORT = 4222
REPLICAS = (1, 3, 5)
# Each trimming appends what is live anew.
SMALLEST_LOG = 16 * MB
# A secret of fewer bytes can be guessed from one header that somebody has seen.
FEWEST_SECRET_BYTES = 16

_NAME = r"[A-Za-z0-9_-]{1,64}"
_ENGINE = re.compile(
    r"(?P<scheme>nats|tls)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?/?", re.ASCII
)
_MONITOR = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?", re.ASCII)
_CLIENT_URL = re.compile(r"amqps?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterName:
    """A name that may stand in a subject of the engine and in the name of a stream."""

    label = "name"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(_NAME, value, re.ASCII):
            raise ValueError(f"expected letters, digits, '-' and '_', 64 at most, not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{_NAME}$"}


@dataclass(frozen=True, slots=True)
class EngineUrl:
    """The address of one server of the engine. ``secure``: TLS from the first byte that both agree on."""

    host: str
    port: int
    secure: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.secure else 'nats'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EngineUrlType:
    """``nats://host:port``, or ``tls://host:port``."""

    label = "nats://host:port"

    def parse(self, value: object) -> EngineUrl:
        found = _ENGINE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(
                f"expected nats://host:port or tls://host:port, without user or password, not {show(value)}"
            )
        port = int(found["port"] or ENGINE_PORT)
        if not 0 < port <= 65_535:
            raise ValueError(f"port {port} is none")
        return EngineUrl(found["host"].strip("[]"), port, found["scheme"] == "tls")

    def schema(self) -> Schema:
        return {
            "type": "string",
            "pattern": r"^(nats|tls)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?$",
        }


@dataclass(frozen=True, slots=True)
class MonitorUrlType:
    """``http://host:port`` of a server's monitoring."""

    label = "http://host:port"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not _MONITOR.fullmatch(value):
            raise ValueError(f"expected http://host:port such as http://10.0.0.1:8222, not {show(value)}")
        return value.rstrip("/")

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{_MONITOR.pattern}$"}


@dataclass(frozen=True, slots=True)
class ReplicasType:
    """1, 3 or 5."""

    label = "1, 3 or 5"

    def parse(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value not in REPLICAS:
            raise ValueError(f"expected 1, 3 or 5, not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"enum": list(REPLICAS)}


@dataclass(frozen=True, slots=True)
class MemberAddressType:
    """``host:port`` of the port that other members connect to."""

    label = "host:port"

    def parse(self, value: object) -> ListenAddress:
        if isinstance(value, str) and "://" in value:
            raise ValueError(f"expected host:port such as 10.0.0.1:5680, not {show(value)}")
        return AddressType().parse(value)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^(\[[^\]]+\]|[A-Za-z0-9._-]*):[0-9]{1,5}$"}


@dataclass(frozen=True, slots=True)
class ClientAddressType:
    """``amqp[s]://host:port`` as clients connect to it."""

    label = "amqp://host:port"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not _CLIENT_URL.fullmatch(value):
            raise ValueError(f"expected amqp://host:port or amqps://host:port, not {show(value)}")
        return str(ListenerType().parse(value))

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^amqps?://(\[[^\]]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?$"}


DEFAULT_MEMBER_PORT = ListenAddress("127.0.0.1", 5680)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The `cluster` section. Without ``engine`` there is no cluster."""

    cell: str = row(ClusterName(), "main", "The cell's name; its log is the stream `SLUICE_<cell>`")
    member: str = row(
        ClusterName(), "", "This member's name, which no other one has", shown="the host's name"
    )
    engine: tuple[EngineUrl, ...] = row(
        Several(EngineUrlType(), 1),
        (),
        "Servers of NATS JetStream, which keeps the replicated log; without them there is no cluster",
    )
    engine_user: str = row(NonEmptyText(255), "", "The user of the engine that members log in as")
    engine_password_file: Path | None = row(
        PathType(), None, "File whose first line is that user's password at the engine"
    )
    engine_token_file: Path | None = row(
        PathType(), None, "File whose first line is a token for the engine, in place of a user"
    )
    engine_tls_ca: Path | None = row(
        PathType(), None, "PEM file: who signs the engine's certificates", shown="the system's"
    )
    engine_monitors: tuple[str, ...] = row(
        Several(MonitorUrlType()),
        (),
        "The servers' monitoring, where a member sees whether they sync each record, and warns if not",
    )
    replicas: int = row(ReplicasType(), 3, "On how many servers of the engine the log is kept")
    log_size: int = row(
        Size(SMALLEST_LOG),
        256 * MB,
        "The owner trims the log once it is longer than twice what is live and this; its disks need more than"
        " that, for what comes meanwhile. Half of it stays, or less that came within the last four minutes",
    )
    ttl_ms: int = row(
        Duration(500, 600_000), 3000, "The owner is given up when the log has been silent for so long"
    )
    margin_ms: int = row(
        Duration(10, 600_000), 500, "So much earlier the owner itself stops to act, for clocks and delays"
    )
    mark_ms: int = row(
        Duration(10, 600_000), 500, "An owner that has nothing to write appends a mark so often"
    )
    rank: int = row(Count(0, 100), 0, "The lower, the sooner this member takes over: 0.3 s later for each")
    rebalance_ms: int = row(
        Duration(0, 86_400_000),
        60_000,
        "With several cells: a member that has been there for so long is given cells by one that has two more"
        " than it; 0: never",
    )
    listen: ListenAddress = row(
        MemberAddressType(),
        DEFAULT_MEMBER_PORT,
        "Where clients come in that other members relay; with several cells the first of as many ports, one"
        " for each cell",
        shown="127.0.0.1:5680",
    )
    advertise: ListenAddress | None = row(
        MemberAddressType(), None, "Where other members connect to for that", shown="`cluster.listen`"
    )
    secret_file: Path | None = row(
        PathType(), None, "File with the secret by which members know each other; the same on all of them"
    )
    addresses: tuple[str, ...] = row(
        Several(ClientAddressType()),
        (),
        "Where clients reach this member, as told to clients in `failover-server-list`",
        shown="those of `listeners`",
    )

    @property
    def is_configured(self) -> bool:
        """Whether this broker is a member of a cluster."""
        return bool(self.engine)

    @property
    def name(self) -> str:
        """This member's name: the one that is set, or the host's."""
        return self.member or re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:64]

    @property
    def advertised(self) -> ListenAddress:
        """Where other members connect to."""
        return self.advertise or self.listen

    def of_cell(self, number: int) -> Cluster:
        """Return the section as one of several cells has it: a log and a port for members of its own."""
        return replace(
            self,
            cell=self.log_of(number),
            listen=_further(self.listen, number),
            advertise=None if self.advertise is None else _further(self.advertise, number),
        )

    def log_of(self, number: int) -> str:
        """Return the name under which one of several cells has its log."""
        return f"{self.cell}-{number}"

    @property
    def table_log(self) -> str:
        """The name under which several cells have the log of their directory."""
        return f"{self.cell}-cells"

    def secret(self) -> bytes:
        """Read the members' secret; empty where none is set. OperatorError if the file isn't fit for it."""
        return b"" if self.secret_file is None else read_secret(self.secret_file)


def _further(address: ListenAddress, number: int) -> ListenAddress:
    return replace(address, port=address.port + number)


def is_client_address(url: str) -> bool:
    """Return whether this is an address such as `cluster.addresses` has."""
    return _CLIENT_URL.fullmatch(url) is not None


def read_secret(path: Path) -> bytes:
    """Read a secret from a file that its owner, and perhaps its group, may read. OperatorError if not."""
    try:
        mode = path.stat().st_mode
        found = path.read_bytes().strip()
    except OSError as fault:
        raise OperatorError(f"cluster.secret_file: {path}: {fault.strerror or fault}") from fault
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise OperatorError(f"cluster.secret_file: {path}: everybody may read or write it; chmod 600 it")
    if len(found) < FEWEST_SECRET_BYTES:
        text = f"needs {FEWEST_SECRET_BYTES} bytes at least and has {len(found)}"
        raise OperatorError(f"cluster.secret_file: {path}: {text}")
    return found


def contradictions(found: Mapping[str, SetValue]) -> list[Problem]:
    """Find settings of the section that don't go together."""
    mine = {name: item for name, item in found.items() if name.startswith("cluster.")}
    if not mine:
        return []
    engine = mine.get("cluster.engine")
    if engine is None:
        first = next(iter(mine.values()))
        return [first.place.problem("cluster needs engine: the servers that keep its log")]
    return _of_times(mine) + _of_secret(mine) + _of_login(mine)


def _of_times(mine: Mapping[str, SetValue]) -> list[Problem]:
    usual = Cluster()
    ttl_ms = _ms(mine, "ttl", usual.ttl_ms)
    margin_ms, mark_ms = _ms(mine, "margin", usual.margin_ms), _ms(mine, "mark", usual.mark_ms)
    if ttl_ms > margin_ms + 2 * mark_ms:
        return []
    blamed = next(mine[f"cluster.{key}"] for key in ("ttl", "margin", "mark") if f"cluster.{key}" in mine)
    shown = [format_duration(each) for each in (ttl_ms, margin_ms, mark_ms)]
    text = f"ttl {shown[0]} must be more than margin {shown[1]} and twice mark {shown[2]}"
    return [blamed.place.problem(text)]


def _of_secret(mine: Mapping[str, SetValue]) -> list[Problem]:
    """Find a member port that others can reach, where anybody could say who its clients are."""
    if "cluster.secret_file" in mine:
        return []
    for name in ("cluster.listen", "cluster.advertise"):
        found = mine.get(name)
        address = None if found is None else cast("ListenAddress", found.value)
        if found is not None and address is not None and not is_loopback(address.host):
            return [found.place.problem(f"{name} {address}: others can reach it, so secret_file is needed")]
    return []


def _of_login(mine: Mapping[str, SetValue]) -> list[Problem]:
    user, password = mine.get("cluster.engine_user"), mine.get("cluster.engine_password_file")
    token = mine.get("cluster.engine_token_file")
    if token is not None and (user is not None or password is not None):
        return [token.place.problem("engine_token_file stands in place of engine_user: give one of them")]
    if (user is None) == (password is None):
        return []
    alone = cast("SetValue", user or password)
    return [alone.place.problem("engine_user and engine_password_file go together")]


def _ms(mine: Mapping[str, SetValue], key: str, usual: int) -> int:
    found = mine.get(f"cluster.{key}")
    return usual if found is None else cast("int", found.value)


def check_cluster(cluster: Cluster) -> list[str]:
    """Read what the section names; the warnings. OperatorError if a file can't be read or is open to all."""
    if not cluster.is_configured:
        return []
    cluster.secret()
    for key, path in (
        ("engine_password_file", cluster.engine_password_file),
        ("engine_token_file", cluster.engine_token_file),
        ("engine_tls_ca", cluster.engine_tls_ca),
    ):
        if path is not None:
            _check_readable(key, path)
    found = []
    if cluster.replicas == 1:
        found.append("cluster.replicas is 1: the log is on one server, and lost with its disk")
    if len(cluster.engine) < cluster.replicas:
        found.append(
            f"cluster.engine names {len(cluster.engine)} of at least {cluster.replicas} servers: if those are"
            " down when a member starts, it doesn't find the others"
        )
    return found


def _check_readable(key: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as fault:
        raise OperatorError(f"cluster.{key}: {path}: {fault.strerror or fault}") from fault
