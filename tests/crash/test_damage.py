"""A data directory with a bit flipped, a file cut short or gone: refused with its place, or all is there.

The directory is that of a broker which stopped in order, with messages in pages and in the journal.
"""

from __future__ import annotations

import random
import re
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.store.faults import DamagedStore
from tests.crash.conftest import Broker
from tests.crash.contents import contents
from tests.crash.peers import Books, Consumer, Id, Producer, turn_all
from tests.crash.watching import until
from tests.wire.conftest import START_SECONDS

CONFIG = "store: {journal_file_size: 1MB}\n"
LIMITS = "flow_control: false, overflow: reject, max_size: 1GB"
POLICIES = f"policies:\n  - {{match: '>', durable: true, {LIMITS}}}\n"
FLIPS_PER_FILE = 20
CUTS_PER_FILE = 8
SERVED = 12
KIND = re.compile(r"journal-\d+|pages|directory\.mdb")
PLACE = re.compile(r"/(journal-\d+|pages|directory\.mdb): byte (\d+): ")


@dataclass(frozen=True)
class Whole:
    """The directory as it was left, and what is in it."""

    directory: Path
    accepted: set[Id]

    @property
    def files(self) -> list[Path]:
        """Those in which something is."""
        return sorted(path for path in self.directory.iterdir() if KIND.fullmatch(path.name))

    def copied(self, target: Path) -> Path:
        """A fresh copy, to be damaged."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.directory, target)
        return target


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    broker = Broker(tmp_path_factory.mktemp("whole"), POLICIES, CONFIG)
    broker.start()
    books = Books()
    producer = Producer(books, "q", 1, filler=900)
    producer.limit = 4000
    producer.connect(broker.port)
    deadline = time.monotonic() + 40
    while len(books.accepted) < producer.limit:
        assert time.monotonic() < deadline, str(books)
        turn_all([producer], 0.02)
    # The checkpoint that moves closed files to pages has begun to, and has time to end.
    until([producer], lambda: any((broker.data / "pages").read_bytes()), what="pages to be written")
    turn_all([producer], 1.2)
    producer.drop()
    assert broker.stop() == 0
    found = Whole(broker.data, books.accepted)
    assert {path.name.partition("-")[0] for path in found.files} == {"journal", "pages", "directory.mdb"}
    return found


def flip(file: Path, dice: random.Random) -> int:
    """Turn one bit round where something is written; the byte it is in."""
    data = bytearray(file.read_bytes())
    used = [at for at in range(0, len(data), 64) if any(data[at : at + 64])]
    place = dice.choice(used) + dice.randrange(64)
    data[place] ^= 1 << dice.randrange(8)
    file.write_bytes(data)
    return place


def read_or_refused(directory: Path, accepted: set[Id]) -> str:
    """The refusal, or nothing where every message is there; a loss in silence fails the test."""
    said = ""
    try:
        found = contents(directory)
    except DamagedStore as refusal:
        said = str(refusal)
    if said:
        place = PLACE.search(said)
        assert place is not None, said
        assert "restore a backup" in said
        return f"{place[1]}:{place[2]}"
    assert found == accepted, f"{len(accepted - found)} lost in silence"
    return ""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("flips", [FLIPS_PER_FILE, pytest.param(100, marks=pytest.mark.soak)])
def test_a_flipped_bit_is_refused_with_its_place_or_without_effect(
    whole: Whole, tmp_path: Path, flips: int
) -> None:
    seed = 3
    dice = random.Random(seed)
    refused: Counter[str] = Counter()
    for file in whole.files:
        for _ in range(flips):
            directory = whole.copied(tmp_path / "data")
            place = flip(directory / file.name, dice)
            said = read_or_refused(directory, whole.accepted)
            refused[file.name] += bool(said)
            name, _, offset = said.partition(":")
            if said and name == file.name and name != "directory.mdb":
                assert int(offset) <= place, f"byte {place} is damaged, and {said} was named"
    counts = ", ".join(f"{refused[file.name]} in {file.name}" for file in whole.files)
    print(f"\nseed {seed}, {flips} bits flipped in each file, refused: {counts}; none in silence")
    # Pages are full of messages; behind those of a journal file there is what it held when it was another.
    assert refused["pages"] > flips * 0.9
    assert max(count for name, count in refused.items() if "journal" in name) > flips * 0.5


@pytest.mark.timeout(120)
def test_a_file_cut_at_any_length_is_refused(whole: Whole, tmp_path: Path) -> None:
    dice = random.Random(4)
    refused = 0
    for file in whole.files:
        size = file.stat().st_size
        for length in [0, 1, 4095, *(dice.randrange(size) for _ in range(CUTS_PER_FILE))]:
            directory = whole.copied(tmp_path / "data")
            with (directory / file.name).open("r+b") as cut:
                cut.truncate(length)
            refused += bool(read_or_refused(directory, whole.accepted))
    assert refused > len(whole.files) * CUTS_PER_FILE / 2


def test_a_file_that_is_gone_is_refused(whole: Whole, tmp_path: Path) -> None:
    for file in whole.files:
        directory = whole.copied(tmp_path / "data")
        (directory / file.name).unlink()
        read_or_refused(directory, whole.accepted)


@pytest.mark.timeout(600)
def test_a_broker_says_where_the_damage_is_and_leaves(whole: Whole, tmp_path: Path) -> None:
    dice = random.Random(5)
    refused = 0
    for number in range(SERVED):
        broker = Broker(tmp_path / f"broker-{number}", POLICIES, CONFIG)
        whole.copied(broker.data)
        file = whole.files[number % len(whole.files)]
        flip(broker.data / file.name, dice)
        said = outcome(broker, whole.accepted)
        assert "Traceback" not in said, said
        assert not said or PLACE.search(said), said
        refused += bool(said)
    assert refused >= SERVED / len(whole.files)


def outcome(broker: Broker, accepted: set[Id]) -> str:
    """What a start makes of the directory: the refusal, or nothing where every message comes."""
    broker.start("--log-level", "error", wait=False)
    assert broker.process is not None
    deadline = time.monotonic() + START_SECONDS
    while broker.process.poll() is None and "ready" not in broker.read_log():
        assert time.monotonic() < deadline, broker.said
        time.sleep(0.01)
    if broker.process.poll() is not None:
        assert broker.wait_exit() == 1, broker.said
        return broker.said
    broker.wait_ready()
    books = Books()
    books.accepted = accepted
    consumer = Consumer(books, "q", second=False, name="c")
    consumer.connect(broker.port)
    deadline = time.monotonic() + 40
    while books.lost and "checksum" not in broker.read_log() and time.monotonic() < deadline:
        turn_all([consumer], 0.02)
    consumer.drop()
    broker.kill()
    # What is read when it is needed is refused when it is needed.
    assert not books.lost or "checksum" in broker.said, f"{len(books.lost)} lost in silence"
    return broker.said if books.lost else ""
