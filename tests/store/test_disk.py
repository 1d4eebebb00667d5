"""The store on disk: crashes, checkpoints, space, and a walk against a model."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.errors import OperatorError
from broker.store.check import check, copy, stats
from broker.store.directory import CheckpointChange, Directory
from broker.store.disk import DiskStore
from broker.store.faults import DamagedStore
from broker.store.files import JournalFiles
from broker.store.pagefile import BlobPlace, PageFile
from broker.store.port import DURABLE, FULL, REDELIVERED, WRITING
from tests.store.test_port import Kept


def settle(kept: Kept, checkpoints: int) -> None:
    """Until that many checkpoints were made."""
    assert isinstance(kept.store, DiskStore)
    deadline = time.monotonic() + 10
    while kept.store.checkpoints < checkpoints:
        assert time.monotonic() < deadline, kept.store.stats()
        settle_once(kept.store)


def test_what_was_not_sealed_is_gone_after_a_crash_and_nothing_else(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    shelf = kept.store.open_log("q", b"")
    shelf.append(1, DURABLE, 0, 0, b"kept")
    kept.sync()
    shelf.append(2, DURABLE, 0, 0, b"not sealed")
    kept.reopen(abandon=True)
    assert kept.contents() == {"q": [(1, DURABLE, 0, 0, b"kept")]}
    assert isinstance(kept.store, DiskStore)
    assert not kept.store.recovered.clean
    kept.reopen()
    assert kept.store.recovered.clean
    kept.store.close()


def test_a_message_of_a_topic_is_written_once_for_all_its_subscriptions(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    assert isinstance(kept.store, DiskStore)
    shelves = [kept.store.open_log(f"s{number}", b"") for number in range(10)]
    kept.sync()
    before = kept.store.stats()["written_bytes"]
    data = bytes(range(250)) * 100
    for seq in (1, 2):
        for number, shelf in enumerate(shelves):
            shelf.append(
                seq, DURABLE, number, 1000 + number if seq == 2 else 0, data if seq == 1 else data[1:]
            )
    kept.sync()
    # `data[1:]` is another object each time: of the first message there is one payload, of the second ten.
    written = kept.store.stats()["written_bytes"] - before
    assert 11 * (len(data) - 1) < written < 11.5 * len(data)
    whole = {
        f"s{number}": [(1, DURABLE, number, 0, data), (2, DURABLE, number, 1000 + number, data[1:])]
        for number in range(10)
    }
    for abandon in (True, False):
        kept.reopen(abandon=abandon)
        assert kept.contents() == whole
    # What the others have done with doesn't take the payload from the one that is left.
    store = kept.store
    assert isinstance(store, DiskStore)
    for each in store.recovered.shelves[:9]:
        each.shelf.forget(1, len(data))
    store.next_file()
    kept.sync()
    settle(kept, store.checkpoints + 1)
    kept.reopen(abandon=True)
    assert [len(held) for held in kept.contents().values()] == [1] * 9 + [2]
    assert kept.contents()["s9"] == whole["s9"]
    kept.store.close()


def test_a_message_to_a_thousand_subscriptions_is_a_head_and_a_payload(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    store = kept.store
    assert isinstance(store, DiskStore)
    shelves = [store.open_log(f"s{number}", b"") for number in range(1000)]
    kept.sync()
    for shelf in shelves[::2]:
        shelf.append(1, DURABLE, 0, 0, b"so that their numbers differ")
    kept.sync()
    before = store.stats()["written_bytes"]
    bodies = [bytes([number]) * 1000 for number in range(100)]
    for index, body in enumerate(bodies):
        for place, shelf in enumerate(shelves):
            shelf.append(index + 2 - place % 2, DURABLE, 0, 0, body)
    kept.sync()
    written = store.stats()["written_bytes"] - before
    # Two heads and a payload each; the list of the thousand once, four bytes for each.
    assert written < len(bodies) * (1000 + 2 * 40) + 4000
    before = store.stats()["written_bytes"]
    for place, shelf in enumerate(shelves):
        for index, body in enumerate(bodies[:50]):
            shelf.forget(index + 2 - place % 2, len(body))
    kept.sync()
    # 50,000 settlements are a range for each log.
    assert store.stats()["written_bytes"] - before < 9 * len(shelves)
    kept.reopen(abandon=True)
    found = kept.contents()
    for place in range(len(shelves)):
        first = [] if place % 2 else [(1, DURABLE, 0, 0, b"so that their numbers differ")]
        left = [(index + 2 - place % 2, DURABLE, 0, 0, body) for index, body in enumerate(bodies)]
        assert found[f"s{place}"] == first + left[50:]
    kept.store.close()


def test_a_body_is_on_one_page_for_all_until_the_last_has_done_with_it(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    store = kept.store
    assert isinstance(store, DiskStore)
    shelves = [store.open_log(f"s{number}", b"") for number in range(100)]
    other = store.open_log("other", b"")
    bodies = [bytes([number]) * 1000 for number in range(200)]
    for seq, body in enumerate(bodies, 1):
        for shelf in shelves:
            shelf.append(seq, DURABLE, 0, 0, body)
        other.append(seq, DURABLE, 0, 0, body[1:])
    # Half of them are in the middle, and some messages came back.
    for shelf in shelves[::2]:
        for seq, body in enumerate(bodies[:150], 1):
            shelf.forget(seq, len(body))
    shelves[7].update(9, 2)
    whole = {"other": [(seq, DURABLE, 0, 0, body[1:]) for seq, body in enumerate(bodies, 1)]}
    for number in range(100):
        held = [(seq, DURABLE, 0, 0, body) for seq, body in enumerate(bodies, 1)]
        whole[f"s{number}"] = held[0 if number % 2 else 150 :]
    whole["s7"][8] = (9, DURABLE | REDELIVERED, 2, 0, bodies[8])
    kept.sync()
    store.next_file()
    store.note("of the next file", b"1")
    kept.sync()
    settle(kept, store.checkpoints + 1)
    # Those that share nothing have a page of their own.
    assert store.stats()["page_bytes_used"] < 2.3 * len(bodies) * 1000
    kept.reopen(abandon=True)
    assert kept.contents() == whole
    store = kept.store
    assert isinstance(store, DiskStore)
    used = store.stats()["page_bytes_used"]
    for each in store.recovered.shelves:
        if each.name in ("s3", "other"):
            continue
        for seq, _, _, _, data in whole[each.name]:
            each.shelf.forget(seq, len(data))
    kept.sync()
    settle(kept, store.checkpoints + 1)
    assert store.stats()["page_bytes_used"] == used
    kept.reopen()
    found = kept.contents()
    assert {name for name, held in found.items() if held} == {"s3", "other"}
    assert found["s3"] == whole["s3"]
    store = kept.store
    assert isinstance(store, DiskStore)
    [last] = [each.shelf for each in store.recovered.shelves if each.name == "s3"]
    for seq, _, _, _, data in whole["s3"]:
        last.forget(seq, len(data))
    kept.sync()
    settle(kept, store.checkpoints + 1)
    assert store.stats()["page_bytes_used"] < used / 1.9
    kept.reopen()
    assert kept.contents()["other"] == whole["other"]
    kept.store.close()
    assert sum(each.messages for each in check(tmp_path).shelves) == len(bodies)


def test_check_finds_a_row_whose_page_has_other_messages(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    store = kept.store
    assert isinstance(store, DiskStore)
    shelves = [store.open_log(f"s{number}", b"") for number in range(3)]
    data = bytes(100)
    for shelf in shelves[:2]:
        shelf.append(1, DURABLE, 0, 0, data)
    kept.sync()
    store.next_file()
    store.note("of the next file", b"1")
    kept.sync()
    settle(kept, store.checkpoints + 1)
    kept.store.close()
    directory = Directory(tmp_path / "directory.mdb")
    meta, [page, _] = directory.meta(), directory.pages()
    directory.check()
    directory.write(CheckpointChange(meta, pages=[replace(page, shelf=3)]))
    directory.close()
    with pytest.raises(DamagedStore, match="1 of 1 messages can't be read back"):
        check(tmp_path)


def test_space_comes_back_after_draining(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    shelf = kept.store.open_log("q", b"")
    for seq in range(1, 6001):
        shelf.append(seq, DURABLE, 0, 0, bytes(1000))
        if seq % 100 == 0:
            kept.sync()
    settle(kept, 1)
    assert isinstance(kept.store, DiskStore)
    assert kept.store.stats()["page_bytes_used"] > 1 << 20
    for seq in range(1, 6001):
        shelf.forget(seq, 1000)
    kept.sync()
    settle(kept, kept.store.checkpoints + 3)
    after = kept.store.stats()
    assert (after["page_bytes"], after["page_bytes_used"], after["messages"]) == (0, 0, 0)
    assert after["journal_bytes"] <= 7 << 20
    kept.store.close()


def test_a_message_given_back_while_it_moves_to_a_page_is_known_to_have_been(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    store = kept.store
    assert isinstance(store, DiskStore)
    shelf = store.open_log("q", b"")
    for seq in (1, 2):
        shelf.append(seq, DURABLE, 0, 0, b"x")
    kept.sync()
    store.next_file()
    shelf.append(3, DURABLE, 0, 0, b"x")
    kept.sync()
    before = store.checkpoints
    store.begin_checkpoint()
    # The picture is taken: what is noted now stands in the journal only, and in no page yet.
    shelf.update(2, 1)
    shelf.update(3, 1)
    kept.sync()
    settle(kept, before + 1)
    store.next_file()
    shelf.append(4, DURABLE, 0, 0, b"x")
    kept.sync()
    settle(kept, before + 2)
    for _ in range(3):
        kept.reopen()
    given_back = {seq: (flags, count) for seq, flags, count, _, _ in kept.contents()["q"]}
    back = (DURABLE | REDELIVERED, 1)
    assert given_back == {1: (DURABLE, 0), 2: back, 3: back, 4: (DURABLE, 0)}
    kept.store.close()


@pytest.mark.parametrize("abandon", [True, False], ids=["killed", "stopped"])
def test_a_message_given_back_from_a_page_is_known_to_have_been_after_its_journal_is_gone(
    tmp_path: Path, abandon: bool
) -> None:
    """A stop between the journal's record of it and the next checkpoint, which comes after the restart."""
    kept = Kept("disk", tmp_path)
    assert isinstance(kept.store, DiskStore)
    shelf = kept.store.open_log("q", b"")
    for seq in (1, 2):
        shelf.append(seq, DURABLE, 0, 0, b"x")
    kept.sync()
    for _ in range(2):
        kept.store.next_file()
        shelf.append(shelf.last_seq + 1, DURABLE, 0, 0, b"x")  # type: ignore[attr-defined]
        kept.sync()
        settle_once(kept.store)
    assert shelf.holder(2).place is not None, "it stands in a page"  # type: ignore[attr-defined]
    if abandon:
        shelf.update(2, 1)
        kept.sync()
    else:
        # The picture of a checkpoint that is never written has it.
        shelf.update(2, 1)
        kept.store.begin_checkpoint()
    kept.reopen(abandon)
    found = kept.store.recovered.shelves[0].shelf
    for _ in range(2):
        kept.store.next_file()
        found.append(found.last_seq + 1, DURABLE, 0, 0, b"x")
        kept.sync()
        settle_once(kept.store)
    kept.reopen(abandon=True)
    given_back = {seq: (flags, count) for seq, flags, count, _, _ in kept.contents()["q"]}
    assert given_back[2] == (DURABLE | REDELIVERED, 1)
    assert given_back[1] == (DURABLE, 0)
    kept.store.close()


def test_numbers_go_on_rising_after_a_restart(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    shelf = kept.store.open_log("q", b"")
    shelf.append(7, DURABLE, 0, 0, b"x")
    kept.sync()
    shelf.forget(7, 1)
    kept.sync()
    settle(kept, 1)
    kept.reopen()
    assert isinstance(kept.store, DiskStore)
    assert [each.last_seq for each in kept.store.recovered.shelves] == [7]
    kept.store.close()


def test_a_message_larger_than_a_file_is_kept(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    shelf = kept.store.open_log("q", b"")
    large = bytes(range(256)) * (3 << 12)
    for seq in (1, 2, 3):
        shelf.append(seq, DURABLE, 0, 0, large)
        kept.sync()
    settle(kept, 1)
    kept.reopen(abandon=True)
    assert [message[4] == large for message in kept.contents()["q"]] == [True] * 3
    kept.store.close()


def test_check_stats_and_copy(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path / "data")
    shelf = kept.store.open_log("q", b"")
    for seq in range(1, 4001):
        shelf.append(seq, DURABLE, 0, 0, bytes(900))
        if seq % 100 == 0:
            kept.sync()
    settle(kept, 1)
    shelf.forget(1, 900)
    kept.store.close()
    report = check(tmp_path / "data")
    assert report == stats(tmp_path / "data")
    [found] = report.shelves
    assert (found.name, found.messages, report.clean) == ("q", 3999, True)
    assert found.pages > 0
    copy(tmp_path / "data", tmp_path / "copy")
    assert check(tmp_path / "copy").shelves == report.shelves
    with pytest.raises(OperatorError, match="exists already"):
        copy(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(OperatorError, match="no store here"):
        check(tmp_path / "nowhere")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_sound_record_of_an_older_group_makes_no_torn_one_whole(tmp_path: Path) -> None:
    """Journal files are written more than once: behind a torn write stands what was there before."""
    kept = Kept("disk", tmp_path)
    shelf = kept.store.open_log("q", b"")
    kept.sync()
    shelf.append(1, DURABLE, 0, 0, b"one")
    shelf.append(2, DURABLE, 0, 0, b"two")
    kept.sync()
    assert isinstance(kept.store, DiskStore)
    kept.store.abandon()
    [journal] = [path for path in tmp_path.rglob("journal-*") if b"two" in path.read_bytes()]
    data = journal.read_bytes()
    head = 40
    first, second = data.index(b"one") - head, data.index(b"two") - head
    torn = data[:second] + data[first:second] + data[2 * second - first :]
    # Without what comes a second later behind its block: a mark that the group was synced.
    journal.write_bytes(torn[: (second // 4096 + 1) * 4096].ljust(len(data), b"\0"))
    again = Kept("disk", tmp_path)
    assert again.contents() == {"q": []}
    again.store.close()


def test_a_newer_format_is_refused_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.store.directory.VERSION", 5)
    kept = Kept("disk", tmp_path)
    kept.store.close()
    monkeypatch.undo()
    with pytest.raises(OperatorError, match=r"format 5, this broker reads up to 4"):
        DiskStore.open(tmp_path)


def test_a_missing_journal_file_is_refused(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    kept.store.open_log("q", b"").append(1, DURABLE, 0, 0, b"x")
    kept.sync()
    assert isinstance(kept.store, DiskStore)
    kept.store.abandon()
    for path in tmp_path.glob("journal-*"):
        path.unlink()
    with pytest.raises(DamagedStore, match="missing"):
        DiskStore.open(tmp_path)


def test_files_that_go_while_their_sizes_are_asked_for_are_passed_over(tmp_path: Path) -> None:
    """The keeper renames and removes them on its thread; a name that leads nowhere is like one just gone."""
    files = JournalFiles(tmp_path, 1 << 20)
    files.prepare(1)
    for name in ("journal-00000002", "spare-00000003"):
        (tmp_path / name).symlink_to("gone")
    assert files.nbytes() == 1 << 20
    files.close()


WHOLE = ("sync", "checkpoint", "next file", "reopen", "crash")
VERBS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(0, 3000)),
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(0, 3000)),
        st.tuples(st.just("publish"), st.integers(0, 2), st.integers(0, 3000)),
        st.tuples(st.just("forget"), st.integers(0, 2), st.floats(0, 1)),
        st.tuples(st.just("update"), st.integers(0, 2), st.floats(0, 1)),
        st.tuples(
            st.sampled_from(["sync", "checkpoint", "next file", "reopen", "crash"]), st.just(0), st.just(0)
        ),
        st.tuples(st.just("note"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("remove"), st.integers(0, 2), st.just(0)),
    ),
    max_size=60,
)


class Walk:
    """The store beside a model of what was handed over, and of what was synced when it crashed."""

    def __init__(self, path: Path) -> None:
        self.kept = Kept("disk", path)
        self.model: dict[str, dict[int, tuple[int, int, int, bytes]]] = {}
        self.notes: dict[str, bytes] = {}
        self.next = 1
        self.take_shelves()

    def take_shelves(self) -> None:
        store = self.kept.store
        assert isinstance(store, DiskStore)
        self.shelves = {each.name: each.shelf for each in store.recovered.shelves}
        for name in ("0", "1", "2"):
            if name not in self.shelves:
                self.shelves[name] = store.open_log(name, b"")  # type: ignore[assignment]
                self.model[name] = {}

    def chosen(self, name: str, part: float) -> int | None:
        numbers = sorted(self.model[name])
        return numbers[min(int(part * len(numbers)), len(numbers) - 1)] if numbers else None

    def do(self, verb: str, index: int, argument: float) -> None:
        name = str(index)
        store = self.kept.store
        assert isinstance(store, DiskStore)
        if verb == "append":
            data = bytes(int(argument))
            self.shelves[name].append(self.next, DURABLE, 0, 0, data)
            self.model[name][self.next] = (DURABLE, 0, 0, data)
            self.next += 1
        elif verb == "publish":
            # As a topic does: the same bytes to each of its subscriptions.
            data = bytes(int(argument))
            for each in sorted(self.shelves)[index:]:
                self.shelves[each].append(self.next, DURABLE, 0, 0, data)
                self.model[each][self.next] = (DURABLE, 0, 0, data)
                self.next += 1
        elif verb in ("forget", "update"):
            seq = self.chosen(name, argument)
            if seq is None:
                return
            _, count, expires_ms, data = self.model[name][seq]
            if verb == "forget":
                self.shelves[name].forget(seq, len(data))
                del self.model[name][seq]
            else:
                self.shelves[name].update(seq, count + 1)
                self.model[name][seq] = (DURABLE | REDELIVERED, count + 1, expires_ms, data)
        elif verb == "note":
            self.notes[name] = b"" if argument == 0 else b"%d" % int(argument)
            store.note(name, self.notes[name])
        elif verb == "remove":
            store.remove(self.shelves.pop(name))
            self.take_one(name)
        elif verb == "next file":
            store.seal()
            store.next_file()
        elif verb == "checkpoint":
            self.kept.sync()
            settle_once(store)
            places = {
                extent.place
                for shelf in self.shelves.values()
                for extent in shelf.extents
                if extent.live and extent.place is not None
            }
            assert store.stats()["page_bytes_used"] == sum(place.nbytes for place in places)
        else:
            self.kept.sync()
            if verb != "sync":
                self.kept.reopen(abandon=verb == "crash")
                self.check()
                self.take_shelves()

    def take_one(self, name: str) -> None:
        self.shelves[name] = self.kept.store.open_log(name, b"")  # type: ignore[assignment]
        self.model[name] = {}

    def check(self) -> None:
        found = {
            name: {seq: tuple(rest) for seq, *rest in messages}
            for name, messages in self.kept.contents().items()
        }
        assert {name: held for name, held in found.items() if held} == {
            name: held for name, held in self.model.items() if held
        }
        assert self.kept.notes() == {key: value for key, value in self.notes.items() if value}
        for messages in self.kept.contents().values():
            assert [message[0] for message in messages] == sorted(message[0] for message in messages)


def settle_once(store: DiskStore) -> None:
    deadline = time.monotonic() + 10
    store.attend()
    if not store._busy:
        store.begin_checkpoint()
    while store._busy:
        assert time.monotonic() < deadline
        time.sleep(0.002)
        store.attend()


# A walk syncs a few hundred times, and a disk that others use may take a second for each.
@pytest.mark.timeout(600)
@given(steps=VERBS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_a_walk_keeps_what_the_model_keeps(tmp_path: Path, steps: list[tuple[str, int, float]]) -> None:
    shutil.rmtree(tmp_path)
    walk = Walk(tmp_path)
    try:
        for step in steps:
            walk.do(*step)
        walk.kept.sync()
        walk.kept.reopen(abandon=True)
        walk.check()
    finally:
        walk.kept.store.close()


def test_a_store_without_room_for_a_journal_file_opens_as_full(tmp_path: Path, small_disk: Path) -> None:
    """What it has can be read and taken; settlements are confirmed once there is room, and it goes on."""
    kept = Kept("disk", small_disk / "data")
    shelf = kept.store.open_log("q", b"")
    for seq in range(1, 2001):
        shelf.append(seq, DURABLE, 0, 0, bytes(1000))
    kept.sync()
    assert isinstance(kept.store, DiskStore)
    used = kept.store.files.path(1)
    kept.store.abandon()
    for path in (*used.parent.glob("spare-*"), *used.parent.glob("journal-*")):
        if path != used:
            path.unlink()
    os.truncate(used.with_name("pages"), 0)  # with it goes what was reserved
    ballast = small_disk / "ballast"
    ballast.touch()
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass

    again = Kept("disk", small_disk / "data")
    assert isinstance(again.store, DiskStore)
    assert again.store.state == FULL
    found = again.store.recovered.shelves[0].shelf
    for seq in range(1, 501):
        found.forget(seq, 1000)
    again.store.seal()
    before = again.store.attend()
    again.store.maintain()
    assert before < again.store.group - 1, "nobody is told that these are gone for good"
    ballast.unlink()

    def goes_on() -> bool:
        assert isinstance(again.store, DiskStore)
        again.store.maintain()
        return again.store.attend() == again.store.group - 1 and again.store.state == WRITING

    wait_for(goes_on)
    again.store.close()
    last = Kept("disk", small_disk / "data")
    assert [message[0] for message in last.contents()["q"]] == list(range(501, 2001))
    last.store.close()


def test_a_store_that_was_full_writes_again_though_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message comes or goes, and every closed file of the journal has some: the once-a-second look alone
    finds out that there is room again.
    """
    kept = Kept("disk", tmp_path)
    store = kept.store
    assert isinstance(store, DiskStore)
    is_full = True
    write = PageFile.write

    def refusing(pages: PageFile, records: bytes) -> BlobPlace:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(pages.path))
        return write(pages, records)

    monkeypatch.setattr(PageFile, "write", refusing)
    shelf = store.open_log("q", b"")
    for seq in range(1, 6001):
        shelf.append(seq, DURABLE, 0, 0, bytes(1000))
        if seq % 100 == 0:
            kept.sync()
    for _ in range(10):
        store.maintain()
        wait_for(lambda: store.attend() >= 0 and not store._busy)
        assert store.state == FULL
    is_full = False

    def goes_on() -> bool:
        store.maintain()
        store.attend()
        return store.state == WRITING

    wait_for(goes_on)
    store.close()


def test_notes_that_are_taken_away_leave_nothing_in_memory(tmp_path: Path) -> None:
    kept = Kept("disk", tmp_path)
    kept.store.note("stays", b"x")
    for number in range(1000):
        kept.store.note(f"n/{number}", b"x")
    kept.sync()
    for number in range(1000):
        kept.store.note(f"n/{number}", b"")
    kept.sync()
    for abandon in (True, False):
        assert isinstance(kept.store, DiskStore)
        assert kept.store._notes == {"stays": b"x"}
        kept.reopen(abandon=abandon)
        assert kept.store.recovered.notes == {"stays": b"x"}
    # A key that is used again is as any other.
    kept.store.note("n/5", b"y")
    kept.sync()
    kept.reopen(abandon=True)
    assert isinstance(kept.store, DiskStore)
    assert kept.store.recovered.notes == {"stays": b"x", "n/5": b"y"}
    kept.store.close()
