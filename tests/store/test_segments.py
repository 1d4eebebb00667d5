"""A log of segments on a real disk: appending, reading, finding, retention, and damage that a start meets."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from broker.errors import OperatorError
from broker.store import segmentchain
from broker.store.blocks import StreamMessage, encode
from broker.store.faults import DamagedStore
from broker.store.port import OffsetGone
from broker.store.records import crc32c
from broker.store.segmentreader import DROP_BYTES
from broker.store.segments import BLOCK_BYTES, SEGMENT_BYTES, SegmentLog, remove
from tests.store.streams import assert_whole, everything, fill, flip, opened, paths, text_of, texts, time_of


@pytest.fixture
def log(tmp_path: Path) -> SegmentLog:
    """A log of a few hundred messages, not synced."""
    made = opened(tmp_path / "stream")
    fill(made, 300)
    assert made.segments > 5
    return made


def test_an_empty_log_has_one_empty_file(tmp_path: Path) -> None:
    log = SegmentLog.open(tmp_path / "a" / "stream", first_offset=12)
    assert (log.first_offset, log.next_offset, log.count, log.nbytes) == (12, 12, 0, 0)
    assert log.read(12, 1000) == []
    assert log.find(0) == 12
    assert [path.name for path in paths(log.directory)] == ["00000000000000000012.segment"]
    assert log.sync() == 12
    again = SegmentLog.open(log.directory)
    assert again.next_offset == 12
    assert again.append([b"x"], 5) == 12


def test_an_append_says_the_offset_of_its_first_message(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.append([b"a", b"b"], 5) == 0
    assert log.append([], 6) == 2
    assert log.append([b""], 7) == 2
    assert log.read(0, 100) == [(0, 5, b"a"), (1, 5, b"b"), (2, 7, b"")]
    assert log.count == 3
    assert log.nbytes == sum(path.stat().st_size for path in paths(tmp_path))


def test_messages_that_are_there_are_skipped_and_holes_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.append_from(0, texts(0, 10), time_of(0)) == 10
    assert log.append_from(0, texts(0, 10), time_of(0)) == 0
    assert log.append_from(3, texts(3, 2), time_of(0)) == 0
    assert log.append_from(8, texts(8, 5), time_of(8)) == 3
    assert log.append_from(13, texts(13, 1), time_of(13)) == 1
    with pytest.raises(DamagedStore, match="offsets from 14 to 14 are missing"):
        log.append_from(15, texts(15, 1), time_of(15))
    assert log.next_offset == 14
    assert_whole(log)


def test_every_offset_can_be_read_from(log: SegmentLog) -> None:
    for start in range(0, log.next_offset, 7):
        found = log.read(start, 200)
        assert found[0][0] == start
        assert [each[2] for each in found] == texts(start, len(found))
        assert sum(len(each[2]) for each in found) <= 200
    assert log.read(log.next_offset, 200) == []
    assert log.read(log.next_offset + 5, 200) == []


def test_a_reader_goes_on_with_what_was_appended_since(log: SegmentLog) -> None:
    reader = log.reader(290)
    assert len(reader.read(10_000)) == 10
    assert reader.read(10_000) == []
    fill(log, 50)
    found = reader.read(10_000)
    assert [each[0] for each in found] == list(range(300, 300 + len(found)))
    assert reader.offset == 350
    reader.seek(5)
    assert reader.read(0) == [(5, time_of(5), text_of(5))]


def test_one_message_comes_however_long_it_is(tmp_path: Path) -> None:
    log = SegmentLog.open(tmp_path)
    long = os.urandom(3 << 20)
    log.append([b"a", long, b"b", long], 1)
    reader = log.reader(0)
    assert [each[2] for each in reader.read(1)] == [b"a"]
    assert [each[2] for each in reader.read(1)] == [long]
    assert [each[2] for each in reader.read(10)] == [b"b"]
    assert [each[2] for each in reader.read(10)] == [long]
    assert reader.read(10) == []


def test_blocks_and_segments_have_their_sizes(tmp_path: Path) -> None:
    assert (SEGMENT_BYTES, BLOCK_BYTES) == (64 << 20, 64 << 10)
    log = SegmentLog.open(tmp_path, segment_bytes=1 << 20)
    for _ in range(40):
        log.append([bytes(1000)] * 100, 1)
    assert log.segments == 4
    assert all(path.stat().st_size <= 1 << 20 for path in paths(tmp_path))
    # About one entry for each 64 KB, however it came to be.
    written = log._chain.segments[0]
    assert 9 <= written.index_entries <= 17
    again = SegmentLog.open(tmp_path, segment_bytes=1 << 20)
    assert again._chain.segments[0].index_entries == 0
    again.read(again._chain.segments[1].base - 1, 10)
    assert 9 <= again._chain.segments[0].index_entries <= 17


def test_the_first_message_at_a_time_or_later_is_found(log: SegmentLog) -> None:
    for again in (log, opened(log.directory), opened(log.directory, log.next_offset)):
        assert again.find(0) == 0
        assert again.find(-5) == 0
        for offset in range(0, 300, 5):
            assert again.find(time_of(offset)) == offset
            assert again.find(time_of(offset) - 1) == offset
            assert again.find(time_of(offset) + 1) == offset + 5
        assert again.find(time_of(300)) == 300


def test_a_clock_that_was_set_back_hides_no_message(tmp_path: Path) -> None:
    log = opened(tmp_path)
    clock = [10, 20, 900, 30, 40, 50, 60, 1000, 70]
    for time_ms in clock * 3:
        fill_at = log.next_offset
        log.append([text_of(fill_at) * 20], time_ms)
    for wanted in range(0, 1010, 5):
        expected = [n for n, time_ms in enumerate(clock * 3) if time_ms >= wanted]
        assert log.find(wanted) == (expected[0] if expected else log.next_offset)
    # Of what is left, too.
    log.sync()
    assert log.retain(most_count=6) > 0
    times = {offset: time_ms for offset, time_ms, _ in everything(log)}
    for wanted in range(0, 1010, 5):
        expected = [offset for offset, time_ms in times.items() if time_ms >= wanted]
        assert log.find(wanted) == (expected[0] if expected else log.next_offset)


def test_a_time_is_found_though_the_clock_was_set_back_in_a_new_segment(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(texts(0, 1), 100)
    log.roll()
    for synced in (None, 1):
        log = opened(tmp_path, synced)
        assert log.next_offset == 1
        assert log.find(80) == 0
    log.append(texts(1, 1), 60)
    assert (log.find(80), log.find(50), log.find(101)) == (0, 0, 2)
    assert opened(tmp_path).find(80) == 0


# --- retention


def test_what_is_not_synced_stays(log: SegmentLog) -> None:
    third = log._chain.segments[2].base
    assert log.retain(most_bytes=0) == 0
    again = opened(log.directory, third + 1)
    again.retain(most_bytes=0)
    assert again.first_offset == third
    again.sync()
    again.retain(most_bytes=0)
    assert again.segments == 1


def test_retention_removes_whole_segments_from_the_front(log: SegmentLog) -> None:
    log.sync()
    files = paths(log.directory)
    second = log._chain.segments[1].base
    nbytes = log.nbytes
    assert log.retain(most_bytes=nbytes) == 0
    assert log.retain(most_bytes=nbytes - 1) == nbytes - log.nbytes > 0
    assert (log.first_offset, paths(log.directory)) == (second, files[1:])
    third = log._chain.segments[1].base
    log.retain(most_count=log.count - 1)
    assert log.first_offset == third
    fourth = log._chain.segments[1].base
    log.retain(before_ms=time_of(fourth - 5))
    assert log.first_offset == third
    log.retain(before_ms=time_of(fourth))
    assert log.first_offset == fourth
    assert log.nbytes == sum(path.stat().st_size for path in paths(log.directory))
    assert_whole(log)
    assert_whole(opened(log.directory))


def test_the_segment_that_is_written_stays_and_offsets_go_on(log: SegmentLog) -> None:
    log.sync()
    log.retain(most_bytes=0, most_count=0, before_ms=1 << 50)
    assert log.segments == 1
    assert log.count > 0
    log.roll()
    log.roll()
    log.retain(most_bytes=0)
    assert (log.segments, log.count, log.nbytes, log.first_offset) == (1, 0, 0, 300)
    assert log.find(0) == 300
    for synced in (None, 300):
        again = opened(log.directory, synced)
        assert (again.first_offset, again.next_offset) == (300, 300)
    assert again.append(texts(300, 1), time_of(300)) == 300
    assert_whole(again)


def test_a_reader_in_a_removed_segment_is_told_the_first_offset(log: SegmentLog) -> None:
    log.sync()
    readers = [log.reader(1), log.reader(1, cold=True), log.reader(1)]
    for reader in readers[:2]:
        reader.read(50)
    log.retain(most_count=100)
    for reader in readers:
        with pytest.raises(OffsetGone, match="the first one there is") as told:
            reader.read(50)
        assert told.value.first_offset == log.first_offset > 0
        reader.seek(told.value.first_offset)
        assert reader.read(50)[0][0] == log.first_offset
    with pytest.raises(OffsetGone):
        log.read(0, 10)


def test_removed_files_take_no_room_though_readers_stand_in_them(log: SegmentLog) -> None:
    log.sync()
    readers = [log.reader(offset) for offset in range(0, 200, 10)]
    for reader in readers:
        reader.read(10)
    log.retain(most_count=50)
    held = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert [each for each in held if "(deleted)" in each and str(log.directory) in each] == []


def test_a_file_that_cannot_be_removed_goes_before_the_next_one(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = paths(log.directory)
    real = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self == files[0]:
            raise PermissionError(1, "Operation not permitted")
        real(self, missing_ok)

    log.sync()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        log.retain(most_count=200)
        assert log.first_offset > 0
        assert paths(log.directory) == files
        assert_whole(log)
        assert_whole(opened(log.directory))
    log.retain()
    assert paths(log.directory)[0] == log._chain.segments[0].path


def test_only_some_segments_keep_their_files_open(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentchain, "OPEN_SEGMENTS", 2)
    again = opened(log.directory, log.next_offset)
    for _ in range(2):
        for offset in range(0, 300, 20):
            again.read(offset, 10)
            open_now = [each for each in again._chain.segments if each._file is not None]
            assert len(open_now) <= 3
            assert again._chain.active._file is None or again._chain.active in open_now
    assert_whole(again)


def test_segments_that_are_not_synced_stay_open(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentchain, "OPEN_SEGMENTS", 2)
    assert_whole(log)
    assert all(each.is_pinned and each._file is not None for each in log._chain.segments)
    log.sync()
    assert [each.is_pinned for each in log._chain.segments] == [False] * (log.segments - 1) + [True]
    assert sum(each._file is not None for each in log._chain.segments) == 3
    assert_whole(log)


def test_a_log_and_its_directory_are_removed(log: SegmentLog) -> None:
    log.close()
    remove(log.directory)
    assert not log.directory.exists()
    remove(log.directory)


# --- reading without a trace


def test_a_cold_reader_has_the_kernel_drop_what_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SegmentLog.open(tmp_path, segment_bytes=3 * DROP_BYTES)
    while log.segments < 3:
        log.append([bytes(50_000)] * 10, 1)
    advice: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *what: advice.append(what))
    everything(log, 1 << 20, cold=True)
    dropped = [what for what in advice if what[2] == os.POSIX_FADV_DONTNEED]
    sizes = [path.stat().st_size for path in paths(tmp_path)]
    assert sum(nbytes for _, nbytes, _ in dropped) == sum(sizes[:2])
    assert len(dropped) >= 4
    advice.clear()
    everything(log, 1 << 20)
    assert advice == []


# --- several threads


def test_readers_and_syncs_beside_appends_and_retention(tmp_path: Path) -> None:
    log = opened(tmp_path)
    faults: list[BaseException] = []
    ended = threading.Event()

    def read() -> None:
        reader = log.reader(0)
        while not ended.is_set() or reader.offset < log.next_offset:
            try:
                for offset, _, text in reader.read(500):
                    assert text == text_of(offset)
                assert log.find(time_of(log.first_offset)) >= 0
            except OffsetGone as gone:
                reader.seek(gone.first_offset)
            except BaseException as fault:  # noqa: BLE001 - it is another thread's to say so
                faults.append(fault)
                return

    def sync() -> None:
        try:
            while not ended.is_set():
                before = log.next_offset
                assert before <= log.sync() <= log.next_offset
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    threads = [threading.Thread(target=each) for each in (read, read, sync)]
    for thread in threads:
        thread.start()
    removed = 0
    for _ in range(400):
        fill(log, 20)
        removed += log.retain(most_count=200)
    ended.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert removed > 0
    assert log.sync() == log.next_offset == 8000
    assert log._pinned() == [log._chain.active]


# --- what a start finds


def test_a_start_that_is_not_told_what_was_synced_syncs_all_of_it(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fdatasync

    def counted(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", counted)
    again = opened(log.directory)
    assert synced == [str(path) for path in paths(log.directory)]
    assert again.synced_offset == again.sync() == 300
    again = opened(log.directory, 100)
    synced.clear()
    assert again.synced_offset == 100
    assert again.sync() == 300
    assert sorted(synced) == [str(each.path) for each in again._chain.segments if each.end.next_offset > 100]
    synced.clear()
    assert again.sync() == 300
    assert synced == []


def test_a_torn_tail_is_cut_off_and_said(log: SegmentLog, caplog: pytest.LogCaptureFixture) -> None:
    log.close()
    path = paths(log.directory)[-1]
    size = path.stat().st_size
    os.truncate(path, size - 3)
    again = opened(log.directory)
    assert again.torn is not None
    assert (again.torn.file, again.torn.reason) == (path, "the file ends within a block")
    assert again.torn.nbytes == size - 3 - path.stat().st_size
    assert again.torn.position == path.stat().st_size
    assert f"cut off {again.torn.nbytes} bytes" in caplog.text
    assert again.next_offset < 300
    missing = 300 - again.next_offset
    assert again.append_from(280, texts(280, 20), time_of(280)) == missing
    assert_whole(again)
    assert opened(log.directory).torn is None


def test_zeros_at_the_end_are_cut_off(log: SegmentLog) -> None:
    path = paths(log.directory)[-1]
    size = path.stat().st_size
    os.truncate(path, size + 5000)
    again = opened(log.directory, log.next_offset)
    assert again.torn is not None
    assert (again.torn.nbytes, again.torn.position) == (5000, size)
    assert again.next_offset == 300
    assert_whole(again)


def test_several_segments_that_were_not_synced_are_cut(log: SegmentLog) -> None:
    files = paths(log.directory)
    synced = log._chain.segments[1].base + 3
    log.close()
    flip(files[2], files[2].stat().st_size - 1)
    # Without a word of what is synced only the last one may be torn.
    with pytest.raises(DamagedStore, match="no block of the stream ends") as refused:
        opened(log.directory)
    assert refused.value.file == files[2]
    again = opened(log.directory, synced)
    assert again.torn is not None
    assert again.torn.file == files[2]
    assert paths(log.directory) == files[:3]
    assert again.next_offset >= synced
    fill(again, 300 - again.next_offset)
    assert_whole(again)


def test_a_start_reads_no_old_segment(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.close()
    read: list[int] = []
    real = os.pread

    def counted(fd: int, nbytes: int, position: int) -> bytes:
        read.append(nbytes)
        return real(fd, nbytes, position)

    monkeypatch.setattr(os, "pread", counted)
    again = opened(log.directory, log.next_offset)
    assert sum(read) == 56 * again.segments
    read.clear()
    opened(log.directory)
    last = paths(log.directory)[-1].stat().st_size
    # The end of the last one tells nothing that isn't found out by reading it.
    assert sum(read) == 56 * again.segments + last


@pytest.mark.parametrize("number", [0, 3, -2])
def test_a_segment_that_is_cut_short_is_refused(log: SegmentLog, number: int) -> None:
    path = paths(log.directory)[number]
    os.truncate(path, path.stat().st_size - 8)
    before = [each.stat().st_size for each in paths(log.directory)]
    with pytest.raises(DamagedStore, match="no block of the stream ends") as refused:
        opened(log.directory)
    assert (refused.value.file, refused.value.offset) == (path, path.stat().st_size)
    assert [each.stat().st_size for each in paths(log.directory)] == before


def test_a_missing_segment_is_refused(log: SegmentLog) -> None:
    files = paths(log.directory)
    files[2].unlink()
    for synced in (None, 300):
        with pytest.raises(DamagedStore, match=r"ends with offset \d+, the next one begins") as refused:
            opened(log.directory, synced)
        assert refused.value.file == files[1]


def test_a_missing_end_is_refused_where_it_was_synced(log: SegmentLog) -> None:
    files = paths(log.directory)
    last = log._chain.active.base
    files[-1].unlink()
    with pytest.raises(DamagedStore, match=f"ends with offset {last}, though it was synced up to 300"):
        opened(log.directory, 300)
    for path in files[:-1]:
        path.unlink()
    with pytest.raises(DamagedStore, match="synced up to offset 300 and has no file"):
        opened(log.directory, 300)


def test_two_segments_that_overlap_are_refused(log: SegmentLog) -> None:
    files = paths(log.directory)
    files[4].rename(files[4].with_name(f"{log._chain.segments[4].base - 1:020d}.segment"))
    with pytest.raises(DamagedStore, match="the next one begins"):
        opened(log.directory)
    with pytest.raises(DamagedStore, match="the next one begins"):
        opened(log.directory, 0)


def test_damage_before_what_was_synced_is_refused_in_the_last_segment(log: SegmentLog) -> None:
    path = paths(log.directory)[-1]
    base = log._chain.active.base
    flip(path, 60)
    with pytest.raises(DamagedStore, match="a block's checksum is wrong") as refused:
        opened(log.directory, base + 1)
    assert (refused.value.file, refused.value.offset) == (path, 0)
    again = opened(log.directory, base)
    assert again.torn is not None
    assert again.next_offset == base


def test_damage_that_a_start_does_not_read_is_met_by_readers(log: SegmentLog) -> None:
    path = paths(log.directory)[1]
    segment = log._chain.segments[1]
    flip(path, 60)
    again = opened(log.directory, 300)
    reader = again.reader(0)
    found: list[StreamMessage] = []
    while reader.offset < segment.base:
        found += reader.read(5000)
    assert len(found) == segment.base
    for _ in range(2):
        with pytest.raises(DamagedStore, match="a block's checksum is wrong") as met:
            reader.read(5000)
        assert (met.value.file, met.value.offset) == (path, 0)
    assert again.read(again._chain.segments[2].base, 10)
    flip(path, 60)
    assert reader.read(50)[0][0] == segment.base


def test_every_flipped_bit_of_the_last_segment_is_cut_or_refused(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=1 << 20)
    fill(log, 12, at_once=4)
    path = paths(tmp_path)[0]
    data = path.read_bytes()
    begins = [match.start() for match in re.finditer(b"SLSB", data)]
    assert len(begins) > 2
    for position in range(len(data)):
        block = max(begin for begin in begins if begin <= position)
        flip(path, position)
        # Where all was synced a start need not read it, and then readers meet it.
        with pytest.raises(DamagedStore) as refused:
            everything(opened(tmp_path, 12))
        if position < len(data) - 8:
            assert (refused.value.file, refused.value.offset) == (path, block)
        again = opened(tmp_path, 0)
        assert again.torn is not None
        assert (again.torn.position, path.stat().st_size) == (block, block)
        assert_whole(again)
        path.write_bytes(data)


def test_a_block_of_a_newer_format_is_not_cut_off(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 2)
    data = bytearray(encode([b"x"], 2, 1, 1, 100)[0])
    data[4] = 2
    data[44:48] = crc32c(bytes(data[:44])).to_bytes(4, "little")
    path = paths(tmp_path)[0]
    path.write_bytes(path.read_bytes() + data)
    size = path.stat().st_size
    with pytest.raises(OperatorError, match="format 2, this broker reads 1"):
        opened(tmp_path)
    assert path.stat().st_size == size


def test_other_files_in_the_directory_are_left_alone(log: SegmentLog) -> None:
    (log.directory / "notes.txt").write_text("mine")
    (log.directory / "5.segment").write_text("not a log's")
    assert_whole(opened(log.directory))
