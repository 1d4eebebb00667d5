"""A standby's store: what it applies it holds, a snapshot of it is the same, and bodies come and go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker.errors import OperatorError
from broker.store.cache import SPAN, CacheStore, RefusedGroup
from broker.store.cell import APPLIED, position
from broker.store.disk import DiskStore
from broker.store.faults import DamagedStore
from broker.store.largefiles import LARGE, LargeFile, body_key, receive_body
from broker.store.port import DURABLE, FAILED, FULL, LARGE_FILE, REDELIVERED
from broker.store.records import DEFINE, MESSAGE, NOTE, Buffer, crc32c, read
from broker.store.replay import name_and
from broker.store.replicated import ReplicatedStore
from broker.store.streamlog import DiskStreamLog
from tests.store.replicas import FILE_BYTES, LateLog, held_by, read_directory, until

BODY = b"body of a large message" * 100


class Pair:
    """An owner with a log that acknowledges at once, and a standby."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = LateLog()
        self.owner = ReplicatedStore.own(folder / "owner", self.log, 3, file_bytes=FILE_BYTES)
        self.cache = cached(folder / "cache")

    def seal(self) -> bytes:
        """Close the owner's group; it is acknowledged."""
        self.owner.seal()
        self.log.acknowledge(self.owner)
        self.owner.attend()
        return self.log.groups[self.log.last]

    def follow(self) -> None:
        """Apply what is acknowledged, until it is written."""
        self.seal()
        while self.cache.applied[1] < self.log.acked_group:
            self.cache.apply(self.log.groups[self.cache.applied[1] + 1])
        self.cache.settle()

    def end(self) -> None:
        """Both directories hold the same."""
        until(self.owner, lambda: self.owner.written == self.owner.group - 1)
        self.owner.close()
        self.cache.close()
        found = read_directory(self.folder / "owner")
        assert found == read_directory(self.folder / "cache")
        assert found[0] == self.log.last


def cached(path: Path) -> CacheStore:
    return CacheStore.open(path, file_bytes=FILE_BYTES)


def note_of(body: bytes) -> bytes:
    return LARGE_FILE.pack(len(body), crc32c(body))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.owner.abandon()
    made.cache.abandon()


def test_what_an_owner_did_is_what_a_standby_has(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    store = pair.owner
    gone, shelf = store.open_log("gone", b"{}"), store.open_log("q", b"{}")
    for seq in range(1, 3001):
        data = b"%d" % seq * 200
        gone.append(seq, DURABLE, 0, 0, data)
        shelf.append(seq, DURABLE, 0, seq, data)
        if seq % 100 == 0:
            pair.follow()
    assert pair.cache.checkpoints > 0, "some of it is in pages"
    for seq in range(1, 3001, 2):
        shelf.forget(seq, 200)
    shelf.update(1500, 2)
    store.redefine(shelf, b"{1}")
    store.remove(gone)
    store.note("a", b"1")
    store.note("b", b"1")
    pair.follow()
    store.note("b", b"")
    pair.follow()
    pair.cache.maintain()
    pair.cache.settle()
    pair.end()
    _, (shelves, notes) = read_directory(tmp_path / "cache")
    name, definition, last_seq, messages = shelves[2]
    assert (name, definition, last_seq, list(shelves), notes) == ("q", b"{1}", 3000, [2], {"a": b"1"})
    assert [each[0] for each in messages] == list(range(2, 3001, 2))
    assert messages[749][1:3] == (DURABLE | REDELIVERED, 2)
    follower = ReplicatedStore.own(tmp_path / "cache", pair.log, 4, file_bytes=FILE_BYTES)
    made = follower.open_log("next", b"{}")
    assert made.id == 3, "numbers are the cell's"  # type: ignore[attr-defined]
    follower.abandon()


def test_a_stream_goes_with_the_log_and_a_snapshot_has_what_retention_left(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    stream = pair.owner.open_stream("s", b"{}")
    removed = pair.owner.open_stream("gone", b"{}")
    assert isinstance(stream, DiskStreamLog)
    stream.limit(2 << 20, 0, 0)
    pair.owner.maintain()
    seq = 0
    for _ in range(40):
        for _ in range(8):
            seq += 1
            stream.append(seq, 0, 0, 1000 + seq, b"%d:" % seq + bytes(20_000))
        pair.follow()
    removed.append(1, 0, 0, 7, b"x")
    pair.owner.remove(removed)
    pair.owner.redefine(stream, b"{1}")
    pair.follow()
    # The owner's retention, which comes with a checkpoint at the latest.
    pair.owner.begin_checkpoint()

    def is_cut() -> bool:
        pair.owner.maintain()
        return stream.first_offset > 0

    until(pair.owner, is_cut)
    pair.owner.maintain()
    pair.follow()
    if not pair.cache._busy:
        pair.cache.begin_checkpoint()
    pair.cache.settle()
    blobs = list(pair.cache.live_groups())
    copy = cached(tmp_path / "copy")
    copy.load_snapshot(blobs, *pair.cache.applied)
    copy.close()
    until(pair.owner, lambda: pair.owner.written == pair.owner.group - 1)
    pair.owner.abandon()
    pair.cache.close()
    for name in ("owner", "cache", "copy"):
        _, (shelves, notes) = read_directory(tmp_path / name)
        [(number, (found, definition, last_seq, messages))] = shelves.items()
        assert (number, found, definition, last_seq, notes) == (1, "s", b"{1}", 320, {}), name
        assert [each[0] for each in messages] == list(range(messages[0][0], 321)), name
        assert messages[-1][3:] == (1320, b"320:" + bytes(20_000)), name
        assert 1 < messages[0][0] <= 320, name


def test_a_stream_of_which_nothing_is_left_goes_on_with_its_offsets(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    stream = pair.owner.open_stream("s", b"{}")
    assert isinstance(stream, DiskStreamLog)
    for seq in range(1, 31):
        stream.append(seq, 0, 0, seq, b"%d" % seq)
    pair.follow()
    until(pair.owner, lambda: not pair.owner._busy)
    pair.owner.begin_checkpoint()
    until(pair.owner, lambda: stream.next_offset == 30)
    stream.segments.roll()
    stream.segments.sync()
    stream.segments.retain(most_count=0)
    assert stream.first_offset == 30
    pair.owner.maintain()
    pair.follow()
    copy = cached(tmp_path / "copy")
    # Of the standby's own segment nothing can go; of a copy of the owner's directory nothing is left.
    pair.owner.close()
    source = cached(tmp_path / "owner")
    copy.load_snapshot(list(source.live_groups()), *source.applied)
    source.close()
    copy.close()
    again = ReplicatedStore.own(tmp_path / "copy", pair.log, 4, file_bytes=FILE_BYTES)
    [found] = again.recovered.streams
    assert (found.shelf.first_offset, found.shelf.next_offset, found.shelf.last_seq) == (30, 30, 30)
    found.shelf.append(31, 0, 0, 31, b"31")
    again.abandon()
    pair.cache.abandon()


def test_a_group_that_is_not_the_next_one_is_refused(pair: Pair) -> None:
    pair.owner.note("a", b"1")
    first = pair.seal()
    pair.owner.note("a", b"2")
    second = pair.seal()
    cache = pair.cache
    with pytest.raises(RefusedGroup, match="group 2 of epoch 3 doesn't follow group 0"):
        cache.apply(second)
    cache.apply(first)
    with pytest.raises(RefusedGroup):
        cache.apply(first)
    older = Buffer()
    older.add(NOTE, 0, 0, 0, 0, 0, name_and(APPLIED, position(2, 2)))
    with pytest.raises(RefusedGroup, match="of epoch 2"):
        cache.apply(older.take())
    cache.apply(second)
    assert cache.applied == (3, 2)


@pytest.mark.parametrize("at", [0, 5, 41, 60, -20])
def test_a_damaged_group_changes_nothing(pair: Pair, at: int) -> None:
    pair.owner.note("a", b"1" * 50)
    data = bytearray(pair.seal())
    data[at] ^= 4
    with pytest.raises(RefusedGroup):
        pair.cache.apply(bytes(data))
    with pytest.raises(RefusedGroup):
        pair.cache.apply(b"")
    into = Buffer()
    into.add(DEFINE, 1, 0, 0, 0, 0, name_and("q", b"{}"))
    without_position = into.take()
    with pytest.raises(RefusedGroup, match="position"):
        pair.cache.apply(without_position)
    into.add(9, 1, 0, 0, 0, 0, b"")
    of_no_known_kind = into.take()
    with pytest.raises(RefusedGroup):
        pair.cache.apply(of_no_known_kind)
    assert pair.cache.is_empty
    pair.follow()
    assert not pair.cache.is_empty


def test_a_group_no_owner_wrote_fails_the_store_and_not_its_directory(pair: Pair) -> None:
    pair.owner.open_log("q", b"{}")
    pair.follow()
    into = Buffer()
    for seq in (5, 4):
        into.add(MESSAGE, 1, seq, DURABLE, 0, 0, b"x")
    into.add(NOTE, 0, 0, 0, 0, 0, name_and(APPLIED, position(3, 2)))
    with pytest.raises(OperatorError, match="can't be applied"):
        pair.cache.apply(into.take())
    assert pair.cache.state == FAILED
    with pytest.raises(OperatorError):
        pair.cache.apply(pair.seal())
    pair.cache.close()
    assert read_directory(pair.folder / "cache") == (1, ({1: ("q", b"{}", 0, [])}, {}))
    pair.cache = cached(pair.folder / "cache")


def test_nobody_but_the_log_writes_to_a_standby(pair: Pair) -> None:
    with pytest.raises(RuntimeError):
        pair.cache.open_log("q", b"")
    with pytest.raises(RuntimeError):
        pair.cache.note("a", b"")
    assert pair.cache.recovered.shelves == []


# --- snapshots


def test_a_snapshot_of_a_directory_without_a_cell_begins_one(tmp_path: Path) -> None:
    plain = DiskStore.open(tmp_path / "plain", file_bytes=FILE_BYTES)
    shelf = plain.open_log("q", b"{}")
    empty = plain.open_log("empty", b"{}")
    other = plain.open_log("other", b"{}")
    for seq in range(1, 2501):
        data = bytes(1000)
        shelf.append(seq, DURABLE, 0, seq, data)
        other.append(seq, DURABLE, 1, seq, data)
        if seq % 50 == 0:
            plain.seal()
    empty.append(77, DURABLE, 0, 0, b"x")
    empty.forget(77, 1)
    shelf.update(3, 1, True)
    shelf.update(2400, 1)
    shelf.forget(2500, 1000)
    plain.note("a", b"1")
    plain.seal()
    until(plain, lambda: plain.synced == plain.group - 1)
    plain.close()
    wanted = read_directory(tmp_path / "plain")[1]
    source = cached(tmp_path / "plain")
    blobs = list(source.live_groups())
    assert source.applied == (0, 0)
    assert max(map(len, blobs)) <= 512 << 10
    assert source.checkpoints or any(each.place for log in source._shelves.values() for each in log.extents)
    source.close()
    target = cached(tmp_path / "target")
    target.load_snapshot(blobs, 1, 9)
    assert target.applied == (1, 9)
    with pytest.raises(OperatorError, match="empty"):
        target.load_snapshot(blobs, 1, 9)
    assert list(target.live_groups(1 << 30)) != []
    target.close()
    assert read_directory(tmp_path / "target") == (9, wanted)
    assert wanted[0][2][2] == 77, "the highest number there was"


def test_a_snapshot_that_was_not_loaded_to_its_end_is_refused(pair: Pair) -> None:
    shelf = pair.owner.open_log("q", b"{}")
    for seq in range(1, 100):
        shelf.append(seq, DURABLE, 0, 0, bytes(1000))
    pair.follow()
    blobs = list(pair.cache.live_groups(5000))
    assert len(blobs) > 5

    def broken() -> Iterator[bytes]:
        yield from blobs[:4]
        raise ConnectionError

    path = pair.folder / "target"
    target = cached(path)
    with pytest.raises(ConnectionError):
        target.load_snapshot(broken(), 1, 1)
    target.close()
    with pytest.raises(DamagedStore, match="snapshot"):
        cached(path)
    with pytest.raises(DamagedStore, match="snapshot"):
        DiskStore.open(path, file_bytes=FILE_BYTES)


def test_a_snapshot_that_a_full_disk_holds_up_is_loaded_once_there_is_room(
    pair: Pair, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.store.cache.PATIENCE_S", 0.5)
    monkeypatch.setattr("broker.store.cache.LOAD_BEHIND_BYTES", 1 << 20)
    shelf = pair.owner.open_log("q", b"{}")
    for seq in range(1, 601):
        shelf.append(seq, DURABLE, 0, 0, bytes(10_000))
        if seq % 50 == 0:
            pair.follow()
    blobs = list(pair.cache.live_groups())
    target = CacheStore.open(small_disk / "data", file_bytes=FILE_BYTES)
    ballast = small_disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    full_since_s = 0.0

    def waits() -> None:
        nonlocal full_since_s
        if target.state == FULL:
            full_since_s = full_since_s or time.monotonic()
        if full_since_s and time.monotonic() - full_since_s > 1:
            ballast.unlink(missing_ok=True)

    target.load_snapshot(blobs, *pair.cache.applied, waits)
    assert full_since_s
    assert not ballast.exists()
    target.close()
    pair.cache.close()
    assert read_directory(small_disk / "data") == read_directory(pair.folder / "cache")


def test_what_is_live_is_read_from_a_store_that_stands_still(pair: Pair) -> None:
    pair.owner.open_log("q", b"{}").append(1, DURABLE, 0, 0, b"x")
    pair.follow()
    blobs = pair.cache.live_groups(64)
    next(blobs)
    pair.owner.note("a", b"1")
    pair.follow()
    with pytest.raises(RuntimeError):
        list(blobs)


def test_an_old_message_far_behind_the_others_costs_no_room_between(pair: Pair) -> None:
    """A bit stands for each number between the first and the last of a log in one file."""
    shelf = pair.owner.open_log("q", b"{}")
    other = pair.owner.open_log("r", b"{}")
    seqs = [1, 2, 10 * SPAN, 10 * SPAN + 1, 1000 * SPAN]
    for seq in seqs:
        shelf.append(seq, DURABLE, 0, 0, b"%d" % seq)
        other.append(seq, DURABLE, 0, 0, b"%d" % seq)
        pair.follow()
        pair.cache.next_file()
        pair.owner.next_file()
    shelf.append(2000 * SPAN, DURABLE, 0, 0, b"")
    pair.follow()
    shelf.forget(2000 * SPAN, 0)
    pair.follow()
    pair.cache.begin_checkpoint()
    pair.cache.settle()
    blobs = list(pair.cache.live_groups())
    target = cached(pair.folder / "target")
    target.load_snapshot(blobs, 3, pair.log.last)
    assert all(each.last - each.first <= 2 * SPAN for log in target._shelves.values() for each in log.extents)
    assert target.file < 12
    target.close()
    pair.cache.close()
    assert read_directory(pair.folder / "target") == read_directory(pair.folder / "cache")
    pair.cache = cached(pair.folder / "cache")


# --- large messages


def test_a_body_is_fetched_before_its_group_and_goes_after_its_note(pair: Pair) -> None:
    cache, folder = pair.cache, pair.folder / "cache" / LARGE
    pair.owner.note("large/7/1/q", note_of(BODY))
    data = pair.seal()
    (wanted,) = cache.bodies_to_fetch(data)
    assert (wanted.path, wanted.size, wanted.checksum) == (folder / "00000007", len(BODY), crc32c(BODY))
    assert body_key(wanted) == f"00000007-{len(BODY):x}-{crc32c(BODY):08x}"
    receive_body(wanted, [BODY[:100], BODY[100:]])
    assert cache.bodies_to_fetch(data) == []
    pair.follow()
    assert (cache.bodies(), cache.missing_bodies()) == ([wanted], [])
    pair.owner.note("large/7/1/q", b"")
    pair.follow()
    assert wanted.path.exists(), "a power cut may bring the note back"
    cache.maintain()
    cache.settle()
    cache.attend()
    assert not wanted.path.exists()
    assert cache.bodies() == []


def test_a_body_that_takes_the_number_of_another_replaces_it(pair: Pair) -> None:
    cache = pair.cache
    pair.owner.note("large/7/1/q", note_of(BODY))
    (first,) = cache.bodies_to_fetch(pair.seal())
    receive_body(first, [BODY])
    pair.follow()
    pair.owner.note("large/7/1/q", b"")
    pair.follow()
    pair.owner.note("large/7/5/q", note_of(BODY[::-1]))
    (second,) = cache.bodies_to_fetch(pair.seal())
    receive_body(second, [BODY[::-1]])
    cache.maintain()
    cache.settle()
    cache.attend()
    assert second.path.read_bytes() == BODY[::-1], "it isn't deleted for the first one"
    pair.follow()
    assert cache.missing_bodies() == []


def test_what_comes_for_a_body_is_verified(tmp_path: Path) -> None:
    path = tmp_path / LARGE / "00000001"
    wanted = LargeFile(1, path, len(BODY), crc32c(BODY))
    for chunks in ([BODY[:-1]], [BODY, b"x"], [BODY[::-1]], []):
        with pytest.raises(DamagedStore):
            receive_body(wanted, chunks)
    assert list(path.parent.iterdir()) == []
    receive_body(wanted, [BODY])
    assert path.read_bytes() == BODY


def test_a_standby_opens_without_a_body_and_deletes_what_no_note_names(pair: Pair) -> None:
    pair.owner.note("large/7/1/q", note_of(BODY))
    pair.follow()
    pair.cache.close()
    folder = pair.folder / "cache" / LARGE
    folder.mkdir()
    for name in ("00000003", "00000009.part"):
        (folder / name).write_bytes(b"x")
    pair.cache = cached(pair.folder / "cache")
    assert list(folder.iterdir()) == []
    (missing,) = pair.cache.missing_bodies()
    receive_body(missing, [BODY])
    assert pair.cache.missing_bodies() == []
    pair.cache.close()
    ReplicatedStore.own(pair.folder / "cache", pair.log, 4, file_bytes=FILE_BYTES).abandon()
    pair.cache = cached(pair.folder / "cache")


def test_a_lazy_store_is_one_that_any_broker_opens(tmp_path: Path) -> None:
    lazy = DiskStore.open(tmp_path, file_bytes=FILE_BYTES, lazy=True)
    shelf = lazy.open_log("q", b"{}")
    for seq in range(1, 2501):
        shelf.append(seq, DURABLE, 0, 0, bytes(1000))
        if seq % 50 == 0:
            lazy.seal()
    until(lazy, lambda: lazy.synced == lazy.group - 1 and lazy.checkpoints > 0)
    assert lazy.journal.synced <= lazy.journal.written
    lazy.close()
    store = DiskStore.open(tmp_path, file_bytes=FILE_BYTES)
    assert store.recovered.clean
    assert [each[0] for each in held_by(store)[0][1][3]] == list(range(1, 2501))
    store.close()


def test_a_blob_is_a_group_of_records(pair: Pair) -> None:
    shelf = pair.owner.open_log("q", b"{}")
    shelf.append(1, DURABLE, 0, 5, b"x")
    shelf.update(1, 3)
    pair.owner.note("a", b"1")
    pair.follow()
    (definitions, messages) = pair.cache.live_groups()
    assert [(each[0], each[-1]) for each in read(definitions)] == [
        (DEFINE, name_and("q", b"{}")),
        (NOTE, name_and("a", b"1")),
    ]
    assert read(messages)[0] == (MESSAGE, 1, 1, DURABLE, 0, 5, b"x")
    assert len(read(messages)) == 2, "and how often it was delivered"
