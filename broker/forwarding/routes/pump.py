"""Passing messages from a receiver to a sender, at least once, and no more than the sender has credit for.

1. The source is asked for no more than the target would take now, less what is here already: so a target
   that gives no credit is sent nothing, and nothing is fetched for it.
2. A message stays unsettled at its source until the target has said what became of it; that is then said
   there. Released and modified ones go back to their place and are tried again after a pause.
3. Credit that the target takes back is taken back at the source.

No socket and no clock here: whoever owns the connections pumps them, and hands in the time.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

MS = 1_000_000
# The pause after a message came back: doubled while they do, up to the longest.
SHORTEST_PAUSE_NS = 10 * MS
LONGEST_PAUSE_NS = 1000 * MS
ACCEPTED, REJECTED, RELEASED, MODIFIED = "accepted", "rejected", "released", "modified"


class Source(Protocol):
    """The part of a client's receiver that is used here."""

    @property
    def asked(self) -> int: ...

    def grant(self, msgs: int) -> None: ...

    def hand_over(self) -> list[tuple[int, bytes]]: ...

    def settle(
        self,
        delivery: int,
        outcome: str,
        failed: bool = False,
        undeliverable: bool = False,
        name: str | None = None,
        description: str | None = None,
    ) -> None: ...


class SendTarget(Protocol):
    """The part of a client's sender that is used here."""

    @property
    def credit(self) -> int: ...

    @property
    def sent(self) -> int: ...

    def may_send(self) -> bool: ...

    def send(self, message: bytes, timeout_s: float | None = None) -> None: ...

    def outcomes(self) -> list[tuple[int, str, bool, bool, str, str]]: ...


class RouteCounts:
    """What passed, over all connections of a route."""

    def __init__(self) -> None:
        self.forwarded = 0
        self.rejected = 0
        self.returned = 0


class Pump:
    """One receiver, one sender, and the messages between them.

    ``last_taker``: nobody else would take what the target finds undeliverable, so it is rejected.
    """

    def __init__(
        self, source: Source, target: SendTarget, window: int, counts: RouteCounts, last_taker: bool = False
    ) -> None:
        self.source = source
        self.target = target
        self.window = window
        self.counts = counts
        self.last_taker = last_taker
        self.held: deque[tuple[int, bytes]] = deque()
        self.flight: dict[int, int] = {}
        self.resume_ns = 0
        # What the target would take, as it was at the last step; for whoever looks from another thread.
        self.credit = 0
        self._pause_ns = SHORTEST_PAUSE_NS

    @property
    def unsettled(self) -> int:
        """Messages that left their source and have no outcome yet."""
        return len(self.held) + len(self.flight)

    def step(self, now_ns: int) -> bool:
        """Do what can be done without waiting; whether anything was."""
        before = self.target.sent
        self.held.extend(self.source.hand_over())
        outcomes = self.target.outcomes()
        for number, outcome, failed, undeliverable, name, text in outcomes:
            self._settle(self.flight.pop(number), outcome, failed, undeliverable, name, text, now_ns)
        if now_ns >= self.resume_ns:
            while self.held and self.target.may_send():
                delivery, message = self.held.popleft()
                self.target.send(message)
                self.flight[self.target.sent] = delivery
        self.credit = self.target.credit
        granted = self._ask(now_ns)
        return bool(outcomes) or granted or self.target.sent > before

    def give_back(self) -> None:
        """The target is gone: what has no outcome goes back to its place, as if it had never left."""
        for delivery in (*(delivery for delivery, _ in self.held), *self.flight.values()):
            self.source.settle(delivery, RELEASED)
        self.held.clear()
        self.flight.clear()

    def _ask(self, now_ns: int) -> bool:
        asked = self.source.asked
        if now_ns < self.resume_ns:
            return False
        room = min(self.target.credit - len(self.held), self.window - self.unsettled)
        if room <= 0 and asked > 0 and self.target.credit == 0:
            self.source.grant(-asked)
            return True
        if room > 0 and asked * 2 <= room:
            self.source.grant(room - asked)
            return True
        return False

    def _settle(
        self,
        delivery: int,
        outcome: str,
        failed: bool,
        undeliverable: bool,
        name: str,
        text: str,
        now_ns: int,
    ) -> None:
        if undeliverable and self.last_taker:
            outcome, name, text = (
                REJECTED,
                name or "amqp:not-allowed",
                text or "undeliverable at the other end",
            )
        self.source.settle(delivery, outcome, failed, undeliverable, name, text)
        if outcome in (RELEASED, MODIFIED):
            self.counts.returned += 1
            if now_ns >= self.resume_ns:
                self.resume_ns = now_ns + self._pause_ns
                self._pause_ns = min(self._pause_ns * 2, LONGEST_PAUSE_NS)
            return
        self._pause_ns = SHORTEST_PAUSE_NS
        if outcome == REJECTED:
            self.counts.rejected += 1
        else:
            self.counts.forwarded += 1
