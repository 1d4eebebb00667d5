"""The broker's own settings: flags over environment over file, checked as a whole and frozen.

A row of ``Settings``, or of the class of a section, is a setting; the table ``FIELDS`` of all of them is the
source of the parser, of the JSON Schema and of the documentation. A dot in a field's name is a level in the
file; in a variable it is an underscore after ``SLUICE_``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from broker.config import cluster as clusters
from broker.config import fields
from broker.config.cells import CellCountType
from broker.config.cluster import Cluster
from broker.config.connection_limits import ConnectionLimit, ConnectionLimitType
from broker.config.diagnostics import Events, Metrics
from broker.config.fields import (
    Budget,
    Count,
    Field,
    Flag,
    PathType,
    Schema,
    Several,
    Size,
    Word,
    row,
    rows_of,
)
from broker.config.flow import BrokerDefaults, FlowSettings, flow_settings
from broker.config.forwards import (
    BridgeDefinition,
    BridgeType,
    ChannelDefinition,
    ChannelType,
    RouteDefinition,
    RouteType,
)
from broker.config.limits import Limits
from broker.config.listeners import (
    DEFAULT_PORT,
    AddressType,
    HostName,
    ListenAddress,
    Listener,
    ListenerType,
    OriginType,
)
from broker.config.security import Security
from broker.config.sources import SetValue, SourceReader, leaf, sections
from broker.config.tls import NONE, OPTIONAL, Tls
from broker.errors import ConfigError, Problem
from broker.loggers import JSON, LEVELS, TEXT, LoggerLevel, LoggerLevelType

DEFAULT_POLICIES = Path("policies")
DEFAULT_LISTENER = Listener("127.0.0.1", DEFAULT_PORT, allow_plain=True)
DEFAULT_HTTP = ListenAddress("127.0.0.1", 8672)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings a broker is started with. ``origins`` has the place of each one that somebody set.

    Limits are in bytes: None leaves one to the machine's size, 0 is no limit.
    """

    listeners: tuple[Listener, ...] = row(
        Several(ListenerType(), 1),
        (DEFAULT_LISTENER,),
        "Where AMQP clients connect",
        shown="amqp://127.0.0.1:5672",
    )
    http: ListenAddress = row(
        AddressType(),
        DEFAULT_HTTP,
        "Where the console, the API and the metrics are served",
        shown="127.0.0.1:8672",
    )
    websocket_origins: tuple[str, ...] = row(
        Several(OriginType()),
        (),
        "Web pages that may connect with AMQP over WebSocket; '*': any",
        shown="none but the broker's own",
    )
    http_allow_writes: bool = row(
        Flag(),
        False,
        "true: the HTTP API changes things also where it listens on an address that others can reach",
    )
    cells: int = row(
        CellCountType(),
        1,
        "Broker processes, each with queues of its own, behind the same port; auto: one a processor",
    )
    data: Path = row(PathType(), Path("data"), "Directory of everything that survives a restart")
    backup_directory: Path | None = row(
        PathType(),
        None,
        "Where `sluice store backup` makes backups, and nowhere else",
        shown="`backups` in the data directory",
    )
    memory_limit: int | None = row(
        Budget(), None, "Message bytes held in memory; 0: none", shown="40 % of the memory"
    )
    store_limit: int | None = row(
        Budget(),
        None,
        "Bytes of durable messages on disk; 0: none",
        shown="80 % of the free disk and its own",
    )
    temp_limit: int | None = row(
        Budget(),
        None,
        "Bytes on disk of messages paged out and of large ones that needn't survive; 0: none",
        shown="50 % of the free disk",
    )
    journal_file_size: int | None = row(
        Size(1 << 20, 1 << 30),
        None,
        "Size of each file of the journal; about five of them are there, and room for three more",
        shown="32 MB, less on a small disk",
        key="store.journal_file_size",
    )
    policies: tuple[Path, ...] = row(
        Several(PathType()), (), "Policy files, or directories of them", shown="policies, if it exists"
    )
    connection_limits: tuple[ConnectionLimit, ...] = row(
        Several(ConnectionLimitType()),
        (),
        "Most connections of single users, groups, listeners and virtual hosts",
    )
    bridges: tuple[BridgeDefinition, ...] = row(
        Several(BridgeType()), (), "Nodes that are copied into others"
    )
    routes: tuple[RouteDefinition, ...] = row(
        Several(RouteType()), (), "Nodes that are connected with those of other brokers"
    )
    channels: tuple[ChannelDefinition, ...] = row(
        Several(ChannelType()), (), "Topics that are sent out as datagrams"
    )
    auto_create: bool = row(Flag(), True, "A node nobody declared is created when a client attaches to it")
    virtual_hosts: tuple[str, ...] = row(
        Several(HostName()),
        (),
        "Names a client may open its connection to; each has nodes of its own, other names the common ones",
    )
    log_level: str = row(Word(LEVELS), "info", "The least that is logged")
    log_levels: tuple[LoggerLevel, ...] = row(
        Several(LoggerLevelType()), (), "Levels of single loggers: `sluice.amqp=debug`"
    )
    log_format: str = row(Word((TEXT, JSON)), TEXT, "How lines are written, on standard error")
    log_lines_per_peer: int = row(
        Count(), 100, "Most lines about one host within 10 s, and ten times as many about all; 0: no bound"
    )
    limits: Limits = field(default_factory=Limits)
    flow: FlowSettings = field(default_factory=FlowSettings)
    events: Events = field(default_factory=Events)
    metrics: Metrics = field(default_factory=Metrics)
    security: Security = field(default_factory=Security)
    tls: Tls = field(default_factory=Tls)
    cluster: Cluster = field(default_factory=Cluster)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def backups(self) -> Path:
        """The directory in which backups are made."""
        return self.data / "backups" if self.backup_directory is None else self.backup_directory


# The rows of each section, by attribute.
_TOP = rows_of(Settings)
_LIMITS = rows_of(Limits, "limits")
_SECURITY = rows_of(Security, "security")
_EVENTS = rows_of(Events, "events")
_METRICS = rows_of(Metrics, "metrics")
_TLS = rows_of(Tls, "tls")
_CLUSTER = rows_of(Cluster, "cluster")
_DEFAULTS = rows_of(BrokerDefaults, "flow")
_CONNECTIONS = rows_of(FlowSettings, "flow")


def _in_order() -> list[Field]:
    """List every row as the reference does: `security.acl` and `store` stand around the limits of HTTP."""
    limits = list(_LIMITS.values())
    of_http = limits.index(_LIMITS["http_requests"])
    acl, *security = _SECURITY.values()
    return [
        *(each for each in _TOP.values() if "." not in each.name),
        *limits[:of_http],
        acl,
        *limits[of_http:],
        _TOP["journal_file_size"],
        *security,
        *_EVENTS.values(),
        *_METRICS.values(),
        *_TLS.values(),
        *_DEFAULTS.values(),
        *_CONNECTIONS.values(),
        *_CLUSTER.values(),
    ]


FIELDS = fields.table(*_in_order())
SECTIONS = sections(FIELDS)

# Flags and variables also go by these names, which are the command line's.
ALIASES = {
    "listen": "listeners",
    "default_flow_stop_threshold": "flow.default_flow_stop_threshold",
    "default_flow_resume_threshold": "flow.default_flow_resume_threshold",
}


def load_settings(path: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """Read the settings; ``path`` None is the file that SLUICE_CONFIG names, or none at all.

    A flag that is None or an empty list was not given. ConfigError with all that is wrong anywhere.
    """
    reader = SourceReader(FIELDS, ALIASES)
    file = path or (Path(environment["SLUICE_CONFIG"]) if environment.get("SLUICE_CONFIG") else None)
    if file is not None:
        reader.read_file(file)
    reader.read_environment(environment)
    reader.read_flags(flags)
    problems = [*reader.problems, *_contradictions(reader.found)]
    if problems:
        raise ConfigError(tuple(sorted(problems, key=lambda each: (each.line == 0, each.line, each.column))))
    return _built(reader.found)


def broker_schema() -> Schema:
    """Make the JSON Schema of the settings file."""
    top = {name: row.schema() for name, row in FIELDS.items() if "." not in name}
    for section in SECTIONS:
        inside = (row for name, row in FIELDS.items() if name.startswith(f"{section}."))
        rows = [Field(leaf(row.name), row.type, row.default, row.meaning) for row in inside]
        top[section] = {**fields.object_schema(rows), "type": ["object", "null"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice broker settings",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": top,
    }


def broker_reference() -> str:
    """Show every setting in a Markdown table."""
    return fields.reference(FIELDS.values())


def _contradictions(found: Mapping[str, SetValue]) -> list[Problem]:
    pairs = (
        ("flow.default_flow_resume_threshold", "flow.default_flow_stop_threshold"),
        ("flow.initial_credit", "flow.producer_window"),
    )
    problems = []
    for name, bound in pairs:
        if name in found and bound in found and _whole(found, name) > _whole(found, bound):
            value, limit = found[name].value, found[bound].value
            text = f"{leaf(name)} {value} is more than {leaf(bound)} {limit} ({found[bound].place})"
            problems.append(found[name].place.problem(text))
    problems += _without_certificate(found) + _without_virtual_host(found)
    return problems + clusters.contradictions(found)


def _without_virtual_host(found: Mapping[str, SetValue]) -> list[Problem]:
    """Find limits of connections to a virtual host that ``virtual_hosts`` doesn't have."""
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


def _without_certificate(found: Mapping[str, SetValue]) -> list[Problem]:
    """Find ports with TLS that have no certificate, and client certificates that nobody can check."""
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


def _whole(found: Mapping[str, SetValue], name: str) -> int:
    value = found[name].value
    assert isinstance(value, int)
    return value


def _built(found: Mapping[str, SetValue]) -> Settings:
    """Make the settings from the values that were found."""
    origins = {name: str(item.place) for name, item in found.items()}
    top = _set_in(_TOP, found)
    if "policies" not in top and DEFAULT_POLICIES.is_dir():
        top["policies"] = (DEFAULT_POLICIES,)
    tls = _set_in(_TLS, found)
    asked = OPTIONAL if "client_ca" in tls else NONE
    return Settings(
        **top,
        limits=Limits(**_set_in(_LIMITS, found)),
        flow=_flow(found, origins),
        events=Events(**_set_in(_EVENTS, found)),
        metrics=Metrics(**_set_in(_METRICS, found)),
        security=Security(**_set_in(_SECURITY, found)),
        tls=Tls(**{"client_certificates": asked, **tls}),
        cluster=Cluster(**_set_in(_CLUSTER, found)),
        origins=origins,
    )


def _set_in(rows: Mapping[str, Field], found: Mapping[str, SetValue]) -> dict[str, Any]:
    """Collect the attributes of one section that somebody set, with their values."""
    return {attribute: found[row.name].value for attribute, row in rows.items() if row.name in found}


def _flow(found: Mapping[str, SetValue], origins: Mapping[str, str]) -> FlowSettings:
    """Make the `flow` section, which takes the largest message from `limits`."""
    defaults = _set_in(_DEFAULTS, found)
    places = {leaf(name): place for name, place in origins.items() if name.startswith("flow.")}
    largest = _LIMITS["max_message_size"].name
    if largest in found:
        defaults["max_message_size"] = found[largest].value
        places["max_message_size"] = origins[largest]
    return flow_settings(defaults, _set_in(_CONNECTIONS, found), places)
