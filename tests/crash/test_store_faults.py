"""One call of the disk's fails, at one moment, in one way: what was told stays true whatever it was.

A store works in a process of its own (``tests.crash.storing``), is killed or stopped, and is opened again
on a disk that works. A lack of room passes by itself; any other fault leaves the store failed, and then
nothing on disk changes any more.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.store.disk import DiskStore
from broker.store.pages import StoredPage, messages_of
from broker.store.port import FAILED, WRITING
from tests.crash.shim import Shim

ROOM = (errno.ENOSPC, errno.EDQUOT)
EIO = errno.EIO
# Where a fault strikes: the call, what is in the path, how many such calls pass first.
COMMIT = [("pwrite", "directory.mdb", passed) for passed in (*range(8), *range(12, 17), 40, 41)]
SWEEP = [
    *COMMIT,
    *(("sync", "directory.mdb", passed) for passed in (0, 3)),
    *(("pwrite", "data/pages", passed) for passed in (0, 7, 25)),
    *(("sync", "data/pages", passed) for passed in (0, 2)),
    *(("rename", "spare-", passed) for passed in (0, 1, 3, 5)),
    *(("rename", "journal-", passed) for passed in (0, 3)),
    ("ftruncate", "data/pages", 0),
    *(("pwrite", "spare-", passed) for passed in (0, 1)),
    ("sync", "spare-", 0),
    *(("fallocate", "data", passed) for passed in (0, 2)),
]


@dataclass
class Told:
    """What the store said was on disk, and what the books can't tell."""

    kept: set[tuple[str, int]] = field(default_factory=set)
    going: set[tuple[str, int]] = field(default_factory=set)
    gone: list[tuple[str, int, int]] = field(default_factory=list)
    noted: int = -1
    state: list[str] = field(default_factory=list)
    fired: bool = False

    @classmethod
    def of(cls, text: str) -> Told:
        """From what the process wrote."""
        told = cls()
        for line in text.splitlines():
            what, *rest = line.split()
            if what == "noted":
                told.noted = int(rest[0])
            elif what == "state":
                told.state.append(rest[0])
            elif what == "fired":
                told.fired = True
            elif what == "kept" and rest[0] != "off":
                told.kept |= {(rest[0], seq) for seq in range(int(rest[1]), int(rest[2]) + 1)}
            elif what == "going":
                told._take(rest)
            elif what == "gone":
                told._take(rest)
                told.gone.append((rest[0], int(rest[1]), int(rest[2])))
        return told

    def _take(self, rest: list[str]) -> None:
        first, last = int(rest[1]), int(rest[2])
        self.kept = {(name, seq) for name, seq in self.kept if name != rest[0] or not first <= seq <= last}


def worked(shim: Shim, data: Path, end: str, fault: str = "", text: str = "") -> Told:
    """Let a store work on the directory."""
    command = [sys.executable, "-m", "tests.crash.storing", str(data), str(shim.control), end]
    done = subprocess.run(
        [*command, *([fault, text] if fault else [])],
        env=os.environ | shim.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return Told.of(done.stdout)


def found_in(data: Path) -> tuple[set[tuple[str, int]], int]:
    """Every message, by shelf and number, and what the note says."""
    store = DiskStore.open(data, file_bytes=1 << 20)
    found: set[tuple[str, int]] = set()
    try:
        for each in store.recovered.shelves:
            for part in each.parts:
                messages = part
                if isinstance(part, StoredPage):
                    messages = messages_of(each.shelf, store.load(each.shelf, part))
                assert not isinstance(messages, StoredPage)
                found |= {(each.name, message[0]) for message in messages}
        return found, int(store.recovered.notes.get("round", b"-1"))
    finally:
        store.abandon()


def assert_true(told: Told, data: Path) -> None:
    """All that was told is so, twice."""
    for _ in range(2):
        found, noted = found_in(data)
        lost = told.kept - found
        back = {(n, seq) for n, seq in found for name, a, b in told.gone if n == name and a <= seq <= b}
        assert not lost, f"{len(lost)} lost, such as {min(lost)}"
        assert not back, f"{len(back)} came back, such as {min(back)}"
        assert noted >= told.noted


def struck(folder: Path, call: str, part: str, passed: int, error: int, end: str) -> Told:
    """A fault at one place; all that was told before and after is true."""
    data = folder / "data"
    shim = Shim(folder, data)
    told = worked(shim, data, end, f"fail-{call}", f"{error} {part} once {passed}")
    assert_true(told, data)
    assert "rose" not in told.state, "something was confirmed after the failure"
    return told


@pytest.mark.parametrize(
    ("call", "part", "passed", "error", "end", "state"),
    [
        ("pwrite", "directory.mdb", 12, EIO, "KILL", FAILED),
        ("pwrite", "directory.mdb", 16, EIO, "CLOSE", FAILED),
        # It may be the page that commits, or one that nothing refers to until then.
        ("pwrite", "directory.mdb", 12, errno.ENOSPC, "KILL", ""),
        ("sync", "data/pages", 0, errno.ENOSPC, "KILL", FAILED),
        ("pwrite", "data/pages", 7, errno.EDQUOT, "KILL", WRITING),
        ("rename", "spare-", 5, errno.ENOSPC, "KILL", WRITING),
        ("rename", "spare-", 5, EIO, "CLOSE", WRITING),
        ("ftruncate", "data/pages", 0, errno.ENOSPC, "KILL", WRITING),
    ],
)
def test_one_fault(
    tmp_path: Path, call: str, part: str, passed: int, error: int, end: str, state: str
) -> None:
    told = struck(tmp_path, call, part, passed, error, end)
    # Whether a tail is cut off before the end depends on when messages moved to pages.
    assert told.fired or call == "ftruncate"
    assert told.state == [state] or not state


@pytest.mark.soak
@pytest.mark.timeout(120)
@pytest.mark.parametrize("end", ["KILL", "CLOSE"])
@pytest.mark.parametrize("error", [EIO, *ROOM], ids=["EIO", "ENOSPC", "EDQUOT"])
@pytest.mark.parametrize(("call", "part", "passed"), SWEEP)
def test_every_fault(tmp_path: Path, call: str, part: str, passed: int, error: int, end: str) -> None:
    told = struck(tmp_path, call, part, passed, error, end)
    assert told.fired or call == "ftruncate"
    # A sync is never tried again, and of an error that is no lack of room nobody knows what it did; what is
    # only given back may be given back later.
    lenient = call in ("unlink", "ftruncate", "fallocate") or (call, part) == ("rename", "spare-")
    fatal = not lenient and (error == EIO or (call, part) == ("sync", "data/pages"))
    if call == "pwrite" and part == "directory.mdb" and error != EIO:
        assert told.state in ([WRITING], [FAILED]), "unless it was the page that commits"
    else:
        assert told.state == [FAILED if fatal else WRITING]
