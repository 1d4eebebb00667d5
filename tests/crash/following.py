"""An owner and a standby at work in a process of their own, in directories that a shim records.

``python -m tests.crash.following DATA LOG STATES SEED GROUPS``: ``DATA/owner``, ``DATA/cache``. On standard
output, each with how much of the record there is: ``acked N BYTES`` before the log acknowledges up to group
N, ``synced NAME N BYTES`` once a directory's journal is synced up to it. ``STATES`` gets, pickled, what a
directory holds behind each group of the log.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from random import Random

from broker.store.cache import CacheStore
from broker.store.prefix import PrefixStore
from broker.store.replicated import ReplicatedStore
from tests.store.replicas import FILE_BYTES, LateLog, Owner


class Work:
    """Both directories, opened, and what is told of them."""

    def __init__(self, data: Path, record: Path, seed: int) -> None:
        self.data = data
        self.record = record
        self.chance = Random(seed)
        self.log = LateLog()
        self.owner = Owner(Random(seed))
        self.epoch = 1
        self.store = self.owned()
        self.cache = CacheStore.open(data / "cache", file_bytes=FILE_BYTES)

    def owned(self) -> ReplicatedStore:
        """The owner's directory, opened."""
        store = ReplicatedStore.own(self.data / "owner", self.log, self.epoch, file_bytes=FILE_BYTES)
        self.owner.take(store)
        return store

    def turn(self) -> None:
        """A group more; what is acknowledged and applied lags behind."""
        self.owner.group(self.store, self.chance.randrange(1, 25))
        upto = self.chance.randint(self.log.acked_group, self.log.last)
        self.tell(f"acked {upto}")
        self.log.acknowledge(self.store, upto)
        self.store.attend()
        while self.cache.applied[1] < upto and self.chance.random() < 0.9:
            self.cache.apply(self.log.groups[self.cache.applied[1] + 1])
        self.cache.attend()
        if self.chance.random() < 0.04:
            self.restart()
        for store in (self.store, self.cache):
            self.tell(f"synced {store.path.name} {self.synced(store)}")
            if self.chance.random() < 0.08 and not store._busy:
                store.begin_checkpoint()

    def restart(self) -> None:
        """Kill one of them and start it again: what no sync had reached is read, and built upon."""
        if self.chance.random() < 0.5:
            self.cache.abandon()
            self.cache = CacheStore.open(self.data / "cache", file_bytes=FILE_BYTES)
            return
        self.tell(f"acked {self.log.last}")
        self.log.acknowledge(self.store)
        self.store.attend()
        self.store.abandon()
        # Of what was acknowledged the journal may not have had all yet: a member follows before it owns.
        member = CacheStore.open(self.data / "owner", file_bytes=FILE_BYTES)
        while member.applied[1] < self.log.last:
            member.apply(self.log.groups[member.applied[1] + 1])
        member.close()
        self.epoch += 1
        self.store = self.owned()

    def synced(self, store: PrefixStore) -> int:
        """The group of the log up to which the journal is synced: both began empty."""
        return store.journal.synced

    def tell(self, line: str) -> None:
        """A line, with how much was recorded by now."""
        print(line, self.record.stat().st_size)


def main(data: str, record: str, states: str, seed: str, groups: str) -> None:
    """Work, then be gone, as by a kill."""
    work = Work(Path(data), Path(record), int(seed))
    for _ in range(int(groups)):
        work.turn()
    Path(states).write_bytes(pickle.dumps(work.owner.states))
    print(f"checkpoints {work.store.checkpoints} {work.cache.checkpoints}")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
