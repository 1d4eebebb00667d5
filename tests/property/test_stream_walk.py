"""A stream's queue beside a list, with a disk that is late: every reader gets each offset once, in order."""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.constants import HELD_BYTES
from broker.queues import stream
from broker.queues.queue import Reader
from broker.queues.stream import FIRST, LAST, NEXT, OFFSET, TIME, StreamCursor, StreamQueue

BODY = b"\x00\x53\x77\xa0\x04"
TAIL_BYTES = 700


class Source:
    """The log: what it has, and how far retention went."""

    def __init__(self) -> None:
        self.first_offset = self.next_offset = 0

    def limit(self, most_bytes: int, most_count: int, age_ms: int) -> None:
        pass

    def hold(self, offset: int) -> None:
        pass


def unpacked(data: bytes) -> list[bytes]:
    """The messages of a chunk: behind the annotations their number, their lengths, and they themselves."""
    at = data.index(b"\x00\x53\x75\xb0") + 8
    [msgs] = struct.unpack_from(">I", data, at)
    sizes = struct.unpack_from(f">{msgs}I", data, at + 4)
    ends = [*accumulate(sizes, initial=at + 4 + 4 * msgs)]
    assert ends[-1] == len(data)
    return [data[begin:end] for begin, end in pairwise(ends)]


class Walk:
    """The model: every message with its time, who reads from where, what each has got."""

    def __init__(self) -> None:
        self.source = Source()
        self.asked: list[Reader] = []
        self.queue = StreamQueue(self.source, 0, self.ask)
        self.sent: list[bytes] = []
        self.times: list[int] = []
        self.sizes: list[int] = []
        self.stored = 0
        self.now_ms = 0
        self.readers: list[Reader] = []
        self.next: dict[Reader, int] = {}
        self.opened_ms: dict[Reader, int] = {}

    def ask(self, reader: Reader) -> None:
        assert not reader.run.loading
        reader.run.loading = True
        self.asked.append(reader)

    def put(self, count: int, later_ms: int) -> None:
        self.now_ms += later_ms
        for _ in range(count):
            data = BODY + len(self.sent).to_bytes(4, "big")
            # A section more, of a length of its own.
            data = b"\x00\x53\x70\xc0\x02\x01\x41" * (len(self.sent) % 3 == 0) + data
            self.sizes.append(len(data))
            self.sent.append(self.queue.arrive(data, self.now_ms, True).data)
            self.times.append(self.now_ms)

    def store(self, part: int) -> None:
        self.stored += (len(self.sent) - self.stored) * part // 4
        self.queue.stored(self.stored)

    def append(self, part: int) -> None:
        self.source.next_offset += (self.stored - self.source.next_offset) * part // 4
        self.queue.trim(TAIL_BYTES)

    def retain(self, part: int) -> None:
        self.source.first_offset += (self.source.next_offset - self.source.first_offset) * part // 4

    def open(self, start: str, value: int, chunk_bytes: int, until: int) -> None:
        reader = Reader(object(), None, True)
        reader.run = StreamCursor(start, value)
        reader.run.chunk_bytes, reader.run.until = chunk_bytes, until
        self.queue.open_reader(reader)
        self.readers.append(reader)
        self.opened_ms[reader] = self.now_ms
        first = self.source.first_offset
        if start == FIRST:
            begin = first
        elif start == LAST:
            begin = max(len(self.sent) - 1, first)
        elif start == NEXT:
            begin = len(self.sent)
        elif start == OFFSET:
            begin = max(value, first)
        else:
            begin = -1
        self.next[reader] = begin

    def read(self, at: int) -> None:
        if not self.readers:
            return
        reader = self.readers[at % len(self.readers)]
        for _ in range(60):
            entry = self.queue.look(reader)
            if entry is None:
                return
            if reader.run.chunk_bytes == 0:
                self.take(reader, entry.seq - 1, entry.data)
                continue
            messages = unpacked(entry.data)
            assert len(messages) == reader.run.in_chunk
            assert len(messages) == 1 or sum(map(len, messages)) <= reader.run.chunk_bytes
            for number, data in enumerate(messages, entry.seq - len(messages)):
                assert number < reader.run.until
                self.take(reader, number, data)

    def take(self, reader: Reader, offset: int, data: bytes) -> None:
        assert offset < self.stored, "it is not stored yet"
        assert data == self.sent[offset]
        expected = self.next[reader]
        if expected < 0:
            # By time: all before it came earlier, or are gone. A time to come is the end as it was then.
            value = reader.run.value
            assert self.times[offset] >= min(value, self.opened_ms[reader])
            assert offset == self.source.first_offset or self.times[offset - 1] < value
        elif offset != expected:
            assert expected < offset <= self.source.first_offset, "a hole that retention didn't make"
        self.next[reader] = offset + 1

    def answer(self, at: int, count: int) -> None:
        """The disk answers one of those who asked."""
        if not self.asked:
            return
        reader = self.asked.pop(at % len(self.asked))
        cursor = reader.run
        if cursor is None:
            return
        cursor.loading = False
        if cursor.seeks:
            found = [at for at in range(self.source.next_offset) if self.times[at] >= cursor.value]
            begin = max(found[0] if found else self.source.next_offset, self.source.first_offset)
            self.queue.found(reader, begin, self.source.next_offset)
            return
        first = self.queue.wanted_offset(reader)
        if first < self.source.first_offset:
            reader.passed = max(reader.passed, self.source.first_offset)
            return
        last = min(first + count, self.source.next_offset)
        self.queue.load(reader, [(each, self.times[each], self.sent[each]) for each in range(first, last)])

    def close(self, at: int) -> None:
        if self.readers:
            reader = self.readers.pop(at % len(self.readers))
            cursor = reader.run
            self.queue.close_reader(reader)
            assert cursor.closed
            del self.next[reader]

    def check(self) -> None:
        unappended = sum(
            len(data) + 64 for data in self.sent[min(self.source.next_offset, self.queue.visible) :]
        )
        assert self.queue.tail_bytes <= TAIL_BYTES + 2 * unappended + 400
        queue, total = self.queue, sum(self.sizes)
        assert queue.bytes_from(len(self.sizes)) == 0
        for offset in range(queue.tail_first, len(self.sizes)):
            assert queue.bytes_from(offset) == sum(self.sizes[offset:])
        # Before that at the one place that somebody has counted it for.
        if queue.tail_first:
            queue.counted_offset = queue.tail_first - 1
            queue.counted_sum = queue.total_bytes - total + sum(self.sizes[: queue.counted_offset])
            assert queue.bytes_from(queue.counted_offset) == sum(self.sizes[queue.counted_offset :])
            assert queue.bytes_from(queue.tail_first - 2) == -1 or queue.tail_first < 2
        loaded = [data for reader in self.readers for _, _, data in reader.run.loaded]
        assert self.queue.loaded_bytes == sum(len(data) + HELD_BYTES for data in loaded)

    def finish(self) -> None:
        """Everybody gets all there is, once the disk has answered."""
        self.store(4)
        self.append(4)
        for _ in range(20 * (len(self.sent) + len(self.readers)) + 20):
            for at in range(len(self.readers)):
                self.read(at)
            while self.asked:
                self.answer(0, 7)
        for reader in self.readers:
            if self.next[reader] >= 0:
                until = reader.run.until if reader.run.chunk_bytes else len(self.sent)
                # Where retention went beyond the end nothing comes: the reader stands behind that.
                is_gone = reader.passed >= until and self.source.first_offset >= until
                assert is_gone or self.next[reader] >= min(len(self.sent), until)
            assert not self.queue.has_more(reader)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 30), st.integers(0, 3)),
        st.tuples(st.just("store"), st.integers(1, 4)),
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("retain"), st.integers(1, 3)),
        st.tuples(
            st.just("open"),
            st.sampled_from((FIRST, LAST, NEXT, OFFSET, TIME)),
            st.integers(0, 60),
            st.sampled_from((0, 100, 500)),
            st.integers(1, 90),
        ),
        st.tuples(st.just("read"), st.integers(0, 9)),
        st.tuples(st.just("answer"), st.integers(0, 9), st.integers(1, 20)),
        st.tuples(st.just("close"), st.integers(0, 9)),
    ),
    max_size=60,
)


# Retention takes all of a range before it is read.
GONE: list[tuple[Any, ...]] = [
    *(("put", 3, 0), ("open", FIRST, 0, 100, 1), ("store", 4), ("append", 4), ("retain", 3)),
    *(("put", 4, 0), ("append", 1)),
]


@given(STEPS)
@example(GONE)
@settings(max_examples=400, deadline=None)
def test_every_reader_gets_each_offset_once_in_order(steps: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream, "TAIL_BYTES", TAIL_BYTES)
        patched.setattr(stream, "LOW", 3)
        walk = Walk()
        for name, *values in steps:
            getattr(walk, name)(*values)
            walk.check()
        walk.finish()
