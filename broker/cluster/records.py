"""The records of a cell's log, each chained to the one before it.

A record is a head of 60 bytes, little-endian, and a payload. The head has a checksum of itself, one of the
payload, and the chain: a digest of the previous valid record's head. So a record that is missing, doubled,
damaged or from elsewhere is seen by whoever follows the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from broker.errors import OperatorError
from broker.store.records import crc32c

# Groups of the store, which a record has one or more of, or a part of one.
GROUPS = 1
# The owner is alive.
MARK = 2
# Another member owns the cell from here on, in a new epoch; the payload says which.
TAKEOVER = 3
# The owner is done; the payload says who is to follow it.
HANDOVER = 4
# Everything that is live as of a group, in pieces, among other records.
SNAPSHOT_BEGIN = 5
SNAPSHOT_PIECE = 6
SNAPSHOT_END = 7

KINDS = {
    GROUPS: "groups",
    MARK: "mark",
    TAKEOVER: "take-over",
    HANDOVER: "hand-over",
    SNAPSHOT_BEGIN: "beginning of a snapshot",
    SNAPSHOT_PIECE: "piece of a snapshot",
    SNAPSHOT_END: "end of a snapshot",
}

MAGIC = b"SLUICELG"
# With 2 a group's records may be lists, which a member of before can't read: it says so and applies nothing.
# Other records are of version 1 still, so that it knows who owns the cell.
VERSION = 2
FIRST_VERSION = 1
# Magic, version, kind, part, parts, unused, cell, epoch, group, chain, length, checksums of payload and head.
_HEAD = struct.Struct("<8sBBHHHQQQ8sIII")
_LENGTH = struct.Struct("<I")
# No chain yet: what the first record of a log follows.
START = bytes(8)
# The most bytes of payload in one record; a group, or a piece of a snapshot, that is larger has several.
MOST_BYTES = 512 << 10
# No owner has more records in flight, which bounds where records that count for nobody can stand.
MOST_IN_FLIGHT = 32


class BrokenRecord(OperatorError):  # noqa: N818 - as DamagedStore
    """A record of the log isn't what a member wrote, or not the next one; ``position`` is where it stands."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(f"the log is damaged at position {position}: {text}")
        self.position = position


@dataclass(frozen=True, slots=True)
class Record:
    """A record, decoded. ``group`` is the last group that the log has in whole at its end.

    ``chain`` is the digest of the record before it, ``digest`` its own. ``part`` counts from 0.
    """

    kind: int
    cell: int
    epoch: int
    group: int
    chain: bytes
    payload: bytes
    digest: bytes
    part: int = 0
    parts: int = 1


def cell_number(name: str) -> int:
    """Return the number by which a cell's records are known."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def encode(
    kind: int,
    cell: int,
    epoch: int,
    group: int,
    chain: bytes,
    payload: bytes = b"",
    part: int = 0,
    parts: int = 1,
) -> tuple[bytes, bytes]:
    """Return a record's bytes and its digest, which the next record is chained to."""
    version = VERSION if kind == GROUPS else FIRST_VERSION
    head = _HEAD.pack(
        *(MAGIC, version, kind, part, parts, 0, cell, epoch, group, chain, len(payload), crc32c(payload), 0)
    )[:-4]
    head += crc32c(head).to_bytes(4, "little")
    return head + payload, _digest(head)


def decode(position: int, data: bytes) -> Record:
    """Read the record at a position of the log. Raises BrokenRecord."""
    if len(data) < _HEAD.size:
        raise BrokenRecord(position, f"{len(data)} bytes are too few for a record")
    head = data[: _HEAD.size]
    magic, version, kind, part, parts, _, *rest = _HEAD.unpack(head)
    cell, epoch, group, chain, length, payload_sum, head_sum = rest
    if magic != MAGIC or crc32c(head[:-4]) != head_sum:
        raise BrokenRecord(position, "its head isn't one that a broker wrote")
    if not FIRST_VERSION <= version <= VERSION or kind not in KINDS:
        raise BrokenRecord(position, f"a record of version {version} and kind {kind} is of a newer broker")
    payload = data[_HEAD.size :]
    if len(payload) != length or crc32c(payload) != payload_sum:
        raise BrokenRecord(position, "its contents are not those that were written")
    return Record(kind, cell, epoch, group, chain, payload, _digest(head), part, parts)


def joined(groups: list[bytes]) -> bytes:
    """Return several groups as one payload."""
    return b"".join(piece for group in groups for piece in (_LENGTH.pack(len(group)), group))


def split(position: int, payload: bytes) -> Iterator[bytes]:
    """Return the groups that ``joined`` put together. Raises BrokenRecord."""
    at = 0
    while at < len(payload):
        end = at + _LENGTH.size
        end += int.from_bytes(payload[at:end], "little")
        if end > len(payload):
            raise BrokenRecord(position, "a group in it isn't whole")
        yield payload[at + _LENGTH.size : end]
        at = end


def _digest(head: bytes) -> bytes:
    return blake2b(head, digest_size=8).digest()
