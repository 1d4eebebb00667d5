"""A queue log made out of what a replay found: which messages it has, and what a checkpoint has to write."""

from __future__ import annotations

from broker.store.directory import PageRow, QueueLogRow
from broker.store.logs import Extent, Shelves
from broker.store.pagefile import BlobPlace
from broker.store.pages import StoredPage
from broker.store.port import DURABLE, REDELIVERED
from broker.store.recovered import recovered_log
from broker.store.replay import Found

PLACE = BlobPlace(0, 4096)
BACK = DURABLE | REDELIVERED


def found(*pages: PageRow) -> Found:
    return Found(QueueLogRow(7, "q", b"old", 2), list(pages), last_seq=9, definition=b"new", changed=True)


def page(*seqs: int, updates: tuple[tuple[int, int, int], ...] = ()) -> PageRow:
    extent = Extent(seqs[0], 0)
    for seq in seqs:
        extent.add(seq)
    return PageRow(7, seqs[0], seqs[-1], PLACE, extent.bitmap(), 10 * len(seqs), updates)


def test_pages_come_before_messages_of_the_journal() -> None:
    replayed = found(page(1, 2))
    replayed.messages = {5: (3, DURABLE, 0, 0, b"five"), 6: (3, 0, 0, 0, b"six"), 8: (4, DURABLE, 0, 0, b"8")}
    store = Shelves()
    log = recovered_log(store, replayed)
    assert (log.name, log.definition, log.last_seq, log.shelf.id) == ("q", b"new", 9, 7)
    assert log.shelf.changed
    # All of them are durable, whatever their records say.
    messages = [(5, DURABLE, 0, 0, b"five"), (6, DURABLE, 0, 0, b"six"), (8, DURABLE, 0, 0, b"8")]
    assert log.parts == [StoredPage(1, 2, 2, 20, PLACE), messages]
    # One extent for the page, and one for each file of the journal.
    assert [(each.first, each.last, each.file) for each in log.shelf.extents[1:]] == [(5, 6, 3), (8, 8, 4)]
    assert [each.nbytes for each in log.shelf.extents] == [20, 7, 1]
    assert store.touched == set()


def test_a_message_that_left_its_page_is_gone_and_the_page_is_to_be_written() -> None:
    replayed = found(page(1, 2, 3))
    replayed.gone = {2: 10, 4: 10}
    store = Shelves()
    log = recovered_log(store, replayed)
    assert log.parts == [StoredPage(1, 3, 2, 20, PLACE)]
    assert log.shelf.holder(2) is None
    assert store.touched == {log.shelf}


def test_a_page_with_nothing_live_is_no_part() -> None:
    replayed = found(page(1))
    replayed.gone = {1: 10}
    log = recovered_log(Shelves(), replayed)
    assert log.parts == []
    assert len(log.shelf.extents) == 1, "the next checkpoint frees it"


def test_a_message_that_came_back_says_so() -> None:
    replayed = found()
    replayed.messages = {5: (3, DURABLE, 0, 0, b"x")}
    replayed.updates = {5: (BACK, 2)}
    assert recovered_log(Shelves(), replayed).parts == [[(5, BACK, 2, 0, b"x")]]


def test_a_page_is_written_again_only_where_its_row_does_not_say_what_came_back() -> None:
    for noted, is_written in (((2, BACK, 1), False), ((2, BACK, 3), True)):
        replayed = found(page(1, 2, updates=(noted,)))
        replayed.updates = {2: (BACK, 1)}
        store = Shelves()
        log = recovered_log(store, replayed)
        assert log.shelf.extents[0].changed == is_written
        assert bool(store.touched) == is_written
