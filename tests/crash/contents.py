"""What a data directory holds, read as a broker reads it at its start."""

from __future__ import annotations

from pathlib import Path

from broker.store.disk import DiskStore
from broker.store.pages import StoredPage, messages_of
from tests.crash.peers import Id, identified

FILE_BYTES = 1 << 20


def contents(directory: Path) -> set[Id]:
    """Every message of the directory. DamagedStore where it is refused."""
    store = DiskStore.open(directory, file_bytes=FILE_BYTES)
    found: set[Id] = set()
    try:
        for shelf in store.recovered.shelves:
            for part in shelf.parts:
                messages = (
                    messages_of(shelf.shelf, store.load(shelf.shelf, part))
                    if isinstance(part, StoredPage)
                    else part
                )
                found |= {identified(message[4])[0] for message in messages}
    finally:
        store.abandon()
    return found
