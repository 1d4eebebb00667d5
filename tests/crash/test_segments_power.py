"""Power loss under a stream's log: all that a sync had confirmed is there, the rest can be appended again.

A writer's every write, sync and name is recorded over some lives, and the directory is rebuilt as a power
loss at any moment could have left it (tests/crash/replaying).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store.segments import SegmentLog
from tests.crash.replaying import CREATE, UNLINK, Disk, Event, events
from tests.crash.segmenting import BLOCK_BYTES, SEGMENT_BYTES
from tests.crash.shim import Shim
from tests.store.streams import assert_whole, texts, time_of

LIVES = 3
# Messages of one life.
MOST = 40_000


class Recording:
    """What was written in some lives of a writer, each killed, and when it was told what.

    ``synced``: (length of the record, offset). ``kept``: (length of the record, the first offset at most).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "data" / "stream"
        self.shim = Shim(folder, folder / "data")
        self.disk = Disk()
        self.happened: list[Event] = []
        self.synced = [(0, 0)]
        self.kept: list[tuple[int, int]] = []
        self.base = 0

    def live(self, number: int, seconds: float) -> None:
        """Run a writer for a while, and kill it."""
        log = self.folder / f"writes-{number}"
        log.touch()
        known = self.synced[-1][1]
        arguments = [str(self.directory), str(known), str(number), str(known + MOST)]
        # In some lives syncs are under way beside appends, in others between them.
        arguments.append("alone" if number % 2 else "beside")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.segmenting", *arguments],
            env=os.environ | self.shim.env | {"SHIM_LOG": str(log)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        for line in process.stdout.read().decode().splitlines():
            word, *numbers = line.split()
            if word == "synced":
                self.synced.append((self.base + int(numbers[1]), int(numbers[0])))
            elif word == "appended":
                self.kept.append((self.base + int(numbers[2]), int(numbers[1])))
        process.wait()
        process.stdout.close()
        self._follow(log)

    def _follow(self, log: Path) -> None:
        """Have the model do what the writer did; it is told of what a kill kept from the record."""
        for event in events(log):
            event.end += self.base
            self._happen(event)
        self.disk.restart()
        self.base += log.stat().st_size
        there = {str(file) for file in self.directory.iterdir()}
        for name in sorted(there ^ set(self.disk.names)):
            self._happen(Event(CREATE if name in there else UNLINK, name, 0, b"", self.base))
        for file in sorted(self.directory.iterdir()):
            for event in self.disk.unseen(str(file), file.read_bytes()):
                event.end = self.base
                self._happen(event)
        # From here on syncs that were under way never end.
        self.happened.append(Event(0, "", 0, b"", self.base))

    def _happen(self, event: Event) -> None:
        self.happened.append(event)
        self.disk.apply(event)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    made = Recording(tmp_path_factory.mktemp("segments"))
    number = 0
    while number < LIVES or (len(made.synced) < 30 and number < 30):
        made.live(number, 0.7)
        number += 1
    return made


def rebuilt(recording: Recording, cuts: list[int], dice: random.Random) -> Iterator[tuple[Path, int]]:
    """The directory as each cut could leave it, and how long the record was by then."""
    disk = Disk()
    position = 0
    for cut in cuts:
        for event in recording.happened[position:cut]:
            if event.type == 0:
                disk.restart()
            else:
                disk.apply(event)
        position = cut
        directory = recording.folder / "rebuilt"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for path, left in disk.left(dice).items():
            (directory / Path(path).name).write_bytes(left)
        yield directory, recording.happened[cut - 1].end if cut else 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.soak)])
def test_every_moment_of_power_loss_leaves_what_was_synced(recording: Recording, count: int) -> None:
    seed = 5
    dice = random.Random(seed)
    happened = recording.happened
    cuts = sorted(dice.sample(range(len(happened) + 1), min(count, len(happened))))
    torn = several = lost = 0
    for directory, told in rebuilt(recording, cuts, dice):
        known = max(offset for at, offset in recording.synced if at <= told)
        first = next((offset for at, offset in recording.kept if at > told), recording.kept[-1][1])
        files = len(list(directory.iterdir()))
        for again in range(2):
            log = SegmentLog.open(
                directory, synced=known, segment_bytes=SEGMENT_BYTES, block_bytes=BLOCK_BYTES
            )
            assert log.next_offset >= known
            assert log.first_offset <= max(first, 0)
            if again == 0:
                torn += log.torn is not None
                several += log.segments < files
            else:
                assert log.torn is None, "the second start found something else"
            assert_whole(log)
            log.close()
        lost += log.next_offset > known
        # As the journal's replay does, in blocks of its own.
        log = SegmentLog.open(directory, synced=known, segment_bytes=SEGMENT_BYTES, block_bytes=BLOCK_BYTES)
        for offset in range(max(known, log.first_offset), log.next_offset + 100, 17):
            log.append_from(offset, texts(offset, 17), time_of(offset))
        assert_whole(log)
        log.close()
    removed = sum(event.type == UNLINK for event in happened)
    print(
        f"\nseed {seed}, {len(cuts)} cuts of {len(happened):,} writes and syncs: {torn} torn tails,"
        f" {several} of them over several files; {removed} files removed on the way"
    )
    assert torn > several > 0
    assert removed > 0
    assert lost > 0, "nothing but what was synced was ever there"
