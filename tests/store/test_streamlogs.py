"""Streams of a data directory: journal and segments together, over stops, kills, faults and backups."""

from __future__ import annotations

import errno
import os
import select
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.check import check, stats
from broker.store.disk import DiskStore
from broker.store.faults import DamagedStore, SyncFault, is_lack_of_room
from broker.store.port import FAILED, FULL, WRITING, OffsetGone, StreamLog
from broker.store.segments import SegmentLog
from broker.store.streamlogs import STREAMS
from tests.store.streams import flip

FILE_BYTES = 1 << 20


class World:
    """A store with streams, and what was put into each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sent: dict[str, list[bytes]] = {}
        self.open()

    def open(self) -> None:
        self.store = DiskStore.open(self.path, file_bytes=FILE_BYTES)
        self.streams: dict[str, StreamLog] = {each.name: each.shelf for each in self.store.recovered.streams}

    def create(self, name: str) -> None:
        self.streams[name] = self.store.open_stream(name, b"{}")
        self.sent[name] = []

    def put(self, name: str, count: int = 1, size: int = 100) -> None:
        """Messages in the open group, with a time that rises."""
        sent = self.sent[name]
        for _ in range(count):
            number = len(sent)
            data = b"%d:" % number + bytes(size)
            self.streams[name].append(number + 1, 0, 0, number // 10, data)
            sent.append(data)

    def sync(self) -> None:
        self.store.seal()
        self.until(lambda: self.store.synced == self.store.group - 1)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, self.store.reason
            select.select([self.store.bell], [], [], 0.01)
            self.store.attend()
            self.store.maintain()

    def appended(self) -> None:
        """Until the segments have all of it."""
        self.until(lambda: all(self.streams[name].next_offset == len(self.sent[name]) for name in self.sent))

    def checkpoint(self) -> None:
        wanted = self.store.checkpoints + 1
        self.store.begin_checkpoint()
        self.until(lambda: self.store.checkpoints >= wanted)

    def again(self, abandon: bool = False) -> None:
        if abandon:
            self.store.abandon()
        else:
            self.store.close()
        self.open()

    def read(self, name: str, offset: int = 0) -> list[bytes]:
        reader = self.streams[name].reader(offset)
        found: list[bytes] = []
        while messages := reader.read(1 << 16):
            assert [each[0] for each in messages] == list(
                range(offset + len(found), offset + len(found) + len(messages))
            )
            found += [each[2] for each in messages]
        reader.close()
        return found

    def check(self) -> None:
        for name, sent in self.sent.items():
            assert self.read(name) == sent
            assert self.streams[name].next_offset == len(sent)


@pytest.mark.parametrize("abandon", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_messages_and_offsets_survive(tmp_path: Path, abandon: bool, checkpoints: int) -> None:
    world = World(tmp_path)
    for name in ("a", "b"):
        world.create(name)
    for round_ in range(3):
        world.put("a", 50)
        world.put("b", 7, size=30_000)
        world.sync()
        if round_ < checkpoints:
            world.appended()
            world.checkpoint()
        world.again(abandon)
        world.check()
    world.put("a", 1)
    world.sync()
    world.appended()
    world.check()
    world.store.close()


def test_what_was_not_sealed_is_gone_and_its_offsets_are_given_anew(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create("a")
    world.put("a", 5)
    world.sync()
    world.put("a", 3)
    del world.sent["a"][5:]
    world.again(abandon=True)
    world.check()
    world.put("a", 4)
    world.sync()
    world.appended()
    world.check()
    world.store.close()


def test_the_journal_is_given_up_behind_the_segments(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create("a")
    for _ in range(40):
        world.put("a", 100, size=1000)
        world.sync()
    world.appended()
    world.until(lambda: world.store.checkpoints > 0 and world.store.stats()["journal_bytes"] < 6 << 20)
    figures = world.store.stats()
    assert (figures["messages"], figures["page_bytes_used"]) == (4000, 0)
    assert figures["stream_bytes"] > 4_000_000
    world.again(abandon=True)
    world.check()
    world.store.close()
    assert check(tmp_path).shelves[0].messages == 4000
    assert stats(tmp_path).shelves[0].name == "a"


def test_a_stream_that_is_removed_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("a", "b"):
        world.create(name)
        world.put(name, 10)
    world.sync()
    world.appended()
    world.checkpoint()
    world.store.remove(world.streams.pop("a"))
    del world.sent["a"]
    world.sync()
    world.until(lambda: len(list((tmp_path / STREAMS).iterdir())) == 1)
    world.again(abandon=True)
    assert list(world.streams) == ["b"]
    world.check()
    world.store.close()


def test_a_stream_that_was_removed_before_a_crash_is_not_there_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create("a")
    world.put("a", 10)
    world.sync()
    world.store.remove(world.streams["a"])
    world.sent.clear()
    world.store.seal()
    world.until(lambda: world.store.synced == world.store.group - 1)
    world.store.abandon()
    world.open()
    assert world.streams == {}
    assert list((tmp_path / STREAMS).iterdir()) == []
    world.store.close()


@pytest.mark.parametrize("removed_on_disk", [False, True])
def test_a_stream_that_is_removed_while_a_checkpoint_is_written_comes_back_whole_or_not_at_all(
    tmp_path: Path, removed_on_disk: bool
) -> None:
    world = World(tmp_path)
    world.create("a")
    world.put("a", 8)
    world.sync()
    # The picture has the stream, whose messages no segment has yet.
    wanted = world.store.checkpoints + 1
    world.store.begin_checkpoint()
    world.store.remove(world.streams["a"])
    if removed_on_disk:
        world.store.seal()
    while world.store.checkpoints < wanted or world.store.synced < world.store.group - 1:
        select.select([world.store.bell], [], [], 0.01)
        world.store.attend()
    world.again(abandon=True)
    if removed_on_disk:
        assert world.streams == {}
    else:
        world.check()


def test_retention_takes_whole_segments_and_readers_hear_of_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create("a")
    stream = world.streams["a"]
    stream.limit(0, 1000, 0)
    stream.segments.segment_bytes = 1 << 16  # type: ignore[attr-defined]
    behind = stream.reader(0)
    assert behind.read(1) == []
    for _ in range(60):
        world.put("a", 100, size=100)
        world.sync()
    world.appended()
    world.checkpoint()
    world.until(lambda: stream.first_offset > 4000)
    assert 300 < stream.next_offset - stream.first_offset <= 1000
    with pytest.raises(OffsetGone) as told:
        behind.read(1 << 20)
    assert told.value.first_offset == stream.first_offset
    first = stream.first_offset
    assert world.read("a", first) == world.sent["a"][first:]
    world.again(abandon=True)
    assert world.streams["a"].first_offset == first
    assert world.read("a", first) == world.sent["a"][first:]
    world.store.close()


@pytest.mark.parametrize(("most_bytes", "most_count", "age_ms"), [(0, 0, 1000), (1 << 16, 0, 0), (0, 500, 0)])
def test_messages_go_though_nothing_comes(
    tmp_path: Path, most_bytes: int, most_count: int, age_ms: int
) -> None:
    """They are old, or less is kept than was before."""
    world = World(tmp_path)
    world.create("a")
    stream = world.streams["a"]
    stream.segments.segment_bytes = 1 << 14  # type: ignore[attr-defined]
    world.put("a", 2000)
    world.sync()
    world.appended()
    world.checkpoint()
    # All of it came in 1970.
    stream.limit(most_bytes, most_count, age_ms)
    stream.segments.segment_bytes = 1 << 14  # type: ignore[attr-defined]
    world.until(lambda: stream.first_offset > 0)
    assert stream.next_offset == 2000
    world.store.close()


def test_a_number_of_messages_is_kept_though_few_fill_no_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create("a")
    stream = world.streams["a"]
    stream.limit(0, 20_000, 0)
    for _ in range(30):
        world.put("a", 2000, 10)
        world.sync()
        world.appended()
        world.store.begin_checkpoint()
        world.until(lambda: not world.store._busy)
        world.store.maintain()
        kept = stream.next_offset - stream.first_offset
        assert kept >= min(len(world.sent["a"]), 20_000 * 7 // 8)
    # All but what is written now are files of an eighth of that, or of what came at once.
    assert kept <= 20_000 + 2 * 2500
    world.store.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT])
def test_what_may_work_again_by_itself_is_a_lack_of_room(code: int) -> None:
    assert is_lack_of_room(OSError(code, "none left"))
    assert not is_lack_of_room(OSError(errno.EIO, "broken"))


def test_messages_wait_in_memory_while_the_segments_have_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.create("a")
    whole = SegmentLog.append_from
    is_full = threading.Event()
    is_full.set()

    tries = 0

    def append_from(self: SegmentLog, offset: int, messages: list[bytes], time_ms: int) -> int:
        nonlocal tries
        tries += 1
        if is_full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(self, offset, messages, time_ms)

    monkeypatch.setattr(SegmentLog, "append_from", append_from)
    world.put("a", 20)
    world.store.seal()
    world.until(lambda: world.store.state == FULL)
    # It is on disk all the same, in the journal; a checkpoint that can't be made gives up nothing of that.
    world.until(lambda: world.store.synced == world.store.group - 1)
    assert world.store.behind_bytes > 0
    for _ in range(50):
        world.store.attend()
        world.store.maintain()
        time.sleep(0.002)
    assert world.store.checkpoints == 0
    assert world.streams["a"].next_offset == 0
    # A full disk isn't tried again and again: the bell is silent until somebody has a look once a second.
    for _ in range(20):
        select.select([world.store.bell], [], [], 0.01)
        world.store.attend()
    before = tries
    for _ in range(100):
        select.select([world.store.bell], [], [], 0.001)
        world.store.attend()
    assert tries == before
    is_full.clear()
    world.until(lambda: world.store.state == WRITING)
    world.appended()
    assert world.store.behind_bytes == 0
    world.again(abandon=True)
    world.check()
    world.store.close()


@pytest.mark.parametrize("method", ["append_from", "sync"])
def test_a_segment_that_fails_ends_the_store_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    world = World(tmp_path)
    world.create("a")
    world.put("a", 10)
    world.sync()
    world.appended()

    def fail(self: SegmentLog, *_: object) -> int:
        self.failed = "the disk is broken"
        raise SyncFault(self.failed)

    with monkeypatch.context() as patched:
        patched.setattr(SegmentLog, method, fail)
        world.put("a", 10)
        world.sync()
        world.store.begin_checkpoint()
        world.until(lambda: world.store.state == FAILED)
        assert "the disk is broken" in world.store.reason
    world.store.abandon()
    world.open()
    world.check()
    world.store.close()


def test_a_backup_has_the_streams(tmp_path: Path) -> None:
    world = World(tmp_path / "data")
    world.create("a")
    world.put("a", 3000, size=1000)
    world.sync()
    world.checkpoint()
    world.put("a", 10)
    world.sync()
    told: list[Exception | None] = []
    done = threading.Event()

    def tell(fault: Exception | None) -> None:
        told.append(fault)
        done.set()

    world.store.backup(tmp_path / "backup", tell)
    assert done.wait(30)
    assert told == [None]
    world.put("a", 10)
    world.sync()
    world.store.close()
    other = World(tmp_path / "backup")
    other.sent["a"] = world.sent["a"][: other.streams["a"].next_offset]
    assert len(other.sent["a"]) >= 3010
    other.check()
    # It goes on from there.
    other.put("a", 5)
    other.sync()
    other.appended()
    other.check()
    other.store.close()


def test_retention_during_a_backup_leaves_no_hole_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "data")
    world.create("a")
    world.streams["a"].segments.segment_bytes = 1 << 14  # type: ignore[attr-defined]
    world.put("a", 2000)
    world.sync()
    world.appended()
    world.checkpoint()
    segments = sorted((tmp_path / "data" / STREAMS / "1").iterdir())
    assert len(segments) > 4
    whole = shutil.copyfile

    def copyfile(source: Path, target: Path) -> None:
        whole(source, target)
        if source == segments[0]:
            world.streams["a"].limit(0, 1000, 0)
            world.store._streams.retain()

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    told: list[Exception | None] = []
    done = threading.Event()

    def tell(fault: Exception | None) -> None:
        told.append(fault)
        done.set()

    world.store.backup(tmp_path / "backup", tell)
    assert done.wait(30)
    assert told == [None]
    world.store.close()
    other = World(tmp_path / "backup")
    first = other.streams["a"].first_offset
    assert first > 500
    assert other.read("a", first) == world.sent["a"][first:]
    other.store.close()


def test_damage_is_found_and_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create("a")
    world.put("a", 2000)
    world.sync()
    world.store.close()
    (segment,) = (tmp_path / STREAMS / "1").iterdir()
    assert check(tmp_path).shelves[0].messages == 2000
    flip(segment, segment.stat().st_size // 2)
    with pytest.raises(DamagedStore) as told:
        check(tmp_path)
    assert told.value.file == segment
    segment.unlink()
    for look in (check, DiskStore.open):
        with pytest.raises(DamagedStore, match="no file"):
            look(tmp_path)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("ab"), st.integers(1, 40), st.sampled_from((1, 300, 9000))),
        st.tuples(st.just("sync")),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("again"), st.booleans()),
        st.tuples(st.just("remove"), st.sampled_from("ab")),
    ),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_a_walk_of_puts_checkpoints_stops_and_kills(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    world = World(tmp_path_factory.mktemp("walk"))
    for name in "ab":
        world.create(name)
    world.sync()
    for step, *given_ in steps:
        if step == "put":
            world.put(*given_)
        elif step == "sync":
            world.sync()
        elif step == "checkpoint":
            world.checkpoint()
        elif step == "again":
            world.sync()
            world.again(*given_)
            world.check()
        else:
            (name,) = given_
            world.store.remove(world.streams.pop(name))
            world.create(name)
    world.sync()
    world.appended()
    world.check()
    world.store.close()
