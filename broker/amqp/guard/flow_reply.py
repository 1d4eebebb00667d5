"""Flow frames the broker owes a peer and Proton doesn't send: echoes, and `available` with them.

AMQP 1.0 §2.7.4: a flow with ``echo`` asks for the partner's own flow state. Proton ignores the
field and leaves ``available`` out of what it sends, so the answer for a consumer link is made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.amqp.guard.frame_guard import FrameGuard
from broker.amqp.guard.outgoing_frames import OutgoingFrames
from broker.codec.message import list_fields

if TYPE_CHECKING:
    from broker.amqp.links.consumer import ConsumerLink

BEGIN = 0x11
ATTACH = 0x12
FLOW = 0x13
DETACH = 0x16
UINT32 = 0xFFFFFFFF
NULL = b"\x40"
OUTGOING_WINDOW = 0x7FFFFFFF


class SessionCounts:
    """One session as its frames show it; ids and windows are serial numbers modulo 2³²."""

    def __init__(self, remote_channel: int, first_incoming: int) -> None:
        self.remote_channel = remote_channel
        self.first_incoming = first_incoming
        self.local_channel = -1
        self.incoming_limit = 0
        # Of the links that are attached: their handles by name and role, and the reverse.
        self.handles: dict[tuple[bytes, bool], int] = {}
        self.links: dict[int, tuple[bytes, bool]] = {}

    def attach(self, key: tuple[bytes, bool], handle: int) -> None:
        self.handles[key] = handle
        self.links[handle] = key

    def detach(self, handle: int) -> None:
        key = self.links.pop(handle, None)
        if key is not None and self.handles.get(key) == handle:
            del self.handles[key]


class SessionFlowState:
    """What both directions of one connection have said about its sessions and links.

    ``begun`` lists the remote channels of sessions in the order they began, for whoever handles
    Proton's events in the same order. What the peer is told of its sessions' windows is passed on to
    whoever minds that it keeps to them.
    """

    def __init__(self, incoming: FrameGuard, outgoing: OutgoingFrames) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.by_remote: dict[int, SessionCounts] = {}
        self.by_local: dict[int, SessionCounts] = {}
        self.begun: list[int] = []

    def read_incoming(self) -> None:
        """Read the begin frames kept since the last time, from the peer."""
        frames = self.incoming.rare[:]
        self.incoming.rare.clear()
        for frame in frames:
            channel, _, fields = _parse(frame)
            self.begun.append(channel)
            self.by_remote[channel] = SessionCounts(channel, _uint(fields[1]) if len(fields) > 1 else 0)

    def read_outgoing(self) -> None:
        """Read the frames kept since the last time, from Proton."""
        frames = self.outgoing.rare[:]
        self.outgoing.rare.clear()
        for frame in frames:
            channel, code, fields = _parse(frame)
            session = self.by_local.get(channel)
            if code == BEGIN and len(fields) > 2:
                self._began(channel, _uint(fields[0]), _uint(fields[2]))
            elif session is not None and code == ATTACH and len(fields) > 2:
                session.attach((_text(fields[0]), _is_receiver(fields[2])), _uint(fields[1]))
            elif session is not None and code == DETACH and fields:
                session.detach(_uint(fields[0]))
            elif session is not None and code == FLOW and len(fields) > 1 and fields[0] != NULL:
                session.incoming_limit = (_uint(fields[0]) + _uint(fields[1])) & UINT32
                self._allow(session)

    def sent_on(self, remote_channel: int) -> int:
        """Transfers sent in the session that the peer calls by this channel; -1 where that isn't known."""
        session = self.by_remote.get(remote_channel)
        if session is None or session.local_channel < 0 or self.outgoing.lost:
            return -1
        return self.outgoing.transfer_count(session.local_channel)

    def flow_frame(self, remote_channel: int, link: ConsumerLink) -> tuple[int, bytes] | None:
        """The channel and performative of a flow that tells the state of a link we send on.

        None while the link's frames are not known.
        """
        session = self.by_remote.get(remote_channel)
        if session is None or session.local_channel < 0 or self.incoming.lost or self.outgoing.lost:
            return None
        handle = session.handles.get((link.name.encode(), False))
        if handle is None:
            return None
        next_incoming = session.first_incoming + self.incoming.transfer_count(remote_channel)
        fields = (
            next_incoming & UINT32,
            (session.incoming_limit - next_incoming) & UINT32,
            self.outgoing.transfer_count(session.local_channel),
            OUTGOING_WINDOW,
            handle,
            link.delivery_count() & UINT32,
            link.link_credit(),
            link.ready_msgs(),
        )
        return session.local_channel, _flow(fields, link.drains())

    def _began(self, local: int, remote: int, window: int) -> None:
        session = self.by_remote.get(remote)
        if session is None:
            return
        session.local_channel = local
        session.incoming_limit = (session.first_incoming + window) & UINT32
        self.by_local[local] = session
        self._allow(session)

    def _allow(self, session: SessionCounts) -> None:
        if self.by_remote.get(session.remote_channel) is session:
            self.incoming.allow(
                session.remote_channel, (session.incoming_limit - session.first_incoming) & UINT32
            )


def _parse(frame: bytes) -> tuple[int, int, list[bytes]]:
    at = frame[4] * 4
    start = at + 3 if frame[at + 1] == 0x53 else at + 10
    return int.from_bytes(frame[6:8], "big"), frame[start - 1], list_fields(frame, start)


def _uint(field: bytes) -> int:
    return int.from_bytes(field[1:], "big")


def _text(field: bytes) -> bytes:
    return field[2:] if field[0] == 0xA1 else field[5:]


def _is_receiver(field: bytes) -> bool:
    return field in (b"\x41", b"\x56\x01")


def _flow(numbers: tuple[int, ...], drain: bool = False) -> bytes:
    body = b"".join(b"\x70" + number.to_bytes(4, "big") for number in numbers)
    if drain:
        body += b"\x41"
    return b"\x00\x53\x13\xc0" + bytes((len(body) + 1, len(numbers) + drain)) + body
