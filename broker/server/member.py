"""A member of a replicated cell: it follows the log and passes clients on until it owns the cell.

The roles are phases of one process. An owner that has to let go of the cell doesn't become a standby in
place: the process executes itself anew, so that nothing of what it had in memory is left.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from broker import __version__
from broker.amqp.control.failover import FailoverServers
from broker.cluster.bodies import BodyStore
from broker.cluster.cleaning import LogCleaner
from broker.cluster.follower import CellOwnership, FollowedTo, LogFollower
from broker.cluster.jetstream import JetStreamLog
from broker.cluster.lease import OwnerLease, StandbyClock
from broker.cluster.log import LogUnavailable
from broker.cluster.presence import (
    INTERVAL_S,
    OWNER,
    STANDBY,
    STARTING,
    TWIN_S,
    MemberReport,
    MemberSeen,
    Presence,
)
from broker.cluster.records import cell_number
from broker.cluster.watchdog import telling
from broker.cluster.writer import LogWriter
from broker.config.broker import Settings
from broker.config.cluster import check_cluster, is_client_address
from broker.config.listeners import AddressType, is_loopback
from broker.errors import OperatorError
from broker.manage.cluster import CellOwner, ClusterStatus
from broker.server.cells.seat import BEGIN_ANEW, CellSeat, NoMover
from broker.server.cluster.beginning import begin_with
from broker.server.cluster.engine import engine_of, timeout_s, warn_of_unsynced
from broker.server.cluster.header import RelayedClient
from broker.server.cluster.member_port import Handover, MemberPort
from broker.server.cluster.pages import MemberPages
from broker.server.cluster.relay import OwnerAddress, Relay, RelayListener, takes_connections
from broker.server.cluster.spreading import SpreadView, is_sound
from broker.server.cluster.status import status_of
from broker.server.logging.output import Output
from broker.server.notify import notify
from broker.server.ownership import OwnedCell
from broker.server.server import Server, raise_descriptor_limit
from broker.store.replicated import ReplicatedStore
from broker.units import SECOND_NS

log = logging.getLogger("sluice.cluster")

MS_NS = 1_000_000
# A member that has just begun refuses to run beside another one of its name. It knows that by a report that
# comes `TWIN_S` behind another: two intervals later, or three where one was lost.
YOUNG_S = TWIN_S + 3 * INTERVAL_S + 0.5
# How long the owner may take to accept a connection by which a standby looks whether it is there.
LOOK_S = 0.25


class Member:
    """One member; ``run`` returns when it was told to stop, and may execute the process anew.

    With a ``seat`` it is the process of one of several cells: its ports are those of all of them, and its
    supervisor starts it anew.
    """

    def __init__(
        self,
        settings: Settings,
        reload: Callable[[], Settings] | None,
        output: Output | None,
        seat: CellSeat | None = None,
    ) -> None:
        self.settings = settings
        self.cluster = settings.cluster
        self._seat = seat
        self.name = self.cluster.name
        self._reload = reload
        self._output = output
        self._engine = engine_of(self.cluster)
        self._cell = cell_number(self.cluster.cell)
        self._role = STARTING
        self._follower: LogFollower | None = None
        self._clock: StandbyClock | None = None
        self._owned: OwnedCell | None = None
        self._stopped = False
        self._secret = self.cluster.secret()
        self.addresses = self.cluster.addresses or tuple(map(str, settings.listeners))
        # No two members claim the cell by the same bytes, also where they bear the same name by mistake: the
        # one whose claim the log refused would take the other's for its own.
        self._life = os.urandom(8).hex()
        self._began_s = time.monotonic()
        self._refused = ""
        self._rereads = False
        self._alive_s = 0.0
        self._warned_of_twin = False
        about = {"member": self.name, "advertise": str(self.cluster.advertised), "life": self._life}
        self._about = json.dumps(about).encode()
        self._owner: OwnerAddress | None = None
        self._server: Server | None = None
        self._relay = Relay(self.cluster.cell, self.name, self._secret, self._relayed_listeners())
        listen = self.cluster.listen
        near = is_loopback(listen.host)
        pages = MemberPages(self.status, self._unready, is_near=near, relays=False)
        others = [] if seat is None else SpreadView.others(seat.whole, seat.place.number, seat.place.cells)
        self.presence = Presence(self._engine, self.cluster.cell, self.report, self._on_twin, others)
        # What it knows of all cells, where there are several.
        self._spread = (
            None
            if seat is None
            else SpreadView(seat.whole, seat.place.number, seat.place.cells, self.presence)
        )
        self._port = MemberPort(
            listen.host,
            listen.port,
            self.cluster.cell,
            self._secret,
            self._why_not_owner,
            self._route,
            pages.any_page,
        )

    def report(self) -> MemberReport:
        """Return what this member says of itself."""
        position = group = epoch = 0
        lag_s, fault = 0.0, ""
        if self._owned is not None:
            writer = self._owned.writer
            position, group, epoch = writer.acked_position, writer.acked_group, writer.epoch
            fault = self._owned.fault
        elif self._follower is not None:
            at = self._follower.at
            position, group, epoch, fault = at.position, at.group, at.epoch, at.fault
            if at.position < at.last_position:
                lag_s = (time.monotonic_ns() - at.level_ns) / 1e9
        return MemberReport(
            self.name,
            self._role,
            epoch,
            position,
            group,
            round(lag_s, 3),
            self.addresses,
            __version__,
            fault,
            self._life,
        )

    @property
    def owner(self) -> OwnerAddress | None:
        """Who owns the cell, as far as this member knows; None while nobody does."""
        return self._owner

    @property
    def reaches_owner(self) -> bool:
        """Whether clients that come here reach the owner."""
        return self._role == OWNER or self._relay.is_reachable

    def members(self) -> list[MemberSeen]:
        """Return all members that were heard of, this one first."""
        return self.presence.members()

    def cells(self) -> tuple[CellOwner, ...]:
        """Return who owns each of several cells; nothing where there is one."""
        return () if self._spread is None else self._spread.owners()

    @property
    def followed(self) -> FollowedTo | None:
        """How far it has come as a standby."""
        return None if self._follower is None else self._follower.at

    @property
    def owned(self) -> OwnedCell | None:
        """The cell, while it is this member's."""
        return self._owned

    @property
    def engine_server(self) -> str:
        """The log's server that it hears the others by, empty where there is none."""
        return self.presence.server

    def status(self) -> ClusterStatus:
        """Return how the cell is now; any thread may ask."""
        return status_of(self)

    def move(self, member: str) -> str:
        """Hand the cell over, to the best standby for ''; return who takes it. Any thread may ask.

        Raises OperatorError where the cell isn't ours or the other can't take it.
        """
        server = self._server
        if server is None:
            raise OperatorError("this member doesn't own the cell: ask the owner")
        there = [each.report for each in self.presence.members() if each.is_there]
        standbys = [each.name for each in there if each.role == STANDBY]
        if member and member not in standbys:
            raise OperatorError(
                f"'{member}' is no standby that is there; there are: {', '.join(standbys) or 'none'}"
            )
        successor = member or self._successor()
        if not successor:
            raise OperatorError("there is no standby that could take the cell")
        server.reactor.post(lambda: server.hand_over(successor))
        return successor

    def run(self) -> int:
        """Follow, take over, serve; until SIGTERM or SIGINT. Return the process's status, which of one of
        several cells may ask for another start. Raises OperatorError where it can't.
        """
        raise_descriptor_limit()
        self._warn()
        check_place(self.settings.data)
        self._note_signals()
        self._port.start()
        self._relay.start()
        self.presence.start()
        if self._seat is None:
            notify("READY=1")
        else:
            self._seat.tell_ready()
        try:
            ownership = self._stand_by()
            self._relay.stop()
            goes_on = ownership is not None and self._own(ownership)
        finally:
            self._port.stop()
            self.presence.stop()
        if ownership is None and self._refused:
            raise OperatorError(self._refused)
        if goes_on and not self._stopped:
            if self._seat is not None:
                return BEGIN_ANEW
            self._execute_anew()
        if self._seat is None:
            self._say("sluice stopped")
        return 0

    def _warn(self) -> None:
        """Warn of the settings, as the supervisor does of several cells', and of servers that don't sync."""
        if self._seat is None:
            for text in check_cluster(self.cluster):
                log.warning("%s", text)
        elif self._seat.place.number > 0:
            return
        warning = threading.Thread(target=warn_of_unsynced, args=(self.cluster.engine_monitors,), daemon=True)
        warning.name = "sluice-monitors"
        warning.start()

    # --- standing by

    def _stand_by(self) -> CellOwnership | None:
        self._prepare_log()
        now_ns = time.monotonic_ns()
        grace_ns = int(timeout_s(self.cluster) * 1e9) + self.cluster.mark_ms * MS_NS
        clock = self._clock = StandbyClock(self.cluster.ttl_ms * MS_NS, self.cluster.rank, now_ns, grace_ns)
        follower = self._follower = LogFollower(
            JetStreamLog(self._engine, self.cluster.cell, self.cluster.replicas),
            self._cell,
            self.name,
            self.settings.data,
            clock,
            self._about,
            self._on_owner,
            self.settings.journal_file_size,
            self._is_owner_there,
            self._tell_alive,
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

    def _note_signals(self) -> None:
        def on_stop(_number: int, _frame: FrameType | None) -> None:
            self._stopped = True

        def on_reload(_number: int, _frame: FrameType | None) -> None:
            self._rereads = True
            log.info("settings and policies are read again when this member takes over")

        signal.signal(signal.SIGTERM, on_stop)
        signal.signal(signal.SIGINT, on_stop)
        signal.signal(signal.SIGHUP, on_reload)

    def _tell_alive(self) -> None:
        """Tell the service manager, as an owner's loop does, or the supervisor; any thread may."""
        now_s = time.monotonic()
        if now_s < self._alive_s + 1:
            return
        self._alive_s = now_s
        if self._seat is None:
            notify("WATCHDOG=1")
            return
        self._seat.beat()
        if self._clock is not None and self._spread is not None:
            # Who comes first differs by cell, and with who is there.
            self._clock.rank = self.cluster.rank + self._spread.rank()

    def _read_again(self) -> None:
        """Take the settings as they are now, where somebody has asked for that while this member stood by."""
        if not self._rereads or self._reload is None:
            return
        self._rereads = False
        try:
            self.settings = self._reload()
        except OperatorError as fault:
            log.error("the settings can't be read again, and stay as they were: %s", fault)

    def _prepare_log(self) -> None:
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
                self._tell_alive()
                time.sleep(0.3)
        engine.close()

    def _on_twin(self, twin: MemberReport) -> None:
        """Refuse to run where this member has just begun and another one has its name; else say so once."""
        if time.monotonic() - self._began_s < YOUNG_S and self._role != OWNER:
            self._refused = (
                f"cluster.member: another member of cell {self.cluster.cell} is called {self.name!r}"
                f" ({', '.join(twin.addresses) or 'its address is not known'}): each needs a name of its own"
            )
            self._stopped = True
            if self._follower is not None:
                self._follower.stop()
        elif not self._warned_of_twin:
            self._warned_of_twin = True
            log.error("another member is called %s as this one is: each needs a name of its own", self.name)

    def _on_owner(self, about: bytes) -> None:
        """Have clients passed on to the owner, whose own word this is; empty bytes: there is none."""
        owner = None
        try:
            said = json.loads(about) if about else {}
            if said and said["member"] != self.name:
                address = AddressType().parse(said["advertise"])
                epoch = 0 if self._follower is None else self._follower.epoch
                owner = OwnerAddress(str(said["member"]), address.host, address.port, epoch)
        except (ValueError, KeyError, TypeError) as fault:
            log.error("what the owner says of itself makes no sense: %r", fault)
        self._owner = owner
        self._relay.set_owner(owner)

    def _is_owner_there(self) -> bool:
        owner = self._owner
        return owner is None or takes_connections(owner, LOOK_S)

    def _relayed_listeners(self) -> list[RelayListener]:
        listeners = [RelayListener(str(each), each.host, each.port) for each in self.settings.listeners]
        http = self.settings.http
        # What comes by TLS can't be looked into: the owner answers all of it.
        near, seat = is_loopback(http.host), self._seat
        pages = MemberPages(
            self.status, self._unready, is_near=near, relays=True, is_one_of_several=seat is not None
        )
        page = None if http.secure else pages.page
        if seat is not None:
            return seat.listeners(self.settings, page)
        return [*listeners, RelayListener(http.url, http.host, http.port, page)]

    def _unready(self) -> str:
        """Return why the owner isn't ready, empty where it is or this member isn't the owner."""
        server = self._server
        return "" if server is None else server.ask(server.model.diagnostics.readiness)

    def _why_not_owner(self) -> str:
        return "" if self._role == OWNER else f"{self.name} doesn't own the cell"

    def _route(self, client: RelayedClient) -> Handover | str:
        server = self._server
        return "it doesn't own the cell any more" if server is None else server.routes().route(client)

    # --- owning

    def _own(self, ownership: CellOwnership) -> bool:
        """Serve; return whether the process is to go on as a standby."""
        self._read_again()
        cluster = self.cluster
        fold = ownership.fold
        lease = OwnerLease(
            cluster.ttl_ms * MS_NS,
            cluster.margin_ms * MS_NS,
            cluster.mark_ms * MS_NS,
            ownership.sent_ns,
            ownership.sent_ns,
        )
        bell: list[Callable[[], None]] = []

        def changed() -> None:
            if bell:
                bell[0]()

        with telling(self._tell_alive):
            engine = JetStreamLog(self._engine, cluster.cell, cluster.replicas)
            writer = LogWriter(engine, fold, lease, self._about, changed)
            writer.start()
            bodies = BodyStore(JetStreamLog(self._engine, cluster.cell, cluster.replicas))
            if fold.group == 0 and not self._begin(writer, bodies) and self._stopped:
                bodies.stop()
                writer.stop()
                return False
            store = ReplicatedStore.own(
                self.settings.data, writer, fold.epoch, file_bytes=self.settings.journal_file_size
            )
            bell.append(store.ring)
            bodies.keep_only(store.bodies(), lambda: lease.may_act(time.monotonic_ns()))
            owned = self._owned = OwnedCell(store, writer, bodies, self._successor)
            seat = self._seat
            at = () if seat is None else (seat.place, seat.directory)
            server = Server(self.settings, self._reload, self._output, owned, self, *at)
            cleaner = LogCleaner(
                JetStreamLog(self._engine, cluster.cell, cluster.replicas),
                writer,
                self.settings.data,
                server.live_bytes,
                server.copy_for_snapshot,
                cluster.log_size,
            )
            owned.untrimmed = lambda: cleaner.fault
            server.container.failover = FailoverServers(self._failover_addresses())
            opened = server.start()
        if self._stopped:
            # Told so while it took over: the broker has its own way to stop, and hands over.
            signal.raise_signal(signal.SIGTERM)
        self._server = server
        self._role = OWNER
        self._owner = OwnerAddress(
            self.name, self.cluster.advertised.host, self.cluster.advertised.port, fold.epoch
        )
        self.presence.tell_now()
        self._tell_failover(server)
        for url in opened if seat is None else ():
            self._say(f"listening {url}")
        if seat is not None:
            server.model.cells.mover = NoMover()
            self._beat(server)
        self._say(
            f"sluice {__version__} ready: member {self.name} owns cell {cluster.cell}, epoch {fold.epoch}"
        )
        cleaner.start()
        try:
            server.run()
        finally:
            # The broker's way to stop is gone with its loop, and the process may be about to go on.
            self._note_signals()
            self._stopped = self._stopped or server.asked_to_stop
            self._server = None
            self._role = STARTING
            cleaner.stop()
            bell.clear()
            left = server.left_cell
            owned.stop()
        if left:
            log.error("this member has let go of the cell: %s", left)
        return bool(left) or server.hands_over

    def _begin(self, writer: LogWriter, bodies: BodyStore) -> bool:
        """Have a log without groups begin with what the directory has; return whether it does."""
        file_bytes = self.settings.journal_file_size
        return begin_with(self.settings.data, file_bytes, writer, bodies, lambda: self._stopped)

    def _failover_addresses(self) -> list[str]:
        """Return where clients find the cell's other members, as these say."""
        found = [
            url for each in self.presence.members()[1:] if each.is_there for url in each.report.addresses
        ]
        return [url for url in found if is_client_address(url)]

    def _tell_failover(self, server: Server) -> None:
        """Offer the members that are there to every client that opens, once a second anew."""
        failover = server.container.failover
        if failover is not None and self._server is server:
            failover.replace(self._failover_addresses())
            server.reactor.at(time.monotonic_ns() + SECOND_NS, lambda _: self._tell_failover(server))

    def _beat(self, server: Server) -> None:
        """Tell the supervisor each second that the loop turns, and give the cell to who has fewer."""
        seat, spread = self._seat, self._spread
        if seat is None or spread is None or self._server is not server:
            return
        seat.beat()
        now_ns = time.monotonic_ns()
        taker = spread.taker(now_ns)
        if taker:
            log.info("%s has fewer cells: it is given this one", taker)
            server.hand_over(taker)
        server.reactor.at(now_ns + SECOND_NS, lambda _: self._beat(server))

    def _successor(self) -> str:
        """Return the standby that is to follow where nobody said which: the farthest of the sound ones that
        are not far behind, as one is that has only begun to join; of several cells that which has the fewest.
        """
        if self._spread is not None:
            return self._spread.successor()
        standbys = [each.report for each in self.presence.members() if is_sound(each)]
        return max(standbys, key=lambda each: each.position).name if standbys else ""

    def _execute_anew(self) -> None:
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def check_place(data: Path) -> None:
    """Raise OperatorError where a data directory can't be renamed, or a copy not be made beside it."""
    place = data.absolute().parent
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        what = f"{place} can't be written"
    elif data.exists() and data.stat().st_dev != place.stat().st_dev:
        what = f"{place} is on another file system"
    else:
        return
    raise OperatorError(
        f"data: {data}: a member of a cell puts snapshots and a directory that is of no use beside its data,"
        f" and {what}: name a directory below, such as {data / 'data'}"
    )


def serve_member(
    settings: Settings, reload: Callable[[], Settings] | None = None, output: Output | None = None
) -> None:
    """Run a member of a cell in this process until it is told to stop."""
    Member(settings, reload, output).run()
