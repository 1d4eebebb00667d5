"""A disk with faults under a stream's writer: a lack of room passes, anything else ends the writing at once.

Once with calls that fail at one moment (tests/crash/shim.c), and on file systems and in files that really
have no room.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from broker.store.faults import SyncFault, is_lack_of_room
from broker.store.segments import SegmentLog
from tests.crash.segmenting import BLOCK_BYTES, SEGMENT_BYTES
from tests.crash.shim import Shim
from tests.crash.test_full_disk import Ballast, disk
from tests.store.streams import assert_whole, fill, opened, texts, time_of

__all__ = ["disk"]

EIO = errno.EIO
MOST = 8000
# Where a fault strikes: the call, and how many such calls pass first.
FEW = [("pwrite", 5), ("sync", 0), ("ftruncate", 0), ("unlink", 0)]
SWEEP = [("pwrite", 0), ("pwrite", 40), ("sync", 3), ("unlink", 1), ("unlink", 5)]
FAULTS = [
    *((*where, error) for where in FEW for error in (EIO, errno.ENOSPC)),
    *(pytest.param(*where, errno.EDQUOT, marks=pytest.mark.soak) for where in FEW),
    *(
        pytest.param(*where, error, marks=pytest.mark.soak)
        for where in SWEEP
        for error in (EIO, errno.ENOSPC, errno.EDQUOT)
    ),
]


class Told:
    """What a writer said before it ended."""

    def __init__(self, folder: Path, faults: dict[str, str], seed: int) -> None:
        self.directory = folder / "stream"
        shim = Shim(folder, self.directory)
        for fault, text in faults.items():
            shim.on(fault, text)
        command = [sys.executable, "-m", "tests.crash.segmenting", str(self.directory), "0", str(seed)]
        done = subprocess.run(
            [*command, str(MOST), "alone"],
            env=os.environ | shim.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        self.said = [line.split() for line in done.stdout.splitlines()]
        hits = shim.control / "hits"
        self.hits = hits.read_text().splitlines() if hits.exists() else []
        numbers = [int(each[1]) for each in self.said if each[0] in ("appended", "failed")]
        self.next = max(numbers, default=0)
        self.synced = max((int(each[1]) for each in self.said if each[0] == "synced"), default=0)

    def words(self, word: str) -> list[list[str]]:
        return [each for each in self.said if each[0] == word]


def assert_true(told: Told) -> None:
    """All that was told is there, and nothing was appended behind a failure."""
    assert not told.words("worked")
    log = SegmentLog.open(
        told.directory, synced=told.synced, segment_bytes=SEGMENT_BYTES, block_bytes=BLOCK_BYTES
    )
    assert log.next_offset == told.next
    assert_whole(log)
    assert log.append_from(told.next, texts(told.next, 5), time_of(told.next)) == 5
    assert_whole(log)
    log.close()


@pytest.mark.parametrize(("call", "passed", "error"), FAULTS)
def test_one_call_fails(tmp_path: Path, call: str, passed: int, error: int) -> None:
    faults = {f"fail-{call}": f"{error} .segment once {passed}"}
    if call == "ftruncate":
        # It is only called behind a write that had no room.
        faults["fail-pwrite"] = f"{errno.ENOSPC} .segment once 4"
    told = Told(tmp_path, faults, seed=passed)
    assert_true(told)
    assert any(hit.startswith(call) for hit in told.hits)
    # A file that can't be removed goes later; behind a failed sync, or a write that can't be taken back,
    # nobody knows what is on disk.
    is_fatal = call != "unlink" and (call != "pwrite" or error == EIO)
    assert bool(told.words("failed")) == is_fatal
    assert told.next >= MOST or is_fatal
    assert bool(told.words("full")) == (call == "pwrite" and error != EIO)


def test_room_that_comes_and_goes(tmp_path: Path) -> None:
    told = Told(tmp_path, {"fail-pwrite": f"{errno.ENOSPC} .segment once 3"}, seed=1)
    assert len(told.words("full")) == 1
    full = int(told.words("full")[0][1])
    assert told.next >= MOST > full
    assert_true(told)


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, bytes(data)[:7], position))
    log = opened(tmp_path)
    fill(log, 50)
    assert_whole(log)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: 0)
    with pytest.raises(SyncFault, match="Input/output error"):
        log.append([b"x"], 1)
    with pytest.raises(SyncFault):
        log.append([b"x"], 1)
    assert_whole(opened(tmp_path))


def test_a_short_read_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    fill(log, 50)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, nbytes, position: real(fd, min(nbytes, 7), position))
    assert_whole(log)
    assert_whole(opened(tmp_path))


def test_a_read_that_fails_leaves_the_reader_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    fill(log, 50)
    reader = log.reader(3)

    def fail(fd: int, nbytes: int, position: int) -> bytes:
        raise OSError(EIO, os.strerror(EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        with pytest.raises(OSError, match="Input/output"):
            reader.read(100)
    assert reader.read(100)[0][0] == 3
    assert log.append(texts(50, 1), time_of(50)) == 50


def test_a_full_file_system(disk: Path) -> None:
    log = SegmentLog.open(disk / "stream", segment_bytes=1 << 20)
    room = Ballast(disk)
    fill(log, 1000, at_once=100)
    room.take()
    # A part of the last block may still find room.
    with pytest.raises(OSError, match="No space left"):
        fill(log, 200_000, at_once=100)
    before = log.next_offset
    for _ in range(3):
        with pytest.raises(OSError, match="No space left") as refused:
            log.append(texts(before, 500), time_of(before))
        assert is_lack_of_room(refused.value)
        assert log.next_offset == before
        assert log.nbytes == sum(path.stat().st_size for path in (disk / "stream").iterdir())
    assert_whole(log)
    assert_whole(opened(disk / "stream"))
    room.give()
    fill(log, 5000, at_once=100)
    assert log.sync() == log.next_offset
    assert_whole(log)
    log.close()


def test_a_file_that_may_not_grow_ends_it(tmp_path: Path) -> None:
    """EFBIG isn't a lack of room that passes: nothing is appended behind it, and what is there is whole."""
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from broker.store.faults import SyncFault\n"
        "from tests.store.streams import fill, opened\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))\n"
        "log = opened(Path(sys.argv[1]), segment_bytes=1 << 20)\n"
        "try:\n"
        "    fill(log, 100_000)\n"
        "except SyncFault as fault:\n"
        "    print(log.next_offset, fault)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "stream")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "File too large" in done.stdout, done.stderr
    log = opened(tmp_path / "stream")
    # Of the append that failed, whole blocks may be there; the one that had no room is cut off.
    assert 0 <= log.next_offset - int(done.stdout.split()[0]) < 5
    assert log.torn is not None
    assert_whole(log)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
