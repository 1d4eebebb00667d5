"""Journal files with some of their bytes changed, and bytes that never were a journal's.

The first byte says which. A change is a file, a place and what stands there instead; whatever it is, what is
read afterwards is the beginning of what had been written, or the place of the damage is said.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from broker.errors import OperatorError
from broker.store.directory import DIRECTORY, Directory
from broker.store.disk import DiskStore
from broker.store.faults import DamagedStore
from broker.store.files import BLOCK_BYTES, JournalFiles
from broker.store.journal import group_at
from broker.store.port import DURABLE
from broker.store.records import DEFINE, FORGET, MESSAGE, NOTE, UPDATE, Buffer, DamagedRecord, read
from broker.store.replay import Replayed, replay
from tests.fuzz.target import Target, expect

# Records that a store would write, each with its checksum, as words to write others over them.
RECORDS = (
    *((MESSAGE, b"\0Sw\xa1\1a"), (FORGET, b""), (UPDATE, b"")),
    *((DEFINE, b"\1\0q{}"), (NOTE, b"\1\0na")),
)
GROUPS = 12


class Written(JournalFiles):
    """The files as they were written, with the changes of one input; nothing on disk is touched."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 1 << 20)
        self.whole = {
            number: super(Written, self).read(number)[: 16 * BLOCK_BYTES] for number in super().numbers()
        }
        self.now = dict(self.whole)

    def numbers(self) -> list[int]:
        return sorted(self.now)

    def read(self, number: int) -> bytes:
        return self.now[number]

    def damage(self, data: bytes) -> None:
        """As the bytes say: two for the place, one for how many follow that are written there."""
        self.now = dict(self.whole)
        number = min(self.now)
        at = 0
        while at + 3 <= len(data):
            place = BLOCK_BYTES + int.from_bytes(data[at : at + 2], "big") % (15 * BLOCK_BYTES)
            piece = data[at + 3 : at + 3 + data[at + 2]]
            file = self.now[number]
            # None to be written: the file ends there.
            self.now[number] = (
                file[:place] + piece + file[place + len(piece) :] if data[at + 2] else file[:place]
            )
            at += 3 + data[at + 2]


def _made() -> tuple[Directory, Written, Replayed]:
    """A store as a broker leaves it that was killed: a few groups of messages, some gone again."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-fuzz-"))
    store = DiskStore.open(folder, file_bytes=1 << 20)
    shelf = store.open_log("orders", b"{}")
    for number in range(1, GROUPS + 1):
        for each in range(3):
            shelf.append(number * 3 + each, DURABLE, 0, 0, b"\x00\x53\x77\xa1\x04body" * number)
        shelf.update(number * 3, 1)
        shelf.forget(number * 3 + 1, 8 * number)
        store.note(f"note-{number}", b"value")
        store.seal()
        while store.synced < store.group - 1:
            store.attend()
    store.abandon()
    directory = Directory(folder / DIRECTORY, readonly=True)
    files = Written(folder)
    whole = replay(directory, files)
    shutil.rmtree(folder)
    return directory, files, whole


MADE, FILES, WHOLE = _made()


def check(data: bytes) -> None:
    if data[:1] and data[0] % 2:
        _strange(data[1:])
        return
    FILES.damage(data[1:])
    try:
        found = replay(MADE, FILES)
    except DamagedStore as refusal:
        expect("byte" in str(refusal), "damage without its place", refusal)
        return
    except OperatorError:
        return
    expect(found.last_group <= WHOLE.last_group, "groups that nobody wrote")
    for number, shelf in found.shelves.items():
        was = WHOLE.shelves[number].messages
        expect(
            all(was.get(seq) == each for seq, each in shelf.messages.items()), "a message that nobody wrote"
        )


def _strange(data: bytes) -> None:
    try:
        for kind, *_ in read(data):
            expect(0 <= kind < 256, "a kind out of range", kind)
    except DamagedRecord as refusal:
        expect(0 <= refusal.offset < max(len(data), 1), "damage outside of it", refusal)
    for at in range(0, min(len(data), 64), 8):
        group_at(data, at, 1)


def _word(kind: int, payload: bytes) -> bytes:
    buffer = Buffer()
    buffer.add(kind, 1, 2, 0, 0, 0, payload)
    return buffer.take()


TARGET = Target(
    "journal",
    check,
    ("store/replay.py", "store/journal.pyx", "store/records.pyx", "store/files.py"),
    tuple(_word(*each) for each in RECORDS),
    largest=1024,
)
