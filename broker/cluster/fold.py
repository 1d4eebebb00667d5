"""A cell's log, record by record: who owns the cell, which groups there are, what counts for nobody.

Every member folds the same records to the same result. Nothing here knows the time, a disk or the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.cluster.records import (
    GROUPS,
    HANDOVER,
    MOST_IN_FLIGHT,
    SNAPSHOT_BEGIN,
    SNAPSHOT_END,
    SNAPSHOT_PIECE,
    START,
    TAKEOVER,
    BrokenRecord,
    Record,
    decode,
    split,
)

# Of the records that a deposed owner had in flight each may cost the next owner as many as it has in flight.
MOST_VOID = 1024


@dataclass(slots=True)
class Step:
    """What one record adds. ``counts`` is false for a record of a deposed owner, and for a copy.

    ``groups`` are those that are complete with it, in order.
    """

    record: Record
    counts: bool = True
    groups: list[bytes] = field(default_factory=list)


class LogFold:
    """The log up to ``position``: ``epoch``, last complete ``group``, ``digest`` of the last that counts.

    ``owner`` is the payload of the epoch's take-over; ``successor`` that of a hand-over behind it, else None.
    """

    def __init__(
        self, cell: int, position: int = 0, epoch: int = 0, group: int = 0, digest: bytes = START
    ) -> None:
        self.cell = cell
        self.position = position
        self.epoch = epoch
        self.group = group
        self.digest = digest
        self.owner = b""
        self.successor: bytes | None = None
        self._parts: list[bytes] = []
        # Where the last record stood that counted for nobody, and how many came since the last that did.
        # A fold that begins within the log doesn't know, and takes the record before it for one.
        self._void_position = position or -MOST_IN_FLIGHT
        self._void = 0

    @classmethod
    def before(cls, cell: int, position: int, data: bytes) -> LogFold:
        """Return the fold whose next record is this one, which counts. Raises BrokenRecord."""
        record = decode(position, data)
        epoch = record.epoch - 1 if record.kind == TAKEOVER else record.epoch
        group = record.group - 1 if record.kind == GROUPS else record.group
        return cls(cell, position - 1, epoch, group, record.chain)

    @classmethod
    def behind(cls, cell: int, position: int, data: bytes) -> LogFold:
        """Return the fold whose last record is this one, which counts. Raises BrokenRecord."""
        record = decode(position, data)
        return cls(cell, position, record.epoch, record.group, record.digest)

    def feed(self, position: int, data: bytes) -> Step:
        """Take the next record.

        1. A record of an older epoch counts for nobody: its owner was deposed when it was appended.
        2. A take-over begins a new epoch, where whoever wrote it had all records before it.
        3. Any other record must follow the last one that counted. One that doesn't counts for nobody where
           another such record stands close before it: the owner sent it behind one whose position a deposed
           owner's record took, and sends it again; as it may come late, records that count can stand between
           the two, but fewer than are in flight. Elsewhere, or beyond ``MOST_VOID`` in a row, records are
           missing.

        Raises BrokenRecord where a record is damaged, or missing, and changes nothing then.
        """
        if position != self.position + 1:
            raise BrokenRecord(self.position + 1, f"the next record stands at position {position}")
        record = decode(position, data)
        if record.cell != self.cell:
            raise BrokenRecord(position, "it belongs to another cell")
        counts = self._counts(position, record)
        step = Step(record, counts)
        if counts and record.kind == GROUPS:
            step.groups = self._complete(position, record)
        self.position = position
        if counts:
            self._void = 0
        else:
            self._void += 1
            self._void_position = position
        if counts:
            self._take(record)
        return step

    def _counts(self, position: int, record: Record) -> bool:
        follows = record.chain == self.digest
        if record.epoch > self.epoch:
            if record.kind != TAKEOVER:
                raise BrokenRecord(position, f"the take-over that began epoch {record.epoch} is missing")
            return follows
        if record.epoch < self.epoch:
            return False
        if follows and record.kind != TAKEOVER:
            return True
        if position - self._void_position >= MOST_IN_FLIGHT or self._void > MOST_VOID:
            raise BrokenRecord(position, f"records before it are missing, behind group {self.group}")
        return False

    def _complete(self, position: int, record: Record) -> list[bytes]:
        parts = [] if record.part == 0 else self._parts
        if record.part != len(parts):
            raise BrokenRecord(
                position, f"part {record.part} of a group stands where part {len(parts)} is next"
            )
        if record.part + 1 < record.parts:
            self._parts = [*parts, record.payload]
            return []
        self._parts = []
        return list(split(position, b"".join([*parts, record.payload])))

    def _take(self, record: Record) -> None:
        self.digest = record.digest
        if record.kind == TAKEOVER:
            self.epoch = record.epoch
            self.owner, self.successor = record.payload, None
            # The rest of a group whose owner is gone will not come.
            self._parts = []
        elif record.kind == HANDOVER:
            self.successor = record.payload
        if record.kind not in (SNAPSHOT_BEGIN, SNAPSHOT_PIECE, SNAPSHOT_END):
            self.group = record.group
