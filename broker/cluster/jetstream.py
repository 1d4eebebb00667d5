"""A cell's log on a stream of NATS JetStream, and the bodies of its large messages on a second one.

The sequence numbers of the stream are the positions. A record carries ``Nats-Expected-Last-Sequence``, on
which the stream's leader takes it or refuses it. Records are read by direct gets in batches, which any
replica answers; ``first`` and ``last`` are the leader's word.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from broker.cluster.log import Acked, AppendRefused, EngineFault, LogEntry, LogUnavailable, Outcome, Unknown
from broker.cluster.nats import Message, NatsConnection, NatsLogin, new_inbox, wait_ready
from broker.errors import OperatorError

log = logging.getLogger("sluice.cluster")

# So many times as long as an answer may take, a leader may answer and take no records.
STUCK_TIMES = 4
# How often the leader is asked for the log's state until it answers.
ASK_AGAIN_S = 0.1
OLDEST_SERVER = (2, 15, 0)
# Of a record with its head; the servers' default is 1 MB.
LEAST_PAYLOAD = 1 << 20
BODY_PIECE_BYTES = 256 << 10
BODY_WINDOW = 8
# What JetStream says of a record whose condition doesn't hold (the second: without the number that does), and
# of a stream that isn't there.
WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
STREAM_NOT_FOUND = 10059
# Settings that a stream may have beyond those we make it with, and that none of ours may: each lets records
# change, come from elsewhere or be acknowledged before they are written.
FOREIGN_SETTINGS = (
    *("mirror", "sources", "subject_transform", "republish", "sealed", "deny_purge", "allow_rollup_hdrs"),
    *(
        "allow_msg_ttl",
        "allow_msg_counter",
        "allow_msg_schedules",
        "subject_delete_marker_ttl",
        "persist_mode",
    ),
    "discard_new_per_subject",
)
# Its default window of duplicates: records carry no message-id, so that it has no effect.
DUPLICATE_WINDOW_NS = 120_000_000_000


@dataclass(frozen=True, slots=True)
class LogServers:
    """Where the servers are, how long they may take, and how a member logs in."""

    urls: tuple[str, ...]
    timeout_s: float = 2.0
    login: NatsLogin = field(default_factory=NatsLogin)
    tls: Callable[[], ssl.SSLContext] | None = None

    def connect(self, first: int = 0) -> NatsConnection:
        """Return a new connection, to the first server that answers from one on. Raises LogUnavailable."""
        at = first % len(self.urls) if self.urls else 0
        return NatsConnection((*self.urls[at:], *self.urls[:at]), self.timeout_s, self.login, self.tls)


class JetStreamLog:
    """The log of one cell, for one thread. It connects when it must, and again after a fault."""

    def __init__(self, engine: LogServers, cell: str, replicas: int = 3) -> None:
        self.engine = engine
        self.stream = f"SLUICE_{cell}"
        self.subject = f"sluice.{cell}.log"
        self._replicas = replicas
        self._connection: NatsConnection | None = None
        self._inbox = ""
        # With which server it begins. One may answer and its disk hang: its replica is read by nobody then.
        self._first = 0
        # Records sent that have no outcome yet: the position that each comes behind, and when it was sent.
        # Each has a number of its own, so that a second answer to one is never taken for another's.
        self._sent: OrderedDict[int, tuple[int, float]] = OrderedDict()
        self._appended = 0
        self._told: list[Outcome] = []
        self._heard_ns = time.monotonic_ns()
        # Whether the last records sent had no answer, and since when the leader answers and takes none.
        self._is_untaken = False
        self._stuck_since: float | None = None
        self._last_seen = 0

    @property
    def url(self) -> str:
        """The server it is connected to, empty where it isn't."""
        return self._connection.url if self._connection is not None else ""

    @property
    def heard_ns(self) -> int:
        """When any server was heard last, in monotonic nanoseconds."""
        if self._connection is not None:
            self._heard_ns = max(self._heard_ns, self._connection.heard_ns)
        return self._heard_ns

    def prepare(self) -> None:
        """Make the stream where it isn't there, else look whether it is as it must be.

        Raises OperatorError where it is not, or the servers are too old; LogUnavailable.
        """
        info = self._open().info
        check_server(info)
        for stream, wanted in self._streams():
            answer = self._ask(f"STREAM.INFO.{stream}")
            if error_code(answer) == STREAM_NOT_FOUND:
                answer = self._ask(f"STREAM.CREATE.{stream}", wanted)
            if "error" in answer:
                raise LogUnavailable(f"stream {stream}: {answer['error'].get('description', 'refused')}")
            check_stream(stream, answer["config"], wanted)

    def append(self, data: bytes, after: int) -> None:
        """Send a record, on condition that ``after`` is the last position.

        Raises EngineFault where it is larger than the server takes, which would end each connection for it.
        """
        self._appended += 1
        try:
            headers = b"NATS/1.0\r\nNats-Expected-Last-Sequence: %d\r\n\r\n" % after
            connection = self._open()
            most = int(connection.info.get("max_payload", LEAST_PAYLOAD))
            if len(headers) + len(data) > most:
                raise EngineFault(
                    f"{connection.url}: a record has {len(data)} bytes, and max_payload is {most}"
                )
            self._sent[self._appended] = after, time.monotonic()
            connection.publish(self.subject, data, f"{self._inbox}.{self._appended}", headers)
        except LogUnavailable:
            self._sent.setdefault(self._appended, (after, 0.0))
            self._lose()

    def outcomes(self, timeout_s: float, wake: int = -1) -> list[Outcome]:
        """Return what came of records sent."""
        found = self._outcomes(timeout_s, wake)
        if found:
            self._is_untaken = all(isinstance(each, Unknown) for each in found)
            if not self._is_untaken:
                self._stuck_since = None
        return found

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        """Return records from a position on, without gaps."""
        connection = self._open()
        inbox = new_inbox()
        subscription = connection.subscribe(inbox)
        wanted = json.dumps({"seq": position, "batch": 1000, "max_bytes": most_bytes}).encode()
        found: list[LogEntry] = []
        try:
            connection.publish(f"$JS.API.DIRECT.GET.{self.stream}", wanted, inbox)
            for message in self._answers(connection, subscription):
                sequence = message.header(b"Nats-Sequence")
                if message.status or not sequence:
                    break
                if int(sequence) != position + len(found):
                    # What was asked for is trimmed, or the replica is behind.
                    break
                found.append(LogEntry(int(sequence), message.data))
            connection.unsubscribe(subscription)
        except LogUnavailable:
            self._lose()
            raise
        return found

    def first(self) -> int:
        """Return the first position there still is."""
        return int(self._state()["first_seq"]) or 1

    def last(self) -> int:
        """Return the last position.

        A leader that answers this for ``STUCK_TIMES`` times the time-out, and takes no record meanwhile of
        this user or of others, is asked to let another one lead: its disk is full, or hangs.
        """
        try:
            found = int(self._state()["last_seq"])
        except LogUnavailable:
            self._stuck_since = None
            raise
        if found != self._last_seen:
            self._last_seen = found
            self._is_untaken, self._stuck_since = False, None
        if self._is_untaken:
            self._replace_stuck_leader()
        return found

    def nbytes(self) -> int:
        """Return what the log takes on one disk."""
        return int(self._state()["bytes"])

    def trim(self, before: int) -> None:
        """Let go of everything before a position."""
        self._done(f"STREAM.PURGE.{self.stream}", {"seq": before})

    def state(self) -> dict[str, Any]:
        """Return what the leader says of the stream: ``state`` and ``cluster``, as JetStream has them."""
        # While no server leads nobody answers; whoever waits for the next leader is to know it at once.
        return self._done(f"STREAM.INFO.{self.stream}", again_s=ASK_AGAIN_S)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- bodies

    def put_body(self, key: str, pieces: Iterator[bytes]) -> None:
        """Keep a large message's body: pieces of at most ``BODY_PIECE_BYTES``. It is durable afterwards.

        What was there of this key is replaced. Raises LogUnavailable.
        """
        self.drop_body(key)
        connection = self._open()
        inbox = new_inbox()
        subscription = connection.subscribe(f"{inbox}.*")
        answers = self._answers(connection, subscription)
        taken = sent = 0
        try:
            for piece in pieces:
                connection.publish(f"{self._body_subject(key)}.{sent}", piece, f"{inbox}.{sent}")
                sent += 1
                while sent - taken >= BODY_WINDOW:
                    taken += _is_taken(next(answers))
            while taken < sent:
                taken += _is_taken(next(answers))
            connection.unsubscribe(subscription)
        except LogUnavailable:
            self._lose()
            raise

    def get_body(self, key: str) -> Iterator[bytes]:
        """Return a body's pieces in order, none where it isn't there. Raises LogUnavailable.

        They end early where the replica that answers doesn't have all of them yet (``has_body``).
        """
        position = 1
        subject = f"{self._body_subject(key)}.*"
        # A piece that was sent twice may come late, among others.
        ahead: dict[int, bytes] = {}
        expected = 0
        while True:
            connection = self._open()
            inbox = new_inbox()
            subscription = connection.subscribe(inbox)
            wanted = {"seq": position, "next_by_subj": subject, "batch": 32, "max_bytes": 8 << 20}
            found = False
            try:
                connection.publish(
                    f"$JS.API.DIRECT.GET.{self.stream}_BODIES", json.dumps(wanted).encode(), inbox
                )
                for message in self._answers(connection, subscription):
                    sequence = message.header(b"Nats-Sequence")
                    if message.status or not sequence:
                        break
                    position = int(sequence) + 1
                    index = int(message.header(b"Nats-Subject").rpartition(b".")[2])
                    if index >= expected:
                        ahead[index] = message.data
                    found = True
                connection.unsubscribe(subscription)
            except LogUnavailable:
                self._lose()
                raise
            while expected in ahead:
                yield ahead.pop(expected)
                expected += 1
            if not found:
                return

    def has_body(self, key: str) -> bool:
        """Return whether the leader has a body, or a part of it. Raises LogUnavailable."""
        asked = {"subjects_filter": f"{self._body_subject(key)}.*"}
        answer = self._done(f"STREAM.INFO.{self.stream}_BODIES", asked)
        return bool(answer["state"].get("subjects"))

    def drop_body(self, key: str) -> None:
        """Let go of a body. Raises LogUnavailable."""
        self._done(f"STREAM.PURGE.{self.stream}_BODIES", {"filter": f"{self._body_subject(key)}.*"})

    def body_keys(self) -> set[str]:
        """Return the keys of all bodies there are. Raises LogUnavailable."""
        first = f"{self._body_subject('')}"
        found: set[str] = set()
        offset = total = 0
        while not offset or offset < total:
            asked = {"subjects_filter": f"{first}>", "offset": offset}
            answer = self._done(f"STREAM.INFO.{self.stream}_BODIES", asked)
            subjects = answer["state"].get("subjects") or {}
            found |= {each.removeprefix(first).rpartition(".")[0] for each in subjects}
            total = int(answer.get("total", 0))
            if not subjects:
                break
            offset += len(subjects)
        return found

    # --- inside

    def _outcomes(self, timeout_s: float, wake: int) -> list[Outcome]:
        found, self._told = self._told, []
        if found:
            return found
        if self._connection is None:
            wait_ready(timeout_s, wake)
            return []
        try:
            for message in self._connection.messages(timeout_s, wake=wake):
                found += self._outcome(message)
        except LogUnavailable:
            self._lose()
            found += self._told
            self._told = []
        _, oldest = next(iter(self._sent.values()), (0, None))
        if oldest is not None and time.monotonic() - oldest > self.engine.timeout_s:
            # One that is late may still come: on a connection of its own nobody takes it for another's.
            self._lose()
            found += self._told
            self._told = []
        return found

    def _replace_stuck_leader(self) -> None:
        now = time.monotonic()
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > STUCK_TIMES * self.engine.timeout_s:
            self._stuck_since = now
            log.warning("the leader of %s takes no records: another server is to lead", self.stream)
            with suppress(LogUnavailable):
                self._ask(f"STREAM.LEADER.STEPDOWN.{self.stream}")

    def _body_subject(self, key: str) -> str:
        return f"{self.subject[: -len('.log')]}.body.{key}"

    def _streams(self) -> Iterator[tuple[str, dict[str, Any]]]:
        common = {
            "retention": "limits",
            "storage": "file",
            "num_replicas": self._replicas,
            "discard": "new",
            "max_age": 0,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "allow_direct": True,
            "deny_delete": True,
            "no_ack": False,
            "duplicate_window": DUPLICATE_WINDOW_NS,
        }
        yield self.stream, {"name": self.stream, "subjects": [self.subject], **common}
        bodies = f"{self.stream}_BODIES"
        yield bodies, {"name": bodies, "subjects": [f"{self._body_subject('*')}.*"], **common}

    def _open(self) -> NatsConnection:
        if self._connection is None:
            self._connection = self.engine.connect(self._first)
            self._inbox = new_inbox()
            self._connection.subscribe(f"{self._inbox}.*")
        return self._connection

    def _lose(self) -> None:
        """Let go of a connection; what was sent on it and has no outcome is Unknown."""
        self._heard_ns = self.heard_ns
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._first += 1
        self._told += [Unknown(after) for after, _ in self._sent.values()]
        self._sent.clear()

    def _outcome(self, message: Message) -> list[Outcome]:
        prefix, _, number = message.subject.rpartition(".")
        if prefix != self._inbox or not number.isdecimal():
            return []
        after, _ = self._sent.pop(int(number), (-1, 0.0))
        if after < 0:
            return []
        if message.status:
            # 503: nobody takes records now.
            return [Unknown(after)]
        try:
            answer = json.loads(message.data)
            if "error" not in answer:
                return [Acked(after, int(answer["seq"]))]
        except (ValueError, KeyError, TypeError) as fault:
            raise EngineFault(f"{self.url}: an answer that makes no sense: {message.data[:200]!r}") from fault
        return [AppendRefused(after) if error_code(answer) in WRONG_LAST_SEQUENCE else Unknown(after)]

    def _answers(self, connection: NatsConnection, subscription: int) -> Iterator[Message]:
        """Messages of one subscription as they come; outcomes that come meanwhile are kept."""
        deadline = time.monotonic() + self.engine.timeout_s
        while True:
            for message in connection.messages(deadline - time.monotonic()):
                if message.subscription == subscription:
                    yield message
                    deadline = time.monotonic() + self.engine.timeout_s
                else:
                    self._told += self._outcome(message)
            if time.monotonic() >= deadline:
                raise LogUnavailable(f"{connection.url}: no answer in time")

    def _ask(
        self, verb: str, body: dict[str, Any] | None = None, again_s: float | None = None
    ) -> dict[str, Any]:
        try:
            message = self._open().request(
                f"$JS.API.{verb}", b"" if body is None else json.dumps(body).encode(), again_s
            )
        except LogUnavailable:
            self._lose()
            raise
        if message.status:
            raise LogUnavailable(f"{self.url}: JetStream doesn't answer ({message.status})")
        try:
            answer = json.loads(message.data)
        except ValueError as fault:
            raise LogUnavailable(f"{self.url}: an answer that isn't JSON") from fault
        return answer if isinstance(answer, dict) else {}

    def _done(
        self, verb: str, body: dict[str, Any] | None = None, again_s: float | None = None
    ) -> dict[str, Any]:
        answer = self._ask(verb, body, again_s)
        if "error" in answer:
            raise LogUnavailable(f"{self.url}: {verb}: {answer['error'].get('description', 'refused')}")
        return answer

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.state()["state"]
        return found


def _is_taken(answer: Message) -> bool:
    """Raise LogUnavailable where the answer to a body's piece is no acknowledgement."""
    if answer.status or b'"error"' in answer.data:
        raise LogUnavailable(f"a body isn't taken: {answer.status or answer.data[:200]!r}")
    return True


def error_code(answer: dict[str, Any]) -> int:
    """Return JetStream's number of an error, 0 without one."""
    error = answer.get("error")
    return int(error.get("err_code", 0)) if isinstance(error, dict) else 0


def check_server(info: dict[str, Any]) -> None:
    """Raise OperatorError where a server is too old, or takes too little."""
    version = str(info.get("version", ""))
    numbers = tuple(int(part) for part in version.split("-")[0].split(".") if part.isdecimal())
    if numbers < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise OperatorError(f"cluster.engine: nats-server {version} is too old: {oldest} or newer is needed")
    # One of several that has lost it, as by a full disk, passes on what the others are asked.
    if not info.get("jetstream") and not info.get("cluster"):
        raise OperatorError("cluster.engine: the server runs without JetStream")
    most = int(info.get("max_payload", 0))
    if most < LEAST_PAYLOAD:
        raise OperatorError(f"cluster.engine: max_payload is {most}: {LEAST_PAYLOAD} at least are needed")


def check_stream(name: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise OperatorError with each setting of a stream that isn't as it must be."""
    wrong = [
        f"{key} is {found.get(key)!r} instead of {value!r}"
        for key, value in wanted.items()
        if found.get(key, False if value is False else None) != value
    ]
    wrong += [f"{key} is {found[key]!r}, which must not be set" for key in FOREIGN_SETTINGS if found.get(key)]
    if wrong:
        raise OperatorError(f"stream {name} has other settings than a cell's log needs: {'; '.join(wrong)}")


def unsynced(monitors: Sequence[dict[str, Any]]) -> list[str]:
    """Return a warning for each server that doesn't sync each record; ``/jsz?config=1`` of each is given."""
    return [
        f"{each.get('server_id', 'a server')} acknowledges what isn't synced: set sync_interval: always"
        for each in monitors
        if not each.get("config", {}).get("sync_always")
    ]
