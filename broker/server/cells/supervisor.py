"""The supervisor of several cells: has their ports and their data directory, starts them, keeps them going.

It serves nobody and reads no message. All listening sockets are its own and the cells inherit them: where a
cell ends, clients that wait to be accepted are accepted by the others, and the port is there while all are
restarted. One socket is shared by all cells rather than one a cell (SO_REUSEPORT): of those, the clients that
the system has given to the socket of a cell that is gone, or stopped, would wait for it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from logging import LogRecord
from types import FrameType

from broker import __version__
from broker.config.broker import Settings
from broker.config.patterns import is_pattern
from broker.config.policy_files import load_policies
from broker.errors import OperatorError
from broker.loggers import ROOT
from broker.server.cells.agreed import agree, check_agreement, check_data, warn_of_patterns
from broker.server.cells.control import ControlLine
from broker.server.cells.directory import CellDirectory
from broker.server.cells.keeper import DirectoryKeeper
from broker.server.cells.layout import CellsDirectory, socket_of
from broker.server.cells.place import VARIABLE, CellPlace
from broker.server.cells.seat import BEGIN_ANEW
from broker.server.cells.sockets import neighbour_socket
from broker.server.cells.table import PlacementTable, patterns_of, read_table
from broker.server.cluster.listening import listening_socket
from broker.server.logging.formats import JsonFormatter
from broker.server.logging.output import Output
from broker.server.notify import notify
from broker.server.server import check, raise_descriptor_limit
from broker.units import SECOND_NS

log = logging.getLogger("sluice.cells")

# A cell that ends is started again after so long, which doubles up to the second, and begins anew once it has
# run for the third.
FIRST_PAUSE_NS, LONGEST_PAUSE_NS, SOUND_NS = SECOND_NS // 10, 10 * SECOND_NS, 30 * SECOND_NS
# How long a cell may take to stop beyond what its clients are given; then it is killed.
STOP_NS = 20 * SECOND_NS
TICK_S = 1.0
# How long cells may take to say which names stay with them.
DECIDE_NS = 10 * SECOND_NS
# How long a cell that serves may say nothing: its loop speaks each second, between two turns, none of which
# takes nearly so long; its neighbours' clients are let go before. Where the service manager watches this
# process by a time of its own (WATCHDOG_USEC, sd_notify(3)), its cells are watched by the same.
HUNG_NS, LEAST_HUNG_NS = 30 * SECOND_NS, 5 * SECOND_NS


@dataclass(slots=True, eq=False)
class _Cell:
    """One cell. ``process`` is None while it isn't running; ``due_ns`` is when it is started then."""

    number: int
    neighbours: socket.socket
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    ready: int = -1
    # Where its loop speaks, and for how long it hasn't.
    pulse: int = -1
    silent_ns: int = 0
    control: ControlLine | None = None
    is_ready: bool = False
    # Whether it has ever served: one that can't at the first start ends the start of all.
    has_served: bool = False
    # A reload came while it was being started.
    reloads: bool = False
    began_ns: int = 0
    due_ns: int = 0
    pause_ns: int = FIRST_PAUSE_NS


@dataclass(slots=True)
class _Ports:
    """The listening sockets: for clients, and for HTTP; and how each is shown."""

    listeners: list[socket.socket] = field(default_factory=list)
    http: socket.socket | None = None
    shown: list[str] = field(default_factory=list)


class Supervisor:
    """Runs the cells of one machine until SIGTERM or SIGINT; ``words`` start a cell's process.

    Raises OperatorError where the settings, the directory or a port refuse.
    """

    def __init__(
        self,
        settings: Settings,
        cells: int,
        words: Sequence[str],
        output: Output | None,
        load: Callable[[], Settings] | None = None,
    ) -> None:
        self._settings = settings
        self._load = load
        # How many there are to be, and how many run: more, until those that go are empty.
        self._wanted = self._count = cells
        self._words = words
        self._output = output
        self._name = f"sluice-{uuid.uuid4()}"
        self._directory: CellsDirectory | None = None
        self._keeper: DirectoryKeeper | None = None
        # Of a member of a cluster, in place of the keeper: the table of all members.
        self._agreed: PlacementTable | None = None
        # The file of a table that cells are asked about as they start; and until when those that run are.
        self._proposed = ""
        self._deciding_ns = 0
        self._ports = _Ports()
        self._cells: list[_Cell] = []
        self._hung_ns = hung_ns(os.environ)
        self._turned_ns = 0
        self._stopping_ns = 0
        self._status = 0
        self._is_told = False
        self._is_reloading = False
        # Written to by signals; and a pipe whose end tells the cells that this process is gone.
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._life, self._living = os.pipe2(os.O_CLOEXEC)

    def run(self) -> int:
        """Start all cells and keep them going until told to stop; return the exit status."""
        try:
            self._open()
            self._install_signals()
            for cell in self._cells:
                if not self._stopping_ns:
                    self._start(cell)
            while self._cells_are_wanted():
                self._turn()
        finally:
            self._close()
        if self._status == 0:
            self._say("sluice stopped")
        return self._status

    # --- beginning and end

    def _open(self) -> None:
        raise_descriptor_limit()
        settings = self._settings
        check_settings(settings, self._wanted)
        for text in check(settings):
            log.warning("%s", text)
        patterns = patterns_of(load_policies(settings.policies), self._wanted)
        if settings.cluster.is_configured:
            check_data(settings.data, self._wanted)
        self._directory = CellsDirectory(settings.data, self._wanted)
        self._count = self._directory.cells
        if self._count > self._wanted:
            text = "cells %d to %d give their queues to the others; then a start leaves them out"
            log.warning(text, self._wanted, self._count - 1)
        self._open_ports(settings)
        for number in range(self._count):
            self._cells.append(_Cell(number, neighbour_socket(socket_of(settings.data, number))))
        if settings.cluster.is_configured:
            self._agreed = agree(settings, self._count, patterns)
            return
        self._keeper = DirectoryKeeper(settings.data, self._count, self._send_line)
        wanted = PlacementTable(self._wanted, patterns)
        if not wanted.says_like(self._keeper.table):
            # Before anybody is let in the cells say which names stay where they are.
            self._proposed = str(self._keeper.propose(wanted))

    def _open_ports(self, settings: Settings) -> None:
        ports = self._ports
        for listener in settings.listeners:
            sock = listening_socket(listener.host, listener.port, settings.limits.listen_backlog)
            ports.listeners.append(sock)
            ports.shown.append(str(replace(listener, port=sock.getsockname()[1])))
        ports.http = listening_socket(settings.http.host, settings.http.port)
        ports.shown.append(replace(settings.http, port=ports.http.getsockname()[1]).url)

    def _close(self) -> None:
        for cell in self._cells:
            self._forget(cell)
            cell.neighbours.close()
            with suppress(FileNotFoundError):
                socket_of(self._settings.data, cell.number).unlink()
        for sock in (*self._ports.listeners, self._ports.http):
            if sock is not None:
                sock.close()
        if self._directory is not None:
            self._directory.close()
        signal.set_wakeup_fd(-1)
        for fd in (self._woken, self._wake, self._life, self._living):
            os.close(fd)

    def _install_signals(self) -> None:
        def on_stop(_number: int, _frame: FrameType | None) -> None:
            self._stop()

        def on_reload(_number: int, _frame: FrameType | None) -> None:
            self._is_reloading = True

        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, on_stop)
        signal.signal(signal.SIGINT, on_stop)
        signal.signal(signal.SIGHUP, on_reload)

    def _say(self, text: str) -> None:
        if self._output is not None and isinstance(self._output.formatter, JsonFormatter):
            text = self._output.format(LogRecord(ROOT, logging.INFO, "", 0, text, None, None))
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    # --- the directory

    def _reload(self) -> None:
        """Have all cells read settings and policies again; first where queues belong, if that has changed."""
        self._is_reloading = False
        self._look_again()
        if not self._deciding_ns:
            self._pass_reload_on()

    def _look_again(self) -> None:
        """Ask the cells about another table, if policies say otherwise than the one in force."""
        try:
            self._propose_places()
        except (OperatorError, OSError) as fault:
            log.error("where queues belong stays as it was: %s", "; ".join(str(fault).splitlines()))

    def _propose_places(self) -> None:
        keeper = self._keeper
        settings = self._settings if self._load is None else self._load()
        if self._agreed is not None:
            warn_of_patterns(self._agreed, patterns_of(load_policies(settings.policies), self._wanted))
        if keeper is None or keeper.is_deciding:
            return
        wanted = PlacementTable(
            keeper.table.cells, patterns_of(load_policies(settings.policies), self._wanted)
        )
        if not wanted.says_like(keeper.table):
            keeper.propose(wanted)
            self._deciding_ns = time.monotonic_ns() + DECIDE_NS

    def _decide(self, now_ns: int) -> None:
        """Go on once cells have been asked: the decision is taken, or one hasn't answered in time."""
        keeper = self._keeper
        if keeper is None or not self._deciding_ns:
            return
        if keeper.is_deciding and now_ns >= self._deciding_ns:
            keeper.cancel("a cell hasn't answered; it is looked at again with the next reload")
        if not keeper.is_deciding:
            self._deciding_ns = 0
            self._pass_reload_on()

    def _pass_reload_on(self) -> None:
        for cell in self._cells:
            if cell.is_ready and cell.process is not None and cell.process.poll() is None:
                cell.process.send_signal(signal.SIGHUP)
            else:
                # It would end one that doesn't listen for it yet, which may have read its files already.
                cell.reloads = True

    def _send_line(self, cell: int, line: Mapping[str, object]) -> None:
        control = self._cells[cell].control
        if control is not None:
            control.send(line)

    def _on_control(self, cell: _Cell) -> None:
        if cell.control is None:
            return
        cell.control.flush()
        lines = cell.control.read()
        if lines is None:
            cell.control.close()
            cell.control = None
            return
        if self._keeper is None:
            # In a cluster the directory doesn't change.
            return
        for line in lines:
            if line.get("do") == "places":
                self._look_again()
            else:
                self._keeper.on_line(cell.number, line)
        if not self._keeper.is_deciding:
            self._proposed = ""

    # --- one turn

    def _cells_are_wanted(self) -> bool:
        return not self._stopping_ns or any(each.process is not None for each in self._cells)

    def _turn(self) -> None:
        """Wait until a cell is ready or ends, a signal comes, or a cell is to be started."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        by_fd: dict[int, _Cell] = {}
        for cell in self._cells:
            for fd in (cell.pidfd, cell.ready, cell.pulse):
                if fd >= 0:
                    poll.register(fd, select.POLLIN)
                    by_fd[fd] = cell
            if cell.control is not None:
                fd = cell.control.sock.fileno()
                poll.register(fd, select.POLLIN | (select.POLLOUT if cell.control.is_full else 0))
                by_fd[fd] = cell
        for fd, _ in poll.poll(self._timeout_s() * 1000):
            if fd == self._woken:
                with suppress(BlockingIOError):
                    os.read(fd, 1024)
            elif fd == by_fd[fd].ready:
                self._on_word(by_fd[fd])
            elif fd == by_fd[fd].pulse:
                self._on_pulse(by_fd[fd])
            elif fd != by_fd[fd].pidfd:
                self._on_control(by_fd[fd])
        if self._is_reloading:
            self._reload()
        now_ns = time.monotonic_ns()
        self._end_hung(now_ns)
        for cell in self._cells:
            if cell.process is not None and cell.process.poll() is not None:
                self._on_end(cell, cell.process.returncode, now_ns)
            elif cell.process is None and not self._stopping_ns and now_ns >= cell.due_ns:
                self._start(cell)
        self._decide(now_ns)
        if self._stopping_ns and now_ns >= self._stopping_ns:
            self._kill_late()
        if self._is_told:
            notify("WATCHDOG=1")

    def _timeout_s(self) -> float:
        now_ns = time.monotonic_ns()
        due = [each.due_ns for each in self._cells if each.process is None and not self._stopping_ns]
        if self._stopping_ns:
            due.append(self._stopping_ns)
        return max(min([(each - now_ns) / SECOND_NS for each in due] + [TICK_S]), 0.001)

    # --- cells

    def _start(self, cell: _Cell) -> None:
        assert self._ports.http is not None
        ready, said = os.pipe2(os.O_CLOEXEC)
        pulse, beat = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        here, there = socket.socketpair()
        here.setblocking(False)
        place = CellPlace(
            cell.number,
            self._count,
            self._name,
            str(self._settings.data.absolute()),
            tuple(each.fileno() for each in self._ports.listeners),
            self._ports.http.fileno(),
            cell.neighbours.fileno(),
            said,
            beat,
            self._life,
            there.fileno(),
            self._proposed,
        )
        environment = {**os.environ, VARIABLE: place.written()}
        # The service manager hears of all cells by this process alone.
        environment.pop("NOTIFY_SOCKET", None)
        try:
            # In a group of its own: a terminal's interrupt reaches this process, which stops all in order.
            cell.process = subprocess.Popen(  # noqa: S603 - our own command
                self._words, env=environment, pass_fds=place.descriptors, process_group=0
            )
        except OSError as fault:
            os.close(ready)
            os.close(pulse)
            here.close()
            log.error("cell %d can't be started: %s", cell.number, fault)
            self._wait(cell, time.monotonic_ns())
            return
        finally:
            os.close(said)
            os.close(beat)
            there.close()
        cell.control = ControlLine(here)
        cell.pidfd = os.pidfd_open(cell.process.pid)
        cell.ready = ready
        cell.pulse = pulse
        cell.silent_ns = 0
        cell.is_ready = False
        cell.began_ns = time.monotonic_ns()
        if self._stopping_ns:
            # Told to while it was being made, which the signal missed.
            cell.process.send_signal(signal.SIGTERM)

    def _on_word(self, cell: _Cell) -> None:
        """A cell serves; or has closed its end of the pipe, as it does when it ends."""
        said = os.read(cell.ready, 1)
        os.close(cell.ready)
        cell.ready = -1
        if not said:
            return
        again = cell.has_served
        cell.is_ready = cell.has_served = True
        if cell.reloads and cell.process is not None:
            cell.reloads = False
            cell.process.send_signal(signal.SIGHUP)
        if again:
            log.warning("cell %d is there again", cell.number)
        if not self._is_told and all(each.is_ready for each in self._cells):
            self._is_told = True
            for url in self._ports.shown:
                self._say(f"listening {url}")
            self._say(f"sluice {__version__} with {self._count} cells ready")
            notify("READY=1")

    def _on_pulse(self, cell: _Cell) -> None:
        """A cell's loop turns; or its end of the pipe is closed, with its process."""
        cell.silent_ns = 0
        if not os.read(cell.pulse, 1024):
            os.close(cell.pulse)
            cell.pulse = -1

    def _end_hung(self, now_ns: int) -> None:
        """Kill cells that serve and have said nothing for too long; they are started again as any that ends.

        Only time in which this process ran counts: where it stood still, so did they, or they have spoken.
        """
        passed_ns = min(now_ns - self._turned_ns, int(TICK_S * SECOND_NS)) if self._turned_ns else 0
        self._turned_ns = now_ns
        for cell in self._cells:
            if cell.process is None or not cell.is_ready or self._stopping_ns:
                continue
            cell.silent_ns += passed_ns
            if cell.silent_ns >= self._hung_ns:
                seconds = self._hung_ns // SECOND_NS
                log.error("cell %d hasn't answered for %d s: it is killed", cell.number, seconds)
                cell.silent_ns = 0
                cell.process.kill()

    def _on_end(self, cell: _Cell, status: int, now_ns: int) -> None:
        self._forget(cell)
        if self._stopping_ns:
            return
        if not cell.has_served:
            log.error("cell %d can't start: status %d; stopping all", cell.number, status)
            self._status = 1
            self._stop()
            return
        if status == BEGIN_ANEW:
            log.warning("cell %d begins anew", cell.number)
            cell.due_ns = now_ns
            return
        if now_ns - cell.began_ns >= SOUND_NS:
            cell.pause_ns = FIRST_PAUSE_NS
        how = f"signal {-status}" if status < 0 else f"status {status}"
        pause_s = cell.pause_ns / SECOND_NS
        log.error("cell %d has ended (%s); it is started again in %.1f s", cell.number, how, pause_s)
        self._wait(cell, now_ns)

    def _wait(self, cell: _Cell, now_ns: int) -> None:
        cell.due_ns = now_ns + cell.pause_ns
        cell.pause_ns = min(cell.pause_ns * 2, LONGEST_PAUSE_NS)

    def _forget(self, cell: _Cell) -> None:
        if cell.process is not None and cell.process.poll() is None:
            # Only where this process fails: no cell is left behind.
            cell.process.kill()
            cell.process.wait()
        for fd in (cell.pidfd, cell.ready, cell.pulse):
            if fd >= 0:
                os.close(fd)
        if cell.control is not None:
            cell.control.close()
        cell.process, cell.pidfd, cell.ready, cell.pulse, cell.is_ready = None, -1, -1, -1, False
        cell.control = None

    def _send(self, number: signal.Signals) -> None:
        for cell in self._cells:
            if cell.process is not None and cell.process.poll() is None:
                cell.process.send_signal(number)

    def _stop(self) -> None:
        """Have all cells stop in order; told again, they do so at once."""
        if self._stopping_ns:
            self._send(signal.SIGINT)
            return
        wait_ns = self._settings.limits.shutdown_timeout_ms * 1_000_000
        self._stopping_ns = time.monotonic_ns() + wait_ns + STOP_NS
        notify("STOPPING=1")
        self._send(signal.SIGTERM)

    def _kill_late(self) -> None:
        for cell in self._cells:
            if cell.process is not None:
                log.error("cell %d doesn't stop: it is killed", cell.number)
                cell.process.kill()
        self._stopping_ns = time.monotonic_ns() + STOP_NS


def hung_ns(environment: Mapping[str, str]) -> int:
    """Return how long a cell may say nothing, as the service manager has it for this process."""
    told = environment.get("WATCHDOG_USEC", "")
    if not told.isdecimal() or int(told) == 0:
        return HUNG_NS
    return max(int(told) * 1000, LEAST_HUNG_NS)


def check_settings(settings: Settings, cells: int) -> None:
    """Raise OperatorError for settings that several cells can't have."""
    if settings.cluster.is_configured:
        check_agreement(settings.cluster, cells)
    patterns = patterns_of(load_policies(settings.policies), cells)
    names = read_table(settings.data, cells).names
    directory = CellDirectory(0, cells, PlacementTable(cells, patterns, names))
    for bridge in settings.bridges:
        source, target = directory.cell_of(bridge.source), directory.cell_of(bridge.target)
        if source != target:
            raise OperatorError(
                f"bridges: '{bridge.source}' is in cell {source} and '{bridge.target}' in cell {target}:"
                " a bridge within one cell is possible, and one between cells isn't yet"
            )
    for route in settings.routes:
        if is_pattern(route.local):
            raise OperatorError(
                f"routes: '{route.name}' takes from many topics, '{route.local}', which are in several cells:"
                " that isn't possible yet"
            )
