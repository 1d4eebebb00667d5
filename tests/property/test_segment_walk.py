"""A stream's log beside a plain list: appending, replaying, torn at any byte, retention, reading, finding."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.store.blocks import StreamMessage
from broker.store.port import OffsetGone
from broker.store.segment import path_of
from broker.store.segmentreader import SegmentReader
from broker.store.segments import LEAST_KEPT, SegmentLog
from tests.store.streams import paths

VERBS = (
    *("append", "append", "append from", "sync", "reopen", "reopen synced", "tear", "zero", "scribble"),
    *("retain count", "retain bytes", "retain time", "roll", "read", "read on", "seek", "find", "count"),
)
HEAD = struct.Struct("<4sHHQIIQQII")


def block_ends(data: bytes) -> list[tuple[int, int]]:
    """Where each block of a file ends, and the next offset there."""
    at = 0
    found = []
    while at < len(data):
        _, _, _, first, count, length, *_ = HEAD.unpack_from(data, at)
        at += HEAD.size + (length + 7 & ~7) + 8
        found.append((at, first + count))
    return found


class Walk:
    """The log, and ``messages``: the time and the text of every offset there ever was."""

    def __init__(self, directory: Path, segment_bytes: int, block_bytes: int) -> None:
        self.directory = directory
        self.settings = {"segment_bytes": segment_bytes, "block_bytes": block_bytes}
        self.log = SegmentLog.open(directory, **self.settings)
        self.messages: list[tuple[int, bytes]] = []
        self.first = 0
        self.synced = 0
        self.clock_ms = 1000
        # The first message whose time a log can know of.
        self.timed_from = 0
        self.reader: SegmentReader = self.log.reader(0)

    def do(self, verb: str, number: int) -> None:
        getattr(self, verb.replace(" ", "_"))(number)
        self.check()

    def check(self) -> None:
        log = self.log
        assert (log.first_offset, log.next_offset) == (self.first, len(self.messages))
        assert log.count == len(self.messages) - self.first
        files = paths(self.directory)
        assert files[-1] == path_of(self.directory, log._chain.active.base)
        assert log.nbytes == sum(path.stat().st_size for path in files)
        assert log.synced_offset <= log.next_offset

    def texts(self, number: int, first: int) -> list[bytes]:
        return [b"%d:" % (first + n) + b"x" * ((number * 7 + n * 13) % 90) for n in range(number % 12)]

    def append(self, number: int) -> None:
        # A clock may be set back.
        self.clock_ms = max(0, self.clock_ms + number % 11 - (40 if number % 7 == 0 else 2))
        texts = self.texts(number, len(self.messages))
        assert self.log.append(texts, self.clock_ms) == len(self.messages)
        self.messages += [(self.clock_ms, text) for text in texts]

    def count(self, number: int) -> None:
        """The size of any stretch, in parts that end with a segment."""
        at = self.first + number % (len(self.messages) - self.first + 1)
        end = at + number * 7 % (len(self.messages) - at + 1)
        size, offset = 0, at
        while offset < end:
            offset, part = self.log.count_bytes(offset, end, 1 + number % 300)
            size += part
        assert size == sum(len(text) for _, text in self.messages[at:end])
        if self.first:
            with pytest.raises(OffsetGone):
                self.log.count_bytes(self.first - 1, self.first, 1)

    def append_from(self, number: int) -> None:
        """Replay: what is there, and some that isn't."""
        first = max(len(self.messages) - number % 20, 0)
        there = [text for _, text in self.messages[first:]]
        new = self.texts(number // 20, len(self.messages))
        assert self.log.append_from(first, there + new, self.clock_ms) == len(new)
        self.messages += [(self.clock_ms, text) for text in new]

    def sync(self, number: int) -> None:
        self.synced = self.log.sync()
        assert self.synced == len(self.messages)

    def opened(self, synced: int | None) -> None:
        offset = self.reader.offset
        self.reader.close()
        self.log.close()
        self.log = SegmentLog.open(self.directory, synced=synced, **self.settings)
        self.reader = self.log.reader(min(offset, self.log.next_offset))
        if not self.log.count:
            self.timed_from = self.log.next_offset

    def reopen(self, number: int) -> None:
        self.opened(None)
        assert self.log.torn is None
        # A start that isn't told what was synced syncs what it finds.
        self.synced = self.log.synced_offset
        assert self.synced == len(self.messages)

    def reopen_synced(self, number: int) -> None:
        self.opened(self.synced)
        assert self.log.torn is None

    def unsynced(self) -> list[tuple[Path, int]]:
        """Files with bytes behind what was synced, and where these begin."""
        found = []
        for path in paths(self.directory):
            ends = [(0, int(path.stem)), *block_ends(path.read_bytes())]
            begin = max((end for end, offset in ends if offset <= self.synced), default=0)
            if path.stat().st_size > begin:
                found.append((path, begin))
        return found

    def damage(self, number: int, how: str) -> None:
        """What a power cut leaves: of what wasn't synced, one place is not what was written."""
        found = self.unsynced()
        if not found:
            return
        path, begin = found[number % len(found)]
        data = path.read_bytes()
        at = begin + number % (len(data) - begin)
        changed = {
            "tear": data[:at],
            "zero": data[:at] + bytes(len(data) - at),
            "scribble": data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :],
        }[how]
        if changed == data:
            return
        differ = (n for n, pair in enumerate(zip(data, changed, strict=False)) if pair[0] != pair[1])
        first_bad = next(differ, at)
        whole = [(0, int(path.stem)), *block_ends(data)]
        cut_at, cut = max(each for each in whole if each[0] <= first_bad)
        last = paths(self.directory)[-1]
        path.write_bytes(changed)
        self.opened(self.synced)
        files = paths(self.directory)
        assert files[-1] == path
        assert path.stat().st_size == cut_at
        is_clean = len(changed) == cut_at and last == path
        assert (self.log.torn is None) == is_clean
        lost = self.messages[cut:]
        del self.messages[cut:]
        self.check()
        # The journal has them, from what was synced on.
        first = max(self.synced, self.first)
        again = [*self.messages[first:], *lost]
        for n, (time_ms, text) in enumerate(again):
            self.log.append_from(first + n, [text], time_ms)
        self.messages += lost

    def tear(self, number: int) -> None:
        self.damage(number, "tear")

    def zero(self, number: int) -> None:
        self.damage(number, "zero")

    def scribble(self, number: int) -> None:
        self.damage(number, "scribble")

    def retained(self, most: int, measure: str, kept: list[tuple[int, int]]) -> None:
        """``kept``: of each segment but the last the first offset of the next one, and its own size."""
        left = getattr(self.log, measure)
        for following, size in kept:
            if left <= most or left - size < most * LEAST_KEPT or following > self.synced:
                break
            left -= size
            self.first = following
        self.log.retain(**{f"most_{'count' if measure == 'count' else 'bytes'}": most})

    def retain_count(self, number: int) -> None:
        bases = [int(path.stem) for path in paths(self.directory)]
        kept = [(b, b - a) for a, b in itertools.pairwise(bases)]
        self.retained(number % 100, "count", kept)

    def retain_bytes(self, number: int) -> None:
        files = paths(self.directory)
        kept = [(int(b.stem), a.stat().st_size) for a, b in itertools.pairwise(files)]
        self.retained(number * 5, "nbytes", kept)

    def retain_time(self, number: int) -> None:
        before_ms = self.clock_ms - number % 50 + 20
        bases = [int(path.stem) for path in paths(self.directory)]
        # A message that was removed counts still for how late the others are.
        while (
            len(bases) > 1
            and bases[1] <= self.synced
            and all(time_ms < before_ms for time_ms, _ in self.messages[self.timed_from : bases[1]])
        ):
            self.first = bases[1]
            del bases[0]
        self.log.retain(before_ms=before_ms)

    def roll(self, number: int) -> None:
        self.log.roll()

    def read(self, number: int) -> None:
        offset = number % (len(self.messages) + 2)
        self.compare(self.log.reader(offset, cold=number % 2 == 0), number % 300)

    def read_on(self, number: int) -> None:
        self.compare(self.reader, number % 300)

    def seek(self, number: int) -> None:
        self.reader.seek(number % (len(self.messages) + 2))

    def compare(self, reader: SegmentReader, most_bytes: int) -> None:
        """A read gets the list's messages, as many as it should."""
        offset = reader.offset
        if offset < self.first:
            with pytest.raises(OffsetGone) as gone:
                reader.read(most_bytes)
            assert gone.value.first_offset == self.first
            reader.seek(self.first)
            return
        found = reader.read(most_bytes)
        expected: list[StreamMessage] = []
        left = most_bytes
        for n, (time_ms, text) in enumerate(self.messages[offset:]):
            if expected and (len(text) > left or left <= 0):
                break
            expected.append((offset + n, time_ms, text))
            left -= len(text)
        assert found == expected
        assert reader.offset == offset + len(found)

    def find(self, number: int) -> None:
        wanted = self.clock_ms + number % 60 - 50
        there = range(self.first, len(self.messages))
        expected = next((n for n in there if self.messages[n][0] >= wanted), len(self.messages))
        assert self.log.find(wanted) == expected

    def finish(self) -> None:
        """All of it, after one more start, and every time there is."""
        self.opened(self.synced)
        self.check()
        reader = self.log.reader(self.first)
        while reader.offset < len(self.messages):
            self.compare(reader, 500)
        there = range(self.first, len(self.messages))
        for wanted in sorted({self.messages[n][0] + late_ms for n in there for late_ms in (0, 1)}):
            expected = next((n for n in there if self.messages[n][0] >= wanted), len(self.messages))
            assert self.log.find(wanted) == expected
        self.log.close()


STEPS = st.tuples(st.sampled_from(VERBS), st.integers(0, 400))


def walked(segment_bytes: int, block_bytes: int, verbs: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        walk = Walk(Path(folder), segment_bytes, block_bytes)
        for verb, number in verbs:
            walk.do(verb, number)
        walk.finish()


SIZES = st.sampled_from([60, 300, 1500]), st.sampled_from([1, 100, 1000])


@given(*SIZES, st.lists(STEPS, min_size=5, max_size=40))
@example(300, 100, [("append", 11), ("tear", 5), ("find", 3), ("retain count", 0), ("read", 0)])
def test_the_log_is_the_list(segment_bytes: int, block_bytes: int, verbs: list[tuple[str, int]]) -> None:
    walked(segment_bytes, block_bytes, verbs)


@pytest.mark.soak
@settings(max_examples=3000)
@given(*SIZES, st.lists(STEPS, min_size=20, max_size=100))
def test_the_log_is_the_list_for_longer(
    segment_bytes: int, block_bytes: int, verbs: list[tuple[str, int]]
) -> None:
    walked(segment_bytes, block_bytes, verbs)
