"""Members of a cell tell each other once a second that they are there, and how far they have come.

These messages are for people and for relays; nothing that must be right depends on them.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from broker.cluster.jetstream import LogServers
from broker.cluster.log import LogUnavailable
from broker.cluster.nats import Message, NatsConnection

log = logging.getLogger("sluice.cluster")

INTERVAL_S = 1.0
# A member that was silent for so long is taken for gone, and after a while forgotten.
GONE_S = 5.0
# Another member of this one's name is there only if it goes on speaking: what an earlier life of this one
# said last may come late and all at once, when a network that was cut is whole again.
TWIN_S = 1.5
FORGOTTEN_S = 3600.0
MOST_MEMBERS = 64
OWNER, STANDBY, STARTING = "owner", "standby", "starting"


@dataclass(frozen=True, slots=True)
class MemberReport:
    """What one member says of itself. Positions are the log's; ``lag_s`` is 0 of an owner."""

    name: str
    role: str
    epoch: int = 0
    position: int = 0
    group: int = 0
    lag_s: float = 0.0
    addresses: tuple[str, ...] = ()
    version: str = ""
    fault: str = ""
    # One run of the member's; two of the same name have two.
    life: str = ""

    @classmethod
    def decode(cls, data: bytes) -> MemberReport:
        """Read a message. Raises ValueError where it is none."""
        found = json.loads(data)
        if not isinstance(found, dict):
            raise ValueError("no report of a member")
        known: dict[str, Any] = {}
        for each in fields(cls):
            value = found.get(each.name)
            if each.name == "addresses":
                known[each.name] = tuple(str(item)[:300] for item in value or ())[:16]
            elif each.type in ("int", "float"):
                known[each.name] = value if isinstance(value, int | float) else 0
            else:
                known[each.name] = str(value or "")[:300]
        return cls(**known)

    def encode(self) -> bytes:
        """Return the message."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member's last report and how long ago it came, in seconds."""

    report: MemberReport
    seen_s: float

    @property
    def is_there(self) -> bool:
        """Whether it has said so lately."""
        return self.seen_s < GONE_S


class Presence:
    """Tells what ``report`` returns, and keeps what the others tell; on a thread of its own.

    ``on_twin`` is called there with reports of another member that bears this one's name, from ``TWIN_S``
    after its first one on. ``others`` are the names of further cells, of whose members it hears too.
    """

    def __init__(
        self,
        engine: LogServers,
        cell: str,
        report: Callable[[], MemberReport],
        on_twin: Callable[[MemberReport], None] = lambda twin: None,
        others: Sequence[str] = (),
    ) -> None:
        self._engine = engine
        self._subject = f"sluice.{cell}.member"
        self._others = {f"sluice.{each}.member": each for each in others}
        self._seen_of: dict[str, dict[str, tuple[MemberReport, float]]] = {each: {} for each in others}
        self._report = report
        self._on_twin = on_twin
        self._seen: dict[str, tuple[MemberReport, float]] = {}
        # The life of the twin that was heard last, and since when it is.
        self._twin = "", 0.0
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.server = ""
        self._thread = threading.Thread(target=self._run, name="sluice-presence", daemon=True)

    def start(self) -> None:
        """Begin to tell and to listen."""
        self._thread.start()

    def tell_now(self) -> None:
        """Tell at once that something has changed; any thread may."""
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Tell nothing more."""
        self._stopping = True
        self.tell_now()
        self._thread.join()
        os.close(self._wake)

    def members(self) -> list[MemberSeen]:
        """Return all that were heard of, this one first."""
        now = time.monotonic()
        seen = sorted(self._seen.copy().items())
        others = [MemberSeen(report, now - at) for _, (report, at) in seen if now - at < FORGOTTEN_S]
        return [MemberSeen(self._report(), 0.0), *others]

    def members_of(self, cell: str) -> list[MemberSeen]:
        """Return the members of another cell that were heard of."""
        now = time.monotonic()
        return [
            MemberSeen(report, now - at) for _, (report, at) in sorted(self._seen_of[cell].copy().items())
        ]

    def _run(self) -> None:
        said = ""
        while not self._stopping:
            try:
                connection = self._engine.connect()
                self.server, said = connection.url, ""
                try:
                    self._talk(connection)
                finally:
                    connection.close()
            except LogUnavailable as fault:
                self.server = ""
                if said != str(fault):
                    said = str(fault)
                    log.info("other members can't be heard: %s", said)
                time.sleep(0.5)

    def _talk(self, connection: NatsConnection) -> None:
        for subject in (self._subject, *self._others):
            connection.subscribe(f"{subject}.*")
        told = 0.0
        me = self._report()
        name = me.name
        while not self._stopping:
            now = time.monotonic()
            if now - told >= INTERVAL_S:
                told = now
                connection.publish(f"{self._subject}.{name}", self._report().encode())
            for message in connection.messages(max(told + INTERVAL_S - now, 0.01), wake=self._wake):
                self._hear(message, me)
            with suppress(BlockingIOError):
                os.eventfd_read(self._wake)
                told = 0.0

    def _hear(self, message: Message, me: MemberReport) -> None:
        try:
            report = MemberReport.decode(message.data)
        except ValueError:
            return
        other = self._others.get(message.subject.rpartition(".")[0])
        if other is not None:
            _note(self._seen_of[other], report)
        elif report.name == me.name:
            # The servers send nobody its own messages, so this is another's.
            if report.life != me.life:
                self._hear_twin(report)
        else:
            _note(self._seen, report)

    def _hear_twin(self, report: MemberReport) -> None:
        life, since = self._twin
        now = time.monotonic()
        if report.life != life:
            self._twin = report.life, now
        elif now - since >= TWIN_S:
            self._on_twin(report)


def _note(seen: dict[str, tuple[MemberReport, float]], report: MemberReport) -> None:
    now = time.monotonic()
    if report.name not in seen and len(seen) >= MOST_MEMBERS:
        oldest = min(seen, key=lambda name: seen[name][1])
        if now - seen[oldest][1] < GONE_S:
            return
        del seen[oldest]
    seen[report.name] = (report, now)
