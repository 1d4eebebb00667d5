"""An owner at random work, its log late, and a standby that may stop at any point: it is a prefix, always."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from broker.store.cache import CacheStore
from broker.store.replicated import ReplicatedStore
from tests.store.replicas import FILE_BYTES, LateLog, Owner, read_directory, until

GROUPS = 160
PHASES = 4


class Walk:
    """An owner and a standby over one log, in directories of their own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = Random(seed)
        self.log = LateLog()
        self.owner = Owner(self.chance)
        self.epoch = 1
        self.store = self.owned()
        self.cache = self.followed("cache")
        self.followers = 1

    def owned(self) -> ReplicatedStore:
        store = ReplicatedStore.own(self.folder / "owner", self.log, self.epoch, file_bytes=FILE_BYTES)
        self.owner.take(store)
        return store

    def followed(self, name: str) -> CacheStore:
        return CacheStore.open(self.folder / name, file_bytes=FILE_BYTES)

    def phase(self) -> None:
        for _ in range(GROUPS // PHASES):
            self.owner.group(self.store, self.chance.randrange(1, 25))
            self.step()
        self.end()

    def step(self) -> None:
        """The log acknowledges some of it, the standby applies some of that; now and then one does more."""
        chance, log = self.chance, self.log
        if chance.random() < 0.7:
            log.acknowledge(self.store, chance.randint(log.acked_group, log.last))
        self.store.attend()
        assert self.store.synced == self.store.group - 1 - (log.last - log.acked_group)
        while self.cache.applied[1] < log.acked_group and chance.random() < 0.9:
            self.cache.apply(log.groups[self.cache.applied[1] + 1])
        self.cache.attend()
        verb = chance.random()
        if verb < 0.06:
            self.restart_cache()
        elif verb < 0.12:
            self.checkpoint(self.store)
        elif verb < 0.18:
            self.checkpoint(self.cache)
        elif verb < 0.22:
            self.store.next_file() if not self.store.open_records else None
        elif verb < 0.26:
            self.cache.next_file()
        elif verb < 0.28:
            self.copy_cache()

    def checkpoint(self, store: ReplicatedStore | CacheStore) -> None:
        """Begin one; the owner's is written once the log has acknowledged what led to it."""
        if not store._busy:
            before = store.group
            store.begin_checkpoint()
            assert store.group == before

    def restart_cache(self) -> None:
        self.cache.abandon()
        self.check_prefix(self.cache.path.name)
        self.cache = self.followed(self.cache.path.name)

    def check_prefix(self, name: str) -> int:
        group, found = read_directory(self.folder / name)
        assert group <= self.log.acked_group, "it is ahead of the log"
        assert found == self.owner.states[group]
        return group

    def copy_cache(self) -> None:
        """Go on with a directory that the standby's snapshot was loaded into."""
        epoch, group = self.cache.applied
        blobs = list(self.cache.live_groups(self.chance.choice((3000, 1 << 19))))
        self.cache.close()
        name = f"cache{self.followers}"
        self.followers += 1
        self.cache = self.followed(name)
        self.cache.load_snapshot(blobs, epoch, group)
        assert self.cache.applied == (epoch, group)
        self.restart_cache()

    def end(self) -> None:
        """All of it is acknowledged and applied: both directories hold the same. Then others go on."""
        log = self.log
        log.acknowledge(self.store)
        until(self.store, lambda: self.store.written == self.store.group - 1)
        assert self.store.synced == self.store.group - 1
        # What is in the journal may wait for a stream's segments still.
        until(self.store, lambda: self.store.behind_bytes <= self.store._streams.behind_bytes)
        while self.cache.applied[1] < log.acked_group:
            self.cache.apply(log.groups[self.cache.applied[1] + 1])
        for store in (self.store, self.cache):
            until(store, lambda store=store: store.written == store.group - 1)  # type: ignore[misc]
            store.close() if self.chance.random() < 0.5 else store.abandon()
        followed = self.cache.path.name
        assert self.check_prefix("owner") == self.check_prefix(followed) == log.last
        # The standby becomes the owner every other time: a directory is as good as the other.
        if self.chance.random() < 0.5:
            (self.folder / "owner").rename(self.folder / "between")
            (self.folder / followed).rename(self.folder / "owner")
            (self.folder / "between").rename(self.folder / followed)
        self.epoch += 1
        self.store = self.owned()
        self.cache = self.followed(followed)

    def close(self) -> None:
        self.store.abandon()
        self.cache.abandon()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.soak) for n in range(4, 80))]
)
def test_a_standby_is_a_prefix_of_the_owner_at_any_moment(tmp_path: Path, seed: int) -> None:
    walk = Walk(tmp_path, seed)
    try:
        for _ in range(PHASES):
            walk.phase()
    finally:
        walk.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(4))
def test_an_owner_that_stops_at_any_moment_leaves_a_prefix(tmp_path: Path, seed: int) -> None:
    """What the log has not acknowledged is not in its directory, whether it is stopped or killed."""
    chance = Random(seed)
    log = LateLog()
    owner = Owner(chance)
    groups: dict[int, bytes] = {}
    for epoch in range(1, 8):
        store = ReplicatedStore.own(tmp_path, log, epoch, file_bytes=FILE_BYTES)
        owner.take(store)
        for _ in range(chance.randrange(1, 30)):
            owner.group(store, chance.randrange(1, 25))
            if chance.random() < 0.5:
                log.acknowledge(store, chance.randint(log.acked_group, log.last))
            store.attend()
            if chance.random() < 0.2 and not store._busy:
                store.begin_checkpoint()
        if chance.random() < 0.5:
            store.close()
        else:
            store.abandon()
        groups |= log.groups
        applied, found = read_directory(tmp_path)
        assert applied <= log.acked_group
        assert found == owner.states[applied]
        # Another member took over: it has all that was acknowledged, and nothing behind it counts.
        cache = CacheStore.open(tmp_path, file_bytes=FILE_BYTES)
        for number in range(applied + 1, log.acked_group + 1):
            cache.apply(groups[number])
        cache.close()
        assert read_directory(tmp_path) == (log.acked_group, owner.states[log.acked_group])
        log = LateLog(log.acked_group)
        owner.go_back_to(log.acked_group)
