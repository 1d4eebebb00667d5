"""A replicated cell as its owner has it: the lease, the log, and when it must let go of both."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path

from broker.cluster.bodies import BodyStore, ReplicatedLargeFiles
from broker.cluster.writer import LogWriter
from broker.store.largefiles import Post
from broker.store.port import FAILED, FULL
from broker.store.replicated import ReplicatedStore
from broker.units import SECOND_NS

log = logging.getLogger("sluice.cluster")

# How often the lease is looked at.
LOOK_NS = 20_000_000
# How long an owner stays suspended while servers of the log answer and have no leader: they elect one within
# seconds, and nobody can take over meanwhile. Beyond that its servers may be cut off together with it.
ALONE_NS = 30 * SECOND_NS
# How long this member's disk is full before another one that has room is to serve.
FULL_NS = 2 * SECOND_NS
# How long after a hand-over was asked for the broker stops waiting for the log.
HAND_OVER_S = 5.0


class OwnedCell:
    """A cell while this broker owns it.

    ``store`` is its data. ``look`` is called every ``LOOK_NS`` on the loop's thread; it returns why the
    broker must let go of the cell, once it must: another member owns it, no server of the log answers, or its
    own store has failed.
    """

    def __init__(
        self, store: ReplicatedStore, writer: LogWriter, bodies: BodyStore, successor: Callable[[], str]
    ) -> None:
        self.store = store
        self.writer = writer
        self.suspended_since_ns = 0
        self.suspensions = 0
        self.changed: Callable[[str, str], None] = lambda kind, reason: None
        # Why the log grows, as its cleaner says; empty while it is trimmed.
        self.untrimmed: Callable[[], str] = str
        self._bodies = bodies
        self._successor = successor
        self._dropped_ns = 0
        self._full_since_ns = self._full_ns = 0

    @property
    def suspended(self) -> str:
        """Why the broker confirms nothing now; empty while it does."""
        if not self.suspended_since_ns:
            return ""
        since_s = (time.monotonic_ns() - self.suspended_since_ns) / SECOND_NS
        return f"the cell's log has not answered for {since_s:.1f} s"

    @property
    def fault(self) -> str:
        """Why this member doesn't serve as an owner should: the store's failure, else as ``suspended``."""
        return self.store.reason if self.store.state == FAILED else self.suspended

    def large_files(self, directory: Path, post: Post, keep: Collection[int]) -> ReplicatedLargeFiles:
        """Return the files of large messages, which the log has as well."""
        return ReplicatedLargeFiles(directory, post, keep, self._bodies, self.writer.epoch)

    def look(self, now_ns: int) -> str:
        """Suspend or resume by the lease; return why the broker must let go, empty while it needn't."""
        writer, lease = self.writer, self.writer.lease
        if writer.fenced:
            return f"epoch {writer.fenced} owns the cell"
        if writer.fault:
            return writer.fault
        if self.store.state == FAILED and not self._successor():
            # Begun anew it may be sound; else whoever reads the log to its end takes over meanwhile.
            return self.store.reason
        if lease.may_act(now_ns):
            if self.suspended_since_ns:
                self.suspended_since_ns = 0
                self.store.resume()
                self.changed("resumed", "")
        elif not self.suspended_since_ns:
            self.suspended_since_ns = now_ns
            self.suspensions += 1
            reason = "suspended: the cell's log doesn't answer, and another member may take over"
            self.store.suspend(reason)
            self.changed("suspended", reason)
        elif now_ns - self.suspended_since_ns > lease.ttl_ns // 2 and now_ns - writer.heard_ns > lease.ttl_ns:
            # Cut off, and so perhaps alone: another member takes over, and this one's clients must find it.
            return "no server of the cell's log can be reached"
        elif now_ns - self.suspended_since_ns > ALONE_NS:
            return "the cell's log has not answered for too long"
        if now_ns - self._dropped_ns > SECOND_NS:
            self._dropped_ns = now_ns
            for file in self.store.take_gone_bodies():
                self._bodies.drop(file)
        return ""

    def relief(self, now_ns: int) -> str:
        """Return the member that is to take the cell over because this disk stays full, or because the store
        has failed; empty without one.

        The owner's loop asks again and again. A standby whose own disk is full, or has failed, says so, and
        is none.
        """
        if self.store.state == FAILED:
            return self._successor()
        is_full = self.store.state == FULL and not self.suspended_since_ns
        if is_full:
            self._full_ns = now_ns
            self._full_since_ns = self._full_since_ns or now_ns
        elif now_ns - self._full_ns > FULL_NS:
            # A little room that comes and goes is none.
            self._full_since_ns = 0
        return self._successor() if is_full and now_ns - self._full_since_ns > FULL_NS else ""

    def hand_over(self, member: str) -> bool:
        """Leave the cell to a member, where it is empty to the one that has come farthest.

        Returns whether the log has taken that in time.
        """
        return self.writer.hand_over((member or self._successor()).encode(), HAND_OVER_S)

    def stop(self) -> None:
        """Let go of the log."""
        self.writer.stop()
        self._bodies.stop()
