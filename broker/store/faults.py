"""What can be wrong with a store, in words an operator can act on."""

from __future__ import annotations

from pathlib import Path

from broker.errors import OperatorError


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


class StoreInUse(OperatorError):  # noqa: N818
    """Another broker has the data directory."""
