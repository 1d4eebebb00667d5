"""What a data directory knows of the replicated log that it is a prefix of: two notes.

``APPLIED`` is the last record of every group of that log: its epoch and its number there. ``LOADING`` stands
in a directory from the first to the last group of a snapshot that is loaded: what is there is part of it.
"""

from __future__ import annotations

import struct

APPLIED = "cluster/applied"
LOADING = "cluster/loading"

# Epoch, number of the group in the log.
_POSITION = struct.Struct("<QQ")

Position = tuple[int, int]


def position(epoch: int, group: int) -> bytes:
    """Encode a position for a note."""
    return _POSITION.pack(epoch, group)


def position_in(value: bytes) -> Position:
    """Decode a note's position: (epoch, group), (0, 0) of an empty one. ValueError if it isn't one."""
    if not value:
        return 0, 0
    if len(value) != _POSITION.size:
        raise ValueError(f"a position of {len(value)} bytes")
    epoch, group = _POSITION.unpack(value)
    return epoch, group
