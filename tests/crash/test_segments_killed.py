"""kill -9 of a stream's writer: no hole, no offset twice, all that was appended is there and is what it was.

The kernel has what a killed process wrote, so of what was appended nothing is lost, synced or not; only the
write that was under way may be torn. ``-s`` shows the counts.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.store.segments import SegmentLog
from tests.crash.segmenting import BLOCK_BYTES, SEGMENT_BYTES
from tests.store.streams import assert_whole, paths, texts, time_of

# More messages than a writer gets to; where nobody listens to it any more, it ends.
ENDLESS = 1 << 40


class Life:
    """A writer from its start until it was killed, after so many lines and seconds.

    ``next`` and ``first`` are as it said last.
    """

    def __init__(self, directory: Path, synced: int, seed: int, lines: int, seconds: float) -> None:
        arguments = [str(directory), str(synced), str(seed), str(ENDLESS)]
        command = [sys.executable, "-m", "tests.crash.segmenting", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        self.said: list[list[str]] = []
        said = [process.stdout.readline() for _ in range(lines)]
        time.sleep(seconds)
        process.kill()
        for each in (*said, *process.stdout.read().splitlines()):
            self.said.append(each.decode().split())
        process.wait()
        process.stdout.close()
        assert self.said[0][0] == "opened", self.said
        self.opened = (int(self.said[0][1]), int(self.said[0][2]))
        appended = [each for each in self.said if each[0] == "appended"]
        self.next, self.first = (int(appended[-1][1]), int(appended[-1][2])) if appended else (0, 0)
        self.synced = max([synced, *(int(each[1]) for each in self.said if each[0] == "synced")])


def run(directory: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    synced = upto = first = torn = scribbled = idle = 0
    number = -1
    # On a busy machine a kill may come before anything is written: it goes on until enough did not.
    while number + 1 < kills or (idle >= kills / 2 and number + 1 < 5 * kills and idle * 2 >= number + 1):
        number += 1
        # A start knows of all that was synced, of some of it, or of nothing.
        known = chance.choice([synced, chance.randint(min(first, synced), synced), -1])
        lines = chance.choice([1, 2, 10, 50, 200])
        life = Life(directory, known, seed + number, lines, chance.choice([0, 0.002, 0.01]))
        assert life.opened[1] >= upto, "an append that was told is gone"
        assert life.opened[0] >= first, "what was removed came back"
        idle += life.next <= life.opened[1]
        upto = max(life.opened[1], life.next)
        first = max(life.opened[0], life.first)
        synced = max(synced, life.synced)
        # A sync may have been told before the append was that it has.
        upto = max(upto, synced)
        if chance.random() < 0.3:
            # The write that a kill could have cut short, as it may look.
            scribbled += 1
            with paths(directory)[-1].open("ab") as file:
                file.write(chance.choice([bytes(50), os.urandom(50), b"SLSB\1\0\0\0"]))
        log = SegmentLog.open(
            directory,
            synced=known if known >= 0 else None,
            segment_bytes=SEGMENT_BYTES,
            block_bytes=BLOCK_BYTES,
        )
        torn += log.torn is not None
        assert log.next_offset >= upto
        assert log.first_offset >= first
        assert_whole(log)
        assert log.find(time_of(log.first_offset)) <= log.next_offset
        assert log.append_from(upto, texts(upto, log.next_offset - upto), time_of(upto)) == 0
        upto = log.next_offset
        first = log.first_offset
        log.close()
    counts = f"{upto:,} messages, {synced:,} synced, {torn} torn tails, {scribbled} of them made here"
    print(f"\nseed {seed}: {number + 1} kills, {counts}")
    assert torn >= scribbled > 0
    assert idle < (number + 1) / 2, f"{idle} writers were killed before they had written"
    assert first > 0, "nothing was removed"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [12, pytest.param(220, marks=pytest.mark.soak)])
def test_a_killed_writer_leaves_what_it_appended(tmp_path: Path, kills: int) -> None:
    run(tmp_path / "stream", kills, seed=11)
