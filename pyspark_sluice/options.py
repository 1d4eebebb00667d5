"""The one table of options: a field of ``Options`` is an option, with its kind, its default and what it does.

Spark hands options over as texts, their names in lower case. ``parse`` refuses what it doesn't know and
everything that is wrong at once. A password or token is never an option: only where it is found is, and it is
read where a connection is made, on the machine that makes it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from .errors import LoginError, OptionError
from .kinds import (
    Broker,
    Choice,
    Count,
    Duration,
    Flag,
    Kind,
    Moment,
    PartitionOffsets,
    Size,
    Text,
    Urls,
    Words,
)

End = Literal["sink", "source"]
# What a source reads.
Source = Literal["queue", "stream"]
MECHANISMS = (
    *("EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "OAUTHBEARER", "PLAIN", "ANONYMOUS"),
)
# Spark's own, which it passes on with ours.
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode"})
_BOTH: tuple[End, End] = ("sink", "source")


def option(
    kind: Kind,
    doc: str,
    default: Any = MISSING,
    *,
    ends: tuple[End, ...] = _BOTH,
    of: Source | None = None,
) -> Any:
    """A row of the table. ``default`` is the text that stands for it in the documentation, read by ``kind``;
    None means that the option may be absent, nothing that it has to be there. ``of``: it means something for
    a source of that type only."""
    ends = ends if of is None else ("source",)
    meta = {"kind": kind, "doc": doc, "ends": ends, "default": default, "of": of}
    if default is MISSING:
        return field(metadata=meta)
    return field(default=None if default is None else kind.read(default), metadata=meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for, checked. Can be pickled, and holds nothing secret."""

    url: tuple[Broker, ...] = option(
        Urls(), "the brokers, in the order in which they are tried when one is lost"
    )
    address: str | None = option(
        Text(), "the queue or topic. A sink without it needs a column `to` and uses the anonymous relay", None
    )
    user: str | None = option(Text(), "who to log in as; without it ANONYMOUS or a certificate", None)
    password_env: str | None = option(
        Text(), "the environment variable that holds the password, on the driver and on every executor", None
    )
    password_file: str | None = option(
        Text(), "the file that holds the password; a relative name is looked for among `--files` too", None
    )
    token_env: str | None = option(
        Text(), "the environment variable that holds an OAuth token, in place of a password", None
    )
    token_file: str | None = option(
        Text(), "the file that holds an OAuth token, read anew for each connection", None
    )
    sasl_mechanisms: tuple[str, ...] | None = option(
        Words(MECHANISMS),
        "the mechanisms that may be used. By default the best one offered that suits, and PLAIN and"
        " OAUTHBEARER only over TLS or on loopback",
        None,
    )
    tls_ca: str | None = option(Text(), "PEM file of the authorities to trust, else the system's", None)
    tls_certificate: str | None = option(Text(), "PEM file of the client's own certificate", None)
    tls_key: str | None = option(Text(), "PEM file of its key, if that is not in the same file", None)
    virtual_host: str | None = option(
        Text(), "the hostname to open the connection with, else the URL's", None
    )
    heartbeat: float = option(
        Duration(), "a connection silent for that long is taken for lost; 0: never", "30 s"
    )
    connect_timeout: float = option(
        Duration(0.1),
        "for one broker to accept a connection, the login included, and to answer what a source asks about"
        " its address",
        "10 s",
    )
    reconnect_timeout: float = option(
        Duration(),
        "how long a lost connection is tried again before the task or query fails; 0: for ever",
        "5 m",
    )
    node_kind: str | None = option(
        Choice(("queue", "topic")), "what the broker should make if the address is unknown to it", None
    )

    body_type: str = option(
        Choice(("auto", "json")),
        "`auto`: BINARY as data, anything else as an amqp-value; `json`: data with content-type"
        " `application/json`",
        "auto",
        ends=("sink",),
    )
    durable: bool = option(
        Flag(),
        "whether messages outlive a restart of the broker, where no column `durable` says so",
        "true",
        ends=("sink",),
    )
    max_in_flight: int = option(
        Count(1, 100_000), "the most messages of a task without an outcome", "4000", ends=("sink",)
    )
    credit_timeout: float = option(
        Duration(), "how long a task waits for credit before it fails; 0: for ever", "300 s", ends=("sink",)
    )
    on_reject: str = option(
        Choice(("fail", "skip", "deadletter")),
        "a rejected message fails the task, is skipped and counted, or goes to `deadLetterAddress`",
        "fail",
        ends=("sink",),
    )
    dead_letter_address: str | None = option(
        Text(), "where rejected messages go with `onReject=deadletter`", None, ends=("sink",)
    )
    query_id: str | None = option(
        Text(),
        "the first part of message ids, in place of the streaming query's id or a random one for each batch"
        " write: a job that is run again under the same one sends nothing twice",
        None,
        ends=("sink",),
    )

    source_type: str | None = option(
        Choice(("queue", "stream")),
        "what is read: a queue, whose messages are consumed, or a stream, whose messages stay. Without it the"
        " broker is asked what the address is",
        None,
        ends=("source",),
    )
    selector: str | None = option(
        Text(), "a JMS selector: only messages that match are taken", None, ends=("source",)
    )
    on_malformed: str = option(
        Choice(("fail", "null")),
        "a message that can't be read fails the query, or is a row of nulls",
        "fail",
        ends=("source",),
    )

    subscription: str | None = option(
        Text(),
        "of a topic: the name of a durable subscription, which keeps what is published between two runs."
        " Without it a stream reads what is published while it runs",
        None,
        of="queue",
    )
    links: int = option(
        Count(1, 255),
        "the most links a queue is read over, opened one after the other as micro-batches need them: each"
        " holds as many messages as the broker's `consumer_flow_limit` says, by default 1000",
        "64",
        of="queue",
    )
    max_rows_per_trigger: int = option(
        Count(), "the most rows of a micro-batch, and the link credit granted for it", "10000", of="queue"
    )
    max_bytes_per_trigger: int = option(
        Size(),
        "the bytes at which a micro-batch is closed: the driver holds one until it is settled",
        "64 MB",
        of="queue",
    )
    rows_per_partition: int = option(
        Count(), "the most rows of one task of a micro-batch", "5000", of="queue"
    )

    partitions: int | None = option(
        Count(1, 10_000),
        "the stream's parts are `ADDRESS/0` and so on, so many. Without it the broker is asked; a stream"
        " without parts is partition 0",
        None,
        of="stream",
    )
    starting_offsets: str | tuple[tuple[int, int], ...] | None = option(
        PartitionOffsets(("earliest", "latest")),
        "where a new query, or a table, begins (-2: earliest, -1: latest). By default `latest` for a query"
        " and `earliest` for a table",
        None,
        of="stream",
    )
    starting_timestamp: int | None = option(
        Moment(),
        "begins with the first message that came then or later, with the next one if there is none yet",
        None,
        of="stream",
    )
    ending_offsets: str | tuple[tuple[int, int], ...] | None = option(
        PartitionOffsets(("latest",)),
        "of a table: the offset behind the last row of each partition, by default `latest`",
        None,
        of="stream",
    )
    max_offsets_per_trigger: int | None = option(
        Count(),
        "the most offsets of a micro-batch, shared out by what the partitions have, at least one to each."
        " Without it a micro-batch has all there is",
        None,
        of="stream",
    )
    min_offsets_per_trigger: int | None = option(
        Count(), "a micro-batch waits until there are so many, or for `maxTriggerDelay`", None, of="stream"
    )
    max_trigger_delay: float = option(
        Duration(), "the longest that `minOffsetsPerTrigger` holds a micro-batch back", "15 m", of="stream"
    )
    min_partitions: int | None = option(
        Count(),
        "cuts the offsets of a micro-batch, or table, into so many tasks at least. By default a partition is"
        " one task",
        None,
        of="stream",
    )
    fail_on_data_loss: bool = option(
        Flag(),
        "offsets that retention has removed before they were read fail the query; `false` passes over them"
        " with a warning",
        "true",
        of="stream",
    )

    def password(self) -> str | None:
        """The password, read now; None without ``user``. LoginError if it isn't where it should be."""
        return None if self.user is None else _secret("password", self.password_env, self.password_file)

    def token(self) -> str | None:
        """The token, read now; None where none is named. LoginError if it isn't where it should be."""
        return _secret("token", self.token_env, self.token_file)


def _secret(what: str, variable: str | None, file: str | None) -> str | None:
    if variable is not None:
        found = os.environ.get(variable)
        if found is None:
            raise LoginError(f"{what}Env: there is no variable {variable} in this process")
        return found
    if file is None:
        return None
    try:
        return file_of(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as fault:
        why = getattr(fault, "strerror", None) or "no text"
        raise LoginError(f"{what}File: {file}: {why}") from None


def file_of(name: str) -> Path:
    """A file as it was named, or among those Spark brought along (``--files``)."""
    path = Path(name)
    if path.is_absolute() or path.exists():
        return path
    from pyspark import SparkFiles

    brought = Path(SparkFiles.getRootDirectory()) / name
    return brought if brought.exists() else path


def option_name(name: str) -> str:
    """A field's name as users type it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def parse(given: Mapping[str, str], end: End) -> Options:
    """Checked options for a sink or a source. OptionError names everything that is wrong."""
    rows = {option_name(each.name).lower(): each for each in fields(Options)}
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, text in given.items():
        row = rows.get(name.lower())
        if row is None:
            wrong.extend(_unknown(name, end))
        elif end not in row.metadata["ends"]:
            wrong.append(f"{option_name(row.name)} is an option of the {row.metadata['ends'][0]} only")
        else:
            try:
                values[row.name] = row.metadata["kind"].read(text)
            except ValueError as fault:
                wrong.append(f"{option_name(row.name)} {fault}")
    wrong += [
        f"{option_name(row.name)} is missing"
        for row in rows.values()
        if row.metadata["default"] is MISSING and row.name not in values and not _named(wrong, row.name)
    ]
    if not wrong:
        found = Options(**values)
        wrong = list(_contradictions(found, end))
        if not wrong:
            return found
    raise OptionError("; ".join(wrong))


def check_source(given: Mapping[str, str], source: Source, address: str | None) -> None:
    """Raises OptionError for every option of the other type of source."""
    rows = {option_name(each.name).lower(): each for each in fields(Options)}
    wrong = [
        f"{option_name(row.name)} is an option of a {row.metadata['of']}, and '{address}' is read as a"
        f" {source}"
        for name in given
        if (row := rows.get(name.lower())) is not None and row.metadata["of"] not in (None, source)
    ]
    if wrong:
        raise OptionError("; ".join(wrong))


def named(wanted: Iterable[str], given: Mapping[str, str]) -> list[str]:
    """Which of some options are among those that were given, in whatever case."""
    names = {name.lower() for name in given}
    return [name for name in wanted if name.lower() in names]


def _named(wrong: list[str], name: str) -> bool:
    return any(each.startswith(f"{option_name(name)} ") for each in wrong)


def _unknown(name: str, end: End) -> list[str]:
    if name.lower() in _OF_SPARK:
        return []
    if name.lower() in ("password", "token"):
        what = name.lower()
        return [f"{what} is no option, since plans and logs show options: see {what}Env, {what}File"]
    if name.lower() == "path":
        return ["path is no option: see address"]
    ours = {
        option_name(each.name).lower(): option_name(each.name)
        for each in fields(Options)
        if end in each.metadata["ends"]
    }
    near = difflib.get_close_matches(name.lower(), ours, 1)
    return [f"unknown option '{name}'" + (f" (did you mean '{ours[near[0]]}'?)" if near else "")]


def _contradictions(found: Options, end: End) -> list[str]:
    wrong = []
    if end == "source" and found.address is None:
        wrong.append("address is missing")
    if found.subscription is not None and found.node_kind == "queue":
        wrong.append("subscription is of a topic, not of a queue")
    if found.subscription is not None and "|" in found.subscription:
        wrong.append("subscription must not contain '|'")
    if found.starting_offsets is not None and found.starting_timestamp is not None:
        wrong.append("startingOffsets and startingTimestamp exclude each other")
    low, high = found.min_offsets_per_trigger, found.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        wrong.append("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
    wrong += _login_contradictions(found)
    if found.url[0].scheme == "amqp" and (found.tls_ca or found.tls_certificate or found.tls_key):
        wrong.append("TLS needs amqps:// in url")
    if found.tls_key is not None and found.tls_certificate is None:
        wrong.append("tlsKey needs tlsCertificate")
    if (found.on_reject == "deadletter") != (found.dead_letter_address is not None):
        wrong.append("onReject=deadletter and deadLetterAddress need each other")
    return wrong


def _login_contradictions(found: Options) -> list[str]:
    wrong = []
    has_password = found.password_env is not None or found.password_file is not None
    has_token = found.token_env is not None or found.token_file is not None
    if found.token_env is not None and found.token_file is not None:
        wrong.append("tokenEnv and tokenFile exclude each other")
    if has_token and has_password:
        wrong.append("a token and a password exclude each other")
    elif found.user is None and has_password:
        wrong.append("a password needs user")
    elif (found.password_env is None) == (found.password_file is None) and found.user and not has_token:
        wrong.append("user needs one of passwordEnv and passwordFile, or a token")
    return wrong


def table() -> str:
    """The options as Markdown."""
    lines = ["| option | of | value | default | meaning |", "|---|---|---|---|---|"]
    for row in fields(Options):
        meta = row.metadata
        default = "–" if meta["default"] is None else "required"
        if isinstance(meta["default"], str):
            default = f"`{meta['default']}`"
        ends = "both" if len(meta["ends"]) == 2 else meta["of"] or meta["ends"][0]
        lines.append(
            f"| `{option_name(row.name)}` | {ends} | {meta['kind'].label} | {default} | {meta['doc']} |"
        )
    return "\n".join(lines) + "\n"
