from collections import deque

from broker.store.logs import Shelves
from broker.store.port import StreamLog
from broker.store.segments import SegmentLog

class StreamBatch:
    group: int
    first: int
    time_ms: int
    nbytes: int
    messages: list[bytes]

class DiskStreamLog(StreamLog):
    id: int
    name: str
    definition: bytes
    store: Shelves
    last_seq: int
    changed: bool
    segments: SegmentLog
    arrived: deque[StreamBatch]
    ready: deque[StreamBatch]
    kept: tuple[int | None, int | None, int | None]
    held_from: int | None
    arrived_bytes: int
    appended_bytes: int
    def __init__(
        self,
        store: Shelves,
        id: int,  # noqa: A002
        name: str,
        definition: bytes,
        last_seq: int,
        segments: SegmentLog,
        arriving: list[DiskStreamLog],
    ) -> None: ...
    def take_in(self, seq: int, time_ms: int, data: bytes) -> None: ...
