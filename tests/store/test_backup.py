"""A backup of a store that works: as of one moment, whole or not there at all."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from broker.errors import OperatorError
from broker.store.disk import DiskStore
from broker.store.port import DURABLE, LARGE_FILE, LARGE_NOTE
from broker.store.records import crc32c
from tests.store.test_disk import wait_for
from tests.store.test_port import Kept


def test_a_backup_of_a_running_store_is_whole(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path / "data")
    assert isinstance(kept.store, DiskStore)
    shelf = kept.store.open_log("q", b"")
    done: list[Exception | None] = []
    for seq in range(1, 6001):
        shelf.append(seq, DURABLE, 0, 0, bytes(800))
        if seq % 50 == 0:
            kept.sync()
        if seq == 3000:
            kept.store.backup(tmp_path / "backup", done.append)
    wait_for(lambda: bool(done))
    assert done == [None]
    kept.store.close()
    restored = Kept("disk", tmp_path / "backup")
    numbers = [message[0] for message in restored.contents()["q"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 3000
    restored.store.close()


def test_a_backup_before_anything_was_written_since_the_start_is_whole(tmp_path: Path) -> None:
    """The last old file of the journal is copied as it is, not cut off where this run has got to."""
    kept = Kept("disk", tmp_path / "data")
    shelf = kept.store.open_log("q", b"")
    for seq in range(1, 101):
        shelf.append(seq, DURABLE, 0, 0, bytes(80))
    kept.sync()
    kept.store.close()
    again = Kept("disk", tmp_path / "data")
    assert isinstance(again.store, DiskStore)
    done: list[Exception | None] = []
    again.store.backup(tmp_path / "backup", done.append)
    wait_for(lambda: bool(done))
    assert done == [None]
    again.store.close()
    restored = Kept("disk", tmp_path / "backup")
    assert [message[0] for message in restored.contents()["q"]] == list(range(1, 101))
    restored.store.close()


def test_a_backup_is_as_of_the_moment_it_was_asked_for(tmp_path: Path) -> None:
    """Although the journal begins its first file of this run before anything is copied."""
    kept = Kept("disk", tmp_path / "data")
    shelf = kept.store.open_log("q", b"")
    for seq in range(1, 101):
        shelf.append(seq, DURABLE, 0, 0, bytes(80))
    kept.sync()
    kept.store.close()
    again = Kept("disk", tmp_path / "data")
    assert isinstance(again.store, DiskStore)
    go_on = threading.Event()
    done: list[Exception | None] = []
    again.store._jobs.ask(lambda: wait_for(go_on.is_set))
    again.store.backup(tmp_path / "backup", done.append)
    found = again.store.recovered.shelves[0].shelf
    for seq in range(101, 201):
        found.append(seq, DURABLE, 0, 0, bytes(80))
    for seq in range(1, 51):
        found.forget(seq, 80)
    again.sync()
    go_on.set()
    wait_for(lambda: bool(done))
    assert done == [None]
    again.store.close()
    restored = Kept("disk", tmp_path / "backup")
    assert [message[0] for message in restored.contents()["q"]] == list(range(1, 101))
    restored.store.close()


def test_a_backup_has_the_file_of_a_large_message_that_is_about_to_be_gone(tmp_path: Path) -> None:
    """That it was taken isn't on disk yet, so the copy's journal refers to its file."""
    kept = Kept("disk", tmp_path / "data")
    store = kept.store
    assert isinstance(store, DiskStore)
    body = b"body" * 1000
    (tmp_path / "data" / "large").mkdir()
    (tmp_path / "data" / "large" / "00000001").write_bytes(body)
    for turn in range(20):
        note = f"{LARGE_NOTE}1/{turn}/q"
        store.note(note, LARGE_FILE.pack(len(body), crc32c(body)))
        kept.sync()
        store.note(note, b"")
        done: list[Exception | None] = []
        store.backup(tmp_path / f"backup-{turn}", done.append)
        wait_for(lambda: bool(done))  # noqa: B023
        assert done == [None]
        kept.sync()
        restored = DiskStore.open(tmp_path / f"backup-{turn}", file_bytes=1 << 20)
        restored.close()
    store.close()


@pytest.mark.parametrize("target", ["x\0y", "\ud800", "a" * 300])
def test_a_backup_that_fails_for_any_reason_is_told_of(tmp_path: Path, target: str) -> None:
    kept = Kept("disk", tmp_path / "data")
    assert isinstance(kept.store, DiskStore)
    done: list[Exception | None] = []
    for place in (tmp_path / target, tmp_path / "backup"):
        kept.store.backup(place, done.append)
    wait_for(lambda: len(done) == 2)
    assert isinstance(done[0], OSError | ValueError)
    assert done[1] is None
    kept.store.close()


def test_a_backup_that_the_disk_has_no_room_for_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept("disk", tmp_path / "data")
    assert isinstance(kept.store, DiskStore)
    done: list[Exception | None] = []
    monkeypatch.setattr("broker.store.backup.ROOM_LEFT", 1 << 60)
    kept.store.backup(tmp_path / "place" / "copy", done.append)
    wait_for(lambda: bool(done))
    assert "free is too little: the backup takes up to" in str(done[0])
    assert not (tmp_path / "place").exists()
    kept.store.close()


def test_a_backup_that_breaks_off_leaves_nothing_that_looks_like_one(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path / "data")
    assert isinstance(kept.store, DiskStore)
    done: list[Exception | None] = []
    journal = kept.store.files.path(1)
    journal.rename(journal.with_name("gone"))
    journal.mkdir()  # that can't be copied as a file
    kept.store.backup(tmp_path / "place" / "copy", done.append)
    wait_for(lambda: bool(done))
    assert isinstance(done[0], OSError)
    assert list((tmp_path / "place").iterdir()) == []
    journal.rmdir()
    journal.with_name("gone").rename(journal)
    kept.store.backup(tmp_path / "place" / "copy", done.append)
    wait_for(lambda: len(done) == 2)
    assert done[1] is None
    kept.store.close()


def test_a_backup_replaces_nothing(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path / "data")
    assert isinstance(kept.store, DiskStore)
    (tmp_path / "mine").write_text("mine")
    done: list[Exception | None] = []
    kept.store.backup(tmp_path / "mine", done.append)
    wait_for(lambda: bool(done))
    assert isinstance(done[0], OperatorError)
    assert "exists already" in str(done[0])
    assert (tmp_path / "mine").read_text() == "mine"
    kept.store.close()
