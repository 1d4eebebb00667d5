"""The broker's own settings: flags over environment over file, checked as a whole and frozen.

The table ``FIELDS`` is the source of the parser, of the JSON Schema and of the documentation. A dot in
a field's name is a level in the file; in a variable it is an underscore after ``SLUICE_``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from broker.config import fields
from broker.config.connection_limits import ConnectionLimit, ConnectionLimitType
from broker.config.fields import (
    Budget,
    Count,
    Duration,
    Field,
    Flag,
    PathType,
    Percent,
    Schema,
    Several,
    Size,
    Word,
    from_text,
)
from broker.config.forwards import (
    BridgeDefinition,
    BridgeType,
    ChannelDefinition,
    ChannelType,
    NonEmptyText,
    RouteDefinition,
    RouteType,
)
from broker.config.listeners import (
    DEFAULT_PORT,
    AddressType,
    HostName,
    ListenAddress,
    Listener,
    ListenerType,
    OriginType,
)
from broker.config.security import ALGORITHMS, AUTHENTICATED, MECHANISMS, OPEN, Security
from broker.config.thresholds import BrokerDefaults
from broker.config.tls import NONE, OPTIONAL, TLS_FIELDS, Tls
from broker.config.yaml import Block, Items, Node, Scalar, SourcePlace, YamlEntry, plain, read_file
from broker.errors import ConfigError, Problem
from broker.loggers import JSON, LEVELS, TEXT, LoggerLevel, LoggerLevelType
from broker.units import MB

__all__ = [
    "FIELDS",
    "Events",
    "FlowSettings",
    "Limits",
    "ListenAddress",
    "Listener",
    "Metrics",
    "Security",
    "Settings",
    "broker_reference",
    "broker_schema",
    "load_settings",
]

PREFIX = "SLUICE_"
DEFAULT_POLICIES = Path("policies")
DEFAULT_LISTENER = Listener("127.0.0.1", DEFAULT_PORT, allow_plain=True)
DEFAULT_HTTP = ListenAddress("127.0.0.1", 8672)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client, and all of them, may take. 0 milliseconds means never."""

    max_connections: int = 10_000
    max_sessions: int = 1024
    max_links: int = 1024
    max_frame_size: int = 65_536
    max_message_size: int = 100 * MB
    large_message_size: int = MB
    handshake_timeout_ms: int = 10_000
    idle_timeout_ms: int = 60_000
    shutdown_timeout_ms: int = 10_000
    http_requests: int = 100
    http_writes: int = 100
    http_logins: int = 2
    max_connections_per_address: int = 8000
    max_connections_per_user: int = 0
    max_handshakes: int = 1000
    max_nodes_per_user: int = 100_000
    max_backups: int = 20
    max_connection_links: int = 2048
    max_first_frame_size: int = 512
    max_depth: int = 32
    max_elements: int = 10_000
    max_selector_length: int = 8192
    max_selector_depth: int = 64
    max_unsettled: int = 10_000
    max_request_size: int = MB
    max_waiting_requests: int = 256
    control_share: int = 10
    http_share: int = 10
    listen_backlog: int = 1024
    send_timeout_ms: int = 60_000
    max_connections_per_listener: int = 0
    max_connections_per_virtual_host: int = 0


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Flow control as the broker's file sets it."""

    defaults: BrokerDefaults = field(default_factory=BrokerDefaults)
    connection_flow_limit: int = 1000
    connection_flow_limit_enabled: bool = False
    connection_memory_limit: int = 0


@dataclass(frozen=True, slots=True)
class Events:
    """The history of flow: whether there is one, and the file it is written to.

    A ``file`` that is no absolute path is in the data directory.
    """

    enabled: bool = True
    file: Path = Path("events.jsonl")
    max_size: int = 64 * MB
    keep: int = 4
    sample_interval_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Metrics:
    """What has series of its own beside queues, topics and the broker: one each, so they can be many."""

    per_subscription: bool = False
    per_link: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the broker is started with. ``origins`` says where each setting that was set comes from.

    Limits in bytes; None is what the machine has to give, 0 no limit.
    """

    listeners: tuple[Listener, ...] = (DEFAULT_LISTENER,)
    http: ListenAddress = DEFAULT_HTTP
    websocket_origins: tuple[str, ...] = ()
    http_allow_writes: bool = False
    data: Path = Path("data")
    backup_directory: Path | None = None
    memory_limit: int | None = None
    store_limit: int | None = None
    temp_limit: int | None = None
    journal_file_size: int | None = None
    policies: tuple[Path, ...] = ()
    connection_limits: tuple[ConnectionLimit, ...] = ()
    bridges: tuple[BridgeDefinition, ...] = ()
    routes: tuple[RouteDefinition, ...] = ()
    channels: tuple[ChannelDefinition, ...] = ()
    limits: Limits = Limits()
    flow: FlowSettings = field(default_factory=FlowSettings)
    events: Events = Events()
    metrics: Metrics = Metrics()
    security: Security = field(default_factory=Security)
    tls: Tls = field(default_factory=Tls)
    auto_create: bool = True
    virtual_hosts: tuple[str, ...] = ()
    log_level: str = "info"
    log_levels: tuple[LoggerLevel, ...] = ()
    log_format: str = TEXT
    log_lines_per_peer: int = 100
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def backups(self) -> Path:
        """Where backups are made."""
        return self.data / "backups" if self.backup_directory is None else self.backup_directory


_WINDOW = Count(minimum=1, maximum=(1 << 31) - 1)

FIELDS = fields.table(
    Field("listeners", Several(ListenerType(), 1), "amqp://127.0.0.1:5672", "Where AMQP clients connect"),
    Field("http", AddressType(), "127.0.0.1:8672", "Where the console, the API and the metrics are served"),
    Field(
        "websocket_origins",
        Several(OriginType()),
        "none but the broker's own",
        "Web pages that may connect with AMQP over WebSocket; '*': any",
    ),
    Field(
        "http_allow_writes",
        Flag(),
        "false",
        "true: the HTTP API changes things also where it listens on an address that others can reach",
    ),
    Field("data", PathType(), "data", "Directory of everything that survives a restart"),
    Field(
        "backup_directory",
        PathType(),
        "`backups` in the data directory",
        "Where `sluice store backup` makes backups, and nowhere else",
    ),
    Field("memory_limit", Budget(), "40 % of the memory", "Message bytes held in memory; 0: none"),
    Field(
        "store_limit",
        Budget(),
        "80 % of the free disk and its own",
        "Bytes of durable messages on disk; 0: none",
    ),
    Field(
        "temp_limit",
        Budget(),
        "50 % of the free disk",
        "Bytes on disk of messages paged out and of large ones that needn't survive; 0: none",
    ),
    Field("policies", Several(PathType()), "policies, if it exists", "Policy files, or directories of them"),
    Field(
        "connection_limits",
        Several(ConnectionLimitType()),
        "none",
        "Most connections of single users, groups, listeners and virtual hosts",
    ),
    Field("bridges", Several(BridgeType()), "none", "Nodes that are copied into others"),
    Field("routes", Several(RouteType()), "none", "Nodes that are connected with those of other brokers"),
    Field("channels", Several(ChannelType()), "none", "Topics that are sent out as datagrams"),
    Field("auto_create", Flag(), "true", "A node nobody declared is created when a client attaches to it"),
    Field(
        "virtual_hosts",
        Several(HostName()),
        "none",
        "Names a client may open its connection to; each has nodes of its own, other names the common ones",
    ),
    Field("log_level", Word(LEVELS), "info", "The least that is logged"),
    Field("log_levels", Several(LoggerLevelType()), "none", "Levels of single loggers: `sluice.amqp=debug`"),
    Field("log_format", Word((TEXT, JSON)), "text", "How lines are written, on standard error"),
    Field(
        "log_lines_per_peer",
        Count(),
        "100",
        "Most lines about one host within 10 s, and ten times as many about all; 0: no bound",
    ),
    Field("limits.max_connections", Count(1, 1_000_000), "10000", "Most connections at once"),
    Field("limits.max_connections_per_address", Count(), "8000", "The same from one address; 0: no bound"),
    Field("limits.max_connections_per_user", Count(), "0", "The same of one user; 0: no bound"),
    Field("limits.max_connections_per_listener", Count(), "0", "The same at one listener; 0: no bound"),
    Field(
        "limits.max_connections_per_virtual_host",
        Count(),
        "0",
        "The same at one of `virtual_hosts`; 0: no bound",
    ),
    Field(
        "limits.max_handshakes",
        Count(1),
        "1000",
        "Most connections that aren't open yet; for one more the oldest of them goes",
    ),
    Field("limits.listen_backlog", Count(1, 65_535), "1024", "Most connections that wait to be accepted"),
    Field(
        "limits.control_share",
        Percent(),
        "10 %",
        "Share of the loop's time for clients that connect, and for those that send more frames than"
        " messages, while there are messages to move",
    ),
    Field(
        "limits.http_share",
        Percent(),
        "10 %",
        "Share of one processor for the HTTP port, while there are messages to move; 100 %: no bound",
    ),
    Field("limits.max_sessions", Count(1, 65_536), "1024", "Most sessions of one connection"),
    Field("limits.max_links", Count(1, 1_000_000), "1024", "Most links of one session"),
    Field("limits.max_connection_links", Count(1, 1_000_000), "2048", "Most links of one connection"),
    # AMQP 1.0 §2.4.1: until a client has opened, the least that every peer has to take.
    Field(
        "limits.max_first_frame_size", Size(512, 1 << 20), "512 B", "Largest frame before an open, and open"
    ),
    Field("limits.max_depth", Count(4, 128), "32", "How deep values may nest that are decoded here"),
    Field("limits.max_elements", Count(100), "10000", "Most values in one frame, or one request, likewise"),
    Field("limits.max_selector_length", Count(1), "8192", "Most characters of a selector"),
    Field("limits.max_selector_depth", Count(1, 64), "64", "How deep a selector's parentheses may nest"),
    Field(
        "limits.max_unsettled",
        Count(1),
        "10000",
        "Most deliveries of a link that settles second, and never does",
    ),
    Field("limits.max_request_size", Size(4096), "1 MB", "Largest request to $management"),
    Field(
        "limits.max_waiting_requests", Count(1), "256", "Most requests to $management that wait their turn"
    ),
    # AMQP 1.0 §2.7.1: no peer may ask for frames below 512 bytes.
    Field("limits.max_frame_size", Size(512, (1 << 32) - 1), "64 KB", "Largest frame taken in"),
    Field("limits.max_message_size", Size(1), "100 MB", "Largest message, where a node says nothing else"),
    Field(
        "limits.large_message_size",
        Size(4096),
        "1 MB",
        "More than this of one message is not held in memory: its body goes through a file",
    ),
    Field(
        "limits.max_nodes_per_user",
        Count(),
        "100000",
        "Most queues, topics and subscriptions that outlive their link, of one user and still there; 0: no"
        " bound",
    ),
    Field("limits.max_backups", Count(), "20", "Most backups in their directory; 0: no bound"),
    Field("limits.handshake_timeout", Duration(1), "10 s", "How long a client may take until it has opened"),
    Field("limits.idle_timeout", Duration(), "60 s", "A silent client is cut off; 0 means never"),
    Field(
        "limits.send_timeout",
        Duration(),
        "60 s",
        "A client that takes nothing of what is written to it for so long is cut off; 0 means never",
    ),
    Field("limits.shutdown_timeout", Duration(), "10 s", "How long a stop waits for clients"),
    Field("security.acl", PathType(), "none", "The file of rules who may do what; without one, all may all"),
    Field(
        "limits.http_requests",
        Count(0, 1_000_000),
        "100",
        "Requests over HTTP of one address in a second, three times as many at once; others wait",
    ),
    Field(
        "limits.http_writes",
        Count(0, 1_000_000),
        "100",
        "Changes over HTTP that one address may make in a second, ten times as many at once; 0: any number",
    ),
    Field(
        "limits.http_logins",
        Count(0, 1_000_000),
        "2",
        "Logins of the console from one address in a second, ten times as many at once; 0: any number",
    ),
    Field(
        "store.journal_file_size",
        Size(1 << 20, 1 << 30),
        "32 MB, less on a small disk",
        "Size of each file of the journal; about five of them are there, and room for three more",
    ),
    Field(
        "security.users",
        PathType(),
        "none",
        "File of users, which `sluice users` writes; nobody but the user who runs the broker may read it",
    ),
    Field(
        "security.allow_anonymous",
        Flag(),
        "on loopback, while there are neither users nor an issuer",
        "true: whoever reaches the port may come in without saying who it is; false: nobody may",
    ),
    Field(
        "security.mechanisms",
        Several(Word(MECHANISMS), 1),
        "all but SCRAM-SHA-1",
        "The SASL mechanisms that may be offered, each where it makes sense",
    ),
    Field(
        "security.plain_without_tls",
        Flag(),
        "false",
        "true: passwords and tokens are also taken where everybody on the way can read them",
    ),
    Field(
        "security.oauth_issuer", NonEmptyText(1000), "none", "Whose tokens are believed: their claim `iss`"
    ),
    Field(
        "security.oauth_audience",
        Several(NonEmptyText(1000), 1),
        "none",
        "For whom they must have been made: one of these is in their claim `aud`",
    ),
    Field(
        "security.oauth_jwks", NonEmptyText(1000), "none", "The issuer's public keys: a file, or an https URL"
    ),
    Field(
        "security.oauth_algorithms",
        Several(Word(ALGORITHMS), 1),
        "RS256, ES256",
        "How they may be signed",
    ),
    Field("security.oauth_user_claim", NonEmptyText(100), "sub", "The claim that names the user"),
    Field(
        "security.oauth_groups_claim", NonEmptyText(100), "groups", "The claim that names the user's groups"
    ),
    Field(
        "security.free_attempts",
        Count(1, 1000),
        "5",
        "Failed attempts from one address until it has to wait",
    ),
    Field("security.first_pause", Duration(1), "1 s", "How long it then waits; each failure doubles it"),
    Field("security.longest_pause", Duration(), "60 s", "The longest it has to wait; 0: it never has to"),
    Field(
        "security.metrics",
        Word((OPEN, AUTHENTICATED)),
        "authenticated where there are users or an issuer and HTTP is not on loopback",
        "Whether who reads `/metrics` has to say who it is",
    ),
    Field(
        "security.session_idle",
        Duration(1000, 30 * 86_400_000),
        "30 m",
        "A login of the console ends when it was not used for so long",
    ),
    Field(
        "security.session_lifetime",
        Duration(1000, 30 * 86_400_000),
        "12 h",
        "A login of the console ends after so long, used or not",
    ),
    Field("events.enabled", Flag(), "true", "false: no events, no file and no topic of them"),
    Field(
        "events.file", PathType(), "events.jsonl", "Where events are written, seen from the data directory"
    ),
    Field("events.max_size", Size(4096), "64 MB", "A file that is larger makes room for a new one"),
    Field("events.keep", Count(0, 1000), "4", "Older files that are kept"),
    Field(
        "events.sample_interval", Duration(100), "1 s", "How often nodes whose numbers changed are sampled"
    ),
    Field("metrics.per_subscription", Flag(), "false", "Series of every single subscription of a topic"),
    Field("metrics.per_link", Flag(), "false", "Series of every single producer and consumer link"),
    *TLS_FIELDS,
    Field("flow.flow_control", Flag(), "true", "false enforces no threshold on any node"),
    Field(
        "flow.default_flow_stop_threshold",
        Percent(),
        "80 %",
        "Default stop threshold, of the hard limit; 0 together with the next: no defaults",
    ),
    Field("flow.default_flow_resume_threshold", Percent(), "70 %", "Default resume threshold, likewise"),
    Field("flow.max_size", Size(), "100 MB", "Default hard limit of a node; 0 means none"),
    Field("flow.producer_window", _WINDOW, "1000", "Most credit one producer link may hold"),
    Field("flow.initial_credit", _WINDOW, "100", "First credit of a producer link"),
    Field("flow.consumer_flow_limit", Count(), "1000", "Most unsettled messages of a consumer link; 0: none"),
    Field("flow.consumer_flow_threshold", Percent(), "50 %", "A full window reopens at this share of it"),
    Field("flow.consumer_flow_min", Count(1), "10", "Smallest window of dispatch: adaptive"),
    Field(
        "flow.auto_queue_consumer_flow_limit",
        Count(),
        "consumer_flow_limit",
        "The same of queues that clients make by using them",
    ),
    Field(
        "flow.auto_topic_consumer_flow_limit",
        Count(),
        "consumer_flow_limit",
        "The same of topics that clients make by using them",
    ),
    Field("flow.connection_flow_limit", Count(1), "1000", "Most unsettled messages of one connection"),
    Field("flow.connection_flow_limit_enabled", Flag(), "false", "Whether that limit holds"),
    Field(
        "flow.connection_memory_limit",
        Size(),
        "none",
        "Message bytes that all producers of one connection may have promised or parked; 0 means none",
    ),
)

# Flags and variables also go by these names, which are the command line's.
ALIASES = {
    "listen": "listeners",
    "default_flow_stop_threshold": "flow.default_flow_stop_threshold",
    "default_flow_resume_threshold": "flow.default_flow_resume_threshold",
}

# Variables of ours that are no settings.
OTHER_VARIABLES = frozenset(
    {
        *("SLUICE_CONFIG", "SLUICE_PURE", "SLUICE_BROKER"),
        *("SLUICE_USER", "SLUICE_PASSWORD", "SLUICE_PASSWORD_FILE"),
        *("SLUICE_CA", "SLUICE_CERT", "SLUICE_KEY"),
    }
)


@dataclass(frozen=True, slots=True)
class _Set:
    """A parsed value and where it was set."""

    value: object
    place: SourcePlace


def load_settings(path: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """The settings; ``path`` None is the file that SLUICE_CONFIG names, or none at all.

    A flag that is None or an empty list was not given. ConfigError with all that is wrong anywhere.
    """
    problems: list[Problem] = []
    file = path or (Path(environment["SLUICE_CONFIG"]) if environment.get("SLUICE_CONFIG") else None)
    found: dict[str, _Set] = {}
    if file is not None:
        found |= _from_file(read_file(file, problems), problems)
    found |= _from_environment(environment, problems)
    found |= _from_flags(flags, problems)
    problems += _contradictions(found)
    if problems:
        raise ConfigError(tuple(sorted(problems, key=lambda each: (each.line == 0, each.line, each.column))))
    return _built(found)


def broker_schema() -> Schema:
    """The JSON Schema of the settings file."""
    top = {name: row.schema() for name, row in FIELDS.items() if "." not in name}
    for section in SECTIONS:
        rows = [Field(_leaf(name), row.type, row.default, row.meaning) for name, row in _section(section)]
        top[section] = {**fields.object_schema(rows), "type": ["object", "null"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice broker settings",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": top,
    }


def broker_reference() -> str:
    """Every setting as a Markdown table."""
    return fields.reference(FIELDS.values())


SECTIONS = tuple(dict.fromkeys(name.partition(".")[0] for name in FIELDS if "." in name))
_TOP = (*(name for name in FIELDS if "." not in name), *SECTIONS)


def _section(section: str) -> list[tuple[str, Field]]:
    return [(name, row) for name, row in FIELDS.items() if name.startswith(f"{section}.")]


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _from_file(root: Node | None, problems: list[Problem]) -> dict[str, _Set]:
    if root is None or plain(root) is None:
        return {}
    if not isinstance(root, Block):
        problems.append(root.place.problem("expected a mapping of settings"))
        return {}
    found: dict[str, _Set] = {}
    for name, entry in _flat(root, problems):
        value = _parsed_entry(name, entry, problems)
        if value is not None:
            found[name] = _Set(value, entry.place)
    return found


def _parsed_entry(name: str, entry: YamlEntry, problems: list[Problem]) -> object | None:
    """The value; what is wrong in a list of mappings is told of each of them, at its own place."""
    if isinstance(entry.value, Items) and any(isinstance(item, Block) for item in entry.value.items):
        before = len(problems)
        for item in entry.value.items:
            _parsed(name, [plain(item)], item.place, problems)
        if len(problems) > before:
            return None
        _twice(name, entry.value, problems)
    return _parsed(name, plain(entry.value), _item_place(entry.value), problems)


# What an item of a list of mappings is known by, where it has no name.
_KEYS = ("from", "to", "user", "group", "listener", "virtual_host")


def _twice(name: str, items: Items, problems: list[Problem]) -> None:
    """No two of a list may bear one name."""
    seen: set[object] = set()
    for item in items.items:
        given = plain(item)
        assert isinstance(given, dict)
        key = given.get("name") or str(given.get("names") or "") or tuple(map(given.get, _KEYS))
        if key in seen:
            text = (
                f"{name}: another one has this name"
                if "name" in given
                else f"{name}: the same one stands above"
            )
            problems.append(item.place.problem(text))
        seen.add(key)


def _flat(root: Block, problems: list[Problem]) -> Iterator[tuple[str, YamlEntry]]:
    """Every known entry under its dotted name."""
    for entry in root.entries:
        if entry.key in SECTIONS:
            yield from _inside(entry, problems)
        elif entry.key in FIELDS and "." not in entry.key:
            yield entry.key, entry
        else:
            problems.append(entry.place.problem(fields.unknown_key(entry.key, _TOP)))


def _inside(section: YamlEntry, problems: list[Problem]) -> Iterator[tuple[str, YamlEntry]]:
    if isinstance(section.value, Scalar) and section.value.value is None:
        return
    if not isinstance(section.value, Block):
        problems.append(section.value.place.problem(f"expected the settings of {section.key!r}"))
        return
    for entry in section.value.entries:
        name = f"{section.key}.{entry.key}"
        if name in FIELDS:
            yield name, entry
        else:
            known = [_leaf(name) for name, _ in _section(section.key)]
            problems.append(entry.place.problem(fields.unknown_key(entry.key, known)))


def _item_place(node: Node) -> SourcePlace:
    """A list of one item is faulty where its item is."""
    return node.items[0].place if isinstance(node, Items) and len(node.items) == 1 else node.place


def _from_environment(environment: Mapping[str, str], problems: list[Problem]) -> dict[str, _Set]:
    names = {name.replace(".", "_").upper(): name for name in FIELDS}
    names |= {alias.upper(): name for alias, name in ALIASES.items()}
    found: dict[str, _Set] = {}
    for variable, text in sorted(environment.items()):
        if not text or not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        name = names.get(variable.removeprefix(PREFIX))
        if name is None:
            problems += _misspelt(variable, names)
        else:
            _take(name, text, SourcePlace(variable), found, problems)
    return found


def _misspelt(variable: str, names: Mapping[str, str]) -> list[Problem]:
    """Only near misses are faults: orchestrators add variables such as SLUICE_SERVICE_PORT of their own."""
    close = get_close_matches(variable.removeprefix(PREFIX), names, n=1, cutoff=0.8)
    return [
        SourcePlace(variable).problem(f"unknown variable (did you mean '{PREFIX}{name}'?)") for name in close
    ]


def _from_flags(flags: Mapping[str, object], problems: list[Problem]) -> dict[str, _Set]:
    found: dict[str, _Set] = {}
    for flag, given in flags.items():
        place = SourcePlace("--" + flag.replace("_", "-"))
        name = ALIASES.get(flag, flag)
        if given is None or given in ([], ()):
            continue
        if name in FIELDS:
            _take(name, given, place, found, problems)
        else:
            problems.append(place.problem(fields.unknown_key(flag, [*ALIASES, *FIELDS])))
    return found


def _take(
    name: str, given: object, place: SourcePlace, found: dict[str, _Set], problems: list[Problem]
) -> None:
    typed = from_text(FIELDS[name].type, given) if isinstance(given, str) else given
    value = _parsed(name, typed, place, problems)
    if value is not None:
        found[name] = _Set(value, place)


def _parsed(name: str, value: object, place: SourcePlace, problems: list[Problem]) -> object | None:
    try:
        return FIELDS[name].type.parse(value)
    except ValueError as error:
        problems.append(place.problem(f"{_leaf(name)}: {error}"))
        return None


def _contradictions(found: Mapping[str, _Set]) -> list[Problem]:
    pairs = (
        ("flow.default_flow_resume_threshold", "flow.default_flow_stop_threshold"),
        ("flow.initial_credit", "flow.producer_window"),
    )
    problems = []
    for name, bound in pairs:
        if name in found and bound in found and _whole(found, name) > _whole(found, bound):
            value, limit = found[name].value, found[bound].value
            text = f"{_leaf(name)} {value} is more than {_leaf(bound)} {limit} ({found[bound].place})"
            problems.append(found[name].place.problem(text))
    return problems + _without_certificate(found) + _without_virtual_host(found)


def _without_virtual_host(found: Mapping[str, _Set]) -> list[Problem]:
    """Connections are limited to a virtual host that there isn't."""
    limits, hosts = found.get("connection_limits"), found.get("virtual_hosts")
    if limits is None:
        return []
    known = () if hosts is None else cast("tuple[str, ...]", hosts.value)
    given = cast("tuple[ConnectionLimit, ...]", limits.value)
    wanted = [each.name for each in given if each.kind == "virtual_host"]
    return [
        limits.place.problem(f"connection_limits: '{name}' is none of virtual_hosts")
        for name in wanted
        if name not in known
    ]


def _without_certificate(found: Mapping[str, _Set]) -> list[Problem]:
    """TLS is asked for, and there is nothing to speak it with; or the reverse of that."""
    wanting = []
    listeners, http = found.get("listeners"), found.get("http")
    if listeners is not None:
        given = cast("tuple[Listener, ...]", listeners.value)
        wanting += [(listeners.place, str(each)) for each in given if each.secure]
    if http is not None and cast("ListenAddress", http.value).secure:
        wanting.append((http.place, cast("ListenAddress", http.value).url))
    if wanting and "tls.certificate" not in found:
        return [place.problem(f"{url} needs tls.certificate") for place, url in wanting]
    asked = found.get("tls.client_certificates")
    if asked is not None and asked.value != NONE and "tls.client_ca" not in found:
        return [asked.place.problem(f"client_certificates: {asked.value} needs tls.client_ca")]
    return []


def _whole(found: Mapping[str, _Set], name: str) -> int:
    value = found[name].value
    assert isinstance(value, int)
    return value


def _built(found: Mapping[str, _Set]) -> Settings:
    values = {name: item.value for name, item in found.items()}
    origins = {name: str(item.place) for name, item in found.items()}
    top = {name: value for name, value in values.items() if "." not in name}
    top |= {_leaf(name): value for name, value in values.items() if name.startswith("store.")}
    if "policies" not in top and DEFAULT_POLICIES.is_dir():
        top["policies"] = (DEFAULT_POLICIES,)
    parts = {
        "limits": _limits(values),
        "flow": _flow(values, origins),
        "events": _events(values),
        "metrics": Metrics(**_named("metrics.", values)),
        "security": _security(values),
        "tls": _tls(values),
    }
    return Settings(**top, **parts, origins=origins)  # type: ignore[arg-type]


def _named(section: str, values: Mapping[str, object]) -> dict[str, Any]:
    return {_leaf(name): value for name, value in values.items() if name.startswith(section)}


def _tls(values: Mapping[str, object]) -> Tls:
    named = _named("tls.", values)
    asked = OPTIONAL if "client_ca" in named else NONE
    return Tls(**{"client_certificates": asked, **named})


def _limits(values: Mapping[str, object]) -> Limits:
    named = {_leaf(name): value for name, value in values.items() if name.startswith("limits.")}
    timed = {f"{name}_ms" if name.endswith("_timeout") else name: value for name, value in named.items()}
    return Limits(**timed)  # type: ignore[arg-type]


def _security(values: Mapping[str, object]) -> Security:
    named = _named("security.", values)
    durations = ("first_pause", "longest_pause", "session_idle", "session_lifetime")
    return Security(**{f"{name}_ms" if name in durations else name: value for name, value in named.items()})


def _events(values: Mapping[str, object]) -> Events:
    named = {_leaf(name): value for name, value in values.items() if name.startswith("events.")}
    timed = {f"{name}_ms" if name.endswith("_interval") else name: value for name, value in named.items()}
    return Events(**timed)  # type: ignore[arg-type]


def _flow(values: Mapping[str, object], origins: Mapping[str, str]) -> FlowSettings:
    """Flow settings; a threshold nobody set gives way to one that somebody did (FLOW §2, rule 1)."""
    named = {_leaf(name): value for name, value in values.items() if name.startswith("flow.")}
    places = {_leaf(name): place for name, place in origins.items() if name.startswith("flow.")}
    own = {name: named.pop(name) for name in list(named) if name.startswith("connection_")}
    if "limits.max_message_size" in values:
        named["max_message_size"] = values["limits.max_message_size"]
        places["max_message_size"] = origins["limits.max_message_size"]
    _give_way(named, "default_flow_resume_threshold", "default_flow_stop_threshold")
    _give_way(named, "initial_credit", "producer_window")
    return FlowSettings(BrokerDefaults(**named, places=places), **own)  # type: ignore[arg-type]


def _give_way(named: dict[str, object], lower: str, upper: str) -> None:
    """Where one of a pair is set, clamp the default of the other."""
    clamp: Callable[[Sequence[int]], int] = min if upper in named else max
    given, default = (upper, lower) if upper in named else (lower, upper)
    if given in named and default not in named:
        number = named[given]
        assert isinstance(number, int)
        named[default] = clamp((number, getattr(_DEFAULTS, default)))


_DEFAULTS = BrokerDefaults()
