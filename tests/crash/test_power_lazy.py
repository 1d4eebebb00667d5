"""Power loss under lazy journals: a prefix of the replicated log is left, at least as far as was synced.

An owner and a standby work with every write and sync recorded; from the record both directories are rebuilt
as a power loss at any moment could have left them, their unsynced writes lost one by one
(tests/crash/replaying). ``-s`` shows the counts.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker.store.faults import DamagedStore
from tests.crash.replaying import SYNC, Disk, events
from tests.crash.shim import Shim
from tests.store.replicas import Contents, read_directory

GROUPS = 150
CUTS = 40
# Every so many of what is left are opened twice.
AGAIN = 4
NAMES = ("owner", "cache")
# Mapped into memory, or empty: not written as files are, and made anew at a start.
UNRECORDED = ("directory.mdb-lock", "lock")


class LazyRecording:
    """What a process wrote, what it said meanwhile, and what the log's groups amount to."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        written, states = folder / "writes", folder / "states"
        written.touch()
        shim = Shim(folder, self.data)
        words = [str(each) for each in (self.data, written, states, seed, GROUPS)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.crash.following", *words],
            env=os.environ | shim.env | {"SHIM_LOG": str(written)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        self.states: dict[int, Contents] = pickle.loads(states.read_bytes())
        self.happened = [event for event in events(written) if "/temp/" not in event.path]
        # How far the record was when it was told; of the log, or of one directory.
        self.acked: list[tuple[int, int]] = []
        self.synced: dict[str, list[tuple[int, int]]] = {name: [] for name in NAMES}
        for line in done.stdout.splitlines():
            what, *rest = line.split()
            if what == "acked":
                self.acked.append((int(rest[1]), int(rest[0])))
            elif what == "synced":
                self.synced[rest[0]].append((int(rest[2]), int(rest[1])))


def last_told(told: list[tuple[int, int]], position: int) -> int:
    """The last group that this was told of by then."""
    return max((group for at, group in told if at <= position), default=0)


def without_what_is_ahead(found: Contents, there: Contents) -> Contents:
    """Return what was found without the last messages of streams that are ahead of the journal.

    A stream's segments may be on disk before the journal is; what they have came from the log all the same.
    """
    shelves, notes = found
    cut = {}
    for number, (name, definition, last_seq, messages) in shelves.items():
        known = there[0].get(number)
        if known is not None and name.startswith("s") and last_seq > known[2]:
            assert [each[0] for each in messages] == list(range(1, last_seq + 1))
            last_seq, messages = known[2], messages[: known[2]]
        cut[number] = (name, definition, last_seq, messages)
    return cut, notes


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 60))]
)
def test_every_moment_of_power_loss_leaves_a_prefix_of_the_log(tmp_path: Path, seed: int) -> None:
    recording = LazyRecording(tmp_path, seed)
    happened = recording.happened
    assert sum(event.type == SYNC for event in happened) > 30
    dice = random.Random(seed)
    disk = Disk()
    position = refused = behind = opened = 0
    for cut in sorted(dice.sample(range(1, len(happened)), CUTS)):
        while position < cut:
            disk.apply(happened[position])
            position += 1
        end = happened[cut - 1].end
        rebuilt = tmp_path / "rebuilt"
        shutil.rmtree(rebuilt, ignore_errors=True)
        for path, left in disk.left(dice).items():
            file = rebuilt / Path(path).relative_to(recording.data)
            if file.name not in UNRECORDED:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(left)
        for name in NAMES:
            if not (rebuilt / name / "directory.mdb").exists():
                continue
            try:
                group, found = read_directory(rebuilt / name)
            except DamagedStore:
                refused += 1
                continue
            opened += 1
            assert without_what_is_ahead(found, recording.states[group]) == recording.states[group], (
                "neither a prefix nor refused"
            )
            acked = last_told(recording.acked, end)
            assert last_told(recording.synced[name], end) <= group <= acked
            behind += group < acked
            # What came back is built upon: a second start finds the same.
            if opened % AGAIN == 0:
                assert read_directory(rebuilt / name) == (group, found)
    print(f"\nseed {seed}: {opened} opened, {behind} of them behind the log, {refused} refused")
    assert opened > CUTS
    assert behind > 0, "nothing was lost: the journal isn't lazy"
    # The model of the disk keeps what was synced, so nothing can be missing that anything says was there.
    assert refused == 0
