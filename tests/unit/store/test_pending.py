"""Changes on their way to the directory: a checkpoint takes them all, and gives back what it can't write."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.store.checkpoint import GonePage, Taken
from broker.store.directory import Meta, PageRow
from broker.store.logs import DiskQueueLog, Extent, Shelves
from broker.store.pagefile import BlobPlace
from broker.store.pending import PendingChanges
from broker.store.replay import Replayed
from broker.store.streamlogs import StreamLogs

PLACE, OLD_PLACE = BlobPlace(4096, 4096), BlobPlace(0, 4096)


class World:
    """A store with one queue log, number 1, whose messages 1 to 3 are in a page."""

    def __init__(self, path: Path) -> None:
        self.store = Shelves()
        self.log = DiskQueueLog(self.store, 1, "q", b"", 3)
        extent = Extent(1, 0, PLACE)
        for seq in (1, 2, 3):
            extent.add(seq)
        self.log.extents.append(extent)
        self.shelves = {1: self.log}
        old = PageRow(9, 5, 5, OLD_PLACE, b"\0", 0)
        found = Replayed(Meta(), {}, [9], [old], {"a": b"1"}, {"a": b"1"}, 0, {})
        self.pending = PendingChanges(self.store, self.shelves, StreamLogs(path), found)

    def take(self) -> Taken:
        taken = Taken(0, range(0), Meta())
        self.pending.take(taken)
        return taken

    def touch(self, seq: int) -> None:
        holder = self.log.holder(seq)
        assert holder is not None
        holder.drop_one(seq)
        self.store.touched.add(self.log)

    def remove(self) -> None:
        self.pending.removed.append(self.shelves.pop(1))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_replay_leaves_something_to_say(world: World) -> None:
    assert world.pending.has_any()
    taken = world.take()
    assert (taken.notes, taken.gone_shelves) == ({"a": b"1"}, [9])
    assert taken.gone_pages == [GonePage(9, 5, OLD_PLACE)]
    assert not world.pending.has_any()
    assert world.take() == Taken(0, range(0), Meta()), "nothing is said twice"


def test_a_removed_log_goes_with_its_pages(world: World) -> None:
    world.take()
    world.remove()
    taken = world.take()
    assert (taken.gone_shelves, taken.gone_pages) == ([1], [GonePage(1, 1, PLACE)])


def test_a_change_of_a_page_is_said_again(world: World) -> None:
    world.take()
    world.touch(2)
    taken = world.take()
    [row] = taken.pages
    world.pending.put_back(taken)
    assert world.store.touched == {world.log}
    assert world.take().pages == [row]


def test_a_note_that_changed_meanwhile_is_not_replaced_by_the_one_that_comes_back(world: World) -> None:
    world.pending.notes["b"] = b"1"
    taken = world.take()
    world.pending.notes["a"] = b"2"
    world.pending.put_back(taken)
    assert world.take().notes == {"a": b"2", "b": b"1"}


def test_a_changed_row_is_said_again_unless_its_log_is_gone(world: World) -> None:
    world.log.changed = True
    taken = world.take()
    assert not world.log.changed
    world.pending.put_back(taken)
    assert world.log.changed
    taken = world.take()
    world.remove()
    world.pending.put_back(taken)
    assert world.take().shelves == []


def test_pages_of_logs_that_are_gone_are_freed_all_the_same(world: World) -> None:
    world.remove()
    taken = world.take()
    world.pending.put_back(taken)
    again = world.take()
    assert sorted(again.gone_shelves) == [1, 9]
    assert sorted(again.gone_pages) == [GonePage(1, 1, PLACE), GonePage(9, 5, OLD_PLACE)]


def test_the_page_of_a_log_that_was_removed_meanwhile_is_freed_once(world: World) -> None:
    world.take()
    for seq in (1, 2, 3):
        world.touch(seq)
    taken = world.take()
    assert taken.gone_pages == [GonePage(1, 1, PLACE)]
    world.remove()
    world.pending.put_back(taken)
    assert world.take().gone_pages == [GonePage(1, 1, PLACE)]
