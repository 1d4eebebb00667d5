"""How many unsettled messages a consumer link, and a connection, may hold.

A message counts until it is settled. Pre-settled deliveries never count: credit alone bounds them.
"""

from __future__ import annotations

from broker import codes


class Window:
    """The unsettled messages of one consumer link against its limit (FLOW §5).

    Once full it stays shut until unsettled falls to ``threshold`` percent of the limit, so that a
    slow consumer is fed in batches. A limit of 0 means none. ``shared`` is the window of the whole
    connection, which shuts at its limit and opens below it; None where there is none.
    """

    def __init__(self, limit: int, threshold: int, shared: Window | None) -> None:
        self.limit = 0
        self.reopen = 0
        self.unsettled = 0
        self.shut = False
        self.shut_count = 0
        self.shared = shared
        self.configure(limit, threshold)

    def configure(self, limit: int, threshold: int) -> None:
        """Take a new limit and threshold in percent; a window that fits again opens."""
        self.limit = limit
        self.reopen = max(min(limit * threshold // 100, limit - 1), 0)
        self.shut = limit > 0 and self.unsettled >= limit

    def room(self) -> int:
        """How many more may be sent unsettled now."""
        room = codes.UNBOUNDED
        if self.limit:
            if self.shut:
                return 0
            room = self.limit - self.unsettled
        if self.shared is not None:
            room = min(room, self.shared.room())
        return room

    def sent(self) -> None:
        """One more is unsettled."""
        self.unsettled += 1
        if self.limit and self.unsettled >= self.limit and not self.shut:
            self.shut = True
            self.shut_count += 1
        if self.shared is not None:
            self.shared.sent()

    def settled(self) -> None:
        """One less is unsettled."""
        self.unsettled -= 1
        if self.shut and self.unsettled <= self.reopen:
            self.shut = False
        if self.shared is not None:
            self.shared.settled()


def connection_window(limit: int) -> Window:
    """The window over all consumer links of a connection: shut at the limit, open below it."""
    return Window(limit, 100, None)
