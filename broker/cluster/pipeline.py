"""Records on their way to the log, several at a time, and how an outcome that isn't known is found out.

The thread that drives it is a loop around the log's port:

    for data, after in pipeline.to_send():
        log.append(data, after)                     # note the time, for the lease
    if pipeline.look_from:
        last = log.last()                           # from the leader, before anything is read
        while position := pipeline.look_from:
            entries = log.read(position, nbytes)
            if not entries and position <= last:
                break                               # a replica that is behind: read again later
            pipeline.looked(entries, is_tail=not entries)
    else:
        for outcome in log.outcomes(timeout_s):     # each append has one, Unknown after a time-out
            if pipeline.outcome(outcome):
                lease.acked(...)                    # with the time at which it was sent

``acked_group`` is durable then; ``fenced`` and EngineFault end the loop for good. Only a position that the
leader named may be told as the end of the log; a record that was appended since is found by the next refusal.

A driver hands over records (``submit``), sends what ``to_send`` returns, and tells every outcome. After the
first outcome that is no acknowledgement nothing more is sent until all outcomes of what was sent are there;
then ``look_from`` is a position, and the driver tells what stands there and behind it (``looked``):

1. the bytes of the next record that isn't acknowledged: it is;
2. a record of a later epoch: another member owns the cell, and nothing of ours is acknowledged any more;
3. any other record: it counts for nobody, and ours come behind it;
4. nothing: what isn't acknowledged is sent again, on the condition of that position.

A copy of a record that was sent before and comes late either takes the position that the record was to
have, and is found there, or finds it taken, and is refused. Where a record of a deposed owner takes the
position of one of ours, those that were sent behind that one may stand in the log without it: they count for
nobody (the fold voids them by their chain) and are sent again behind it. So each record counts once, and
nothing is acknowledged by assumption. Nothing here knows the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from broker.cluster.log import Acked, EngineFault, LogEntry, Outcome
from broker.cluster.records import MOST_IN_FLIGHT, BrokenRecord, decode


@dataclass(slots=True)
class PendingRecord:
    """A record that isn't acknowledged yet. ``group`` is the last group that is durable with it.

    ``is_whole`` is false for a part of a group.
    """

    data: bytes
    group: int
    is_whole: bool = True
    is_acked: bool = False


class AppendPipeline:
    """The records of one owner behind a position that it has applied.

    ``acked_group`` and ``acked_position`` are the last ones that are durable with all before them;
    ``submitted`` and ``acked`` count records. ``whole_position`` is the last of these positions
    where a record of ours stands, or the one it began behind, that is no part of a group: a log can begin
    with it.
    ``fenced`` is the epoch of the member that owns the cell now, 0 as long as it is ours.
    """

    def __init__(self, epoch: int, position: int, group: int, window: int = 16) -> None:
        if window > MOST_IN_FLIGHT:
            raise ValueError(f"{window} records in flight are more than a log's readers expect")
        self.acked_position = self.whole_position = position
        self.acked_group = group
        self.fenced = 0
        self.window = window
        self._epoch = epoch
        self._pending: deque[PendingRecord] = deque()
        self._sent = 0
        self._outstanding = 0
        self._looking = False
        self.pending_bytes = 0
        self.submitted = self.acked = 0

    def submit(self, data: bytes, group: int, is_whole: bool = True) -> None:
        """Take a record, behind all others; not ``is_whole`` where it is a part of a group."""
        self._pending.append(PendingRecord(data, group, is_whole))
        self.submitted += 1
        self.pending_bytes += len(data)

    @property
    def in_flight(self) -> int:
        """How many records were sent and have no outcome."""
        return self._outstanding

    @property
    def has_room(self) -> bool:
        """Whether one more record would be sent at once."""
        return not self._looking and not self.fenced and len(self._pending) < self.window

    @property
    def is_empty(self) -> bool:
        """Whether all that was submitted is acknowledged."""
        return not self._pending

    def to_send(self) -> list[tuple[bytes, int]]:
        """Return the records to be sent now, each with the position that it comes behind."""
        if self._looking or self.fenced:
            return []
        first = self._sent
        self._sent = min(len(self._pending), self.window)
        self._outstanding += self._sent - first
        return [(self._pending[at].data, self.acked_position + at) for at in range(first, self._sent)]

    def outcome(self, outcome: Outcome) -> bool:
        """Take note of what came of a record; return whether it is durable with all before it.

        Only such a record renews the owner's lease: one that the log took without those before it may stand
        behind a take-over. Raises EngineFault.
        """
        self._outstanding -= 1
        if not isinstance(outcome, Acked):
            self._looking = True
            return False
        if outcome.position != outcome.after + 1:
            # It stands behind something that isn't ours, though it was only to be taken if nothing did.
            raise EngineFault(
                f"the log took a record at position {outcome.position} that was to follow {outcome.after}"
            )
        at = outcome.after - self.acked_position
        if 0 <= at < self._sent:
            self._pending[at].is_acked = True
        while self._pending and self._pending[0].is_acked:
            self._acknowledge()
        return outcome.position <= self.acked_position

    @property
    def look_from(self) -> int:
        """The position from which the log is to be looked at; 0 while that isn't to be done."""
        return self.acked_position + 1 if self._looking and not self._outstanding and not self.fenced else 0

    def looked(self, entries: Iterable[LogEntry], is_tail: bool) -> None:
        """Take note of what stands at ``look_from`` and behind it; ``is_tail``: nothing does behind these.

        Raises EngineFault where positions are missing.
        """
        for entry in entries:
            if entry.position != self.acked_position + 1:
                raise EngineFault(
                    f"the log has position {entry.position} where {self.acked_position + 1} is next"
                )
            if self._pending and entry.data == self._pending[0].data:
                self._acknowledge()
                continue
            try:
                self.fenced = max(self.fenced, self._epoch_of_other(entry))
            except BrokenRecord as fault:
                raise EngineFault(str(fault)) from fault
            if self.fenced:
                return
            # What was acknowledged behind it stands in our way no more than this does.
            self.acked_position = entry.position
            for each in self._pending:
                each.is_acked = False
        if is_tail:
            self._looking = False
            self._sent = 0

    def _epoch_of_other(self, entry: LogEntry) -> int:
        """Return the epoch of a record that isn't ours to expect there, 0 where it counts for nobody."""
        epoch = decode(entry.position, entry.data).epoch
        return epoch if epoch > self._epoch else 0

    def _acknowledge(self) -> None:
        done = self._pending.popleft()
        self.acked_position += 1
        self.acked_group = done.group
        if done.is_whole:
            self.whole_position = self.acked_position
        self.acked += 1
        self._sent = max(self._sent - 1, 0)
        self.pending_bytes -= len(done.data)
