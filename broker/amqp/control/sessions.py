"""The sessions of one connection, from the client's begin to its end."""

from __future__ import annotations

import logging

from proton import Condition, Session

from broker.amqp.control.attached import SESSION_FRAMES, AttachedLinks
from broker.amqp.control.client import ClientDetails
from broker.amqp.control.handles import address_of
from broker.amqp.control.lifetimes import SESSION_ENDED
from broker.amqp.control.termini import KeptTermini
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.loggers import about

log = logging.getLogger("sluice.amqp")

# Encoded but unsent bytes that one session may hold, and all sessions of a connection together.
SESSION_OUTPUT = 1 << 20
CONNECTION_OUTPUT = 64 << 20


class ConnectionSessions:
    """The sessions that a client has begun on its connection, by channel."""

    __slots__ = ("_begun", "_client", "_links", "_termini", "_wire")

    def __init__(self, wire: Wire, client: ClientDetails, links: AttachedLinks, termini: KeptTermini) -> None:
        self._wire = wire
        self._client = client
        self._links = links
        self._termini = termini
        self._begun: dict[int, Session] = {}

    def channels(self) -> list[int]:
        """Return the channels of the sessions that the client has begun and not ended."""
        return list(self._begun)

    def on_begin(self, session: Session) -> None:
        """Begin a session on our side."""
        self._wire.set_window(address_of(session._impl), SESSION_FRAMES)
        session.open()
        session.sluice_channel = self._wire.book.begun.pop(0) if self._wire.book.begun else -1
        session.sluice_links = set()
        self._begun[session.sluice_channel] = session
        self._share_output()

    def on_end(self, session: Session) -> None:
        """Drop a session's links, and end it on our side."""
        for handle in list(session.sluice_links):
            self._links.drop(handle, SESSION_ENDED)
            self._wire.part(handle)
        channel = session.sluice_channel
        self._termini.session_ended(channel)
        if self._begun.get(channel) == session:
            del self._begun[channel]
        self._share_output()
        fault = self._wire.incoming.ended.pop(channel, None)
        if fault is not None:
            client = self._client
            told = about(client.address, connection=client.id, condition=fault[0], reason=fault[1])
            log.info("%s: ended a session: %s: %s", client.id, *fault, extra=told)
            session.condition = Condition(*fault)
        session.close()
        session.free()

    def answer_echoes(self) -> None:
        """Tell the state of the sessions that were asked for theirs (§2.7.4)."""
        channels = set(self._wire.incoming.session_echoes)
        self._wire.incoming.session_echoes.clear()
        for channel in channels & self._begun.keys():
            # Setting it, to whatever, makes Proton say it.
            self._begun[channel].incoming_capacity = self._wire.session_bytes

    def forget(self) -> None:
        """Let Proton's sessions go."""
        self._begun.clear()

    def _share_output(self) -> None:
        """Let many sessions hold no more unsent output together than a few."""
        self._wire.session_output = min(SESSION_OUTPUT, CONNECTION_OUTPUT // max(len(self._begun), 1))
