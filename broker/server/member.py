"""A member of a replicated cell: it follows the log and passes clients on until it owns the cell, then it serves.

The roles are phases of one process. An owner that has to let go of the cell doesn't become a standby in place: the
process executes itself anew, so that nothing of what it had in memory is left.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from broker import __version__
from broker.cluster.bodies import BodyStore
from broker.cluster.cleaning import LogCleaner
from broker.cluster.follower import SNAPSHOT_OF, LogFollower, Ownership
from broker.cluster.jetstream import Engine, JetStreamLog
from broker.cluster.lease import OwnerLease, StandbyClock
from broker.cluster.log import LogUnavailable
from broker.cluster.nats import Login
from broker.cluster.presence import OWNER, STANDBY, STARTING, MemberReport, Presence
from broker.cluster.records import SNAPSHOT_BEGIN, SNAPSHOT_END, SNAPSHOT_PIECE, cell_number
from broker.cluster.writer import LogWriter
from broker.config.broker import Settings
from broker.config.cluster import Cluster
from broker.errors import OperatorError
from broker.server.logging.output import Output
from broker.server.ownership import OwnedCell
from broker.server.server import Server, raise_descriptor_limit
from broker.store.cache import CacheStore
from broker.store.replicated import ReplicatedStore

log = logging.getLogger("sluice.cluster")

MS_NS = 1_000_000


def engine_of(cluster: Cluster) -> Engine:
    """Return how this member reaches the log's servers. Raises OperatorError where a file can't be read."""
    login = Login()
    if cluster.credentials_file is not None:
        user, colon, password = first_line(cluster.credentials_file).partition(":")
        login = Login(user=user, password=password) if colon else Login(token=user)
    wants_tls = cluster.engine_ca is not None or any(url.startswith("tls://") for url in cluster.engine)

    def context() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=cluster.engine_ca)

    return Engine(cluster.engine, cluster.ttl / 1500, login, context if wants_tls else None)


def first_line(path: Path) -> str:
    """Return the first line of a file that has a secret. Raises OperatorError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise OperatorError(f"{path}: can't be read: {fault}") from fault
    if not lines or not lines[0].strip():
        raise OperatorError(f"{path}: its first line is empty")
    return lines[0].strip()


class Member:
    """One member; ``run`` returns when it was told to stop, and may execute the process anew."""

    def __init__(
        self, settings: Settings, reload: Callable[[], Settings] | None, output: Output | None
    ) -> None:
        self.settings = settings
        self.cluster = settings.cluster
        self.name = self.cluster.member or socket.gethostname()
        self._reload = reload
        self._output = output
        self._engine = engine_of(self.cluster)
        self._cell = cell_number(self.cluster.cell)
        self._role = STARTING
        self._follower: LogFollower | None = None
        self._owned: OwnedCell | None = None
        self._stopped = False
        advertise = self.cluster.advertise or self.cluster.listen
        addresses = self.cluster.addresses or settings.listeners
        self._about = {
            **{"member": self.name, "advertise": str(advertise)},
            **{"addresses": [str(each) for each in addresses], "http": settings.http.url, "version": __version__},
        }
        self.presence = Presence(self._engine, self.cluster.cell, self.report)

    def report(self) -> MemberReport:
        """Return what this member says of itself."""
        position = group = epoch = 0
        lag_s, fault = 0.0, ""
        if self._owned is not None:
            writer = self._owned.writer
            position, group, epoch = writer.acked_position, writer.acked_group, writer.epoch
            fault = self._owned.suspended
        elif self._follower is not None:
            at = self._follower.at
            position, group, epoch, fault = at.position, at.group, at.epoch, at.fault
            if at.position < at.last_position:
                lag_s = (time.monotonic_ns() - at.level_ns) / 1e9
        about = self._about
        addresses = tuple(str(each) for each in self.cluster.addresses or self.settings.listeners)
        return MemberReport(
            self.name,
            self._role,
            epoch,
            position,
            group,
            round(lag_s, 3),
            str(about["advertise"]),
            addresses,
            str(about["http"]),
            __version__,
            fault,
        )

    def run(self) -> None:
        """Follow, take over, serve; until SIGTERM or SIGINT. Raises OperatorError where it can't."""
        raise_descriptor_limit()
        self.presence.start()
        ownership = self._stand_by()
        if ownership is None:
            self.presence.stop()
            self._say("sluice stopped")
            return
        if self._own(ownership):
            self.presence.stop()
            self._execute_anew()

    # --- standing by

    def _stand_by(self) -> Ownership | None:
        self._prepare_log()
        now_ns = time.monotonic_ns()
        clock = StandbyClock(self.cluster.ttl * MS_NS, self.cluster.rank, now_ns)
        follower = self._follower = LogFollower(
            JetStreamLog(self._engine, self.cluster.cell, self.cluster.replicas),
            self._cell,
            self.name,
            self.settings.data,
            clock,
            json.dumps(self._about).encode(),
            self._on_owner,
            self.settings.journal_file_size,
        )

        def on_stop(_number: int, _frame: FrameType | None) -> None:
            self._stopped = True
            follower.stop()

        signal.signal(signal.SIGTERM, on_stop)
        signal.signal(signal.SIGINT, on_stop)
        if self._stopped:
            return None
        self._role = STANDBY
        self._say(f"sluice {__version__} member {self.name} follows cell {self.cluster.cell}")
        return follower.run()

    def _prepare_log(self) -> None:
        def on_stop(_number: int, _frame: FrameType | None) -> None:
            self._stopped = True

        signal.signal(signal.SIGTERM, on_stop)
        signal.signal(signal.SIGINT, on_stop)
        engine = JetStreamLog(self._engine, self.cluster.cell, self.cluster.replicas)
        said = ""
        while not self._stopped:
            try:
                engine.prepare()
                break
            except LogUnavailable as fault:
                if said != str(fault):
                    said = str(fault)
                    log.warning("the cell's log can't be had yet: %s", said)
                time.sleep(0.3)
        engine.close()

    def _on_owner(self, about: bytes) -> None:
        """The owner, or that there is none, is known by now."""

    # --- owning

    def _own(self, ownership: Ownership) -> bool:
        """Serve; return whether the process is to go on as a standby."""
        cluster = self.cluster
        fold = ownership.fold
        lease = OwnerLease(
            cluster.ttl * MS_NS, cluster.margin * MS_NS, cluster.mark * MS_NS, ownership.sent_ns, ownership.sent_ns
        )
        bell: list[Callable[[], None]] = []

        def changed() -> None:
            if bell:
                bell[0]()

        engine = JetStreamLog(self._engine, cluster.cell, cluster.replicas)
        writer = LogWriter(engine, fold, lease, json.dumps(self._about).encode(), changed)
        writer.start()
        bodies = BodyStore(JetStreamLog(self._engine, cluster.cell, cluster.replicas))
        if fold.group == 0 and fold.epoch == 1:
            self._begin_with_what_is_there(writer, bodies)
        store = ReplicatedStore.own(
            self.settings.data, writer, fold.epoch, file_bytes=self.settings.journal_file_size
        )
        bell.append(store.ring)
        owned = self._owned = OwnedCell(store, writer, bodies)
        server = Server(self.settings, self._reload, self._output, owned)
        cleaner = LogCleaner(
            JetStreamLog(self._engine, cluster.cell, cluster.replicas),
            writer,
            self.settings.data,
            server.live_bytes,
            server.copy_for_snapshot,
        )
        self._role = OWNER
        self.presence.tell_now()
        opened = server.start()
        for url in opened:
            self._say(f"listening {url}")
        self._say(f"sluice {__version__} ready: member {self.name} owns cell {cluster.cell}, epoch {fold.epoch}")
        cleaner.start()
        try:
            server.run()
        finally:
            cleaner.stop()
            bell.clear()
            left = server.left_cell
            if not left:
                owned.hand_over(server.successor)
            owned.stop()
        if left:
            log.error("this member has let go of the cell: %s", left)
        return bool(left) or server.hands_over

    def _begin_with_what_is_there(self, writer: LogWriter, bodies: BodyStore) -> None:
        """Make what a single broker left in the directory the beginning of the log."""
        with_data = CacheStore.open(self.settings.data, file_bytes=self.settings.journal_file_size)
        try:
            if with_data.is_empty:
                return
            log.info("%s: its contents become the beginning of the cell's log", self.settings.data)
            for file in with_data.bodies():
                bodies.put(file, lambda fault: None)
            writer.append(SNAPSHOT_BEGIN, 0, SNAPSHOT_OF.pack(1, 0))
            for blob in with_data.live_groups():
                writer.append(SNAPSHOT_PIECE, 0, blob)
                while writer.behind_records > 64 and not writer.fenced and not writer.fault:
                    time.sleep(0.002)
            writer.append(SNAPSHOT_END, 0, b"")
        finally:
            with_data.close()

    def _execute_anew(self) -> None:
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def serve_member(
    settings: Settings, reload: Callable[[], Settings] | None = None, output: Output | None = None
) -> None:
    """Run a member of a cell in this process until it is told to stop."""
    Member(settings, reload, output).run()



