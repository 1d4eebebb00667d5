"""Connections by name, in bounded time: the system's own look-up of a name can't be given a time-out.

Each look-up has a thread of its own, at most one for a name.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

# An answer that came when nobody waited for it any more holds so long.
FRESH_S = 10.0


class _LookUp:
    """One look-up of a name, in a thread from the beginning."""

    def __init__(self, host: str, port: int) -> None:
        self._asked = host, port
        self._fault: OSError | None = None
        self._found: list[tuple[str, int]] = []
        self._done = threading.Event()
        self._done_s = 0.0
        threading.Thread(target=self._run, name="sluice-name", daemon=True).start()

    def _run(self) -> None:
        try:
            self._found = _looked_up(*self._asked)
        except OSError as fault:
            self._fault = fault
        except UnicodeError as fault:
            self._fault = OSError(f"it can't be a name: {fault}")
        self._done_s = time.monotonic()
        self._done.set()

    @property
    def is_old(self) -> bool:
        """Whether it has ended so long ago that it says nothing of now."""
        return self._done.is_set() and time.monotonic() - self._done_s > FRESH_S

    def wait(self, timeout_s: float) -> list[tuple[str, int]] | None:
        """Return what was found, None where that takes longer. Raises OSError."""
        if not self._done.wait(timeout_s):
            return None
        if self._fault is not None:
            raise OSError(self._fault.errno, self._fault.strerror or str(self._fault))
        return self._found


_under_way: dict[tuple[str, int], _LookUp] = {}
_lock = threading.Lock()


def is_address(host: str) -> bool:
    """Return whether a host is given by its address, which nothing has to be asked for."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return True
    return False


def addresses_of(host: str, port: int, timeout_s: float) -> list[tuple[str, int]]:
    """Return the addresses of a host, in the order in which to try them; any thread may ask.

    Raises OSError where there are none, TimeoutError where that takes longer to find out. The look-up goes on
    then, and the next one who asks has its answer.
    """
    if is_address(host):
        return [(host, port)]
    asked = host, port
    with _lock:
        look_up = _under_way.get(asked)
        if look_up is None or look_up.is_old:
            look_up = _under_way[asked] = _LookUp(host, port)
    try:
        found = look_up.wait(timeout_s)
    except OSError:
        _forget(asked, look_up)
        raise
    if found is None:
        raise TimeoutError(f"{host}: its name was not looked up in {timeout_s:g} s")
    _forget(asked, look_up)
    return found


def connected(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a connection to the first of a host's addresses that takes one. Raises OSError.

    All of it takes no longer than ``timeout_s``, and each address has its share of what is left.
    """
    deadline_s = time.monotonic() + timeout_s
    addresses = addresses_of(host, port, timeout_s)
    fault: OSError = TimeoutError("timed out")
    for at, address in enumerate(addresses):
        left_s = (deadline_s - time.monotonic()) / (len(addresses) - at)
        if left_s <= 0:
            break
        try:
            return socket.create_connection(address, left_s)
        except OSError as failed:
            fault = failed
    raise fault


def _looked_up(host: str, port: int) -> list[tuple[str, int]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(str(address[0]), int(address[1])) for *_, address in found]


def _forget(asked: tuple[str, int], look_up: _LookUp) -> None:
    with _lock:
        if _under_way.get(asked) is look_up:
            del _under_way[asked]
