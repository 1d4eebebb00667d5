"""A stream whose messages follow from their offsets, and what tests ask of its log on disk."""

from __future__ import annotations

from pathlib import Path

from broker.store.blocks import StreamMessage
from broker.store.segment import bases_in, path_of
from broker.store.segments import SegmentLog

# Small, so that a few messages fill segments, blocks and indexes.
SEGMENT_BYTES = 2000
BLOCK_BYTES = 200


def text_of(offset: int) -> bytes:
    """The message of an offset."""
    return f"message {offset} ".encode() * (1 + offset % 7)


def texts(first: int, count: int) -> list[bytes]:
    """The messages from an offset on."""
    return [text_of(offset) for offset in range(first, first + count)]


def time_of(offset: int) -> int:
    """When messages came that were appended from this offset on."""
    return 1_000_000 + 10 * offset


def opened(directory: Path, synced: int | None = None, **settings: int) -> SegmentLog:
    """A log with small segments."""
    small = {"segment_bytes": SEGMENT_BYTES, "block_bytes": BLOCK_BYTES, **settings}
    return SegmentLog.open(directory, synced=synced, **small)


def fill(log: SegmentLog, count: int, at_once: int = 5) -> None:
    """Append so many of the stream's messages."""
    upto = log.next_offset + count
    while log.next_offset < upto:
        first = log.next_offset
        log.append(texts(first, min(at_once, upto - first)), time_of(first))


def everything(log: SegmentLog, most_bytes: int = 100, *, cold: bool = False) -> list[StreamMessage]:
    """All that a reader from the first message on gets."""
    reader = log.reader(log.first_offset, cold=cold)
    found: list[StreamMessage] = []
    while more := reader.read(most_bytes):
        found += more
    reader.close()
    return found


def assert_whole(log: SegmentLog) -> None:
    """Every message is there, in order, and nothing else."""
    found = everything(log, 1000)
    offsets = range(log.first_offset, log.next_offset)
    assert [offset for offset, _, _ in found] == list(offsets)
    assert [text for _, _, text in found] == [text_of(offset) for offset in offsets]


def paths(directory: Path) -> list[Path]:
    """The files of a log, in order."""
    return [path_of(directory, base) for base in bases_in(directory)]


def flip(path: Path, position: int) -> None:
    """Change a bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)
