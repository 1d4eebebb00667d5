BLOCK_BYTES: int
WRITERS: int
GROUP_HEAD_BYTES: int

def group_bytes(size: int) -> int: ...

class Journal:
    bell: int
    run: int
    lazy: bool
    written: int
    synced: int
    full: int
    fault: int
    fault_at_sync: int
    file: int
    offset: int
    writes: int
    groups: int
    written_bytes: int
    sync_ns: int
    slowest_ns: int
    last_ns: int
    pending_bytes: int
    def __init__(self, run: int, synced: int, next_file: int, lazy: bool = False) -> None: ...
    def provide(self, number: int, fd: int) -> None: ...
    def retire(self, number: int) -> None: ...
    def declare_synced(self, group: int) -> None: ...
    def place(self) -> tuple[int, int]: ...
    def run_until_stopped(self, number: int) -> None: ...
    def stop(self) -> None: ...
    def halt(self) -> None: ...

class GroupFound:
    number: int
    synced: int
    start: int
    end: int
    is_last: bool
    mark: bool

def group_at(data: bytes, at: int, file: int) -> GroupFound | None: ...
