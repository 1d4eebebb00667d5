"""The reserve of a full disk: what gives room, in which order, and who may have it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store.directory import DIRECTORY, Directory, make
from broker.store.files import JournalFiles
from broker.store.pagefile import PAGES, PageFile
from broker.store.reserve import RESERVE_FILES, SLACK, Reserve

FILE_BYTES = 1 << 16


class World:
    """The files of a store, on a disk that can be full: so many calls that need room fail."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make(path / DIRECTORY)
        self.directory = Directory(path / DIRECTORY)
        self.files = JournalFiles(path, FILE_BYTES)
        self.pages = PageFile(path / PAGES)
        self.pages.claim([])
        self.reserve = Reserve(self.files, self.pages, self.directory)
        self.failing = 0
        self.fault = errno.ENOSPC
        prepare, take = JournalFiles.prepare, PageFile.reserve

        def prepare_unless_full(files: JournalFiles, number: int) -> int:
            self.fail()
            return prepare(files, number)

        def reserve_unless_full(pages: PageFile, nbytes: int) -> None:
            self.fail()
            take(pages, nbytes)

        monkeypatch.setattr(JournalFiles, "prepare", prepare_unless_full)
        monkeypatch.setattr(PageFile, "reserve", reserve_unless_full)

    def fail(self) -> None:
        if self.failing:
            self.failing -= 1
            raise OSError(self.fault, os.strerror(self.fault))

    @property
    def reserved(self) -> int:
        return (self.files.directory / PAGES).stat().st_size

    def close(self) -> None:
        self.pages.close()
        self.files.close()
        self.directory.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World(tmp_path, monkeypatch)
    yield found
    found.close()


def test_it_is_some_journal_files_large(world: World) -> None:
    assert world.reserved == 0
    world.reserve.restock()
    assert world.reserved == RESERVE_FILES * FILE_BYTES


def test_all_of_it_can_be_given_up_and_had_again(world: World) -> None:
    world.reserve.restock()
    world.reserve.give_up()
    assert world.reserved == 0
    world.reserve.restock()
    assert world.reserved == RESERVE_FILES * FILE_BYTES


def test_spare_files_make_way_for_it(world: World) -> None:
    for number in (1, 2):
        world.files.prepare(number)
    for number in (1, 2):
        world.files.retire(number)
    assert len(list(world.files.directory.glob("spare-*"))) == 2
    world.failing = 1
    world.reserve.restock()
    assert len(list(world.files.directory.glob("spare-*"))) == 1
    assert world.reserved == RESERVE_FILES * FILE_BYTES


def test_a_lack_of_room_is_told_where_nothing_makes_way(world: World) -> None:
    world.failing = 2
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        world.reserve.restock()


def test_another_fault_is_told_at_once(world: World) -> None:
    world.failing, world.fault = 1, errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        world.reserve.restock()
    assert world.failing == 0


def test_an_urgent_file_takes_some_of_it(world: World) -> None:
    world.reserve.restock()
    world.failing = 1
    os.fstat(world.reserve.prepare_file(1, urgent=True))
    assert world.reserved == RESERVE_FILES * FILE_BYTES - (FILE_BYTES + SLACK)


@pytest.mark.parametrize(("urgent", "fault"), [(False, errno.ENOSPC), (True, errno.EIO)])
def test_no_other_file_takes_any_of_it(world: World, urgent: bool, fault: int) -> None:
    world.reserve.restock()
    world.failing, world.fault = 1, fault
    with pytest.raises(OSError, match=os.strerror(fault)):
        world.reserve.prepare_file(1, urgent)
    assert world.reserved == RESERVE_FILES * FILE_BYTES


def test_an_urgent_file_that_the_reserve_has_no_room_for_is_refused(world: World) -> None:
    world.failing = 1
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        world.reserve.prepare_file(1, urgent=True)
