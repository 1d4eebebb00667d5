"""Messages too large for memory: the head stays, everything from the body on is in a file.

A message that comes in is a ``BodyUpload`` until its file is complete, then a ``Body``; one that goes out
is a ``BodyDownload``. ``LargeMessages`` keeps which body is which and what the files take of the budgets.
Nothing here opens a file: ``Files`` writes and reads on threads of its own and answers on ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from broker import constants
from broker.codec import message
from broker.codec.bodyscan import BodyScan
from broker.flow.gate import Gate
from broker.queues.queue import Entry, Extra
from broker.queues.schedule import Delayed
from broker.store.port import LARGE_FILE, LARGE_NOTE, NO_ROOM

# What is handed to the disk at a time.
PIECE_BYTES = 1 << 18
# What a stream out has read ahead: blocks, and bytes of each.
AHEAD_BLOCKS = 8
BLOCK_BYTES = 1 << 17


class Writing(Protocol):
    """A file that is being written. ``written(nbytes, fault)`` is called for every piece, in order;
    ``finished(number, checksum, fault)`` once all is where it must be to survive as long as it should.
    """

    def write(self, piece: bytes) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None: ...


class BodyReading(Protocol):
    """A file that is being read: ``more`` asks for the next block, which ``arrived`` is called with, or
    with the exception that says why there is none.
    """

    def more(self) -> None: ...

    def close(self) -> None: ...


class Files(Protocol):
    """Who has the files."""

    def begin(
        self,
        durable: bool,
        written: Callable[[int, Exception | None], None],
        finished: Callable[[int, int, Exception | None], None],
    ) -> Writing: ...

    def read(
        self, number: int, size: int, checksum: int, arrived: Callable[[bytes | Exception], None]
    ) -> BodyReading: ...

    def remove(self, number: int) -> None: ...


class Body:
    """A complete file, shared by all who have the message; it is removed when the last lets go of it.

    ``kept`` counts the notes in the store that refer to it: as long as there is one it stays, whoever
    forgets this object.
    """

    __slots__ = ("__weakref__", "_gone", "checksum", "durable", "kept", "number", "size")

    def __init__(
        self, number: int, size: int, checksum: int, durable: bool, gone: Callable[[Body], None]
    ) -> None:
        self.number = number
        self.size = size
        self.checksum = checksum
        self.durable = durable
        self.kept = 0
        self._gone = gone

    def __del__(self) -> None:
        if self.kept == 0:
            self._gone(self)


class LargeMessages:
    """Every body there is. ``most`` is how much of a message memory holds before it goes to a file.

    A file's bytes count in ``disk`` where the message is durable, else in ``temp``, from the first
    piece until the file is gone; in ``memory`` only what is on its way.
    """

    def __init__(self, memory: Gate, temp: Gate, disk: Gate) -> None:
        self.memory = memory
        self.temp = temp
        self.disk = disk
        self.most: int = constants.UNBOUNDED
        self.files: Files | None = None
        self._known: WeakValueDictionary[int, Body] = WeakValueDictionary()

    def use(self, files: Files, most: int) -> None:
        """From now on messages above ``most`` bytes go to files."""
        self.files = files
        self.most = most

    def begin(self, head: bytes, told: Callable[[], None]) -> BodyUpload:
        """A message that turned out to be large: ``head`` is what stands before its body."""
        return BodyUpload(self, head, told)

    def send(self, body: Body, told: Callable[[], None]) -> BodyDownload:
        """Read a body from its beginning; ``told`` is called when there is more of it, or a fault."""
        return BodyDownload(self, body, told)

    def of(self, bits: int) -> Body:
        """The body whose number a message's bits bear; somebody must hold on to it."""
        return self._known[bits >> constants.LARGE_SHIFT]

    def size_of(self, bits: int) -> int:
        """What of the message is in a file; 0 where nothing is."""
        return self.of(bits).size if bits >> constants.LARGE_SHIFT else 0

    def bits_of(self, head: bytes, body: Body | None) -> int:
        """What ``message.scan`` says of a head, with the number of the body that belongs to it."""
        bits: int = message.scan(head)
        if body is None:
            return bits
        # A message without any section before its body has an empty head.
        return max(bits, 0) | body.number << constants.LARGE_SHIFT

    def embody(self, number: int, size: int, checksum: int, durable: bool) -> Body:
        """A complete file as a body; whoever calls this has counted its bytes."""
        body = Body(number, size, checksum, durable, self._gone)
        self._known[number] = body
        return body

    def recovered(self, number: int, note: bytes) -> Body:
        """A body that survived, from the note of a message that refers to it."""
        body = self._known.get(number)
        if body is None:
            size, checksum = LARGE_FILE.unpack(note)
            body = self.embody(number, size, checksum, True)
            self.disk.depth_bytes += size
        return body

    def hold(self) -> list[Body]:
        """Every body there is: none goes before the list does."""
        return list(self._known.values())

    def gate(self, durable: bool) -> Gate:
        """The budget that a file's bytes count in."""
        return self.disk if durable else self.temp

    def _gone(self, body: Body) -> None:
        self.gate(body.durable).depth_bytes -= body.size
        if self.files is not None:
            self.files.remove(body.number)


def note_key(body: Body, node: str, seq: int) -> str:
    """Under which key the store keeps that a message's body is in a file."""
    return f"{LARGE_NOTE}{body.number}/{seq}/{node}"


def note_value(body: Body) -> bytes:
    """What the store keeps there."""
    return LARGE_FILE.pack(body.size, body.checksum)


def noted(key: str, value: bytes) -> tuple[int, int, str, int, int]:
    """What such a note says: the file's number, the message's, its node, the file's size and checksum."""
    number, seq, node = key.removeprefix(LARGE_NOTE).split("/", 2)
    size, checksum = LARGE_FILE.unpack(value)
    return int(number), int(seq), node, size, checksum


class BodyRelease:
    """Holds on to a body until the disk has it that nobody refers to it: a ``Waiter`` (durability.py)."""

    def __init__(self, body: Body) -> None:
        self.body = body

    def stored(self, group: int) -> None:
        """The last reference goes with this object."""


class BodyUpload:
    """A large message on its way to a file.

    ``told`` is called when a piece was written and when it is ``done``: ``fault`` is why it can't be,
    or ``malformed`` says that it is no message. Else ``body`` and ``bits`` are there. ``size`` is all
    that came, ``writing_bytes`` what the disk has yet to take, ``unread_bytes`` what its link leaves unread
    behind it, which its link sets.
    """

    def __init__(self, larges: LargeMessages, head: bytes, told: Callable[[], None]) -> None:
        self.head = head
        self.size = len(head)
        self.writing_bytes = 0
        self.unread_bytes = 0
        self.ended = False
        self.done = False
        self.dropped = False
        self.malformed = False
        self.fault: Exception | None = None
        self.body: Body | None = None
        self.bits = 0
        self._larges = larges
        self._told = told
        self._scan = BodyScan()
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._held_bytes = len(head)
        self._file_bytes = 0
        self._durable = max(message.scan(head), 0) & constants.IS_DURABLE != 0
        self._writing: Writing | None = None
        larges.memory.depth_bytes += len(head)

    def feed(self, data: bytes) -> None:
        """The next bytes of the body."""
        self.size += len(data)
        if self.malformed or self.fault is not None or self.dropped:
            return
        if not self._scan.feed(data):
            self._spoil()
            return
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        self._hold(len(data))
        self._count(len(data))
        if self._waiting_bytes >= PIECE_BYTES:
            self._begin().write(self._take())

    def end(self) -> None:
        """That was all of it: ``told`` is called when it is done, if it isn't done at once."""
        self.ended = True
        if not self.malformed and not self._scan.is_whole():
            self._spoil()
        if self.malformed:
            self.done = True
            return
        self._begin().write(self._take())
        self._begin().finish()

    def drop(self) -> None:
        """It is not wanted any more: nothing is held of it, and its file goes."""
        if self.dropped:
            return
        self.dropped = True
        self._hold(-self._held_bytes)
        self.writing_bytes = 0
        self._pieces.clear()
        if self.body is None:
            self._count(-self._file_bytes)
            if self._writing is not None:
                self._writing.drop()
        # The file's last holder has to be one that needs it, not a cycle of ours.
        self.body = None
        self._writing = None
        self._told = _nobody

    def condition(self) -> tuple[str, str]:
        """The fault as the peer is told it."""
        fault = self.fault
        if isinstance(fault, OSError) and fault.errno in NO_ROOM:
            return "amqp:resource-limit-exceeded", f"no room on disk for the message: {fault.strerror}"
        return "amqp:internal-error", f"the message can't be written to disk: {fault}"

    def overdrawn(self) -> str:
        """The budget that its file is too large for; empty while there is room."""
        gate = self._larges.gate(self._durable)
        return gate.name if gate.stop_bytes and gate.depth_bytes > gate.stop_bytes else ""

    def _begin(self) -> Writing:
        if self._writing is None:
            files = self._larges.files
            if files is None:
                raise RuntimeError("there is nowhere to put large messages")
            self._writing = files.begin(self._durable, self._written, self._finished)
        return self._writing

    def _take(self) -> bytes:
        piece = b"".join(self._pieces)
        self._pieces.clear()
        self._waiting_bytes = 0
        self.writing_bytes += len(piece)
        return piece

    def _spoil(self) -> None:
        """It is no message: the rest of it is taken and thrown away, as its delivery has to end."""
        self.malformed = True
        self._pieces.clear()
        self._hold(len(self.head) - self._held_bytes)
        self._count(-self._file_bytes)
        self.writing_bytes = 0
        if self._writing is not None:
            self._writing.drop()

    def _written(self, nbytes: int, fault: Exception | None) -> None:
        if self.dropped or self.malformed:
            return
        self.writing_bytes -= nbytes
        self._hold(-nbytes)
        if fault is not None:
            self.fault = fault
        self._told()

    def _finished(self, number: int, checksum: int, fault: Exception | None) -> None:
        if self.dropped:
            if fault is None and self._larges.files is not None:
                self._larges.files.remove(number)
            return
        if fault is not None:
            self.fault = fault
        else:
            self.body = self._larges.embody(number, self._file_bytes, checksum, self._durable)
            # They were meant for us alone (AMQP 1.0 §3.2.2).
            self.head = message.without_delivery_annotations(self.head)
            self.bits = self._larges.bits_of(self.head, self.body)
            self.done = True
        self._told()

    def _hold(self, nbytes: int) -> None:
        self._held_bytes += nbytes
        self._larges.memory.depth_bytes += nbytes

    def _count(self, nbytes: int) -> None:
        self._file_bytes += nbytes
        self._larges.gate(self._durable).depth_bytes += nbytes


class BodyDownload:
    """A body on its way to a receiver, a little of it read ahead. ``fault`` is why there is no more."""

    def __init__(self, larges: LargeMessages, body: Body, told: Callable[[], None]) -> None:
        if larges.files is None:
            raise RuntimeError("there are no files of large messages")
        self._body: Body | None = body
        self.left_bytes = body.size
        self.fault: Exception | None = None
        self._told = told
        self._memory = larges.memory
        self._blocks: deque[bytes] = deque()
        self._unasked = -(-body.size // BLOCK_BYTES)
        self._held_bytes = min(self._unasked, AHEAD_BLOCKS) * BLOCK_BYTES
        self._memory.depth_bytes += self._held_bytes
        self._reading = larges.files.read(body.number, body.size, body.checksum, self._arrived)
        for _ in range(min(self._unasked, AHEAD_BLOCKS)):
            self._ask()

    def next(self) -> bytes | None:
        """The next bytes; None while they are not there, empty at the end."""
        if not self._blocks:
            return b"" if self.left_bytes == 0 else None
        block = self._blocks.popleft()
        self.left_bytes -= len(block)
        self._ask()
        return block

    def close(self) -> None:
        """Nothing more is wanted; safe to call twice."""
        self._memory.depth_bytes -= self._held_bytes
        self._held_bytes = 0
        self._blocks.clear()
        self._unasked = 0
        self._told = _nobody
        self._body = None
        self._reading.close()

    def _ask(self) -> None:
        if self._unasked > 0:
            self._unasked -= 1
            self._reading.more()

    def _arrived(self, answer: bytes | Exception) -> None:
        if isinstance(answer, Exception):
            self.fault = answer
        else:
            self._blocks.append(answer)
        self._told()


def _nobody() -> None:
    """Who was told is gone."""


def dress(entry: Entry | Delayed, body: Body) -> None:
    """The entry's message has its body in a file."""
    if entry.extra is None:
        entry.extra = Extra()
    entry.extra.body = body
