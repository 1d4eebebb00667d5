"""Bodies of large messages on their way to the log and out of it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from broker.cluster.bodies import MOST_NUMBER, OWNERS, BodyStore, ReplicatedLargeFiles
from broker.store.largefiles import LargeFile, WritingFile, body_key
from tests.cluster.memory_log import MemoryEngine, MemoryLog


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def bodies(engine: MemoryEngine) -> Iterator[BodyStore]:
    made = BodyStore(MemoryLog(engine))
    yield made
    made.stop()


def file_of(path: Path, number: int, data: bytes) -> LargeFile:
    """Make a file."""
    path.write_bytes(data)
    return LargeFile(number, path, len(data), 7)


def test_a_file_is_told_once_the_log_has_it(engine: MemoryEngine, bodies: BodyStore, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    file = file_of(tmp_path / "1", 1, data)
    told: queue.Queue[Exception | None] = queue.Queue()
    engine.down = True
    bodies.put(file, told.put)
    with pytest.raises(queue.Empty):
        told.get(timeout=0.1)
    engine.down = False
    assert told.get(timeout=10) is None
    assert b"".join(engine.bodies[body_key(file)]) == data
    bodies.drop(file)
    until(lambda: not engine.bodies, "the body to go")


def test_a_file_that_is_gone_is_told_as_a_fault(bodies: BodyStore, tmp_path: Path) -> None:
    told: queue.Queue[Exception | None] = queue.Queue()
    bodies.put(LargeFile(1, tmp_path / "none", 5, 7), told.put)
    assert isinstance(told.get(timeout=10), FileNotFoundError)


def test_bodies_that_nobody_names_are_taken_out(
    engine: MemoryEngine, bodies: BodyStore, tmp_path: Path
) -> None:
    kept = file_of(tmp_path / "1", 1, b"kept")
    engine.bodies = {body_key(kept): [b"kept"], "00000002-5-00000007": [b"left behind"]}
    bodies.keep_only([kept], lambda: True)
    until(lambda: list(engine.bodies) == [body_key(kept)], "one body")


def test_one_whose_lease_is_over_takes_nothing_out(
    engine: MemoryEngine, bodies: BodyStore, tmp_path: Path
) -> None:
    """It was held up, and the next owner has put bodies that its notes don't name."""
    engine.bodies = {"00000002-5-00000007": [b"of the next owner"]}
    bodies.keep_only([], lambda: False)
    done = threading.Event()
    bodies._asked.put(done.set)
    assert done.wait(10)
    assert list(engine.bodies) == ["00000002-5-00000007"]


class Files:
    """An owner's large files; what is posted to its loop runs here, when it is told to."""

    def __init__(
        self, directory: Path, bodies: BodyStore, epoch: int = 1, keep: Collection[int] = ()
    ) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.files = ReplicatedLargeFiles(directory, self.posted.put, keep, bodies, epoch)
        self.finished: list[tuple[int, Exception | None]] = []

    def run_one(self) -> None:
        """Run what was posted first."""
        self.posted.get(timeout=10)()


@pytest.fixture
def files(tmp_path: Path, bodies: BodyStore) -> Iterator[Files]:
    made = Files(tmp_path / "data", bodies)
    yield made
    made.files.close()


def test_a_durable_one_is_finished_once_the_log_has_it_and_not_before(
    engine: MemoryEngine, files: Files
) -> None:
    engine.down = True
    done = threading.Event()

    def finished(number: int, checksum: int, fault: Exception | None) -> None:
        files.finished.append((number, fault))
        done.set()

    writing = files.files.begin(True, lambda count, fault: None, finished)
    writing.write(b"large")
    writing.finish()
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        try:
            files.posted.get(timeout=0.05)()
        except queue.Empty:
            continue
    assert files.finished == []
    engine.down = False
    while not done.is_set():
        files.run_one()
    assert files.finished == [(1, None)]
    assert [b"".join(each) for each in engine.bodies.values()] == [b"large"]


def test_one_that_needn_t_survive_never_goes_to_the_log(engine: MemoryEngine, files: Files) -> None:
    done = threading.Event()
    writing = files.files.begin(False, lambda count, fault: None, lambda *told: done.set())
    writing.write(b"large")
    writing.finish()
    while not done.is_set():
        files.run_one()
    assert not engine.bodies


def bodies_are_done(files: Files) -> None:
    """Wait until the thread of the bodies has done what it was asked for."""
    done = threading.Event()
    files.files._bodies._asked.put(done.set)
    assert done.wait(10)


def test_one_that_was_dropped_meanwhile_leaves_the_log_again(engine: MemoryEngine, files: Files) -> None:
    def finished(*told: object) -> None:
        files.finished.append((0, None))

    writing = files.files.begin(True, lambda count, fault: None, finished)
    writing.write(b"large")
    writing.finish()
    # That a piece is written, and that the file is.
    files.run_one()
    files.run_one()
    until(lambda: engine.bodies, "the body in the log")
    bodies_are_done(files)
    writing.drop()
    # The answers have been posted, and are run only now.
    while not files.posted.empty():
        files.run_one()
    bodies_are_done(files)
    assert not engine.bodies
    assert files.finished == []


def test_a_deposed_owner_takes_no_body_of_the_next_ones_out(
    engine: MemoryEngine, files: Files, tmp_path: Path
) -> None:
    """Both are sent the same bytes, as a client does that had no outcome, and give them their next number."""

    def write(files: Files) -> WritingFile:
        writing = files.files.begin(
            True, lambda count, fault: None, lambda number, *told: files.finished.append((number, None))
        )
        writing.write(b"the same")
        writing.finish()
        files.run_one()
        files.run_one()
        return writing

    # The log has the first one's, which hears of it only after it was held up.
    late = write(files)
    until(lambda: files.posted.qsize() == 1, "the first owner's answer")
    bodies = BodyStore(MemoryLog(engine))
    following = Files(tmp_path / "next", bodies, epoch=2)
    write(following)
    following.run_one()
    [(number, _)] = following.finished
    late.drop()
    files.run_one()
    bodies_are_done(files)
    assert [key.partition("-")[0] for key in engine.bodies] == [f"{number:08d}"]
    following.files.close()
    bodies.stop()


def test_numbers_of_successive_owners_differ_and_begin_again_where_there_are_no_more(
    bodies: BodyStore, tmp_path: Path
) -> None:
    def numbers(epoch: int, last: int) -> list[int]:
        folder = tmp_path / f"{epoch}-{last}"
        made = Files(folder, bodies, epoch, [last])
        # This one is there still.
        (folder / "large" / f"{epoch:08d}").touch()
        found = [made.files.begin(False, lambda *told: None, lambda *told: None).number for _ in range(3)]
        made.files.close()
        return found

    every = [number for epoch in range(1, OWNERS + 1) for number in numbers(epoch, 100)]
    assert len(set(every)) == 3 * OWNERS
    assert min(every) > 100
    assert numbers(5, MOST_NUMBER) == [5 + OWNERS, 5 + 2 * OWNERS, 5 + 3 * OWNERS]
    assert numbers(16, MOST_NUMBER) == [32, 48, 64]
