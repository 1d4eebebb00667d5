"""Attributes of nodes, asked of the broker's ``$management`` node (AMQP Management 1.0, working draft).

A broker without such a node, or one that doesn't know our types of entities, leaves them unknown; nothing
fails for it. A node that is there and that we may not see is another matter: ``refusal``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import cproton
from cproton_ffi import ffi, lib

from .encoding import LIST32, MAP32, NULL, compound, section
from .engine import Handle
from .errors import RefusedError, UnansweredError, UnseenError
from .unpack import MalformedError, Pairs, read, skip

NODE, QUEUE, TOPIC = "$management", "org.sluice.queue", "org.sluice.topic"
PROPERTIES, APPLICATION_PROPERTIES, VALUE = 0x73, 0x74, 0x77
# Where answers go: our own name for the link on which they come, which takes no right to have a node made.
REPLIES = "spark-answers"
# What isn't answered because of who asks, and what a broker couldn't answer though it knows how to.
_UNSEEN, _FAILED = frozenset({401, 403}), frozenset({500, 503})

Attributes = dict[str, Any]


class Reads:
    """Reads attributes over two links of a connection, one question at a time.

    Belongs to the connection's thread, which passes on what happens on its links; the methods say whether it
    was one of them. ``answered`` is set once every question has its answer in ``answers``, in their order:
    the attributes, or None where there is no such entity. ``refusal`` is why the broker has refused to
    answer one of them, whose answer is None as well.
    """

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.answers: list[Attributes | None] = []
        self.refusal: RefusedError | None = None
        self._questions: list[tuple[str, str]] = []
        self._sender: Handle = None
        self._receiver: Handle = None
        self._reply_to = ""
        # Of the question under way: an answer to an earlier one, which was given up, is not its answer.
        self._number = 0
        self._refused = self._due = False
        # When the question under way began to be asked, and whether it was asked once more.
        self._asked_at = 0.0
        self._repeated = False

    def ask_for(self, session: Handle, questions: Sequence[tuple[str, str]]) -> None:
        """Begin with these questions, each a type and a name, as soon as the links are there."""
        self.answered.clear()
        self.answers, self.refusal, self._questions = [], None, list(questions)
        if self._refused or not questions:
            self._give_up()
            return
        self._begin_question()
        if self._sender is not None:
            self._send()
            return
        self._sender = lib.pn_sender(session, b"management-requests")
        lib.pn_terminus_set_address(lib.pn_link_target(self._sender), NODE.encode())
        lib.pn_link_set_snd_settle_mode(self._sender, cproton.PN_SND_SETTLED)
        self._receiver = lib.pn_receiver(session, b"management-answers")
        lib.pn_terminus_set_address(lib.pn_link_source(self._receiver), NODE.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(self._receiver), REPLIES.encode())
        lib.pn_link_set_snd_settle_mode(self._receiver, cproton.PN_SND_SETTLED)
        lib.pn_link_open(self._sender)
        lib.pn_link_open(self._receiver)

    def await_answer(self, now: float, timeout_s: float) -> float | None:
        """When to look again (monotonic) whether the question under way was answered; None where none is.

        It is asked once more after half of ``timeout_s``, since the answer may be lost. UnansweredError after
        all of it.
        """
        if self.answered.is_set() or not self._questions:
            return None
        due = self._asked_at + (timeout_s if self._repeated else timeout_s / 2)
        if now < due:
            return due
        if self._repeated:
            raise UnansweredError(f"the broker has not answered at {NODE} for {timeout_s:g} s")
        self._repeated = self._due = True
        self._send()
        return self._asked_at + timeout_s

    def forget(self) -> None:
        """The connection is gone, and the questions with it."""
        self._sender = self._receiver = None
        self._reply_to = ""
        self._refused = False
        self._give_up()

    def on_attached(self, link: Handle) -> bool:
        """Either link."""
        if self._receiver is None or link not in (self._sender, self._receiver):
            return False
        if link == self._receiver:
            self._reply_to = REPLIES
            lib.pn_link_flow(link, 1)
            self._send()
        return True

    def on_detached(self, link: Handle) -> bool:
        """There is no such node for us."""
        if self._receiver is None or link not in (self._sender, self._receiver):
            return False
        self._refused = True
        self._give_up()
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
        number, attributes, refusal = answer_of(ffi.unpack(room, max(got, 0)))
        if number == str(self._number) and len(self.answers) < len(self._questions):
            self.answers.append(attributes)
            self.refusal = self.refusal or refusal
            if len(self.answers) == len(self._questions):
                self.answered.set()
            else:
                self._begin_question()
                self._send()
        return True

    def _begin_question(self) -> None:
        self._asked_at, self._repeated, self._due = time.monotonic(), False, True

    def _give_up(self) -> None:
        self._due = False
        self.answers = [None] * len(self._questions)
        self.answered.set()

    def _send(self) -> None:
        if not self._due or not self._reply_to or lib.pn_link_credit(self._sender) <= 0:
            return
        self._due = False
        self._number += 1
        request = request_for(*self._questions[len(self.answers)], self._reply_to, str(self._number))
        delivery = lib.pn_delivery(self._sender, (1, ffi.from_buffer(b"1")))
        lib.pn_link_send(self._sender, request, len(request))
        lib.pn_link_advance(self._sender)
        lib.pn_delivery_settle(delivery)


def request_for(type_: str, name: str, reply_to: str, number: str) -> bytes:
    """A READ of an entity's attributes, as a message; its answer has the same number."""
    properties = _text(number) + b"\x40\x40\x40" + _text(reply_to)
    asked = {"operation": "READ", "type": type_, "name": name}
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


def answer_of(answer: bytes) -> tuple[str, Attributes | None, RefusedError | None]:
    """The number of the request that a message answers, and the attributes, None if it has none; why the
    broker refuses them, unless it is that it knows no such entity."""
    number = ""
    try:
        found = dict(_sections(answer))
        number = str(found[PROPERTIES][5])
        told = dict(found.get(APPLICATION_PROPERTIES, ()))
        status, entity = told.get("statusCode"), found.get(VALUE)
        if status == 200 and isinstance(entity, Pairs):
            return number, dict(entity), None
        why = str(told.get("statusDescription", ""))
        if status in _UNSEEN:
            return number, None, UnseenError("amqp:unauthorized-access", why)
        if status in _FAILED:
            return number, None, RefusedError("amqp:internal-error", why)
    except (MalformedError, IndexError, KeyError, TypeError, ValueError):
        return number, None, None
    return number, None, None


def _sections(message: bytes) -> list[tuple[int, Any]]:
    found, at = [], 0
    while at < len(message):
        code = message[at + 2]
        if code in (PROPERTIES, APPLICATION_PROPERTIES, VALUE):
            value, at = read(message, at + 3)
            found.append((code, value))
        else:
            at = skip(message, at + 3)
    return found
