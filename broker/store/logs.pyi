from collections.abc import Callable, Mapping

from broker.store.journal import Journal
from broker.store.pagefile import BlobPlace
from broker.store.port import QueueLog, Store
from broker.store.records import Buffer

class Extent:
    first: int
    last: int
    file: int
    live: int
    nbytes: int
    place: BlobPlace | None
    changed: bool
    def __init__(self, first: int, file: int, place: BlobPlace | None = None) -> None: ...
    def add(self, seq: int) -> None: ...
    def has(self, seq: int) -> bool: ...
    def drop_one(self, seq: int) -> None: ...
    def copy(self) -> Extent: ...
    def bitmap(self) -> bytes: ...
    @staticmethod
    def of(first: int, last: int, place: BlobPlace | None, bitmap: bytes, nbytes: int = 0) -> Extent: ...
    def part(self, first: int, last: int, place: BlobPlace | None) -> Extent: ...

class DiskQueueLog(QueueLog):
    id: int
    name: str
    definition: bytes
    store: Shelves
    extents: list[Extent]
    updates: dict[int, tuple[int, int]]
    last_seq: int
    removed: bool
    changed: bool
    def __init__(self, store: Shelves, id: int, name: str, definition: bytes, last_seq: int) -> None: ...  # noqa: A002
    def holder(self, seq: int) -> Extent | None: ...
    def extent_from(self, first: int) -> Extent | None: ...
    def replace(self, extents: list[Extent]) -> None: ...
    def live(self) -> int: ...

class Shelves(Store):
    journal: Journal
    file: int
    file_used: int
    file_bytes: int
    touched: set[DiskQueueLog]
    idle_dirty: bool
    tap: Callable[[int, bytes, int, int, int], None] | None
    def record(self, kind: int, node: int, seq: int, payload: bytes) -> None: ...
    def next_file(self) -> None: ...
    def push_group(self, number: int, data: bytes, records: int, file: int, chain: int) -> None: ...
    def take_in(
        self,
        data: bytes,
        records: int,
        chain: int,
        shelves: dict[int, DiskQueueLog],
        control: Callable[[int, int, bytes], None],
        streamed: Callable[[int, int, int, bytes], None],
    ) -> None: ...

def scan_group(data: bytes) -> tuple[int, int, int]: ...
def spans_too_far(data: bytes, shelves: dict[int, DiskQueueLog], file: int, most: int) -> bool: ...
def copy_live(
    data: bytes,
    start: int,
    end: int,
    extents: dict[int, Extent],
    shelves: dict[int, DiskQueueLog],
    into: Buffer,
    most: int,
    place: int = 0,
) -> tuple[int, int, int]: ...
def join_sharing(data: bytes, start: int, end: int, roots: dict[int, int]) -> None: ...
def live_records(
    data: bytes,
    start: int,
    end: int,
    extents: Mapping[int, Extent],
    roots: dict[int, int],
    page_for: Callable[[int, int, int], OpenPage],
) -> None: ...

class OpenPage:
    size: int
    extents: dict[int, Extent]
    def take(self) -> tuple[bytes, dict[int, Extent]]: ...
