"""The owner's store: what the log has acknowledged is told, and is in the directory, and nothing else is."""

from __future__ import annotations

import select
from pathlib import Path
from threading import Event, Thread

import pytest

from broker.errors import OperatorError
from broker.store.cell import APPLIED, position
from broker.store.check import check
from broker.store.disk import DiskStore
from broker.store.faults import DamagedStore
from broker.store.largefiles import LARGE, named_bodies
from broker.store.port import DURABLE, FULL, LARGE_FILE, WRITING
from broker.store.records import NOTE, crc32c, read
from broker.store.replay import name_and
from broker.store.replicated import ReplicatedStore
from tests.store.replicas import FILE_BYTES, LateLog, read_directory, until


def owned(path: Path, log: LateLog, epoch: int = 1) -> ReplicatedStore:
    return ReplicatedStore.own(path, log, epoch, file_bytes=FILE_BYTES)


def written(store: ReplicatedStore) -> None:
    until(store, lambda: store.written == store.group - 1)


def test_each_group_ends_with_its_position_in_the_log(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log, 7)
    store.seal()
    assert log.last == 0, "nothing was in it"
    for _ in range(3):
        store.open_log("q", b"{}")
        store.seal()
    for number, data in log.groups.items():
        kind, *_, payload = read(data)[-1]
        assert (kind, payload) == (NOTE, name_and(APPLIED, position(7, number)))
    assert store.applied == (7, 3)
    store.close()


def test_nothing_is_durable_before_the_log_says_so(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log)
    shelf = store.open_log("q", b"{}")
    for seq in (1, 2, 3):
        shelf.append(seq, DURABLE, 0, 0, b"x" * 100)
        store.seal()
    store.attend()
    assert (store.synced, store.written) == (0, 0)
    assert store.behind_bytes == log.pending_bytes > 300
    log.acknowledge(store, 2)
    assert select.select([store.bell], [], [], 5)[0], "the bell rings"
    store.attend()
    assert store.synced == 2
    until(store, lambda: store.written == 2)
    assert store.behind_bytes == len(log.groups[3])
    assert (store.syncs, store.groups_written, store.written_bytes) == (
        2,
        2,
        len(log.groups[1]) + len(log.groups[2]),
    )
    store.abandon()
    applied, (shelves, _) = read_directory(tmp_path)
    assert applied == 2
    assert [each[0] for each in shelves[1][3]] == [1, 2]


class HastyLog(LateLog):
    """It acknowledges what it has in the very moment after somebody has asked it."""

    def __init__(self) -> None:
        super().__init__()
        self.store: ReplicatedStore | None = None
        self._acked = 0

    @property
    def acked_group(self) -> int:
        told = self._acked
        if self.store is not None and self.last > told:
            self._acked = self.last
            self.store.ring()
        return told

    @acked_group.setter
    def acked_group(self, group: int) -> None:
        self._acked = group


def test_what_is_acknowledged_while_the_bell_is_answered_rings_it_again(tmp_path: Path) -> None:
    log = HastyLog()
    store = owned(tmp_path, log)
    log.store = store
    for _ in range(5):
        store.open_log(f"q{store.group}", b"{}")
        store.seal()
        store.attend()
        # Nobody asks for anything: the bell alone has it looked at.
        while store.synced < store.group - 1:
            assert select.select([store.bell], [], [], 5)[0], "an acknowledgement is passed over"
            store.attend()
    store.close()


def test_another_thread_may_raise_what_is_acknowledged(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log)
    sealed = Event()

    def acknowledge() -> None:
        sealed.wait(10)
        log.acknowledge(store)

    thread = Thread(target=acknowledge)
    thread.start()
    store.note("a", b"1")
    store.seal()
    sealed.set()
    until(store, lambda: store.synced == 1)
    thread.join()
    store.close()


def test_a_stop_in_order_is_one_only_if_all_was_acknowledged(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log)
    store.note("a", b"1")
    store.seal()
    log.acknowledge(store)
    written(store)
    store.close()
    assert check(tmp_path).clean
    store = owned(tmp_path, log)
    store.note("a", b"2")
    store.seal()
    store.note("a", b"3")
    store.close()
    assert not check(tmp_path).clean
    assert read_directory(tmp_path) == (1, ({}, {"a": b"1"}))


def test_numbers_go_on_where_the_directory_ends(tmp_path: Path) -> None:
    log = LateLog(41)
    store = DiskStore.open(tmp_path, file_bytes=FILE_BYTES)
    store.note("old", b"1")
    store.close()
    first = LateLog()
    store = owned(tmp_path, first)
    store.note("a", b"1")
    store.seal()
    first.acknowledge(store)
    written(store)
    assert store.group == 3, "the directory's own numbers go on, too"
    store.close()
    assert first.last == 1
    assert read_directory(tmp_path)[0] == 1
    store = owned(tmp_path, log)
    store.note("b", b"1")
    with pytest.raises(AssertionError, match="missing"):
        store.seal()
    store.abandon()


def test_a_suspended_store_is_full_and_says_why(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log)
    store.suspend("the log doesn't answer")
    assert (store.state, store.reason) == (FULL, "the log doesn't answer")
    store.note("a", b"1")
    store.seal()
    store.maintain()
    store.attend()
    assert (store.state, store.synced) == (FULL, 0)
    log.acknowledge(store)
    store.attend()
    assert store.synced == 1, "it is in the log, whoever owns that next"
    store.resume()
    assert select.select([store.bell], [], [], 5)[0]
    store.attend()
    assert (store.state, store.reason) == (WRITING, "")
    store.close()


def test_a_checkpoint_is_of_what_was_acknowledged(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log)
    shelf = store.open_log("q", b"{}")
    for seq in range(1, 2001):
        shelf.append(seq, DURABLE, 0, 0, bytes(1000))
        if seq % 50 == 0:
            store.seal()
    log.acknowledge(store, 20)
    until(store, lambda: store.written == 20)
    store.begin_checkpoint()
    for _ in range(20):
        store.attend()
        store.maintain()
    assert store.checkpoints == 0, "some of the picture is not in the journal"
    store.abandon()
    applied, (shelves, _) = read_directory(tmp_path)
    assert (applied, len(shelves[1][3])) == (20, 1000)


def test_what_waits_for_the_log_may_fill_more_files_than_can_be_open(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log)
    shelf = store.open_log("q", b"{}")
    for number in range(80):
        shelf.append(number + 1, DURABLE, 0, 0, bytes(900_000))
        store.seal()
        store.attend()
    log.acknowledge(store)
    written(store)
    store.close()
    assert read_directory(tmp_path)[0] == 80


def test_a_backup_is_of_what_was_acknowledged(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path / "data", log)
    store.note("a", b"1")
    store.seal()
    log.acknowledge(store)
    store.attend()
    store.note("a", b"2")
    store.seal()
    answers: list[Exception | None] = []
    store.backup(tmp_path / "backup", answers.append)
    until(store, lambda: bool(answers))
    assert answers == [None]
    assert read_directory(tmp_path / "backup") == (1, ({}, {"a": b"1"}))
    store.backup(tmp_path / "late", answers.append)
    store.close()
    assert isinstance(answers[1], OperatorError)


def test_a_store_without_a_cell_takes_the_position_away_with_its_first_group(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log)
    store.note("a", b"1")
    store.seal()
    log.acknowledge(store)
    written(store)
    store.close()
    DiskStore.open(tmp_path, file_bytes=FILE_BYTES).abandon()
    assert read_directory(tmp_path)[0] == 1, "nothing was written"
    plain = DiskStore.open(tmp_path, file_bytes=FILE_BYTES)
    plain.note("a", b"2")
    plain.close()
    assert read_directory(tmp_path) == (0, ({}, {"a": b"2"}))


def test_a_body_goes_once_the_log_has_that_no_note_names_it(tmp_path: Path) -> None:
    body = b"b" * 5000
    note = LARGE_FILE.pack(len(body), crc32c(body))
    folder = tmp_path / LARGE
    folder.mkdir()
    (folder / "00000004").write_bytes(body)
    log = LateLog()
    store = owned(tmp_path, log)
    store.note("large/4/1/q", note)
    store.note("large/4/9/r", note)
    store.seal()
    assert [each.number for each in named_bodies(log.groups[1], tmp_path)] == [4]
    store.note("large/4/1/q", b"")
    # A message that gets another number has its note replaced within a group.
    store.note("large/4/9/r", b"")
    store.note("large/4/10/r", note)
    store.seal()
    log.acknowledge(store)
    store.attend()
    assert store.take_gone_bodies() == []
    store.note("large/4/10/r", b"")
    store.seal()
    assert named_bodies(log.groups[3], tmp_path) == []
    assert store.take_gone_bodies() == [], "the log doesn't know yet"
    log.acknowledge(store)
    store.attend()
    assert [each.number for each in store.take_gone_bodies()] == [4]
    assert store.take_gone_bodies() == []
    store.abandon()


def test_an_owner_needs_every_body(tmp_path: Path) -> None:
    log = LateLog()
    store = owned(tmp_path, log)
    store.note("large/4/1/q", LARGE_FILE.pack(5, 1))
    store.seal()
    log.acknowledge(store)
    written(store)
    store.close()
    with pytest.raises(DamagedStore, match="missing"):
        owned(tmp_path, log)
