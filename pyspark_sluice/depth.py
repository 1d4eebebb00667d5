"""How full a queue is, asked of the broker's ``$management`` node (AMQP Management 1.0, working draft).

A broker without such a node, or one that doesn't let us ask, leaves it unknown; nothing fails for it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import cproton
from cproton_ffi import ffi, lib

from .connection import address_of
from .encoding import LIST32, MAP32, NULL, compound, section
from .engine import Handle
from .unpack import MalformedError, Pairs, read, skip

NODE, QUEUE = "$management", "org.sluice.queue"
PROPERTIES, APPLICATION_PROPERTIES, VALUE = 0x73, 0x74, 0x77


@dataclass(frozen=True, slots=True)
class Depth:
    """``messages``: all that are in the queue. ``ready``: those that nobody has been sent yet."""

    messages: int
    ready: int


class Inquiry:
    """Belongs to a connection's thread, which passes on what happens on its links; the methods say whether it
    was one of them. ``answered`` is set with every answer, ``depth`` the last one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answered = threading.Event()
        self.depth: Depth | None = None
        self._sender: Handle = None
        self._receiver: Handle = None
        self._reply_to = ""
        self._refused = self._due = False

    def ask(self, session: Handle) -> None:
        """Begin, as soon as the links are there."""
        if self._refused:
            self.answered.set()
            return
        self._due = True
        if self._sender is not None:
            self._send()
            return
        self._sender = lib.pn_sender(session, b"depth-requests")
        lib.pn_terminus_set_address(lib.pn_link_target(self._sender), NODE.encode())
        lib.pn_link_set_snd_settle_mode(self._sender, cproton.PN_SND_SETTLED)
        self._receiver = lib.pn_receiver(session, b"depth-answers")
        lib.pn_terminus_set_dynamic(lib.pn_link_source(self._receiver), True)
        lib.pn_link_set_snd_settle_mode(self._receiver, cproton.PN_SND_SETTLED)
        lib.pn_link_open(self._sender)
        lib.pn_link_open(self._receiver)

    def forget(self) -> None:
        """The connection is gone."""
        self._sender = self._receiver = None
        self._reply_to = ""
        self._refused = self._due = False
        self.depth = None
        self.answered.set()

    def on_attached(self, link: Handle) -> bool:
        """Either link."""
        if self._receiver is None or link not in (self._sender, self._receiver):
            return False
        if link == self._receiver:
            self._reply_to = address_of(lib.pn_link_remote_source(link))
            lib.pn_link_flow(link, 1)
            self._send()
        return True

    def on_detached(self, link: Handle) -> bool:
        """There is no such node for us."""
        if self._receiver is None or link not in (self._sender, self._receiver):
            return False
        self._refused, self.depth = True, None
        self.answered.set()
        return True

    def on_flow(self, link: Handle) -> bool:
        """Credit for the request."""
        if self._sender is None or link not in (self._sender, self._receiver):
            return False
        self._send()
        return True

    def on_delivery(self, link: Handle, delivery: Handle) -> bool:
        """An answer."""
        if self._receiver is None or link != self._receiver:
            return False
        size = lib.pn_delivery_pending(delivery)
        room = ffi.new("char[]", max(size, 1))
        got = lib.pn_link_recv(link, room, size)
        lib.pn_link_advance(link)
        lib.pn_delivery_settle(delivery)
        lib.pn_link_flow(link, 1)
        self.depth = depth_of(ffi.unpack(room, max(got, 0)))
        self.answered.set()
        return True

    def _send(self) -> None:
        if not self._due or not self._reply_to or lib.pn_link_credit(self._sender) <= 0:
            return
        self._due = False
        request = request_for(self.address, self._reply_to)
        delivery = lib.pn_delivery(self._sender, (1, ffi.from_buffer(b"1")))
        lib.pn_link_send(self._sender, request, len(request))
        lib.pn_link_advance(self._sender)
        lib.pn_delivery_settle(delivery)


def request_for(address: str, reply_to: str) -> bytes:
    """A READ of a queue's attributes, as a message."""
    properties = _text("1") + b"\x40\x40\x40" + _text(reply_to)
    asked = {"operation": "READ", "type": QUEUE, "name": address}
    pairs = b"".join(_text(key) + _text(value) for key, value in asked.items())
    return b"".join(
        (
            *(section(PROPERTIES), compound(LIST32, (properties,), 5)),
            *(section(APPLICATION_PROPERTIES), compound(MAP32, (pairs,), 6)),
            *(section(VALUE), NULL),
        )
    )


def _text(value: str) -> bytes:
    encoded = value.encode()
    return b"\xb1" + len(encoded).to_bytes(4, "big") + encoded


def depth_of(answer: bytes) -> Depth | None:
    """What an answer says; None if it doesn't."""
    try:
        found = dict(_sections(answer))
        status = dict(found.get(APPLICATION_PROPERTIES, ())).get("statusCode")
        queue = found.get(VALUE)
        if status != 200 or not isinstance(queue, Pairs):
            return None
        attributes = dict(queue)
        return Depth(int(attributes["depth_msgs"]), int(attributes["ready_msgs"]))
    except (MalformedError, IndexError, KeyError, TypeError, ValueError):
        return None


def _sections(message: bytes) -> list[tuple[int, Any]]:
    found, at = [], 0
    while at < len(message):
        code = message[at + 2]
        if code in (APPLICATION_PROPERTIES, VALUE):
            value, at = read(message, at + 3)
            found.append((code, value))
        else:
            at = skip(message, at + 3)
    return found
