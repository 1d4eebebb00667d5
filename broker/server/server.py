"""The composition root: settings in, a running broker out; threads, signals and the clock are here.

The reactor runs on the calling thread and owns the engine. The HTTP server has its own thread and
asks the reactor for what it shows.
"""

from __future__ import annotations

import gc
import logging
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from logging import LogRecord
from pathlib import Path
from types import FrameType
from typing import TypeVar

from broker import __version__
from broker.amqp.container import Container
from broker.amqp.loop.admission import Admission
from broker.amqp.loop.reactor import Reactor
from broker.amqp.registry import ConnectionRegistry
from broker.config.broker import Settings
from broker.config.cluster import check_cluster
from broker.config.limits import Limits
from broker.config.listeners import is_loopback
from broker.config.policy_files import load_policies
from broker.config.thresholds import resolve
from broker.config.tls import NONE
from broker.engine.engine import Engine
from broker.errors import ConfigError, OperatorError, Problem
from broker.forwarding.runner import Forwarding
from broker.http.server.access import Access, Rates
from broker.http.server.cpu_share import CpuShare
from broker.http.server.server import HttpServer
from broker.http.server.types import Operate, Secured
from broker.http.server.websocket_handshake import WebSocketHandshake
from broker.loggers import ROOT
from broker.manage import calls
from broker.manage.cluster import ClusterView
from broker.manage.events.history import BACKLOG, EventHistory, LoopClock
from broker.manage.events.observer import TOPIC
from broker.manage.model import Model
from broker.manage.policy_reader import Reread
from broker.manage.process import Process
from broker.manage.survey import SurveyResult, SurveyScope, TlsCounted
from broker.queues.selector import selector
from broker.security.acl import Acl
from broker.security.authentication import Authentication
from broker.security.exchange import ListenerTrust
from broker.security.rules import load_acl
from broker.security.setup import Listening, authentication_of, check_exposure
from broker.security.throttle import Attempts
from broker.security.tls import Contexts, ServerTls, warnings
from broker.server.cells.directory import CellDirectory
from broker.server.cells.face import HttpNeighbours
from broker.server.cells.layout import cells_of
from broker.server.cells.neighbours import NeighbourPort, Neighbours
from broker.server.cells.place import CellPlace, InheritedSockets
from broker.server.cluster.routes import OwnerRoutes
from broker.server.cluster.standbys import StandbyWatch
from broker.server.heap import Heap, give_back
from broker.server.logging.formats import JsonFormatter
from broker.server.logging.output import Output
from broker.server.notify import notify
from broker.server.ownership import LOOK_NS, OwnedCell
from broker.server.recovery import open_store, restore
from broker.server.resources import (
    MEMORY_PERCENT,
    STORE_PERCENT,
    TEMP_PERCENT,
    free_bytes,
    memory_bytes,
    taken_bytes,
)
from broker.store.largefiles import LARGE, LargeFiles
from broker.store.pager import Pager
from broker.store.port import FAILED, FULL
from broker.units import MB, format_size

log = logging.getLogger("sluice")

SECOND_NS = 1_000_000_000
# How long another thread waits for the reactor to answer.
ASK_TIMEOUT = 5.0
# The reactor's thread waits for the interpreter's lock at most this long while HTTP renders.
SWITCH_INTERVAL = 0.0005
# Fewer messages in a second than this, and nobody minds a pause of some milliseconds.
QUIET = 100
COLLECT = (50_000, 50, 50)

# How long an owner that leaves its cell waits for what it has sealed.
CELL_END_S = 5.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Budgets:
    """The limits over all nodes, in bytes (FLOW §4); 0 is none."""

    memory_bytes: int
    store_bytes: int
    temp_bytes: int

    @classmethod
    def of(cls, settings: Settings, share: int = 1) -> Budgets:
        """Those that are set, the others from what the machine has; of ``share`` cells each has as much."""
        free = free_bytes(settings.data) // share
        # What the store takes already is its own: else a full one would be stopped by every restart.
        mine = free + taken_bytes(settings.data) + taken_bytes(settings.data / LARGE)
        return cls(
            _part_of(settings.memory_limit, memory_bytes() * MEMORY_PERCENT // 100, share),
            _part_of(settings.store_limit, mine * share * STORE_PERCENT // 100, share),
            _part_of(settings.temp_limit, free * share * TEMP_PERCENT // 100, share),
        )

    def __str__(self) -> str:
        shown = ((name, getattr(self, f"{name}_bytes")) for name in ("memory", "store", "temp"))
        return ", ".join(f"{name}_limit {_rounded(nbytes) if nbytes else 'none'}" for name, nbytes in shown)


def _part_of(limit: int | None, default: int, share: int) -> int:
    """Return one of ``share`` parts of a limit, at least 1 where there is a limit: 0 is none."""
    whole = default if limit is None else limit
    return max(whole // share, 1) if whole else 0


def _rounded(nbytes: int) -> str:
    return format_size(nbytes) if nbytes < MB else format_size(nbytes // MB * MB)


class Server:
    """One broker. It is made with all that survived the last one; ``start`` opens its ports, ``run`` serves
    until a signal or ``stop``. OperatorError if the data directory or the policies refuse.
    """

    def __init__(
        self,
        settings: Settings,
        reload: Callable[[], Settings] | None = None,
        output: Output | None = None,
        cell: OwnedCell | None = None,
        cluster: ClusterView | None = None,
        place: CellPlace | None = None,
        directory: CellDirectory | None = None,
    ) -> None:
        self.settings = settings
        # One of several cells on this machine, with the sockets that all of them share.
        self.place = place
        self._cells = directory
        self._inherited = None if place is None else InheritedSockets.of(place)
        # The replicated cell that it owns, and why it let go of it.
        self.cell = cell
        self.left_cell = ""
        self.hands_over = False
        self.asked_to_stop = False
        self.successor = ""
        # Told once settings and policies have been read again.
        self.on_reloaded: Callable[[], None] = lambda: None
        self._output = output
        self._reload_settings = reload
        # Signals to reload that came since the last reload ended.
        self._reloads = 0
        self.budgets = Budgets.of(settings, 1 if place is None else place.cells)
        check_exposure(settings.security, _listening(settings))
        policies = load_policies(settings.policies)
        security = self.security = settings.security
        attempts = Attempts(security.free_attempts, security.longest_pause_ms, security.first_pause_ms)
        self.admission = Admission(authentication_of(security), attempts)
        acl = load_acl(settings.security.acl)
        self.tls = None if settings.tls.certificate is None else ServerTls(settings.tls)
        self.store = open_store(settings.data, settings.journal_file_size) if cell is None else cell.store
        self.engine = Engine(settings.flow.defaults.flow_control, self.store)
        self.engine.turn.now_ns = time.monotonic_ns()
        self.engine.turn.epoch_ns = time.time_ns() - self.engine.turn.now_ns
        self.engine.limit(self.budgets.memory_bytes, self.budgets.store_bytes, self.budgets.temp_bytes)
        # Set up before the reactor is there to post to; it answers once that runs.
        self.pager = Pager(settings.data, lambda task: self.reactor.post(task))
        self.engine.paging.pager = self.engine.streams.pager = self.pager
        kept = self.store.large_numbers()
        make_files = LargeFiles if cell is None else cell.large_files
        self.large = make_files(settings.data, lambda task: self.reactor.post(task), kept)
        self.engine.large.use(self.large, settings.limits.large_message_size)
        roster = ConnectionRegistry()
        self.model = Model(
            self.engine,
            policies,
            settings.flow.defaults,
            roster,
            Process(
                started_ns=self.engine.turn.now_ns,
                epoch_ns=self.engine.turn.epoch_ns,
                memory_limit_bytes=self.budgets.memory_bytes,
            ),
            auto_create=settings.auto_create,
        )
        self.model.cluster.view = cluster
        self.model.authority.replace(acl, settings.virtual_hosts)
        self.model.subscriptions.virtual_hosts = frozenset(settings.virtual_hosts)
        self.model.ownership.most = settings.limits.max_nodes_per_user
        self._bound_transactions(settings.limits)
        self.model.policy_reader.on_reload = self.read_again
        self.engine.letters.find = self.model.nodes.dead_letter_box
        if settings.events.enabled:
            self.model.nodes.own[TOPIC] = resolve(BACKLOG, settings.flow.defaults.without_letters("its own"))
        backups = self.model.backups
        backups.folder, backups.most = settings.backups, settings.limits.max_backups
        backups.copy = self.backup
        backups.clear(settings.data)
        # A filter that was taken once is taken again, whatever the limit is now.
        selector.MAX_LENGTH = sys.maxsize
        restore(self.engine, self.model, self.store)
        self.model.bridges.configure(settings.bridges)
        selector.MAX_LENGTH = settings.limits.max_selector_length
        selector.MAX_DEPTH = settings.limits.max_selector_depth
        self.container = Container(self.engine, self.model, roster, settings)
        if place is not None and directory is not None:
            self.container.join(place.name, directory)
            roster.cell = place.number
            self.model.nodes.elsewhere = directory.elsewhere
        self.reactor = Reactor(self.container, self.admission)
        self._neighbours: Neighbours | None = None
        self.neighbour_port: NeighbourPort | None = None
        if self._inherited is not None and place is not None:
            self._neighbours = Neighbours(place, self.reactor)
            self.neighbour_port = NeighbourPort(self._inherited.neighbours, self.reactor)
            self.reactor.reach_cells_by(self._neighbours.hand_over, self._neighbours.dial)
        self.conducting = Forwarding(self.model, self.reactor)
        self.heap = Heap(give_back)
        # How many connections had come and gone when that was last looked at.
        self._left = 0
        self.model.diagnostics.deadlock_watch.wake = lambda due_ns: self.reactor.at(
            due_ns, self.model.diagnostics.deadlock_watch.look
        )
        self.history = self._history(settings)
        if self.history is not None:
            self.model.diagnostics.on_events = self.history.recent
        self.http: HttpServer | None = None
        self._stopping = False

    def start(self) -> list[str]:
        """Open every port; what is listened on, as URLs. OperatorError if one can't be had."""
        opened: list[str] = []
        # Whoever reads that we are ready may send one at once.
        self._install_signals()
        self._warn_of_files(self.settings)
        self.conducting.configure(self.settings)
        for number, listener in enumerate(self.settings.listeners):
            door = ListenerTrust(is_loopback(listener.host), listener.secure, listener=str(listener))
            rules = listener.allow_plain, door, self.tls if listener.secure else None
            if self._inherited is None:
                port = self.reactor.listen(listener.host, listener.port, *rules)
            else:
                port = self.reactor.listen_at(self._inherited.listeners[number], *rules)
            opened.append(str(replace(listener, port=port)))
        if self.neighbour_port is not None:
            self.neighbour_port.start()
        if self.settings.http is not None:
            host, port = self.settings.http.host, self.settings.http.port
            entrance = WebSocketHandshake(self._adopt, self.settings.websocket_origins)
            model = self.model
            operate = Operate(
                model, self.ask_in_parts, self.settings.websocket_origins, self._access(self.settings)
            )
            shown = self.survey, model.diagnostics.readiness, entrance, operate
            share = CpuShare(self.settings.limits.http_share, lambda: self.container.lane.moved_ns)
            sock = None if self._inherited is None else self._inherited.http
            others = None
            if self.place is not None and self._cells is not None:
                others = HttpNeighbours(self.place, self._cells)
            self.http = HttpServer(host, port, self.ask, *shown, self._secured(), share, sock, others)
            if self.neighbour_port is not None:
                self.neighbour_port.on_http = self.http.adopt_cell
            self.http.start()
            opened.append(replace(self.settings.http, port=self.http.port).url)
        return opened

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, from ``start`` on; SIGHUP reloads settings and policies."""
        sys.setswitchinterval(SWITCH_INTERVAL)
        # Messages are not the collector's business (queues/queue.pxd); what is left is small and
        # short-lived. With the default thresholds it took 3 % of the processor under load.
        gc.freeze()
        gc.set_threshold(*COLLECT)
        self._sample(time.monotonic_ns())
        if self.cell is not None:
            self._look_at_cell(time.monotonic_ns())
        if self.history is not None:
            self.history.start(__version__, self.model.process.pid)
        self._tell_of_cell()
        for each in self.model.aside.views():
            told = {"kind": each.kind, "name": each.name, "messages": each.depth_msgs, "reason": each.reason}
            self.engine.changes.emit("set_aside", None, told)
        try:
            self.reactor.run()
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the port for HTTP and of the data directory, which is marked as stopped in order."""
        if self.cell is not None and not self.left_cell:
            # First of all: another member waits for it.
            self._end_groups()
            self.cell.hand_over(self.successor)
        self.conducting.stop()
        if self._neighbours is not None and self.neighbour_port is not None:
            self._neighbours.stop()
            self.neighbour_port.stop()
        if self.http is not None:
            self.http.stop()
        if self.history is not None:
            self.history.stop()
        self.admission.stop()
        self.pager.close()
        self.large.close()
        self.store.close()

    def _end_groups(self) -> None:
        """Wait a moment for the log to take what is left: it is told nobody, and better there than lost."""
        assert self.cell is not None
        self.store.seal()
        deadline = time.monotonic() + CELL_END_S
        while self.store.attend() < self.store.group - 1 and time.monotonic() < deadline:
            if self.cell.writer.fenced or self.cell.writer.fault or self.store.state == FAILED:
                return
            time.sleep(0.002)

    def _tell_of_cell(self) -> None:
        """Have events tell of the cell from now on: that it is owned, suspended and resumed, who joins it."""
        status = self.model.cluster.known()
        if self.cell is None or status is None:
            return
        self._tell_event("owner", {"member": status.member, "epoch": status.epoch})
        self.cell.changed = lambda kind, reason: self._tell_event(kind, {"reason": reason} if reason else {})
        self._look_at_standbys(StandbyWatch(self._tell_event), time.monotonic_ns())

    def _tell_event(self, kind: str, fields: Mapping[str, object]) -> None:
        self.engine.changes.emit(kind, None, fields)

    def _look_at_standbys(self, watch: StandbyWatch, now_ns: int) -> None:
        status = self.model.cluster.known()
        if status is not None:
            watch.look(status.members)
        self.reactor.at(now_ns + SECOND_NS, lambda now_ns: self._look_at_standbys(watch, now_ns))

    def _look_at_cell(self, now_ns: int) -> None:
        """Act by the lease: another member may own the cell by now."""
        assert self.cell is not None
        reason = self.cell.look(time.monotonic_ns())
        self.engine.delivery.act_until(self.cell.writer.lease.ends_ns)
        if reason and not self._stopping:
            self.left_cell = reason
            self._stopping = True
            log.error("%s: closing all connections", reason)
            self.reactor.stop_listening()
            self.reactor.close_peers("amqp:connection:forced", "another member of the cell takes over")
            self.reactor.at(now_ns + SECOND_NS // 20, lambda _: self.reactor.stop())
            return
        relief = self.cell.relief(time.monotonic_ns())
        if relief and not self._stopping:
            log.error("%s; %s takes the cell over", self.store.reason, relief)
            self.hand_over(relief)
            return
        self.reactor.at(now_ns + LOOK_NS, self._look_at_cell)

    def hand_over(self, successor: str) -> None:
        """Leave the cell to another member, with as short a pause as may be; on the loop's thread."""
        if self._stopping:
            return
        self.hands_over = True
        self._leave_to(successor)

    def _leave_to(self, successor: str) -> None:
        self.successor = successor
        self._stopping = True
        log.info("handing the cell over%s", f" to {successor}" if successor else "")
        self.reactor.stop_listening()
        if self.http is not None:
            self.http.wind_down()
        self.engine.actions.wind_down()
        self.conducting.wind_down()
        self.reactor.close_peers("amqp:connection:forced", "another member of the cell takes over")
        self.reactor.at(time.monotonic_ns() + SECOND_NS // 20, lambda _: self.reactor.stop())

    def _history(self, settings: Settings) -> EventHistory | None:
        events = settings.events
        if not events.enabled:
            return None
        return EventHistory(
            self.engine,
            LoopClock(self.reactor.at, self.reactor.post),
            self.model.holds.holding,
            settings.data / events.file,
            events.max_size,
            events.keep,
            events.sample_interval_ms,
        )

    def copy_for_snapshot(self, target: Path, done: Callable[[Exception | None], None]) -> None:
        """Copy the store without the bodies of large messages; any thread may ask."""
        self.reactor.post(lambda: self.store.backup(target, done, with_bodies=False))

    def live_bytes(self) -> int:
        """Return the bytes of durable messages without the bodies of large ones; TimeoutError after 5 s."""
        return self.ask(lambda: self.engine.depths.disk.depth_bytes - self.store.body_bytes())

    def backup(self, target: Path, done: Callable[[Exception | None], None]) -> None:
        """Copy the store into a new directory; no large message's file goes meanwhile."""
        held = self.engine.large.hold()

        def copied(fault: Exception | None) -> None:
            done(fault)
            # This is the store's thread, and a body that goes gives room back to a budget of the loop's.
            self.reactor.post(held.clear)

        self.store.backup(target, copied)

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Run a function on the reactor's thread and wait for its answer, and for the disk where it stored
        something; TimeoutError after 5 s.
        """
        done = threading.Event()
        answers: list[Answer] = []
        faults: list[BaseException] = []

        storing = self.engine.durability.commit

        def answer() -> None:
            mark = (0, 0) if storing is None else storing.mark()
            try:
                answers.append(question())
            except Exception as fault:  # noqa: BLE001 - it is raised again where it was asked
                faults.append(fault)
            finally:
                if storing is None:
                    done.set()
                else:
                    storing.after(mark, done.set)

        self.reactor.post(answer)
        if not done.wait(ASK_TIMEOUT):
            if answers:
                raise TimeoutError("it is done, but the disk has not taken it down in time")
            raise TimeoutError("the broker's loop did not answer in time")
        if faults:
            raise faults[0]
        return answers[0]

    def ask_in_parts(self, question: Callable[[], calls.Steps[Answer]]) -> Answer:
        """Return the answer to a long question, which is worked on for a millisecond a turn.

        Raises TimeoutError where the loop doesn't get to it for 5 s, or it takes longer than a minute.
        """
        return calls.IncrementalCall(self.reactor.post, question).wait()

    def survey(self) -> SurveyResult:
        """Everything that is counted, for metrics; TimeoutError if the reactor's thread doesn't get to it."""
        per = self.settings.metrics
        wanted = SurveyScope(subscriptions=per.per_subscription, links=per.per_link)
        found = self.ask_in_parts(lambda: self.model.queries.survey(wanted))
        refusals = dict(self.container.quotas.refused)
        longest_s = self.reactor.take_longest_turn() / SECOND_NS
        found = replace(found, refusals=refusals, longest_turn_s=longest_s)
        found = replace(
            found, authentications=dict(self.admission.totals), cluster=self.model.cluster.known()
        )
        if self.tls is not None:
            found = replace(found, tls=TlsCounted(*self.tls.counted()))
        if self._output is None:
            return found
        left_out = self._output.left_out_total
        return replace(found, log_lines=dict(self._output.lines_total), log_left_out=left_out)

    def _adopt(
        self,
        sock: socket.socket,
        address: str,
        user: str,
        admitted: Callable[[bool], None],
        gone: Callable[[], None],
    ) -> None:
        """A client of WebSocket asks to become a connection like any other; whether it may begin without
        SASL is decided as for a listener on that address.
        """
        plain_too = is_loopback(self.settings.http.host)
        http = self.settings.http
        door = ListenerTrust(loopback=plain_too, secure=http.secure, external_user=user, listener=http.url)
        self.reactor.post(lambda: admitted(self.reactor.adopt(sock, address, plain_too, door, gone)))

    def routes(self) -> OwnerRoutes:
        """Return what takes clients that other members relay, once the ports are open."""
        http = self.http
        return OwnerRoutes(
            self.reactor,
            self.settings.listeners,
            self.tls,
            None if http is None else self.settings.http,
            socket.socket.close if http is None else http.adopt,
            None if self.neighbour_port is None else self.neighbour_port.adopt,
        )

    def _access(self, settings: Settings) -> Access:
        """Who may ask over HTTP: those who may come in over AMQP, by the same users and keys."""
        limits = settings.limits
        return Access(
            authentication=lambda: self.admission.authentication,
            attempts=self.admission.attempts,
            security=lambda: self.security,
            refusal=self._writes_refused(),
            near=is_loopback(settings.http.host),
            rates=Rates(limits.http_requests, limits.http_writes, limits.http_logins),
        )

    def _secured(self) -> Secured | None:
        tls = self.tls
        if tls is None or not self.settings.http.secure:
            return None
        counts = tls.counts
        return Secured(lambda: tls.now.http, tls.user, counts.count_completed, counts.count_failed)

    def _writes_refused(self) -> str:
        """Why the HTTP API changes nothing for who doesn't say who it is; empty if it does."""
        host = self.settings.http.host
        if self.settings.http_allow_writes or is_loopback(host):
            return ""
        return (
            f"HTTP listens on {host}, which others can reach: it changes nothing for who doesn't say who it"
            " is, unless http_allow_writes is true"
        )

    def read_again(self) -> Reread:
        """Read settings, policies and whatever they name again, on any thread.

        ConfigError or OperatorError on any fault; then the old ones stay.
        """
        settings = self._reload_settings() if self._reload_settings is not None else self.settings
        check_exposure(settings.security, _listening(self.settings))
        authentication, acl = authentication_of(settings.security), load_acl(settings.security.acl)
        contexts = None if settings.tls.certificate is None else Contexts.of(settings.tls)
        policies = load_policies(settings.policies)
        take_over = partial(self._take_over, settings, authentication, acl, contexts)
        return Reread(policies, settings.flow.defaults, take_over)

    def _bound_transactions(self, limits: Limits) -> None:
        bounds = self.engine.transactions.limits
        bounds.most_per_user = limits.max_transactions_per_user
        bounds.most_bytes_per_user = limits.max_transaction_size_per_user

    def _take_over(
        self, settings: Settings, authentication: Authentication, acl: Acl, contexts: Contexts | None
    ) -> None:
        """Whatever was read again, but for the policies, holds from now on."""
        self.admission.reload(authentication, settings.security, self.container.peers)
        self.security = settings.security
        # Virtual hosts are those the broker was started with, as clients' addresses are read.
        self.model.authority.replace(acl, self.settings.virtual_hosts)
        self.model.ownership.most = settings.limits.max_nodes_per_user
        self._bound_transactions(settings.limits)
        self.container.quotas.reload(settings.limits, settings.connection_limits)
        self.container.recheck()
        if self.tls is not None and contexts is not None:
            self.tls.now = contexts
            self._warn_of_files(settings)
        self.model.policies.auto_create = settings.auto_create
        self._configure_logs(settings)
        self.model.bridges.configure(settings.bridges)
        self.conducting.configure(settings)
        self.on_reloaded()
        if settings.flow.defaults.flow_control != self.engine.topology.flow_control:
            self.engine.topology.switch_flow(settings.flow.defaults.flow_control)

    def _warn_of_files(self, settings: Settings) -> None:
        for text in warnings(settings.tls, datetime.now(UTC)):
            log.warning("%s", text)

    def _configure_logs(self, settings: Settings) -> None:
        self.model.log_levels.configure(settings.log_level, settings.log_levels)
        if self._output is not None:
            self._output.reconfigure(settings.log_format, settings.log_lines_per_peer)

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping

    def stop(self) -> None:
        """Stop in order: accept nobody, take no more messages, let what is in flight settle, close.

        The owner of a cell hands it over instead: another member goes on with what is in flight.
        """
        if self._stopping:
            self.reactor.stop()
            return
        if self.cell is not None:
            notify("STOPPING=1")
            self._leave_to("")
            return
        self._stopping = True
        log.info("stopping: waiting for what is in flight")
        notify("STOPPING=1")
        self.engine.changes.emit("stopping", None, {})
        self.reactor.stop_listening()
        if self.http is not None:
            self.http.wind_down()
        self.engine.actions.wind_down()
        self.conducting.wind_down()
        deadline = time.monotonic_ns() + self.settings.limits.shutdown_timeout_ms * 1_000_000
        self._wait_for_settlement(deadline)

    def _wait_for_settlement(self, deadline_ns: int) -> None:
        now_ns = time.monotonic_ns()
        if self._unsettled_msgs() and now_ns < deadline_ns and self.container.peers:
            self.reactor.at(now_ns + SECOND_NS // 50, lambda _: self._wait_for_settlement(deadline_ns))
            return
        self.reactor.close_peers("amqp:connection:forced", "the broker is shutting down")
        self.reactor.at(now_ns + SECOND_NS // 10, lambda _: self._leave(now_ns + SECOND_NS))

    def _unsettled_msgs(self) -> int:
        """How many messages consumers hold. Dead letters and moved messages that wait for room elsewhere are
        acquired too, and nobody settles them: they stay where they are.
        """
        nodes = list(self.engine.topology.every_node())
        acquired = sum(node.queue.acquired for node in nodes)
        letters = sum(node.letters.waiting_msgs() for node in nodes if node.letters is not None)
        return acquired - letters - sum(move.waiting_msgs() for move in self.engine.moves)

    def _leave(self, deadline_ns: int) -> None:
        """Peers have the time of a round trip or two to answer our close."""
        if self.reactor.clients and time.monotonic_ns() < deadline_ns:
            self.reactor.at(time.monotonic_ns() + SECOND_NS // 50, lambda _: self._leave(deadline_ns))
            return
        self.reactor.stop()

    def _install_signals(self) -> None:
        def on_stop(_number: int, _frame: FrameType | None) -> None:
            self.asked_to_stop = True
            self.reactor.post(self.stop)

        def on_reload(_number: int, _frame: FrameType | None) -> None:
            self.reactor.post(self._reload_soon)

        signal.signal(signal.SIGTERM, on_stop)
        signal.signal(signal.SIGINT, on_stop)
        signal.signal(signal.SIGHUP, on_reload)

    def say(self, text: str) -> None:
        """What whoever started the broker waits for, at any log level; an object where all lines are."""
        if self._output is not None and isinstance(self._output.formatter, JsonFormatter):
            text = self._output.format(LogRecord(ROOT, logging.INFO, "", 0, text, None, None))
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _reload_soon(self) -> None:
        """Files are read on a thread of their own. A signal that comes meanwhile has them read once more."""
        self._reloads += 1
        if self._reloads == 1:
            threading.Thread(target=self._reload_and_say, name="sluice-reload", daemon=True).start()

    def _reload_and_say(self) -> None:
        try:
            read = self.model.policy_reader.read_again()
            steps = calls.IncrementalCall(
                self.reactor.post, lambda: self.model.policies.reload_in_parts(read)
            )
            changed = steps.wait()
        except (ConfigError, OperatorError, TimeoutError) as fault:
            log.error("reload refused, the old settings stay: %s", "; ".join(str(fault).splitlines()))
        except Exception:
            log.exception("reload failed")
        else:
            log.info("settings and policies reloaded, %d nodes changed", len(changed))
        self.reactor.post(self._reloaded)

    def _reloaded(self) -> None:
        again, self._reloads = self._reloads > 1, 0
        if again:
            self._reload_soon()

    def _sample(self, now_ns: int) -> None:
        turn = self.engine.turn
        turn.clock_set_ns = time.time_ns() - time.monotonic_ns() - turn.epoch_ns
        moved = self.engine.sampler.sample(now_ns)
        self.engine.transactions.end_overdue(now_ns)
        self.container.sample(now_ns)
        self.model.sample()
        self.container.temporary.look_after_orphans()
        self.store.maintain()
        if self.store.state == FULL:
            self.pager.give_back()
        left = self.reactor.accepted_total - len(self.reactor.clients)
        left, self._left = left - self._left, left
        # What connections that left held is given back behind the last of them.
        self.heap.look(moved < QUIET and left < QUIET)
        if self._output is not None:
            self._output.sweep()
        notify("WATCHDOG=1")
        self.reactor.at(now_ns + SECOND_NS, self._sample)


def check(settings: Settings) -> list[str]:
    """OperatorError with what is wrong with settings that were read without a fault of their own; what an
    operator is only warned of is returned.
    """
    check_exposure(settings.security, _listening(settings))
    _check_ports(settings)
    authentication_of(settings.security)
    load_acl(settings.security.acl)
    if settings.tls.certificate is not None:
        Contexts.of(settings.tls)
    return [*warnings(settings.tls, datetime.now(UTC)), *check_cluster(settings.cluster)]


def _check_ports(settings: Settings) -> None:
    """ConfigError if two of ours are to listen at one place; port 0 is another one each time."""
    taken: set[tuple[str, int]] = set()
    named = [("listeners", str(each), each.host, each.port) for each in settings.listeners]
    http = settings.http
    named.append(("http", http.url, http.host, http.port))
    if settings.cluster.is_configured:
        cells = cells_of(settings)
        for each in range(cells):
            member = settings.cluster.of_cell(each).listen if cells > 1 else settings.cluster.listen
            named.append(("cluster.listen", str(member), member.host, member.port))
    for name, url, host, port in named:
        if port and (host, port) in taken:
            where = settings.origins.get(name) or url
            text = f"{name}: {url}: another listener has that port already"
            raise ConfigError((Problem(where, 0, 0, text),))
        taken.add((host, port))


def _listening(settings: Settings) -> list[Listening]:
    """Where somebody could come in: AMQP's listeners, and the HTTP port with AMQP over WebSocket."""
    origin = settings.origins.get
    certified = settings.tls.client_certificates != NONE and "EXTERNAL" in settings.security.mechanisms
    found = [
        Listening("listeners", str(each), is_loopback(each.host), origin("listeners", ""))
        for each in settings.listeners
        # There a certificate says who somebody is.
        if not (each.secure and certified)
    ]
    http = settings.http
    return [*found, Listening("http", http.url, is_loopback(http.host), origin("http", ""))]


def serve(
    settings: Settings, reload: Callable[[], Settings] | None = None, output: Output | None = None
) -> None:
    """Run a broker in this process until it is told to stop; says on stderr what it listens on."""
    raise_descriptor_limit()
    server = Server(settings, reload, output)
    say = server.say
    say(f"limits {server.budgets}")
    try:
        opened = server.start()
    except OperatorError:
        server.close()
        raise
    for url in opened:
        say(f"listening {url}")
    say(f"sluice {__version__} ready")
    notify("READY=1")
    server.run()
    say("sluice stopped")


def raise_descriptor_limit() -> None:
    """Connections are descriptors: take as many as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
