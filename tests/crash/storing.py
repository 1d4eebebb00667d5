"""A store at work in a process of its own, under a disk with faults; it keeps books on its standard output.

``python -m tests.crash.storing DATA CONTROL KILL|CLOSE [FAULT TEXT]``: the fault is switched on once the
store is open. A line for each thing that is on disk for sure, in the order in which it was told:

- ``kept SHELF FIRST LAST`` and ``gone SHELF FIRST LAST``: messages that are there, and that are not any more;
- ``noted NUMBER``: the note says at least that;
- ``state STATE``: what the store is in at the end, once it had time to go on.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

from broker.store.disk import DiskStore
from broker.store.port import DURABLE, FAILED, WRITING, QueueLog

ROUNDS = 200
BATCH = 40
# How many rounds a message is kept; every so many rounds a shelf is given up and another made.
KEPT_ROUNDS = 60
SHELF_ROUNDS = 90
PATIENCE_S = 15.0
BODY_BYTES = 900


class Work:
    """What is handed over, round by round, and what of it is known to be on disk."""

    def __init__(self, store: DiskStore) -> None:
        self.store = store
        self.waiting: list[tuple[int, str]] = []
        self.shelves: list[tuple[QueueLog, str]] = []
        self.rounds: list[tuple[QueueLog, str, int]] = []
        self.synced_at_failure = -1

    def open_log(self, number: int) -> None:
        """A shelf more; the one before the last is removed."""
        name = f"s{number}"
        self.shelves.append((self.store.open_log(name, b"{}"), name))
        if len(self.shelves) > 2:
            shelf, name = self.shelves.pop(0)
            self.store.remove(shelf)
            self.rounds = [each for each in self.rounds if each[0] is not shelf]
            self.tell(f"gone {name} 0 {1 << 30}")

    def round(self, number: int) -> None:
        """A batch more, an old one less, a note, all in one group."""
        if number % SHELF_ROUNDS == 0:
            self.open_log(number)
        shelf, name = self.shelves[-1] if number % 2 else self.shelves[0]
        first = number * BATCH
        for seq in range(first, first + BATCH):
            # Each of its own: what several shelves get at once is written once.
            shelf.append(seq, DURABLE, 0, 0, bytes(BODY_BYTES))
        self.rounds.append((shelf, name, first))
        self.tell(f"kept {name} {first} {first + BATCH - 1}")
        if len(self.rounds) > KEPT_ROUNDS:
            self.forget()
        self.store.note("round", b"%d" % number)
        self.tell(f"noted {number}")
        self.store.seal()

    def forget(self) -> None:
        """The oldest batch is done with."""
        shelf, name, first = self.rounds.pop(0)
        # Not yet known to be gone, and not wanted any more.
        print(f"going {name} {first} {first + BATCH - 1}")
        for seq in range(first, first + BATCH):
            shelf.forget(seq, BODY_BYTES)
        self.tell(f"gone {name} {first} {first + BATCH - 1}")

    def tell(self, line: str) -> None:
        """Once the open group is on disk."""
        if line.startswith("gone") and line.endswith(str(1 << 30)):
            print(line.replace("gone", "going"))
        self.waiting.append((self.store.group, line))

    def attend(self) -> None:
        """Take note of what is on disk."""
        store = self.store
        select.select([store.bell], [], [], 0.002)
        failed = store.state == FAILED
        before = store.synced
        store.attend()
        if failed and store.synced != before:
            print("state rose")
        while self.waiting and self.waiting[0][0] <= store.synced:
            print(self.waiting.pop(0)[1])

    def until(self, condition: Callable[[], bool]) -> None:
        """With what the broker does every second, quicker."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < deadline:
            self.attend()
            self.store.maintain()


def main(data: str, control: str, end: str, fault: str = "", text: str = "") -> None:
    """Work until the end of the rounds, whatever becomes of the store."""
    store = DiskStore.open(Path(data), file_bytes=1 << 20)
    work = Work(store)
    if fault:
        (Path(control) / fault).write_text(text)
    for number in range(ROUNDS):
        work.round(number)
        if store.state == WRITING:
            last = store.group - 1
            work.until(lambda last=last: store.synced >= last or store.state != WRITING)  # type: ignore[misc]
        for _ in range(3):
            work.attend()
            if number % 10 == 0:
                store.maintain()
        if store.state == FAILED and work.synced_at_failure < 0:
            work.synced_at_failure = store.synced
    work.until(lambda: store.state == FAILED or (store.state == WRITING and not work.waiting))
    print(f"state {store.state}")
    print("fired" if fault and not (Path(control) / fault).exists() else "kept off")
    sys.stdout.flush()
    if end == "CLOSE":
        store.close()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
