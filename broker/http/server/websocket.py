"""An AMQP connection inside a WebSocket: bytes of binary frames to the reactor's socket and back.

One end of a socket pair is here, the other is a connection of the reactor's like any other. The law: what
a tunnel holds is bounded, whatever the peer sends or doesn't read. One side is read only while the other
takes what was read, frames are passed on piece by piece and never gathered, and every end has a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from wsproto.extensions import Extension
from wsproto.frame_protocol import (
    CloseReason,
    Frame,
    FrameDecoder,
    FrameProtocol,
    Opcode,
    ParseFailed,
    RsvBits,
)

from broker.config.networks import written
from broker.http.server.cpu_share import CpuShare
from broker.http.server.frame_cost import FrameCost
from broker.http.server.websocket_handshake import WebSocketHandshake
from broker.loggers import about

log = logging.getLogger("sluice.http")

# What is read at once, either way. Frames to the client are no larger: some take 65,535 bytes at most.
READ_BYTES = 32 * 1024
# What waits in the process for the client's socket, and in the system for either end of the pair.
UNSENT_BYTES = 128 * 1024
PAIR_BYTES = 64 * 1024
# Shorter than an AMQP frame. Each costs what a full one does, so a client may send so many in a second.
SMALL_BYTES = 8
MOST_SMALL = 1000
# From the first word of an end to the last: then the socket is closed, whatever is left.
LINGER_S = 5.0
# What a client carries before it is believed to be one of AMQP: an open and a few messages.
WORTH_BYTES = 4096

# Every tunnel reads into the same memory: it is empty again before the next one reads.
_buffer = bytearray(READ_BYTES)
_BINARY_FINAL = 0x80 | Opcode.BINARY


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends that hold little. OSError if there are no descriptors left."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PAIR_BYTES)
    return ends


class Tunnel(asyncio.BufferedProtocol):
    """One WebSocket from its opening to its end; ``tunnels`` is the set it is in meanwhile.

    How it ends, whoever begins:

    1. The broker closes its end of the pair: what it wrote before goes out, then our close frame.
    2. The client sends a close frame: the pair is shut for writing, the broker says its last words, and
       the answering close frame follows them. Where the client ends the socket without one, 1 is void.
    3. A frame is at fault: our close frame says why, and the broker sees its connection end.

    Then the socket is closed once both close frames are through, or after ``LINGER_S``.

    ``place`` says whether the client's socket waits for the HTTP port's share, as it does in the beginning:
    it is let through once it has carried something worth it, and waits again once a frame was at fault.
    """

    def __init__(
        self,
        sock: socket.socket,
        entrance: WebSocketHandshake,
        tunnels: set[Tunnel],
        share: CpuShare | None = None,
        place: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._place = place
        self._waits = True
        self._carried = 0
        self._sock = sock
        self._toll = FrameCost(share or CpuShare())
        # While its client is left unread, for frames that carry nothing.
        self._paying: asyncio.TimerHandle | None = None
        self._entrance = entrance
        self._tunnels = tunnels
        self._loop = asyncio.get_running_loop()
        self._bounds = _Bounds(entrance.largest_frame_bytes)
        self._frames = FrameProtocol(client=False, extensions=[self._bounds])
        self._transport: asyncio.Transport | None = None
        self._unsent = b""
        self._ping: bytes | None = None
        self._reading_pair = self._write_paused = False
        self._heard_close = self._said_close = False
        self._deaf = False
        self._linger: asyncio.TimerHandle | None = None

    def open(self, transport: asyncio.Transport, early: bytes) -> None:
        """The handshake is through: pump. ``early`` is what was read behind it."""
        self._transport = transport
        self._tunnels.add(self)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._watch_pair()
        if early:
            self._take_in(early)

    def drop(self) -> None:
        """It never opened, or is lost: the broker sees its end closed."""
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()

    def broker_gone(self) -> None:
        """The broker has closed its end; a client that reads nothing would keep us from seeing it."""
        self._begin_linger()

    def abort(self) -> None:
        """Cut the client off, with a word if its socket takes one."""
        self._say_close(CloseReason.GOING_AWAY)
        if self._transport is not None:
            self._transport.abort()

    # --- from the client to the broker

    def get_buffer(self, _sizehint: int) -> bytearray:
        """Where the next bytes go."""
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        self._take_in(bytes(memoryview(_buffer)[:nbytes]))

    def eof_received(self) -> bool:
        """The client's last word, whether or not a close frame came before: close once it has ours."""
        self._begin_linger()
        return False

    def _take_in(self, data: bytes) -> None:
        if self._deaf:
            return
        self._bounds.new_read(self._loop.time())
        began_ns = time.thread_time_ns()
        self._frames.receive_bytes(data)
        payloads: list[bytes] = []
        frames = 0
        try:
            for frames, frame in enumerate(self._frames.received_frames(), 1):  # noqa: B007
                self._take(frame, payloads)
        except ParseFailed as fault:
            self._unsent += b"".join(payloads)
            self._push()
            self._fail(fault.code, str(fault))
            return
        if self._ping is not None and not self._write_paused:
            self._pong()
        passed = b"".join(payloads)
        self._unsent += passed
        self._carry(len(passed))
        self._pay(frames, time.thread_time_ns() - began_ns)
        self._push()

    def _carry(self, nbytes: int) -> None:
        """So many bytes pass, either way."""
        self._toll.carried(nbytes)
        if self._waits and not self._deaf:
            self._carried += nbytes
            if self._carried >= WORTH_BYTES:
                self._waits = False
                self._place(False)

    def _pay(self, frames: int = 0, taken_ns: int = 0) -> None:
        """The client isn't read while its frames, and what else is asked of the port, cost too much."""
        wait_ns = self._toll.wait_ns(frames, taken_ns, time.monotonic_ns())
        if wait_ns and self._paying is None and self._transport is not None:
            self._transport.pause_reading()
            self._paying = self._loop.call_later(wait_ns / 1e9, self._ask_again)

    def _ask_again(self) -> None:
        self._paying = None
        self._pay()
        self._push()

    def _take(self, frame: Frame, payloads: list[bytes]) -> None:
        match frame.opcode:
            case Opcode.BINARY:
                assert isinstance(frame.payload, bytes | bytearray)
                payloads.append(frame.payload)
            case Opcode.TEXT:
                raise ParseFailed("AMQP is sent in binary frames", CloseReason.UNSUPPORTED_DATA)
            case Opcode.PING:
                assert isinstance(frame.payload, bytes | bytearray)
                self._ping = frame.payload
            case Opcode.CLOSE:
                self._heard_close = True

    def _pong(self) -> None:
        """Answer the latest ping; those before it need none (RFC 6455 §5.5.3)."""
        if self._transport is not None and self._ping is not None and not self._said_close:
            self._transport.write(self._frames.pong(self._ping))
        self._ping = None

    def _push(self) -> None:
        """Give the broker what it takes; while something is left the client isn't read."""
        if self._transport is None:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            self._transport.pause_reading()
            self._loop.add_writer(self._sock, self._push)
            return
        except OSError:
            self._unsent = b""  # the broker has closed; that is told once its last words are read
        self._loop.remove_writer(self._sock)
        if self._paying is None:
            self._transport.resume_reading()
        if self._heard_close:
            self._on_close()

    def _on_close(self) -> None:
        if self._said_close:
            self._end()
        else:
            self._deaf = True
            self._shut_pair()
            self._begin_linger()

    # --- from the broker to the client

    def pause_writing(self) -> None:
        """The client doesn't take what it has: the broker waits."""
        self._write_paused = True
        self._watch_pair()

    def resume_writing(self) -> None:
        """It does again."""
        self._write_paused = False
        self._pong()
        self._watch_pair()

    def _watch_pair(self) -> None:
        wanted = not self._write_paused and not self._said_close and self._sock.fileno() >= 0
        if wanted == self._reading_pair:
            return
        self._reading_pair = wanted
        if wanted:
            self._loop.add_reader(self._sock, self._pull)
        else:
            self._loop.remove_reader(self._sock)

    def _pull(self) -> None:
        if self._transport is None:
            return
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._carry(len(data))
            self._transport.write(_head(len(data)) + data)
            return
        self._unsent = b""
        self._say_close(CloseReason.GOING_AWAY if self._entrance.leaving else CloseReason.NORMAL_CLOSURE)
        self._push()

    # --- ends

    def _fail(self, code: CloseReason, reason: str) -> None:
        peer = self._peer_name()
        log.info("WebSocket %s: closed with %d: %s", peer, code, reason, extra=about(peer, reason=reason))
        self._unsent = b""
        self._deaf = True
        if not self._waits:
            self._waits = True
            self._place(True)
        self._say_close(code, reason)
        self._shut_pair()
        self._push()
        # It needn't answer, and may not understand: it hears the end of ours, then we of its.
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            # One that has gone meanwhile hears no end.
            with suppress(OSError):
                self._transport.write_eof()
        else:
            # TLS has no half of an end: what was written goes out before close_notify does.
            self._transport.close()

    def _say_close(self, code: CloseReason, reason: str = "") -> None:
        if self._said_close or self._transport is None:
            return
        self._said_close = True
        self._transport.write(self._frames.close(code, reason))
        self._watch_pair()
        self._begin_linger()
        if self._heard_close:
            self._end()

    def _end(self) -> None:
        """Both close frames are through."""
        if self._transport is not None:
            self._transport.close()

    def _shut_pair(self) -> None:
        """The broker reads to the end of what the client sent, and then the end."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            log.debug("the broker had closed already")

    def _begin_linger(self) -> None:
        if self._linger is None and self._transport is not None:
            self._linger = self._loop.call_later(LINGER_S, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client's socket is closed; its number may be another's next."""
        self._place(False)
        if self._carried < WORTH_BYTES:
            self._toll.ended_in_vain(time.monotonic_ns())
        for timer in (self._linger, self._paying):
            if timer is not None:
                timer.cancel()
        self.drop()
        self._tunnels.discard(self)

    def _peer_name(self) -> str:
        return "?" if self._transport is None else address_of(self._transport)


class _Bounds(Extension):
    """No extension at all: its hook is where frames are seen before they are read."""

    name = "bounds"

    def __init__(self, largest_bytes: int) -> None:
        self._largest_bytes = largest_bytes
        self._small = 0
        self._now_s = self._since_s = 0.0

    def enabled(self) -> bool:
        return True

    def offer(self) -> bool:
        return False

    def new_read(self, now_s: float) -> None:
        """What is parsed next was read at that time."""
        self._now_s = now_s

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        """Refuse a frame for its size, or for how many small ones came before it within a second."""
        if payload_length > self._largest_bytes:
            return CloseReason.MESSAGE_TOO_BIG
        if payload_length < SMALL_BYTES and self._is_one_too_many():
            return CloseReason.POLICY_VIOLATION
        return RsvBits(False, False, False)

    def _is_one_too_many(self) -> bool:
        if self._now_s - self._since_s >= 1.0:
            self._since_s, self._small = self._now_s, 0
        self._small += 1
        return self._small > MOST_SMALL


def _head(size: int) -> bytes:
    """The head of a binary frame to a client, which is not masked (RFC 6455 §5.2)."""
    if size < 126:
        return bytes((_BINARY_FINAL, size))
    return struct.pack(">BBH", _BINARY_FINAL, 126, size)


def address_of(transport: asyncio.BaseTransport) -> str:
    """The client's address as the reactor writes those of its own clients."""
    peer = transport.get_extra_info("peername")
    return written(peer[0], peer[1]) if peer else "?"
