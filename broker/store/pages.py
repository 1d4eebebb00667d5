"""Messages that stay on disk until they are needed, and how they are read back."""

from __future__ import annotations

from dataclasses import dataclass

from broker.store.logs import DiskQueueLog
from broker.store.pagefile import BlobPlace
from broker.store.port import DURABLE, UNSURE
from broker.store.records import read

Message = tuple[int, int, int, int, bytes]


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page of a shelf: the numbers it spans, its live messages and their bytes, its place."""

    first: int
    last: int
    count: int
    nbytes: int
    place: BlobPlace


def messages_of(shelf: DiskQueueLog, blob: bytes) -> list[Message]:
    """What is live of a page that was loaded: (number, flags, delivery count, expiry, data), in order.

    For the store's owner: what left meanwhile, and what was delivered in vain, only the shelf knows.
    All of them are durable, whatever their records say (``storage.UNSURE``).
    """
    found: list[Message] = []
    for _, _, seq, flags, count, expires_ms, data in read(blob, node=shelf.id):
        if shelf.holder(seq) is not None:
            given_back, count = shelf.updates.get(seq, (flags, count))
            unsure = 0 if given_back & DURABLE else UNSURE
            found.append((seq, flags | given_back | DURABLE | unsure, count, expires_ms, data))
    return found
