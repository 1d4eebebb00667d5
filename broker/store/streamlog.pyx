"""A stream's place in the store: a message is a record of the journal, and goes to segments once that is on disk."""

from collections import deque

from cpython.bytes cimport PyBytes_GET_SIZE

from broker.store.logs cimport Shelves
from broker.store.port cimport StreamLog
from broker.store.records import STREAM

cdef int RECORD_STREAM = STREAM
SMALLEST_SEGMENT = 1 << 20
LARGEST_SEGMENT = 64 << 20
# Retention takes whole segments, so a limit is made of at least so many.
SEGMENTS_IN_LIMIT = 8
# Files of fewer messages than this cost more than their messages.
FEWEST_IN_SEGMENT = 1024


cdef class StreamBatch:
    """Messages of one group that came at one time (ms since the epoch), from the offset ``first`` on."""

    def __init__(self, long group, long first, long time_ms):
        self.group = group
        self.first = first
        self.time_ms = time_ms
        self.messages = []
        self.nbytes = 0


cdef class DiskStreamLog(StreamLog):
    """One stream's messages on disk. A message's sequence number is its offset and one.

    ``arrived`` has the batches whose groups aren't in the journal yet, ``ready`` those that are and that the
    streams' thread appends to the segments; ``arriving`` has the streams that have any of the former.
    ``arrived_bytes`` counts what has come, ``appended_bytes`` what of it the segments have. ``kept`` is what retention leaves: bytes, messages, milliseconds,
    each None for all; from the offset ``held_from`` on nothing goes, None for no such offset.
    """

    def __init__(self, Shelves store, long id, str name, bytes definition, long last_seq, object segments,
                 list arriving):
        self.store = store
        self.id = id
        self.name = name
        self.definition = definition
        self.last_seq = last_seq
        self.segments = segments
        self.arriving = arriving
        self.arrived_bytes = 0
        self.appended_bytes = 0
        self.arrived = deque()
        self.ready = deque()
        self.kept = (None, None, None)
        self.held_from = None
        self.changed = True

    cpdef object append(self, long seq, long flags, long delivery_count, long expires_ms, bytes data):
        self.arrive(seq, expires_ms, data)
        self.store.buffer.add(RECORD_STREAM, self.id, seq, 0, 0, expires_ms, data)
        self.store.open_records += 1

    cdef object arrive(self, long seq, long expires_ms, bytes data):
        """Note a message of the open group."""
        cdef StreamBatch batch = self.latest
        if seq != self.last_seq + 1:
            raise ValueError(f"message {seq} comes after {self.last_seq}")
        if batch is None or batch.time_ms != expires_ms or batch.group != self.store.group:
            batch = StreamBatch(self.store.group, seq - 1, expires_ms)
            self.latest = batch
            if not self.arrived:
                self.arriving.append(self)
            self.arrived.append(batch)
        batch.messages.append(data)
        batch.nbytes += PyBytes_GET_SIZE(data)
        self.arrived_bytes += PyBytes_GET_SIZE(data)
        self.last_seq = seq
        self.changed = True

    def take_in(self, long seq, long time_ms, bytes data):
        """A message from a group that another store sealed; one that is there stays as it is.

        The segments may have more than the journal, after a power cut: it is the same, as it came before.
        """
        if seq > self.last_seq:
            self.arrive(seq, time_ms, data)

    cpdef object update(self, long seq, long delivery_count, bint spared=False):
        raise ValueError("nobody takes a message of a stream")

    cpdef object forget(self, long seq, long nbytes):
        raise ValueError("a message of a stream leaves by retention")

    # --- for the engine, on any thread

    @property
    def first_offset(self):
        return self.segments.first_offset

    @property
    def next_offset(self):
        return self.segments.next_offset

    @property
    def nbytes(self):
        # In this order: a batch that is appended meanwhile is counted twice, and not left out.
        cdef long pending = self.arrived_bytes - self.appended_bytes
        return self.segments.nbytes + pending

    def limit(self, most_bytes, most_count, age_ms):
        self.kept = (most_bytes or None, most_count or None, age_ms or None)
        size = (most_bytes or SEGMENTS_IN_LIMIT * LARGEST_SEGMENT) // SEGMENTS_IN_LIMIT
        self.segments.segment_bytes = min(max(size, SMALLEST_SEGMENT), LARGEST_SEGMENT)
        self.segments.segment_msgs = max(most_count // SEGMENTS_IN_LIMIT, FEWEST_IN_SEGMENT) if most_count else 0

    def hold(self, offset):
        self.held_from = None if offset < 0 else offset

    def reader(self, offset):
        return self.segments.reader(offset, cold=True)

    def find(self, time_ms):
        return self.segments.find(time_ms)

    def count_bytes(self, offset, end, most_bytes):
        return self.segments.count_bytes(offset, end, most_bytes)
