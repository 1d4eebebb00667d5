"""One suite for every store: what is handed over in a group is there after a restart, or none of it."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store.disk import DiskStore
from broker.store.memory import MemoryStore
from broker.store.pages import StoredPage, messages_of
from broker.store.port import DURABLE, REDELIVERED, Store


class Kept:
    """A store under test and what it holds, as whoever opens it would find it."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self.path = path
        self.store: Store = MemoryStore() if kind == "memory" else DiskStore.open(path, file_bytes=1 << 20)

    def sync(self) -> None:
        """Until all that was handed over is on disk."""
        self.store.seal()
        deadline = time.monotonic() + 10
        while self.store.synced < self.store.group - 1:
            assert time.monotonic() < deadline
            select.select([self.store.bell], [], [], 0.1)
            self.store.attend()

    def reopen(self, abandon: bool = False) -> None:
        """Stop (or crash) and start again; memory only forgets who asked."""
        if isinstance(self.store, DiskStore):
            if abandon:
                self.store.abandon()
            else:
                self.store.close()
            self.store = DiskStore.open(self.path, file_bytes=1 << 20)

    def contents(self) -> dict[str, list[tuple[int, int, int, int, bytes]]]:
        """Every message by shelf, in order: (number, flags, delivery count, expiry, data)."""
        if isinstance(self.store, MemoryStore):
            return {
                name: [(seq, *message) for seq, message in shelf.messages.items()]
                for name, shelf in self.store.shelves.items()
            }
        assert isinstance(self.store, DiskStore)
        found: dict[str, list[tuple[int, int, int, int, bytes]]] = {}
        for each in self.store.recovered.shelves:
            messages = found[each.name] = []
            for part in each.parts:
                if isinstance(part, StoredPage):
                    messages += messages_of(each.shelf, self.store.load(each.shelf, part))
                else:
                    messages += part
        return found

    def notes(self) -> dict[str, bytes]:
        """Every note."""
        if isinstance(self.store, MemoryStore):
            return self.store.notes
        assert isinstance(self.store, DiskStore)
        return self.store.recovered.notes


@pytest.fixture(params=["memory", "disk"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    found = Kept(request.param, tmp_path / "data")
    yield found
    found.store.close()


def test_what_is_appended_is_there_in_order(kept: Kept) -> None:
    shelf = kept.store.open_log("orders", b"{}")
    for seq in range(1, 101):
        shelf.append(seq, DURABLE, 0, seq * 10, b"m%d" % seq)
    kept.sync()
    kept.reopen()
    assert kept.contents() == {"orders": [(seq, DURABLE, 0, seq * 10, b"m%d" % seq) for seq in range(1, 101)]}


def test_what_is_forgotten_is_gone_and_what_is_updated_is_changed(kept: Kept) -> None:
    shelf = kept.store.open_log("orders", b"{}")
    for seq in (1, 2, 3):
        shelf.append(seq, DURABLE, 0, 0, b"x")
    kept.sync()
    shelf.forget(2, 1)
    shelf.update(3, 4)
    kept.sync()
    kept.reopen()
    assert kept.contents()["orders"] == [(1, DURABLE, 0, 0, b"x"), (3, DURABLE | REDELIVERED, 4, 0, b"x")]


def test_notes_are_replaced_and_taken_away(kept: Kept) -> None:
    kept.store.note("a", b"1")
    kept.store.note("b", b"2")
    kept.sync()
    kept.store.note("a", b"3")
    kept.store.note("b", b"")
    kept.sync()
    kept.reopen()
    assert kept.notes() == {"a": b"3"}


def test_a_removed_shelf_is_gone_with_its_messages(kept: Kept) -> None:
    shelf = kept.store.open_log("orders", b"{}")
    shelf.append(1, DURABLE, 0, 0, b"x")
    kept.sync()
    kept.store.remove(shelf)
    again = kept.store.open_log("orders", b"new")
    again.append(1, DURABLE, 0, 0, b"y")
    kept.sync()
    kept.reopen()
    assert kept.contents() == {"orders": [(1, DURABLE, 0, 0, b"y")]}


def test_groups_are_numbered_and_synced_in_order(kept: Kept) -> None:
    shelf = kept.store.open_log("orders", b"{}")
    first = kept.store.group
    assert kept.store.synced < first
    shelf.append(1, DURABLE, 0, 0, b"x")
    assert kept.store.open_records > 0
    kept.store.seal()
    assert (kept.store.group, kept.store.open_records) == (first + 1, 0)
    kept.store.seal()
    assert kept.store.group == first + 1, "nothing was in it"
    kept.sync()
    assert kept.store.synced == first
    assert kept.store.behind_bytes == 0
