from broker.errors import OperatorError

MESSAGE: int
FORGET: int
UPDATE: int
DEFINE: int
REMOVE: int
NOTE: int
STREAM: int
COPY: int
COPIES: int
FORGOTTEN: int

Record = tuple[int, int, int, int, int, int, bytes]

class DamagedRecord(OperatorError):  # noqa: N818
    offset: int
    def __init__(self, offset: int) -> None: ...

def crc32c(data: bytes, crc: int = 0) -> int: ...
def crc32c_by_table(data: bytes, crc: int = 0) -> int: ...
def read(blob: bytes, start: int = 0, end: int = -1, node: int = -1) -> list[Record]: ...

class Buffer:
    size: int
    count: int
    def add(
        self,
        kind: int,
        node: int,
        seq: int,
        flags: int,
        delivery_count: int,
        expires_ms: int,
        payload: bytes,
    ) -> None: ...
    def take(self) -> bytes: ...
    def clear(self) -> None: ...
