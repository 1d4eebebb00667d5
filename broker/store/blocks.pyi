VERSION: int
HEAD_BYTES: int
TAIL_BYTES: int
MOST_BLOCK_BYTES: int

StreamMessage = tuple[int, int, bytes]

def encode(
    messages: list[bytes], first: int, time_ms: int, latest_ms: int, block_bytes: int
) -> tuple[bytes, list[tuple[int, int]]]: ...
def decode(
    data: bytes, at: int, first: int, offset: int, most_bytes: int, into: list[StreamMessage]
) -> tuple[int, int, int, int, int, str | None]: ...
def tail_size(data: bytes) -> int: ...
def end_of(head_data: bytes, tail_data: bytes) -> tuple[int, int] | None: ...

class BlockWalk:
    position: int
    next_offset: int
    latest_ms: int
    need: int
    payload_bytes: int
    marks: list[tuple[int, int, int]]
    fault: str | None
    is_foreign: bool
    def __init__(
        self, position: int, next_offset: int, *, latest_ms: int = 0, step: int = 65536, whole: bool = False
    ) -> None: ...
    def go(self, data: bytes, *, offset: int = -1, time_ms: int = -1) -> bool: ...
