"""The process of one cell: an ordinary broker at the place that its supervisor gave it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from broker import __version__
from broker.config.broker import Settings
from broker.server.cells.control import CellControl
from broker.server.cells.membership import CellMembership
from broker.server.cells.place import CellPlace, settings_of
from broker.server.cells.seat import CellSeat
from broker.server.logging.output import Output
from broker.server.member import Member
from broker.server.server import Server, raise_descriptor_limit
from broker.units import SECOND_NS

log = logging.getLogger("sluice.cells")


def serve_cell(settings: Settings, load: Callable[[], Settings], output: Output, place: CellPlace) -> int:
    """Run a cell in this process until it is told to stop, or its supervisor is gone; return the status that
    the process is to end with.

    ``load`` reads the settings again. Raises OperatorError where the data directory or the policies refuse.
    """
    raise_descriptor_limit()
    for fd in place.descriptors:
        os.set_inheritable(fd, False)
    threading.Thread(target=_end_with, args=(place.life,), name="supervisor", daemon=True).start()
    directory = place.read_directory()
    own = settings_of(settings, place, directory)

    def load_own() -> Settings:
        return settings_of(load(), place, directory)

    if settings.cluster.is_configured:
        return Member(own, load_own, output, CellSeat(place, directory, settings.cluster)).run()
    server = Server(own, load_own, output, place=place, directory=directory)
    log.info("limits %s", server.budgets)
    membership = CellMembership(server, place, directory, CellControl(place.control))
    try:
        membership.settle()
        server.start()
    except BaseException:
        server.close()
        raise
    _stop_in_order(server)
    log.info("sluice %s: cell %d of %d serves", __version__, place.number, place.cells)
    with suppress(OSError):
        os.write(place.ready, b"!")
    os.close(place.ready)
    membership.start()
    _beat(server, place.pulse, time.monotonic_ns())
    server.run()
    log.info("cell %d has stopped", place.number)
    return 0


def _beat(server: Server, pulse: int, now_ns: int) -> None:
    """Have the loop tell the supervisor each second that it turns."""
    # A supervisor that stands still reads nothing; this process ends where it is gone.
    with suppress(OSError):
        os.write(pulse, b".")
    server.reactor.at(now_ns + SECOND_NS, lambda now_ns: _beat(server, pulse, now_ns))


def _stop_in_order(server: Server) -> None:
    """Have SIGTERM stop in order however often it comes: a service manager sends it to all processes, and the
    supervisor to its cells. SIGINT, which a supervisor sends that is told twice, stops at once.
    """

    def on_stop(_number: int, _frame: FrameType | None) -> None:
        server.reactor.post(lambda: None if server.is_stopping else server.stop())

    signal.signal(signal.SIGTERM, on_stop)


def _end_with(life: int) -> None:
    """Stop this process in order once the supervisor's end of a pipe is closed."""
    os.read(life, 1)
    log.error("the supervisor is gone: stopping")
    os.kill(os.getpid(), signal.SIGTERM)
