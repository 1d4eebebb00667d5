"""The queue logs, streams and notes that survived in a data directory, as whoever opened it gets them."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.store.logs import DiskQueueLog, Extent, Shelves
from broker.store.pages import StoredPage
from broker.store.port import DURABLE
from broker.store.replay import Found, Message
from broker.store.streamlog import DiskStreamLog

Part = StoredPage | list[Message]


@dataclass(frozen=True, slots=True)
class RecoveredQueueLog:
    """A queue log with what is on it, in order: pages to be loaded when they are needed, and messages.

    ``last_seq`` is the highest number that was ever used on it.
    """

    shelf: DiskQueueLog
    name: str
    definition: bytes
    last_seq: int
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class RecoveredStream:
    """A stream, with its log at work again."""

    shelf: DiskStreamLog
    name: str
    definition: bytes


@dataclass(frozen=True, slots=True)
class Recovered:
    """What survived; ``clean`` if the last broker had stopped in order."""

    clean: bool
    notes: dict[str, bytes]
    shelves: list[RecoveredQueueLog]
    streams: list[RecoveredStream] = field(default_factory=list)


def recovered_log(store: Shelves, found: Found) -> RecoveredQueueLog:
    """Make a queue log of ``store`` out of what a replay found.

    The store's ``touched`` has it afterwards where the next checkpoint has to write some of its pages anew.
    """
    row = found.row
    shelf = DiskQueueLog(store, row.id, row.name, found.definition, found.last_seq)
    shelf.changed = found.changed
    shelf.updates = found.updates
    for page in found.pages:
        shelf.extents.append(Extent.of(page.first, page.last, page.place, page.bitmap, page.nbytes))
    for seq, nbytes in found.gone.items():
        holder = shelf.holder(seq)
        if holder is not None:
            holder.drop_one(seq)
            holder.nbytes -= nbytes
            store.touched.add(shelf)
    _mark_given_back(shelf, found)
    parts: list[Part] = [
        StoredPage(each.first, each.last, each.live, max(each.nbytes, 0), each.place)
        for each in shelf.extents
        if each.live and each.place is not None
    ]
    messages = _messages_in_journal(shelf, found)
    if messages:
        parts.append(messages)
    return RecoveredQueueLog(shelf, row.name, found.definition, found.last_seq, parts)


def _mark_given_back(shelf: DiskQueueLog, found: Found) -> None:
    """Have the next checkpoint write the pages whose rows don't say yet, as the journal does, that messages
    came back: it gives up the journal files that say so.
    """
    noted = {seq: (flags, count) for page in found.pages for seq, flags, count in page.updates}
    for seq, update in shelf.updates.items():
        holder = shelf.holder(seq) if noted.get(seq) != update else None
        if holder is not None:
            holder.changed = True
            shelf.store.touched.add(shelf)


def _messages_in_journal(shelf: DiskQueueLog, found: Found) -> list[Message]:
    """Add the messages that no page has, and return them."""
    messages: list[Message] = []
    for seq, (file, flags, count, expires_ms, data) in found.messages.items():
        if not shelf.extents or shelf.extents[-1].file != file or shelf.extents[-1].place is not None:
            shelf.extents.append(Extent(seq, file))
        shelf.extents[-1].add(seq)
        shelf.extents[-1].nbytes += len(data)
        given_back, count = shelf.updates.get(seq, (flags, count))
        messages.append((seq, flags | given_back | DURABLE, count, expires_ms, data))
    return messages
