"""What a data directory knows of the replicated log that it is a prefix of: notes.

``APPLIED`` is the last record of every group of that log: its epoch and its number there. ``LOADING`` stands
in a directory from the first to the last group of a snapshot that is loaded: what is there is part of it.
``STREAM_NOTE`` and a stream's number is what the owner's retention has left of it: a standby lets go of the
same, for it knows no settings.
"""

from __future__ import annotations

import struct

APPLIED = "cluster/applied"
LOADING = "cluster/loading"
STREAM_NOTE = "cluster/stream/"

# Epoch, number of the group in the log.
_POSITION = struct.Struct("<QQ")
# First offset, bytes of a segment.
_RETAINED = struct.Struct("<QQ")

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


def retained(first_offset: int, segment_bytes: int) -> bytes:
    """Encode what retention has left of a stream for a note."""
    return _RETAINED.pack(first_offset, segment_bytes)


def retained_in(value: bytes) -> tuple[int, int]:
    """Decode a stream's note: (first offset, bytes of a segment). ValueError if it isn't one."""
    if len(value) != _RETAINED.size:
        raise ValueError(f"what a stream has kept in {len(value)} bytes")
    first_offset, segment_bytes = _RETAINED.unpack(value)
    return first_offset, segment_bytes
