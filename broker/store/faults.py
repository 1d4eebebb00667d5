"""What can be wrong with a store, in words an operator can act on."""

from __future__ import annotations

import os
from pathlib import Path

import lmdb

from broker.errors import OperatorError
from broker.store.port import NO_ROOM


class DamagedStore(OperatorError):  # noqa: N818 - it says what is, not that something went wrong
    """Bytes on disk are not what was written. Nothing was changed."""

    def __init__(self, file: Path, offset: int, what: str) -> None:
        super().__init__(
            f"{file}: byte {offset}: {what}; the store is refused as it is rather than opened with messages"
            " missing: restore a backup (sluice store backup makes them), or move the directory away and"
            " start with an empty one"
        )
        self.file = file
        self.offset = offset


class HalfLoaded(DamagedStore):
    """A snapshot was being loaded, and only part of it is there: nothing that anybody needs."""


class NoRoom(OperatorError):  # noqa: N818
    """The disk has no room to open the data directory; there may be some later."""


class StoreInUse(OperatorError):  # noqa: N818
    """Another broker has the data directory."""


class SyncFault(Exception):  # noqa: N818 - as in OSError, the fault is the disk's
    """A sync or a commit failed: what is on disk nobody knows, whatever the error was."""


def described(fault: Exception) -> str:
    """Return what went wrong in words, with the file where that is known."""
    if isinstance(fault, OSError):
        return f"{fault.strerror}" + (f" ({fault.filename})" if fault.filename else "")
    return str(fault)


def is_lack_of_room(fault: Exception) -> bool:
    """Whether it may work again by itself once there is room, and nothing has happened until then."""
    if isinstance(fault, OSError):
        return fault.errno in NO_ROOM
    # LMDB has no numbers of its own for the system's errors, only their texts.
    return isinstance(fault, lmdb.Error) and any(os.strerror(each) in str(fault) for each in NO_ROOM)
