"""Bodies of large messages on their way to the log and out of it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.cluster.bodies import BodyStore, ReplicatedLargeFiles
from broker.store.largefiles import LargeFile, body_key
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
    bodies.keep_only([kept])
    until(lambda: list(engine.bodies) == [body_key(kept)], "one body")


class Files:
    """An owner's large files; what is posted to its loop runs here, when it is told to."""

    def __init__(self, directory: Path, bodies: BodyStore) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.files = ReplicatedLargeFiles(directory, self.posted.put, (), bodies)
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
