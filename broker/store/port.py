"""The store's port: what the engine asks of whoever keeps messages when the process is gone.

A store takes records in *groups*. What is handed over between two calls of ``seal`` is one group,
written whole or not at all, in order; ``synced`` is the number of the last group that will survive.
The reactor's thread calls everything here, and nothing here waits for a disk.
"""

from __future__ import annotations

import errno
import struct
from typing import Protocol

from broker.errors import OperatorError

# The key of the note that a large message's body is in a file: file number, message number, node.
LARGE_NOTE = "large/"
# What it says: the file's size and its CRC-32C.
LARGE_FILE = struct.Struct("<QI")

# Flags of a stored message. On a shelf all are durable: one without the flag was given back under a version
# that dropped it then, and forgot its settlement (``UNSURE``, which is on no disk).
DURABLE = 1
REDELIVERED = 2
LARGE = 4  # its body is in a file that a note names
UNSURE = 8
SPARED = 16  # one of its delivery count was no failure of its own

# There is none on the disk, or none for another open file; whatever meets the latter has written nothing.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)

# What a store is in.
WRITING = "writing"
FULL = "full"  # no room: nothing is confirmed until there is; it goes on by itself
FAILED = "failed"  # a write or a sync failed: nothing is confirmed any more until a restart


class OffsetGone(Exception):  # noqa: N818 - it says what is, not that something went wrong
    """The message of that offset was removed; ``first_offset`` is the first one there is."""

    def __init__(self, offset: int, first_offset: int) -> None:
        super().__init__(f"offset {offset} was removed, the first one there is {first_offset}")
        self.offset = offset
        self.first_offset = first_offset


class QueueLog:
    """One node's place in a store. Sequence numbers rise, and each is appended at most once."""

    def append(self, seq: int, flags: int, delivery_count: int, expires_ms: int, data: bytes) -> None:
        """Keep a message; ``expires_ms`` in milliseconds since the epoch, 0 for never."""
        raise NotImplementedError

    def update(self, seq: int, delivery_count: int, spared: bool = False) -> None:
        """Keep that a message was delivered in vain, so many times; ``spared``: one of them doesn't count."""
        raise NotImplementedError

    def forget(self, seq: int, nbytes: int) -> None:
        """A kept message, of so many bytes, is done with."""
        raise NotImplementedError


class StreamReader(Protocol):
    """Reads a stream's messages in order; ``offset`` is the next one's. One thread at a time."""

    offset: int

    def read(self, most_bytes: int) -> list[tuple[int, int, bytes]]: ...

    def seek(self, offset: int) -> None: ...

    def close(self) -> None: ...


class StreamLog(QueueLog):
    """One stream's place in a store: a message's number is its offset and one, its expiry when it came.

    What was appended can be read some time after it is on disk: all below ``next_offset``. ``first_offset``
    is the first one there is, ``nbytes`` what they take, with those that were not appended yet. These,
    ``reader`` and ``find`` are for any thread.
    """

    @property
    def first_offset(self) -> int:
        raise NotImplementedError

    @property
    def next_offset(self) -> int:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        raise NotImplementedError

    def limit(self, most_bytes: int, most_count: int, age_ms: int) -> None:
        """Keep so much from now on, 0 for all: more than that goes from the front, in whole segments."""
        raise NotImplementedError

    def hold(self, offset: int) -> None:
        """Keep everything from an offset on, whatever the limits say; -1 holds nothing."""
        raise NotImplementedError

    def reader(self, offset: int) -> StreamReader:
        """Return one that begins at an offset. Its ``read`` raises OffsetGone, DamagedStore, OSError."""
        raise NotImplementedError

    def find(self, time_ms: int) -> int:
        """Return the offset of the first message that came then (ms since the epoch) or later.

        The next message's where there is none. DamagedStore, OSError.
        """
        raise NotImplementedError

    def count_bytes(self, offset: int, end: int, most_bytes: int) -> tuple[int, int]:
        """Return (upto, size): the messages from an offset up to, and without, ``upto`` have that size.

        ``upto`` is ``end``, or less where about ``most_bytes`` were passed. ``end`` isn't beyond
        ``next_offset``. OffsetGone, DamagedStore, OSError. For any thread.
        """
        raise NotImplementedError


class Store:
    """Shelves and notes, and the groups they are written in.

    ``group`` is the open group's number: what is handed over now survives once ``synced >= group``;
    ``open_records`` is how much is in it. ``behind_bytes`` is what was handed over and isn't on disk.
    ``bell`` is a descriptor that becomes readable when ``synced`` or ``state`` changed; ``attend``
    answers it. ``reason`` says in a sentence why ``state`` isn't ``writing``. ``syncs_when_full``: groups
    that are sealed while it is ``full`` are synced all the same, sooner or later, so answers wait for that.
    ``syncs`` counts the writes that were synced, ``sync_ns`` the time they took, ``groups_written`` the
    groups in them and ``written_bytes`` their records.
    """

    def __init__(self) -> None:
        self.group = 1
        self.synced = 0
        self.open_records = 0
        self.behind_bytes = 0
        self.stored_bytes = 0
        self.bell = -1
        self.state = WRITING
        self.reason = ""
        self.syncs_when_full = False
        self.syncs = 0
        self.sync_ns = 0
        self.groups_written = 0
        self.written_bytes = 0

    def open_log(self, name: str, definition: bytes) -> QueueLog:
        """A new, empty shelf under a name that no other bears."""
        raise NotImplementedError

    def open_stream(self, name: str, definition: bytes) -> StreamLog:
        """A new, empty stream; OperatorError where the store keeps none."""
        raise OperatorError("streams need a data directory of their own: this store keeps none")

    def redefine(self, shelf: QueueLog, definition: bytes) -> None:
        """Replace what was said of a shelf."""
        raise NotImplementedError

    def remove(self, shelf: QueueLog) -> None:
        """The shelf and every message on it are done with."""
        raise NotImplementedError

    def note(self, key: str, value: bytes) -> None:
        """Keep a small fact, replacing what was noted under the key; empty bytes take it away."""
        raise NotImplementedError

    def seal(self) -> None:
        """Close the open group, if anything is in it, and have it written."""
        raise NotImplementedError

    def attend(self) -> int:
        """Answer the bell: take note of what the store's threads have done; the new ``synced``."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is sealed, wait for it, mark the stop as clean and let go of every file."""
        raise NotImplementedError
