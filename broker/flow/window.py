"""How many unsettled messages a consumer link, and a connection, may hold.

A message counts until it is settled. Pre-settled deliveries never count: credit alone bounds them.
"""

from __future__ import annotations

from collections.abc import Callable

from broker import constants
from broker.flow.fairness import deal


class Window:
    """The unsettled messages of one consumer link against its limit (FLOW §5).

    Once full it stays shut until unsettled falls to ``threshold`` percent of the limit, so that a
    slow consumer is fed in batches. A limit of 0 means none. ``shared`` is the window of the whole
    connection, None where there is none; ``share`` what of that was dealt to this one. ``owner`` is
    whose window it is.
    """

    def __init__(self, limit: int, threshold: int, shared: Shared | None, owner: object = None) -> None:
        self.limit = 0
        self.reopen = 0
        self.unsettled = 0
        self.shut = False
        self.shut_count = 0
        self.shared = shared
        self.owner = owner
        self.share = 0
        self.waiting = False
        self.configure(limit, threshold)

    def configure(self, limit: int, threshold: int) -> None:
        """Take a new limit and threshold in percent; a window that fits again opens."""
        self.limit = limit
        self.reopen = max(min(limit * threshold // 100, limit - 1), 0)
        self.shut = limit > 0 and self.unsettled >= limit

    def own_room(self) -> int:
        """How many more this window alone would let through."""
        if self.limit == 0:
            return constants.UNBOUNDED
        return 0 if self.shut else self.limit - self.unsettled

    def room(self) -> int:
        """How many more may be sent unsettled now. Who is told 0 for others' sake has a turn to come."""
        room = self.own_room()
        if room > 0 and self.shared is not None:
            room = min(room, self.shared.room(self))
        return room

    def sent(self) -> None:
        """One more is unsettled."""
        self.unsettled += 1
        if self.limit and self.unsettled >= self.limit and not self.shut:
            self.shut = True
            self.shut_count += 1
        if self.shared is not None:
            self.shared.sent(self)

    def settled(self) -> None:
        """One less is unsettled."""
        self.unsettled -= 1
        if self.shut and self.unsettled <= self.reopen:
            self.shut = False
        if self.shared is not None:
            self.shared.settled()


class Shared:
    """The window over all consumer links of a connection: shut at the limit, open below it.

    While there is room for all, whoever asks gets it. Otherwise links take turns:

    1. Who was cut short stands in line, once, and nothing is sent but what was dealt.
    2. When there is room, ``deal`` gives it to those in line who can use it, max-min by what they hold
       (fairness.py): the one with the fewest unsettled first, so that a link with a huge backlog, or one that
       never settles, keeps no more than its part. Among equals the one that waited longest is first.
    3. Who was dealt something leaves the line; using it up, it stands at the end again. What it doesn't
       use goes to the others with the next dealing.

    ``want`` says how many more a window's owner could be sent if there were no shared window. The caller
    deals whenever ``due``, and has those it was given for dispatched.
    """

    def __init__(self, limit: int, want: Callable[[Window], int]) -> None:
        self.limit = limit
        self.want = want
        self.unsettled = 0
        self.crowded = False
        self.line: list[Window] = []
        self.dealt: list[Window] = []

    @property
    def shut(self) -> bool:
        """True while it is full."""
        return self.unsettled >= self.limit

    def room(self, window: Window) -> int:
        """How many more this one of its windows may let through now."""
        if not self.crowded:
            if self.unsettled < self.limit:
                return self.limit - self.unsettled
            self._wait(window)
            return 0
        if window.share == 0:
            self._wait(window)
        return window.share

    def sent(self, window: Window) -> None:
        """One more is unsettled."""
        self.unsettled += 1
        if window.share > 0:
            window.share -= 1
        if self.unsettled >= self.limit or (self.crowded and window.share == 0):
            self._wait(window)

    def settled(self) -> None:
        """One less is unsettled."""
        self.unsettled -= 1
        if self.crowded and not self.line:
            self._end_turns()

    def due(self) -> bool:
        """Whether there is room and somebody in line for it."""
        return self.crowded and self.unsettled < self.limit and len(self.line) > 0

    def deal(self) -> list[Window]:
        """Deal the room out; those that have a share now, to be dispatched before the next dealing."""
        for window in self.dealt:
            window.share = 0
        self.dealt = []
        room = self.limit - self.unsettled
        waiting = [(window, self.want(window)) for window in self.line]
        wants = [want for _, want in waiting if want > 0]
        for window, want in waiting:
            window.waiting = want > 0
        self.line = [window for window, want in waiting if want > 0]
        if sum(wants) <= room:
            served = self.line
            self._end_turns()
            return served
        given = deal(room, [window.unsettled for window in self.line], wants)
        for window, share in zip(self.line, given, strict=True):
            window.share = share
            window.waiting = share == 0
        self.dealt = [window for window in self.line if window.share > 0]
        self.line = [window for window in self.line if window.share == 0]
        return self.dealt

    def leave(self, window: Window) -> None:
        """The window's link is gone, and what it held is settled."""
        window.share = 0
        if window.waiting:
            window.waiting = False
            self.line.remove(window)
        if window in self.dealt:
            self.dealt.remove(window)

    def _wait(self, window: Window) -> None:
        self.crowded = True
        if not window.waiting:
            window.waiting = True
            self.line.append(window)

    def _end_turns(self) -> None:
        for window in (*self.line, *self.dealt):
            window.waiting = False
            window.share = 0
        self.line = []
        self.dealt = []
        self.crowded = False
