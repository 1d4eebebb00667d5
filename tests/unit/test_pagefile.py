"""Blobs in a file of blocks: several at once, into holes and behind the end, and when the disk refuses."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from broker.store import pager as pager_room
from broker.store.pagefile import MOST_PIECES, PageFile, Place
from broker.store.pager import Pager


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[PageFile]:
    file = PageFile(tmp_path / "runs", empty=True)
    yield file
    file.close()


def blobs(count: int, size: int) -> list[bytes]:
    return [bytes([number % 251]) * (size + number) for number in range(count)]


def test_blobs_that_stand_side_by_side_are_one_call(pages: PageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    really = os.pwritev

    def counted(fd: int, pieces: Sequence[bytes], offset: int) -> int:
        calls.append(len(pieces))
        return really(fd, pieces, offset)

    monkeypatch.setattr(os, "pwritev", counted)
    many = blobs(MOST_PIECES // 3 + 10, 5000)
    places = pages.write_several(many)
    assert calls == [MOST_PIECES, 30]
    assert [pages.read(place) for place in places] == many


def test_blobs_go_into_holes_and_behind_the_end(pages: PageFile) -> None:
    first = pages.write_several(blobs(6, 5000))
    for hole in (1, 3, 4):
        pages.free(first[hole])
    end = pages.size_bytes
    found = blobs(5, 4500)
    places = pages.write_several(found)
    assert {first[1].offset, first[3].offset, first[4].offset} <= {place.offset for place in places}
    assert pages.size_bytes == end + 2 * places[0].nbytes
    assert [pages.read(place) for place in places] == found
    assert [pages.read(first[kept]) for kept in (0, 2, 5)] == [blobs(6, 5000)[kept] for kept in (0, 2, 5)]


def test_a_write_that_is_cut_short_goes_on(pages: PageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.pwrite

    def short(fd: int, data: memoryview, offset: int) -> int:
        return really(fd, data[:1000], offset)

    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, at: short(fd, memoryview(b"".join(pieces)), at))
    monkeypatch.setattr(os, "pwrite", short)
    found = blobs(3, 9000)
    assert [pages.read(place) for place in pages.write_several(found)] == found


def test_all_or_none(pages: PageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pages.write(b"kept")
    hole, last = pages.write(b"a hole"), pages.write(b"last")
    pages.free(hole)
    used, size = pages.used_bytes, pages.size_bytes
    really = os.pwritev
    calls: list[int] = []

    def full(fd: int, pieces: Sequence[bytes], offset: int) -> int:
        calls.append(offset)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really(fd, pieces, offset)

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="No space"):
        pages.write_several([b"one", b"two", b"three"])
    assert len(calls) == 2
    assert (pages.used_bytes, pages.size_bytes) == (used, size)
    monkeypatch.undo()
    again = pages.write_several([b"one", b"two", b"three"])
    found = [pages.read(place) for place in (kept, last, *again)]
    assert found == [b"kept", b"last", b"one", b"two", b"three"]


def test_runs_that_wait_are_one_write_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    really = PageFile.write_several

    def seen(self: PageFile, given: Sequence[bytes]) -> list[Place]:
        batches.append(sum(map(len, given)))
        if len(batches) == 1:
            until(lambda: asked[0] == 40)
        return really(self, given)

    monkeypatch.setattr(PageFile, "write_several", seen)
    asked = [0]
    answers: deque[Callable[[], None]] = deque()
    pager = Pager(tmp_path, answers.append)
    found: list[object] = []
    for _ in range(40):
        pager.write(bytes(100_000), found.append)
        asked[0] += 1
    until(lambda: sum(batches) == 4_000_000)
    until(lambda: len(answers) == len(batches))
    for answer in answers:
        answer()
    pager.close()
    assert max(batches) <= pager_room.WRITE_BYTES
    assert len(batches) <= 6
    assert len({place.offset for place in found if isinstance(place, Place)}) == 40


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.001)
