"""The file of events: it begins anew when it is large, survives a full disk, and nobody waits for it."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.manage.events import log as module
from broker.manage.events.log import EventLog
from broker.manage.events.writer import EventWriter

pytestmark = pytest.mark.flow


WAIT_S = 30.0


def line(seq: int, text: str = "x") -> module.Line:
    return seq, seq * 1000, f'{{"seq":{seq},"text":"{text}"}}\n'.encode()


def lost(seq: int, now_ns: int, count: int) -> bytes:
    return f'{{"seq":{seq},"lost":{count}}}\n'.encode()


def numbers(text: str) -> list[int]:
    return [json.loads(each)["seq"] for each in text.splitlines()]


def told(path: Path) -> list[int]:
    """The numbers in a file that is not being written; every line of it is whole."""
    return numbers(path.read_text())


def so_far(path: Path) -> list[int]:
    """The numbers of whole lines: half of a write may be seen. None while it makes room for a new file."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return numbers(text[: text.rfind("\n") + 1])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., EventLog]]:
    """Logs on ``tmp_path/flow.jsonl``, stopped at the end."""
    started: list[EventLog] = []

    def make(max_bytes: int = 1 << 20, keep: int = 2) -> EventLog:
        started.append(EventLog(tmp_path / "flow.jsonl", max_bytes, keep, lost))
        return started[-1]

    yield make
    for each in started:
        each.stop(WAIT_S)


class Disk:
    """``os.write`` as a test wants it: it may refuse, write half of it, or not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 40
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(module, "RETRY_S", 0.01)

    def write(self, fd: int, data: bytes) -> int:
        self.asked.set()
        assert self.answers.wait(2 * WAIT_S)
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = self._write(fd, data[: self.room])
        self.room -= done
        return done


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_lines_are_in_the_file_when_it_has_stopped(start: Callable[..., EventLog], tmp_path: Path) -> None:
    log = start()
    log.offer([line(1), line(2)])
    log.offer([line(3)])
    log.stop(WAIT_S)
    assert told(tmp_path / "flow.jsonl") == [1, 2, 3]


def test_a_large_file_becomes_an_older_one_and_the_oldest_goes(
    start: Callable[..., EventLog], tmp_path: Path
) -> None:
    log = start(max_bytes=4096, keep=2)
    path = tmp_path / "flow.jsonl"
    for seq in range(1, 6):
        log.offer([line(seq, "x" * 5000)])
        wait_until(lambda seq=seq: so_far(path)[-1:] == [seq])  # type: ignore[misc]
    assert {each.name: told(each) for each in tmp_path.iterdir()} == {
        "flow.jsonl": [5],
        "flow.jsonl.1": [4],
        "flow.jsonl.2": [3],
    }


def test_none_is_kept_where_none_is_wanted(start: Callable[..., EventLog], tmp_path: Path) -> None:
    log = start(max_bytes=4096, keep=0)
    for seq in (1, 2):
        log.offer([line(seq, "x" * 5000)])
        wait_until(lambda: not log._lines and log._size > 5000)
    log.stop(WAIT_S)
    assert [each.name for each in tmp_path.iterdir()] == ["flow.jsonl"]
    assert told(tmp_path / "flow.jsonl") == [2]


@pytest.mark.parametrize("torn", ["", '{"seq":2,"te', "x" * 200_000])
def test_a_line_that_was_cut_short_is_taken_off(
    start: Callable[..., EventLog], tmp_path: Path, torn: str
) -> None:
    path = tmp_path / "flow.jsonl"
    path.write_bytes(line(1)[2] + torn.encode())
    log = start()
    log.offer([line(3)])
    log.stop(WAIT_S)
    assert told(path) == [1, 3]


def test_a_full_disk_loses_no_line_that_the_buffer_holds(
    start: Callable[..., EventLog], disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = start()
    path = tmp_path / "flow.jsonl"
    disk.room = 30
    log.offer([line(1)])
    log.offer([line(2), line(3)])
    wait_until(lambda: disk.room == 0 and "can't be written" in caplog.text)
    # What was written of a line that didn't fit is no line.
    wait_until(lambda: path.read_bytes()[-1:] in (b"", b"\n"))
    disk.room = 1 << 20
    wait_until(lambda: so_far(path) == [1, 2, 3])
    assert told(path) == [1, 2, 3]
    assert caplog.text.count("can't be written") == 1


def test_a_disk_that_does_not_answer_keeps_nobody_waiting(
    start: Callable[..., EventLog], disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 10)
    log = start()
    disk.answers.clear()
    log.offer([line(1)])
    assert disk.asked.wait(WAIT_S)
    # The thread hangs in a write: whoever offers goes on all the same.
    for seq in range(2, 102):
        log.offer([line(seq)])
    assert log.lost_total == 90
    disk.answers.set()
    path = tmp_path / "flow.jsonl"
    wait_until(lambda: so_far(path)[-1:] == [101])
    assert told(path) == [*range(1, 12), 101]
    assert json.loads(path.read_text().splitlines()[-1]) == {"seq": 101, "lost": 90}
    log.offer([line(102)])
    wait_until(lambda: so_far(path)[-1:] == [102])


def test_a_stop_does_not_wait_for_ever(start: Callable[..., EventLog], disk: Disk) -> None:
    log = start()
    disk.answers.clear()
    log.offer([line(1)])
    assert disk.asked.wait(WAIT_S)
    log.stop(0.05)
    assert log._thread.is_alive(), "the disk hasn't answered yet"
    disk.answers.set()


def test_a_place_that_cannot_be_opened_is_tried_again(
    start: Callable[..., EventLog], disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "flow.jsonl"
    path.mkdir()
    log = start()
    log.offer([line(1)])
    wait_until(lambda: "can't be written" in caplog.text)
    path.rmdir()
    wait_until(lambda: path.is_file() and so_far(path) == [1])


def test_the_teller_keeps_the_last_events_and_the_last_samples_apart() -> None:
    published: list[bytes] = []
    teller = EventWriter(0, published.extend)
    teller.give([(1, "stopping", 5, None, {})], True)
    teller.give([(n, "sample", n, "orders", {}) for n in range(2, 3000)], False)
    teller.stop(WAIT_S)
    assert len(published) == 1
    assert [json.loads(text)["seq"] for text in teller.recent(3, True)] == [2997, 2998, 2999]
    assert [json.loads(text)["seq"] for text in teller.recent(10, False)] == [1]
    assert teller.recent(0, True) == []


def test_times_are_utc_to_the_millisecond() -> None:
    teller = EventWriter(1_700_000_000_123_000_000, lambda messages: None)
    event = json.loads(teller.line((1, "stopping", 2_000_999_999, None, {})))
    teller.stop(WAIT_S)
    assert event["time"] == "2023-11-14T22:13:22.123Z"
    assert list(event) == ["v", "seq", "time", "mono_ns", "event", "node"]


def test_no_field_can_keep_an_event_from_being_told() -> None:
    teller = EventWriter(0, lambda messages: None)
    event = json.loads(teller.line((1, "slow_consumer", 1, "half \ud800", {"link": {"not": {"json"}}})))
    teller.stop(WAIT_S)
    assert event["node"] == "half ?"
