"""Repairs flows that name a link which the broker has detached.

Proton renews a session's window in passing, with a flow for the link whose transfers used it up. It doesn't
ask whether that link still has a handle (`pni_process_tpwork_receiver`): where the broker has detached it and
the peer is still sending, the flow names handle 4294967294, and most clients end their connection for that.
This file takes everything from such a flow but the state of the session.
"""

from __future__ import annotations

from broker.codec.message import list_fields

FLOW = 0x13
# A handle that Proton has given back (-2), as it encodes it; and the fields of a flow that are the session's.
NO_HANDLE = b"\x70\xff\xff\xff\xfe"
OF_SESSION = 4


class StaleFlows:
    """The output of one connection, in whole frames, with such flows repaired.

    ``left`` bytes of the frame under way are still to come, or ``begun`` are those of it that have left.
    """

    def __init__(self, left: int, begun: bytes) -> None:
        self._left = left
        self._kept = bytearray(begun)
        self._gone = len(begun)

    def feed(self, data: bytes) -> bytes:
        """The frames that ``data`` completes; the beginning of the next one is kept."""
        passed, data = data[: self._left], data[self._left :]
        self._left -= len(passed)
        self._kept += data
        out = [passed]
        at = 0
        while len(self._kept) - at >= 4:
            size = int.from_bytes(self._kept[at : at + 4], "big")
            if size < 8 or len(self._kept) - at < size:
                break
            out.append(_repaired(bytes(self._kept[at : at + size]))[self._gone :])
            self._gone = 0
            at += size
        del self._kept[:at]
        return b"".join(out)

    @property
    def is_between_frames(self) -> bool:
        """Whether all that it was given has been passed on."""
        return self._left == 0 and not self._kept


def _repaired(frame: bytes) -> bytes:
    """The frame, or the session's part of a flow whose link has no handle."""
    start = frame[4] * 4
    if NO_HANDLE not in frame[:64] or frame[start : start + 3] != bytes((0, 0x53, FLOW)):
        return frame
    fields = list_fields(frame, start + 3)
    if len(fields) <= OF_SESSION or fields[OF_SESSION] != NO_HANDLE:
        return frame
    body = b"".join(fields[:OF_SESSION])
    performative = frame[start : start + 3] + b"\xc0" + bytes((len(body) + 1, OF_SESSION)) + body
    return (start + len(performative)).to_bytes(4, "big") + frame[4:start] + performative
