"""The jobs of a store's threads: one of a kind at a time, and none once something has failed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.store.disk import DiskStore
from broker.store.faults import SyncFault
from broker.store.files import JournalFiles
from broker.store.jobs import Done, StoreJobs
from broker.store.port import FAILED, WRITING
from tests.store.test_disk import wait_for

FILE_BYTES = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    found = DiskStore.open(tmp_path, file_bytes=FILE_BYTES)
    yield found
    found.abandon()


def raising(fault: Exception) -> Callable[..., int]:
    """Return a function that raises, whatever it is called with."""

    def call(*_: object, **__: object) -> int:
        raise fault

    return call


def done_of(jobs: StoreJobs) -> list[Done]:
    """All that came of what was asked for until now."""
    over = threading.Event()
    jobs.ask(over.set)
    assert over.wait(10)
    found = []
    while (done := jobs.next_done()) is not None:
        found.append(done)
    return found


def test_a_file_is_prepared_once_at_a_time(store: DiskStore) -> None:
    jobs = store._jobs
    done_of(jobs)
    for number in (8, 9):
        jobs.prepare_file(number, urgent=False)
    assert done_of(jobs) == [Done(prepared=8)], "another was under way"
    jobs.prepare_file(9, urgent=False)
    assert done_of(jobs) == [Done(prepared=9)]
    assert {8, 9} <= set(store.files.numbers())


def test_the_reserve_is_restocked_once_at_a_time(store: DiskStore) -> None:
    jobs = store._jobs
    done_of(jobs)
    for _ in range(3):
        jobs.restock()
    assert done_of(jobs) == [Done()]
    jobs.restock()
    assert done_of(jobs) == [Done()]


def test_a_lack_of_room_halts_nothing(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = store._jobs
    done_of(jobs)
    fault = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patched:
        patched.setattr(JournalFiles, "prepare", raising(fault))
        jobs.prepare_file(8, urgent=False)
        assert done_of(jobs) == [Done(prepared=8, fault=fault)]
    assert not jobs.halted
    jobs.prepare_file(8, urgent=False)
    assert done_of(jobs) == [Done(prepared=8)]
    assert store.state == WRITING


def test_after_any_other_fault_nothing_on_disk_is_touched(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = store._jobs
    done_of(jobs)
    fault = OSError(errno.EIO, os.strerror(errno.EIO))
    with monkeypatch.context() as patched:
        patched.setattr(JournalFiles, "prepare", raising(fault))
        jobs.prepare_file(8, urgent=False)
        assert done_of(jobs) == [Done(prepared=8, fault=fault)]
    assert jobs.halted
    before = sorted(store.path.iterdir())
    jobs.prepare_file(8, urgent=False)
    jobs.restock()
    jobs.append_to_streams()
    jobs.sync_closed()
    jobs.make_checkpoint(store._take(range(0), 0))
    assert done_of(jobs) == []
    assert sorted(store.path.iterdir()) == before


def test_a_fault_of_a_job_fails_the_store(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = SyncFault("a sync failed")
    monkeypatch.setattr("broker.store.jobs.write", raising(fault))
    store.begin_checkpoint()

    def failed() -> bool:
        store.attend()
        return store.state == FAILED

    wait_for(failed)
    assert store.reason.startswith("a sync failed; nothing more is confirmed")
    assert store._jobs.halted


def test_a_lazy_journal_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore.open(tmp_path, file_bytes=FILE_BYTES, lazy=True)
    store.note("a", b"1")
    store.seal()
    wait_for(lambda: store.attend() == store.group - 1)
    synced: list[int] = []
    sync = JournalFiles.sync

    def noting(files: JournalFiles, number: int) -> None:
        synced.append(number)
        sync(files, number)

    monkeypatch.setattr(JournalFiles, "sync", noting)
    assert store.journal.synced < store.journal.written
    store._jobs.sync_closed()
    assert [each for each in done_of(store._jobs) if each.fault] == []
    assert store.journal.synced == store.journal.written
    assert synced == [store.file]
    store._jobs.sync_closed()
    done_of(store._jobs)
    assert synced == [store.file], "nothing was written since"
    store.abandon()
