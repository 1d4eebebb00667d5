"""Who may act, and when another may: the owner's lease and the standby's patience. Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

# How much later a standby of the next rank takes over, so that those of lower ranks come first.
RANK_NS = 300_000_000


@dataclass(slots=True)
class OwnerLease:
    """An owner acts until so long after it sent the last record that the log acknowledged.

    Every time is of this member's own monotonic clock, in nanoseconds.
    """

    ttl_ns: int
    margin_ns: int
    mark_ns: int
    # When the last acknowledged record was sent, and when the last one was sent.
    acked_sent_ns: int
    sent_ns: int

    def sent(self, now_ns: int) -> None:
        """A record goes to the log now."""
        self.sent_ns = now_ns

    def acked(self, sent_ns: int) -> None:
        """A record that was sent then, or later, is acknowledged, and all before it."""
        self.acked_sent_ns = max(self.acked_sent_ns, sent_ns)

    @property
    def ends_ns(self) -> int:
        """When the owner must stop acting unless another record is acknowledged."""
        return self.acked_sent_ns + self.ttl_ns - self.margin_ns

    def may_act(self, now_ns: int) -> bool:
        """Return whether the owner may grant, deliver and answer."""
        return now_ns < self.ends_ns

    @property
    def mark_due_ns(self) -> int:
        """When a mark is to be appended, because nothing else was."""
        return self.sent_ns + self.mark_ns


@dataclass(slots=True)
class StandbyClock:
    """A standby takes over once the log was silent for so long, and its engine has answered for a while.

    ``since_ns`` is when it saw the last record. ``grace_ns`` is how long an owner may need, once the engine
    answers again, to say that it is there: its lease has ended by then, so that this spares it a change of
    owner and nothing else. Nobody waits so long for one that could not be reached meanwhile.
    """

    ttl_ns: int
    rank: int
    since_ns: int
    grace_ns: int = 1_500_000_000
    _answers: bool = True

    def record_seen(self, now_ns: int) -> None:
        """A record came."""
        self.since_ns = now_ns

    def engine_answered(self, now_ns: int, answers: bool, owner_is_gone: bool = False) -> None:
        """Take note of whether the engine's leader answered: nobody takes over while it doesn't.

        ``owner_is_gone``: the owner was asked for while it didn't, and never found.
        """
        if answers and not self._answers and not owner_is_gone:
            self.since_ns = max(self.since_ns, now_ns + self.grace_ns - self.ttl_ns)
        self._answers = answers

    def handed_over(self, now_ns: int, to_me: bool) -> None:
        """The owner has left; the one it named comes first, the others after their rank."""
        wait_ns = 0 if to_me else (self.rank + 1) * RANK_NS
        self.since_ns = now_ns - self.ttl_ns - self.rank * RANK_NS + wait_ns

    @property
    def due_ns(self) -> int:
        """When this standby takes over unless a record comes."""
        return self.since_ns + self.ttl_ns + self.rank * RANK_NS

    def takeover_due(self, now_ns: int) -> bool:
        """Return whether it is time to take over; the caller has applied everything."""
        return self._answers and now_ns >= self.due_ns
