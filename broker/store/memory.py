"""The store's interface without a disk: what is kept is kept as long as the process.

For tests, and to tell what durability itself costs.
"""

from __future__ import annotations

import contextlib
import os

from broker.store.port import REDELIVERED, SPARED, QueueLog, Store


class MemoryQueueLog(QueueLog):
    """One node's messages by number: (flags, delivery count, expiry, data)."""

    def __init__(self, store: MemoryStore, name: str, definition: bytes) -> None:
        self.store = store
        self.name = name
        self.definition = definition
        self.messages: dict[int, tuple[int, int, int, bytes]] = {}

    def append(self, seq: int, flags: int, delivery_count: int, expires_ms: int, data: bytes) -> None:
        self.messages[seq] = (flags, delivery_count, expires_ms, data)
        self.store.touch(len(data))

    def update(self, seq: int, delivery_count: int, spared: bool = False) -> None:
        if seq in self.messages:
            flags, _, expires_ms, data = self.messages[seq]
            flags |= REDELIVERED | (SPARED if spared else 0)
            self.messages[seq] = (flags, delivery_count, expires_ms, data)
            self.store.touch(0)

    def forget(self, seq: int, nbytes: int) -> None:
        if self.messages.pop(seq, None) is not None:
            self.store.touch(0)


class MemoryStore(Store):
    """Groups are synced at the next ``attend``; ``shelves`` and ``notes`` are what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.shelves: dict[str, MemoryQueueLog] = {}
        self.notes: dict[str, bytes] = {}

    def open_log(self, name: str, definition: bytes) -> QueueLog:
        shelf = self.shelves[name] = MemoryQueueLog(self, name, definition)
        self.touch(0)
        return shelf

    def redefine(self, shelf: QueueLog, definition: bytes) -> None:
        assert isinstance(shelf, MemoryQueueLog)
        shelf.definition = definition
        self.touch(0)

    def remove(self, shelf: QueueLog) -> None:
        assert isinstance(shelf, MemoryQueueLog)
        del self.shelves[shelf.name]
        self.touch(0)

    def note(self, key: str, value: bytes) -> None:
        self.notes[key] = value
        if not value:
            del self.notes[key]
        self.touch(0)

    def touch(self, size: int) -> None:
        """Something was handed over."""
        self.open_records += 1
        self.behind_bytes += size

    def seal(self) -> None:
        if self.open_records:
            self.group += 1
            self.open_records = 0
            os.eventfd_write(self.bell, 1)

    def attend(self) -> int:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        self.synced = self.group - 1
        self.behind_bytes = 0
        return self.synced

    def close(self) -> None:
        """Let go of the bell; safe to call twice."""
        bell, self.bell = self.bell, -1
        if bell >= 0:
            os.close(bell)

    def __del__(self) -> None:
        # A store that is only forgotten has a descriptor all the same.
        self.close()
