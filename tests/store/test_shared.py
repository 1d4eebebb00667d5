"""Messages of several queues that stand in records and pages in common: torn, damaged, out of room, removed.

The walks of ``test_disk`` and ``test_replicated`` go over the same in any order.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.store import pagefile
from broker.store.disk import DiskStore
from broker.store.faults import DamagedStore
from broker.store.files import BLOCK_BYTES
from broker.store.journal import GroupFound, group_at
from broker.store.logs import DiskQueueLog
from broker.store.port import DURABLE, FULL, REDELIVERED, WRITING
from broker.store.records import COPIES, COPY, FORGOTTEN
from tests.store.test_disk import settle, settle_once
from tests.store.test_port import Kept

FILE_BYTES = 1 << 20
LOGS = 5
Held = tuple[int, int, int, int, bytes]
State = dict[str, list[Held]]


class Topic:
    """A store with some logs that get the same messages, and what is to be in them."""

    def __init__(self, path: Path) -> None:
        self.kept = Kept("disk", path)
        self.seq = 0
        self.model: dict[str, dict[int, Held]] = {}
        self.logs: dict[str, DiskQueueLog] = {}
        for number in range(LOGS):
            self.make(f"s{number}")

    @property
    def store(self) -> DiskStore:
        """The store as it is open now."""
        assert isinstance(self.kept.store, DiskStore)
        return self.kept.store

    @property
    def state(self) -> State:
        """What is to be there."""
        return {name: [held[seq] for seq in sorted(held)] for name, held in self.model.items()}

    def make(self, name: str) -> None:
        """Have a new log of this name."""
        made = self.store.open_log(name, b"")
        assert isinstance(made, DiskQueueLog)
        self.logs[name], self.model[name] = made, {}

    def remove(self, name: str) -> None:
        """Let a log go."""
        self.store.remove(self.logs.pop(name))
        del self.model[name]

    def publish(self, count: int, size: int = 1000) -> None:
        """Give each log so many messages."""
        for _ in range(count):
            self.seq += 1
            data = b"%08d" % self.seq * (size // 8)
            for name, log in self.logs.items():
                log.append(self.seq, DURABLE, 0, 0, data)
                self.model[name][self.seq] = (self.seq, DURABLE, 0, 0, data)

    def forget(self, name: str, first: int, last: int) -> None:
        """Have a log done with these messages."""
        for seq in range(first, last + 1):
            self.logs[name].forget(seq, len(self.model[name].pop(seq)[4]))

    def give_back(self, name: str, seq: int) -> None:
        """Have a message come back."""
        self.logs[name].update(seq, 1)
        number, _, _, expires_ms, data = self.model[name][seq]
        self.model[name][seq] = (number, DURABLE | REDELIVERED, 1, expires_ms, data)

    def to_pages(self) -> None:
        """Move all that there is to pages."""
        self.kept.sync()
        self.store.next_file()
        self.store.note("of the next file", b"%d" % self.seq)
        self.kept.sync()
        settle(self.kept, self.store.checkpoints + 1)

    def reopen(self, *, abandon: bool) -> None:
        """Stop it, or kill it, and start again; find everything."""
        self.kept.sync()
        self.kept.reopen(abandon=abandon)
        assert self.kept.contents() == self.state
        for each in self.store.recovered.shelves:
            self.logs[each.name] = each.shelf
        self.assert_pages_are_those_in_use()

    def assert_pages_are_those_in_use(self) -> None:
        """Assert that no page was given back that a log refers to, and none is kept that none does."""
        places = {
            extent.place
            for log in self.logs.values()
            for extent in log.extents
            if extent.live and extent.place is not None
        }
        assert self.store.stats()["page_bytes_used"] == sum(place.nbytes for place in places)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "data")


def two_states(topic: Topic) -> tuple[State, State]:
    """Leave a directory as of a kill, whose last group has each kind of record; return the states before that
    group and behind it.
    """
    topic.publish(30)
    topic.forget("s1", 1, 5)
    topic.to_pages()
    topic.publish(4)
    topic.forget("s2", 3, 20)
    topic.kept.sync()
    before = topic.state
    topic.publish(2)
    topic.give_back("s1", 10)
    topic.publish(1, size=64)
    data = b"of two" * 50
    for name in ("s3", "s4"):
        topic.logs[name].append(100, DURABLE, 0, 0, data)
        topic.model[name][100] = (100, DURABLE, 0, 0, data)
    for name in topic.logs:
        topic.forget(name, 25, 33)
    topic.forget("s4", 21, 21)
    after = topic.state
    topic.kept.sync()
    topic.store.abandon()
    return before, after


def groups(path: Path, number: int) -> list[GroupFound]:
    """Return the groups of a journal file."""
    data, at, found = path.read_bytes(), BLOCK_BYTES, []
    while (group := group_at(data, at, number)) is not None and group.end >= 0:
        found.append(group)
        at = group.end if not group.is_last else -(-max(group.end, at + 1) // BLOCK_BYTES) * BLOCK_BYTES
    return found


def last_group(directory: Path) -> tuple[Path, int, int]:
    """Return the journal file of the last group with records, and where these begin and end."""
    for path in sorted(directory.glob("journal-*"), reverse=True):
        found = [group for group in groups(path, int(path.name[-8:])) if not group.mark]
        if found:
            return path, found[-1].start, found[-1].end
    raise AssertionError("no group")


def state_of(directory: Path) -> State:
    """Return what a directory has, as it is opened after a crash. DamagedStore."""
    kept = Kept("disk", directory)
    assert isinstance(kept.store, DiskStore)
    try:
        return kept.contents()
    finally:
        kept.store.abandon()


def state_or_refusal(directory: Path) -> tuple[State, str]:
    """Return what a directory has, or why it can't be had."""
    try:
        return state_of(directory), ""
    except DamagedStore as fault:
        return {}, str(fault)


def kinds(data: bytes, start: int, end: int) -> set[int]:
    """Return the kinds of the records there."""
    found = set()
    while start < end:
        found.add(data[start + 4])
        length = int.from_bytes(data[start + 12 : start + 16], "little")
        start += 40 + -(-length // 8) * 8
    return found


Harm = Callable[[bytearray, int], None]


def flip(data: bytearray, at: int) -> None:
    data[at] ^= 1 << at % 8


def tear(data: bytearray, at: int) -> None:
    """Nothing from there on was written, and what follows is as it was before."""
    data[at:] = bytes(len(data) - at)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("harm", [flip, tear])
def test_a_last_group_is_there_for_all_logs_or_for_none(topic: Topic, tmp_path: Path, harm: Harm) -> None:
    before, after = two_states(topic)
    path, start, end = last_group(topic.kept.path)
    whole = path.read_bytes()
    assert kinds(whole, start, end) >= {COPY, COPIES, FORGOTTEN}
    assert state_of(shutil.copytree(topic.kept.path, tmp_path / "sound")) == after
    lost = 0
    # Each byte of the heads and lists, and some of the payloads: they are most of it.
    places = (
        range(start - 64, end)
        if end - start < 400
        else sorted(random.Random(6).sample(range(start - 64, end), 200))
    )
    for at in places:
        directory = tmp_path / "harmed"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(topic.kept.path, directory)
        data = bytearray(whole)
        harm(data, at)
        (directory / path.name).write_bytes(data)
        found = state_of(directory)
        assert found in (before, after), f"byte {at}"
        lost += found == before
    assert lost > len(places) // 2


@pytest.mark.timeout(300)
def test_a_flipped_bit_of_a_confirmed_group_or_of_a_shared_page_is_refused(
    topic: Topic, tmp_path: Path
) -> None:
    _, after = two_states(topic)
    # A stop in order says that all groups had been synced.
    topic.kept.reopen()
    topic.store.close()
    path, start, end = last_group(topic.kept.path)
    pages = topic.kept.path / "pages"
    used = len(pages.read_bytes().rstrip(b"\0"))
    dice = random.Random(7)
    chosen = [(path, at) for at in dice.sample(range(start - 64, end), 100)]
    chosen += [(pages, at) for at in dice.sample(range(used), 100)]
    refused = 0
    for file, at in chosen:
        directory = tmp_path / "harmed"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(topic.kept.path, directory)
        data = bytearray(file.read_bytes())
        flip(data, at)
        (directory / file.name).write_bytes(data)
        found, refusal = state_or_refusal(directory)
        assert found == after or ": byte " in refusal, f"byte {at} of {file.name}"
        refused += bool(refusal)
    # The rest pads.
    assert refused > len(chosen) * 0.9


@pytest.mark.parametrize("abandon", [True, False], ids=["killed", "stopped"])
def test_a_log_removed_and_made_anew_takes_nothing_with_it_that_others_have(
    topic: Topic, abandon: bool
) -> None:
    topic.publish(100)
    topic.to_pages()
    topic.publish(10)
    topic.forget("s2", 1, 50)
    topic.remove("s2")
    topic.make("s2")
    topic.publish(10)
    # Its own number 1, which the log of before had as well.
    topic.reopen(abandon=abandon)
    topic.to_pages()
    topic.assert_pages_are_those_in_use()
    for name in ("s0", "s1", "s3"):
        topic.remove(name)
    topic.forget("s2", 111, 115)
    topic.to_pages()
    topic.assert_pages_are_those_in_use()
    topic.reopen(abandon=abandon)
    topic.remove("s4")
    topic.forget("s2", 116, 120)
    topic.kept.sync()
    settle_once(topic.store)
    topic.kept.sync()
    settle_once(topic.store)
    assert topic.store.stats()["page_bytes_used"] == 0
    topic.reopen(abandon=abandon)
    topic.store.close()


def test_a_log_removed_while_its_messages_move_to_pages_gives_back_its_share_once(topic: Topic) -> None:
    topic.publish(100)
    topic.to_pages()
    topic.publish(100)
    topic.kept.sync()
    topic.store.next_file()
    topic.store.note("of the next file", b"again")
    # All of its pages are empty, and on their way out, when it goes.
    topic.forget("s0", 1, 100)
    topic.kept.sync()
    checkpoints = topic.store.checkpoints
    topic.store.begin_checkpoint()
    topic.remove("s0")
    topic.remove("s1")
    settle(topic.kept, checkpoints + 1)
    topic.kept.sync()
    settle(topic.kept, topic.store.checkpoints + 1)
    topic.assert_pages_are_those_in_use()
    topic.reopen(abandon=True)
    for name in ("s2", "s3"):
        topic.remove(name)
    topic.kept.sync()
    settle_once(topic.store)
    topic.assert_pages_are_those_in_use()
    topic.reopen(abandon=True)
    topic.forget("s4", 1, 200)
    topic.kept.sync()
    settle_once(topic.store)
    assert topic.store.stats()["page_bytes_used"] == 0
    topic.store.close()


@pytest.mark.parametrize("pages", [0, 1, 3])
def test_pages_that_had_no_room_are_nobody_s_and_are_written_again(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    topic.publish(100)
    topic.to_pages()
    used = topic.store.stats()["page_bytes_used"]
    topic.publish(400)
    topic.forget("s1", 30, 120)
    topic.kept.sync()
    topic.store.next_file()
    topic.store.note("of the next file", b"again")
    topic.kept.sync()
    write_all, left = pagefile._write_all, [pages]

    def lacking(fd: int, data: bytes, offset: int) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        write_all(fd, data, offset)

    monkeypatch.setattr(pagefile, "_write_all", lacking)
    settle_once(topic.store)
    assert topic.store.state == FULL
    assert topic.store.stats()["page_bytes_used"] == used
    monkeypatch.undo()
    checkpoints = topic.store.checkpoints
    while topic.store.state != WRITING or topic.store.checkpoints < checkpoints + 2:
        topic.store.maintain()
        settle_once(topic.store)
    topic.assert_pages_are_those_in_use()
    topic.reopen(abandon=True)
    for name in topic.logs:
        topic.forget(name, 1 if name != "s1" else 121, 500)
        if name == "s1":
            topic.forget(name, 1, 29)
    topic.kept.sync()
    settle_once(topic.store)
    topic.kept.sync()
    settle_once(topic.store)
    assert topic.store.stats()["page_bytes_used"] == 0
    topic.store.close()


@pytest.mark.parametrize("abandon", [True, False], ids=["killed", "stopped"])
def test_what_was_done_with_is_so_though_the_file_that_had_it_is_gone(topic: Topic, abandon: bool) -> None:
    topic.publish(200)
    topic.to_pages()
    # The first file is gone now. Of the pages, of the journal, and of both in one range.
    topic.publish(20)
    for name, first, last in (("s0", 1, 220), ("s1", 100, 210), ("s2", 201, 220), ("s3", 1, 1)):
        topic.forget(name, first, last)
    topic.reopen(abandon=abandon)
    topic.to_pages()
    topic.assert_pages_are_those_in_use()
    # Their records stand in a file that is still there, and say the same of pages that were made since.
    topic.reopen(abandon=abandon)
    topic.store.close()


def test_a_page_s_row_has_what_came_back_whether_few_did_or_all(topic: Topic) -> None:
    topic.publish(150)
    for seq in range(1, 151):
        topic.give_back("s1", seq)
    topic.give_back("s2", 149)
    topic.to_pages()
    topic.reopen(abandon=True)
    topic.to_pages()
    topic.reopen(abandon=True)
    for seq in range(1, 150, 2):
        topic.give_back("s3", seq)
    topic.to_pages()
    topic.reopen(abandon=False)
    topic.store.close()
