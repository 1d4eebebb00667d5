"""The HTTP loop's selector: clients of HTTP wait while the port has had its share of the processor.

Their sockets, and those they come in by, are polled apart from the rest (WebSocket tunnels, what other
threads say), which never waits. What the loop's thread takes is charged to the share here, once a round,
without what it takes for tunnels: they move messages, and the reactor bounds them.
"""

from __future__ import annotations

import asyncio
import time
from collections import ChainMap
from collections.abc import Callable, Mapping
from selectors import EVENT_READ, BaseSelector, EpollSelector, SelectorKey
from typing import Any, TypeAlias

from broker.http.server.cpu_share import ROUND_NS, CpuShare

# However much is owed: who asks whether the broker lives is not to wait for its answer.
LOOK_IN_NS = 100_000_000

File: TypeAlias = Any
Ready: TypeAlias = list[tuple[SelectorKey, int]]


class ThrottledSelector(BaseSelector):
    """Sockets that were ``bound`` before they were registered wait for the share, all others never."""

    def __init__(self, share: CpuShare) -> None:
        self.share = share
        self._free = EpollSelector()
        self._held = EpollSelector()
        self._gate = self._held.fileno()
        self._free.register(self._gate, EVENT_READ)
        self._is_open = True
        self._bounded: set[int] = set()
        self._own: set[int] = set()
        self._spent_ns = time.thread_time_ns()
        # When clients of HTTP were last looked at, and when there was something to do for them.
        self._looked_ns = self._served_ns = 0
        # Of the events of the last round, those that are tunnels', and all.
        self._carried = self._came = 0

    def bind(self, fd: int) -> None:
        """From the next time it is registered this descriptor waits; ``release`` before it is closed."""
        self._bounded.add(fd)

    def release(self, fd: int) -> None:
        """It waits no more; nor does whoever gets the number next."""
        self._bounded.discard(fd)

    def move(self, fd: int, *, bounded: bool) -> None:
        """It waits from now on, or waits no more, wherever it is registered."""
        before = self._where(fd)
        if bounded:
            self.bind(fd)
        else:
            self.release(fd)
        now = self._of(fd)
        if now is not before and fd in before.get_map():
            key = before.unregister(fd)
            now.register(key.fileobj, key.events, key.data)

    def claim(self) -> None:
        """What is registered by now is the loop's own: neither a client's nor a tunnel's."""
        self._own = {key.fd for key in self._free.get_map().values()}

    # --- what an event loop asks of it

    def register(self, fileobj: File, events: int, data: Any = None) -> SelectorKey:
        return self._of(fileobj).register(fileobj, events, data)

    def unregister(self, fileobj: File) -> SelectorKey:
        return self._where(fileobj).unregister(fileobj)

    def modify(self, fileobj: File, events: int, data: Any = None) -> SelectorKey:
        before, now = self._where(fileobj), self._of(fileobj)
        if before is now:
            return now.modify(fileobj, events, data)
        before.unregister(fileobj)
        return now.register(fileobj, events, data)

    def get_key(self, fileobj: File) -> SelectorKey:
        return self._where(fileobj).get_key(fileobj)

    def get_map(self) -> Mapping[File, SelectorKey]:
        maps: list[Any] = [self._free.get_map(), self._held.get_map()]
        return ChainMap(*maps)

    def select(self, timeout: float | None = None) -> Ready:
        """Whatever is ready; while the port has had its share, only what never waits, and
        the others now and then.
        """
        now_ns = time.monotonic_ns()
        self._charge(now_ns)
        pause_ns = self._served_ns + ROUND_NS - now_ns if self.share.is_bounded(now_ns) else 0
        wait_ns = max(self.share.wait_ns(now_ns), pause_ns)
        wait_ns = max(min(wait_ns, self._looked_ns + LOOK_IN_NS - now_ns), 0)
        if not wait_ns:
            self._looked_ns = now_ns
        elif timeout is None or timeout > 0:
            timeout = wait_ns / 1e9 if timeout is None else min(timeout, wait_ns / 1e9)
        if self._is_open == (wait_ns > 0):
            self._is_open = not self._is_open
            if self._is_open:
                self._free.register(self._gate, EVENT_READ)
            else:
                self._free.unregister(self._gate)
        ready = self._free.select(timeout)
        held = [each for each in ready if each[0].fd == self._gate]
        self._carried = sum(each[0].fd not in self._own and each[0].fd != self._gate for each in ready)
        if held:
            self._served_ns = now_ns
            ready = [each for each in ready if each[0].fd != self._gate] + self._held.select(0)
        self._came = len(ready)
        return ready

    def close(self) -> None:
        self._free.close()
        self._held.close()

    def _charge(self, now_ns: int) -> None:
        spent_ns = time.thread_time_ns()
        taken_ns, self._spent_ns = spent_ns - self._spent_ns, spent_ns
        if self._carried:
            taken_ns = taken_ns * (self._came - self._carried) // self._came
        self.share.charge(taken_ns, now_ns)

    def _of(self, fileobj: File) -> EpollSelector:
        return self._held if _number(fileobj) in self._bounded else self._free

    def _where(self, fileobj: File) -> EpollSelector:
        """Where it is registered; KeyError if nowhere, as selectors say it."""
        return self._held if _number(fileobj) in self._numbers_held() else self._free

    def _numbers_held(self) -> Mapping[File, SelectorKey]:
        return self._held.get_map()


def _number(fileobj: File) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


def loop_factory(turnstile: ThrottledSelector) -> Callable[[], asyncio.AbstractEventLoop]:
    """A loop that waits by it."""

    def made() -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(turnstile)
        turnstile.claim()
        return loop

    return made
