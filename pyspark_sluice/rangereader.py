"""A range of a stream's offsets, read on an executor from the broker, each message once and in order.

1. The link begins at the next wanted offset. A connection that is lost is made anew and begins there again,
   so nothing comes twice and nothing is left out.
2. Credit never exceeds what the range lacks, nor what a task may hold: messages that came and weren't taken
   yet count as well.
3. Without a selector offsets follow one another. One that is missing was removed by retention, which fails
   the task (``failOnDataLoss``) or is passed over.
4. Behind a selector they don't, and the last message of the range may not match. So a second link waits for
   the range's last message itself, and then the first one is drained (AMQP 1.0 §2.6.7): it has seen
   everything before that. A hole may be one of retention's where the stream begins behind it by then.
5. Without a selector chunks of messages are asked for, which end where the range does; a broker that doesn't
   know them sends messages one by one.
6. Where nothing comes for a while the broker is asked where the stream begins and ends. A task of one that
   says nothing then fails, unless messages come.
7. A stream that was made anew has other messages at the same offsets. So the broker is asked before a range,
   and at its end, too, whether it is still the one that the batch was planned for: identities don't come
   back.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cproton
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cproton_ffi import ffi, lib
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from .chunks import CHUNK_BYTES, Chunk, chunk_of, clipped
from .connection import TRANSIENT, Connection
from .decode import Decoder, MessageSizes
from .engine import Handle
from .errors import AmqpError, DataLossError, RefusedError, UnansweredError
from .filters import count_applied, put_filters
from .management import QUEUE, Reads
from .offsets import encoded_offset, extent_of, missing, offset_of
from .options import Options
from .ranges import Extent, Range, shown
from .receiver import UNKNOWN, Sizes
from .unpack import MalformedError

log = logging.getLogger("pyspark_sluice")

# Rows and bytes of a record batch, and what a task may hold beside the one that is decoded.
ROWS, BYTES = 5000, 16 << 20
AHEAD_ROWS, AHEAD_BYTES = 2 * ROWS, 2 * BYTES
# The same of messages that come in chunks, of which so many are held or under way.
CHUNKED_ROWS, AHEAD_CHUNKS = 20_000, 32
# Silence after which the broker is asked whether the stream still has the wanted offsets.
SILENCE_S = 2.0


class StreamRange(InputPartition):
    """What a task reads: some offsets of the stream at ``address``, which is one partition.

    ``stream_id`` says which stream they are of, None where the broker doesn't.
    """

    def __init__(self, address: str, wanted: Range, stream_id: int | None = None) -> None:
        self.address = address
        self.wanted = wanted
        self.stream_id = stream_id


def read_range(found: StreamRange, options: Options, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in the order of their offsets. Raises what the reading failed of."""
    decoder = Decoder(schema, lenient=options.on_malformed == "null")
    partition = found.wanted.partition
    receiver = RangeReceiver(options, found)
    receiver.start()
    try:
        while True:
            taken = receiver.take(CHUNKED_ROWS, BYTES)
            if not len(taken.sizes):
                return
            place = {
                "offset": pa.array(taken.offsets, pa.int64()),
                "partition": pa.array(np.full(len(taken.sizes), partition), pa.int32()),
            }
            try:
                yield decoder.batch(taken.data, taken.sizes, place)
            except MalformedError as fault:
                where = shown(partition, found.address, int(taken.offsets[0]), int(taken.offsets[-1]) + 1)
                raise MalformedError(f"{where}: {fault}") from None
    finally:
        receiver.close()


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages one behind the other in ``data``, with the bytes and the offset of each, in order."""

    data: bytes
    sizes: MessageSizes
    offsets: Sequence[int] | npt.NDArray[np.int64]


class RangeReceiver(Connection):
    """Reads one range. ``take`` is for one thread."""

    def __init__(self, options: Options, found: StreamRange) -> None:
        super().__init__(options, "spark-stream")
        self.address = found.address
        self.wanted = found.wanted
        self.stream_id = found.stream_id
        # The offset that comes next.
        self.next = found.wanted.start
        self._changed = threading.Condition()
        # What came and wasn't taken, with its offsets: appended to on one thread, taken from on the other.
        self._messages: deque[bytes] = deque()
        self._offsets: deque[int] = deque()
        # The same where messages come in chunks, each with the offset of its first.
        self._chunks: deque[tuple[int, Chunk]] = deque()
        self._is_chunked = False
        # The bytes of the largest so far.
        self._heaviest = 0
        self._came_bytes = self._taken_bytes = self._came_rows = self._taken_rows = 0
        # Where the last message had its offset.
        self._offset_at = 0
        self._ended = False
        self._sizes = Sizes()
        self._link: Handle = None
        self._mark: Handle = None
        # Behind a selector: the range's last message is there, so what is read can be drained.
        self._drains = False
        # Messages of this link: granted so far, come so far, and how few may be under way before more is
        # granted.
        self._granted = self._got = self._low = 0
        # The first offset that didn't come, behind a selector.
        self._hole: int | None = None
        self._reads = Reads()
        self._asks = False
        # The range is read, and the broker was asked of which stream it was, and whether a hole is one of
        # retention's.
        self._checks_end = False
        # Which stream it is has been asked, and nothing is attached before that is answered.
        self._begins = False
        self._has_warned = False
        self._has_moved = False
        self._moved_at = self._progress_at = time.monotonic()
        self._links = 0
        self._room = ffi.new("char[]", 1 << 16)

    # --- the caller's thread

    def take(self, rows: int, size: int) -> Taken:
        """Messages in order: as many as came, up to a batch of ``rows`` or fewer, and ``size`` bytes, or one
        chunk; none at the range's end. Waits for them. Raises what the connection failed of."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_enough(rows, size))
            if self.failure is not None:
                raise self.failure
        # What came one by one came before a connection whose broker knows chunks, or behind one.
        first_chunk = self._chunks[0][0] if self._chunks else self.wanted.end
        is_single = bool(self._offsets) and self._offsets[0] < first_chunk
        taken = self._take_messages(rows, size, first_chunk) if is_single else self._take_chunks(rows, size)
        self._taken_bytes += len(taken.data)
        self._taken_rows += len(taken.sizes)
        self.post(self._grant)
        return taken

    def _take_messages(self, rows: int, size: int, before: int) -> Taken:
        """The same of those that came one by one and are before an offset."""
        messages: list[bytes] = []
        total, ready = 0, len(self._offsets)
        # What is longer than all of it goes alone.
        while len(messages) < min(rows, ROWS, ready) and self._offsets[len(messages)] < before:
            if messages and total + len(self._messages[0]) > size:
                break
            messages.append(self._messages.popleft())
            total += len(messages[-1])
        offsets = [self._offsets.popleft() for _ in messages]
        return Taken(b"".join(messages), array("q", map(len, messages)), offsets)

    def _take_chunks(self, most: int, size: int) -> Taken:
        """The same of those that came in chunks, up to one that came by itself."""
        parts: list[memoryview] = []
        sizes, offsets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        rows = total = 0
        for _ in range(len(self._chunks)):
            first, chunk = self._chunks[0]
            if self._offsets and self._offsets[0] < first:
                break
            if rows and (rows + len(chunk) > most or total + chunk.nbytes > size):
                break
            self._chunks.popleft()
            parts.append(memoryview(chunk.data)[chunk.start :])
            sizes.append(chunk.sizes)
            offsets.append(np.arange(first, first + len(chunk)))
            rows += len(chunk)
            total += chunk.nbytes
        return Taken(b"".join(parts), np.concatenate(sizes), np.concatenate(offsets))

    def _is_enough(self, most: int, size: int) -> bool:
        if self._ended or self.failure is not None:
            return True
        # Without credit nothing more comes until some is taken.
        rows = self._came_rows - self._taken_rows
        stalls = rows > 0 and (self._link is None or self._got >= self._granted)
        return rows >= min(most, self._batch_rows()) or self._came_bytes - self._taken_bytes >= size or stalls

    def _batch_rows(self) -> int:
        return CHUNKED_ROWS if self._is_chunked else ROWS

    # --- the connection's thread

    def on_open(self) -> None:
        self._moved_at = time.monotonic()
        if self._ended:
            return
        if self._checks_end:
            self._ask()
            return
        if self.stream_id is not None:
            # Offsets of a stream that was made anew are others: it is asked before any of it is read.
            self._begins = True
            self._ask()
        else:
            self._begin()

    def _begin(self) -> None:
        self._begins = False
        self._link = self._attach(self.next, self.options.selector)
        if self.options.selector is not None:
            self._mark = self._attach(self.wanted.end - 1, None)

    def on_attached(self, link: Handle) -> None:
        if self._reads.on_attached(link):
            return
        filters = 2 if link == self._link and self.options.selector is not None else 1
        applied = count_applied(link)
        if link == self._link:
            self._is_chunked = self.options.selector is None and applied == 2
        if applied < filters:
            raise RefusedError(
                "amqp:not-implemented",
                f"'{self.address}' is no stream of {self.broker}, or it has no selectors",
            )
        if link == self._mark:
            lib.pn_link_flow(link, 1)
        else:
            self._grant()

    def on_detached(self, link: Handle, why: RefusedError | None) -> None:
        if self._reads.on_detached(link):
            if why is not None and why.condition in TRANSIENT and not self._ended:
                self.give_up_link(why)
            self._compare()
        elif not self._ended:
            super().on_detached(link, why)

    def on_flow(self, link: Handle) -> None:
        if self._reads.on_flow(link):
            self._compare()
        elif link == self._link and self._drains:
            self._used_up()

    def on_delivery(self, delivery: Handle) -> None:
        if not lib.pn_delivery_readable(delivery) or lib.pn_delivery_partial(delivery):
            return
        link = lib.pn_delivery_link(delivery)
        if lib.pn_delivery_aborted(delivery):
            lib.pn_delivery_settle(delivery)
        elif self._reads.on_delivery(link, delivery):
            self._compare()
        elif link == self._mark:
            lib.pn_link_advance(link)
            lib.pn_delivery_settle(delivery)
            self._drains = True
            self._grant()
            self._used_up()
        elif link == self._link and not self._is_read():
            self._keep(link, delivery)

    def on_lost(self) -> None:
        with self._changed:
            self._link = self._mark = None
            self._drains = self._begins = False
            self._granted = self._got = self._low = 0
            self._changed.notify()
        self._asks = False
        self._reads.forget()

    def fail(self, failure: AmqpError) -> None:
        super().fail(failure)
        with self._changed:
            self._changed.notify()

    def on_turn(self) -> float | None:
        if self._has_moved:
            self._has_moved = False
            self._moved_at = self._progress_at = time.monotonic()
            self._asks = self._asks and self._checks_end
        if self._asks and not self._ended:
            return self._await_answer()
        if self._is_read() or self._link is None or self._asks or self._got >= self._granted:
            return None
        due = self._moved_at + SILENCE_S
        if time.monotonic() < due:
            return due
        self._ask()
        return None

    # --- messages

    def _keep(self, link: Handle, delivery: Handle) -> None:
        # Hot: once a message, or a chunk of them (bench/sparksource.py).
        size = lib.pn_delivery_pending(delivery)
        if size > len(self._room):
            self._room = ffi.new("char[]", size)
        got = lib.pn_link_recv(link, self._room, size) if size else 0
        lib.pn_link_advance(link)
        lib.pn_delivery_settle(delivery)
        message = ffi.unpack(self._room, got) if got > 0 else b""
        self._got += 1
        self._has_moved = True
        if self._is_chunked:
            self._keep_chunk(message)
            return
        self._sizes.count(size)
        offset = self.next
        if not message.startswith(encoded_offset(offset), self._offset_at):
            found = self._offset_of(message)
            if found is None or not self._follows(found):
                return
            offset = found
        self._messages.append(message)
        self._offsets.append(offset)
        self._came(1, got, offset + 1)

    def _keep_chunk(self, message: bytes) -> None:
        offset = self._offset_of(message)
        if offset is None:
            return
        try:
            chunk = chunk_of(message)
        except MalformedError as fault:
            self.fail(AmqpError(f"a chunk of '{self.address}' at offset {offset} can't be read: {fault}"))
            return
        if self._follows(offset):
            chunk = clipped(chunk, self.wanted.end - offset)
            self._heaviest = max(self._heaviest, chunk.nbytes)
            self._chunks.append((offset, chunk))
            self._came(len(chunk), chunk.nbytes, offset + len(chunk))

    def _came(self, rows: int, nbytes: int, following: int) -> None:
        """So many messages are kept, behind which an offset follows."""
        self._came_bytes += nbytes
        self._came_rows += rows
        self.next = following
        held_bytes, held_rows = self._came_bytes - self._taken_bytes, self._came_rows - self._taken_rows
        if held_rows >= self._batch_rows() or held_bytes >= BYTES or self._got >= self._granted:
            with self._changed:
                self._changed.notify()
        if self.next == self.wanted.end:
            self._end()
        elif self._drains:
            self._used_up()
        elif self._granted - self._got <= self._low:
            self._grant()

    def _offset_of(self, message: bytes) -> int | None:
        try:
            found = offset_of(message)
        except (MalformedError, IndexError):
            found = None
        if found is None:
            self.fail(AmqpError(f"a message of '{self.address}' doesn't say at which offset it is"))
        else:
            self._offset_at = max(message.find(encoded_offset(found)), 0)
        return found

    def _follows(self, offset: int) -> bool:
        """Whether a message is the next of the range; a hole before it is dealt with."""
        if offset < self.next:
            self.fail(AmqpError(f"'{self.address}' sent offset {offset} behind {self.next - 1}"))
            return False
        if offset > self.next:
            if self.options.selector is None:
                self._lose(min(offset, self.wanted.end))
            elif self._hole is None:
                self._hole = self.next
        if offset < self.wanted.end:
            return self.failure is None
        self._end()
        return False

    def _lose(self, until: int) -> None:
        """The offsets from ``next`` up to, and without, ``until`` are gone from the stream."""
        first, self.next = self.next, until
        if self.wanted.anew and first == self.wanted.start:
            return
        where = shown(self.wanted.partition, self.address, first, until)
        if self.options.fail_on_data_loss:
            self.fail(
                DataLossError(
                    f"{where} are gone from the stream before they were read: retention was faster than this"
                    " query, or the stream was made anew. failOnDataLoss=false passes over them"
                )
            )
        else:
            log.warning("%s are gone from the stream and are passed over", where)

    def _end(self) -> None:
        """The range is read; what a selector may have hidden, and which stream it was, is asked first."""
        if not self._checks_end and (self._hole is not None or self.stream_id is not None):
            self._checks_end = True
            self._ask()
            return
        with self._changed:
            self._ended = True
            self._changed.notify()

    # --- credit

    def _grant(self) -> None:
        """Top the link's credit up to what the range lacks and the task may hold."""
        link = self._link
        if link is None or self._is_read() or not lib.pn_link_state(link) & cproton.PN_REMOTE_ACTIVE:
            return
        with self._changed:
            under_way = self._granted - self._got
            lacking = self.wanted.end - self.next - under_way
            more = max(min(self._window() - under_way, lacking), 0)
            self._granted += more
        self._low = (under_way + more) // 2
        if more > 0:
            if under_way == 0:
                # Silence begins here.
                self._moved_at = time.monotonic()
            if self._drains:
                lib.pn_link_set_drain(link, True)
            lib.pn_link_flow(link, more)

    def _window(self) -> int:
        """How many messages, or chunks, may be under way beside those that weren't taken yet."""
        if self._is_chunked:
            # A message that is larger than a chunk is one by itself.
            heaviest = max(self._heaviest, CHUNK_BYTES)
            return max(min(AHEAD_CHUNKS, AHEAD_BYTES // heaviest), 1) - len(self._chunks)
        typical = self._sizes.typical()
        window = min(AHEAD_ROWS, max(int(AHEAD_BYTES / typical), 1)) if typical else UNKNOWN
        return window - len(self._messages)

    def _used_up(self) -> None:
        """A drained link has no credit any more: by messages, or because all there is was looked at."""
        link = self._link
        if link is None or self._is_read():
            return
        if not lib.pn_link_get_drain(link):
            lib.pn_link_set_drain(link, True)
            lib.pn_link_flow(link, 0)
        if lib.pn_link_credit(link) > 0 or self._granted == 0:
            return
        if self._got < self._granted:
            self._granted = self._got
            self._hole = self.next if self._hole is None else self._hole
            self._end()
        else:
            self._grant()

    def _is_read(self) -> bool:
        return self._ended or self._checks_end

    # --- questions

    def _ask(self) -> None:
        self._asks = True
        self._reads.ask_for(self.session(), [(QUEUE, self.address)])
        self._compare()

    def _await_answer(self) -> float | None:
        try:
            return self._reads.await_answer(time.monotonic(), self.options.connect_timeout)
        except UnansweredError as fault:
            self.fail(fault)
            return None

    def _compare(self) -> None:
        """Hold what was asked for against what the stream has."""
        if not self._asks or not self._reads.answered.is_set():
            return
        self._asks = False
        self._moved_at = time.monotonic()
        extent = extent_of(self._reads.answers[0])
        if self._reads.refusal is not None:
            self.fail(self._reads.refusal)
        elif extent is not None and self._is_another(extent):
            self._lose_stream()
        elif self._begins:
            self._begin()
        elif self._checks_end:
            hole, self._hole = self._hole, None
            if extent is not None and hole is not None and extent.first > hole:
                self.next = hole
                self._lose(min(extent.first, self.wanted.end))
            self._end()
        elif extent is None:
            self.fail(missing(self.address))
        elif extent.first > self.next and (self.options.selector is None or extent.first >= self.wanted.end):
            self._lose(min(extent.first, self.wanted.end))
            if self.next == self.wanted.end:
                self._end()
        elif extent.next < self.wanted.end:
            self._await_end(extent.next)

    def _is_another(self, extent: Extent) -> bool:
        return None not in (self.stream_id, extent.stream_id) and self.stream_id != extent.stream_id

    def _lose_stream(self) -> None:
        """The stream that was to be read is gone, and another one has its name."""
        wanted = self.wanted
        where = shown(wanted.partition, self.address, wanted.start, wanted.end)
        if self.options.fail_on_data_loss:
            self.fail(
                DataLossError(
                    f"{where} were to be read of a stream that is gone: it was made anew meanwhile."
                    " failOnDataLoss=false reads the new one from its beginning"
                )
            )
            return
        if self._came_rows:
            # Some are of the one, some may be of the other.
            self.fail(
                AmqpError(f"{where}: the stream was made anew while it was read; done again there are none")
            )
            return
        log.warning("%s were to be read of a stream that is gone: it was made anew meanwhile", where)
        self.next, self._hole, self._checks_end = wanted.end, None, True
        self._end()

    def _await_end(self, last: int) -> None:
        """Offsets were announced that aren't there: the broker was killed before they were on its disk, or
        the stream was made anew."""
        limit_s = self.options.reconnect_timeout or float("inf")
        where = shown(self.wanted.partition, self.address, last, self.wanted.end)
        is_late = time.monotonic() - self._progress_at > limit_s
        # One that ends before what was read of it already is another stream, whose offsets are others.
        if not self.options.fail_on_data_loss and (is_late or last < self.next):
            self._lose(self.wanted.end)
            self._end()
        elif is_late:
            self.fail(
                DataLossError(f"{where} were announced by the broker, and didn't come within {limit_s:g} s")
            )
        elif not self._has_warned:
            self._has_warned = True
            log.warning("%s were announced and aren't there; waiting for them", where)

    def _attach(self, offset: int, selector: str | None) -> Handle:
        self._links += 1
        link = lib.pn_receiver(self.session(), f"{self.container}-{self._links}".encode())
        source = lib.pn_link_source(link)
        lib.pn_terminus_set_address(source, self.address.encode())
        # The mark of a range's end is one message.
        chunk = (CHUNK_BYTES, self.wanted.end) if self.options.selector is None else None
        put_filters(lib.pn_terminus_filter(source), selector=selector, offset=offset, chunk=chunk)
        lib.pn_link_set_snd_settle_mode(link, cproton.PN_SND_SETTLED)
        lib.pn_link_set_rcv_settle_mode(link, cproton.PN_RCV_FIRST)
        lib.pn_link_open(link)
        return link
