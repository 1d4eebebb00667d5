"""Events and log lines about one connection and its links."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from broker.amqp.control.client import ClientDetails
from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.producer import ProducerLink
from broker.amqp.links.sink import SinkLink
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.manage.access import TEMPORARY
from broker.manage.names import LONGEST

log = logging.getLogger("sluice.amqp")

# How the containers of the command line's own connections are named (`TOOL` of broker/client/request.py).
# One is left out of events and log as long as it touches nothing but management, its replies and events: so
# the mark hides nobody who does more, and a fault of its is logged all the same.
TOOL = "sluice-cli-"
EVENTS = "$sluice/events"


class ConnectionReport:
    """Reports one connection: opened, refused or closed, with its links, to the events and to the log.

    ``end`` is why it ends: the first condition and text that either side, or Proton, gave for it.
    """

    __slots__ = ("_client", "_engine", "_tls", "end", "is_tool")

    def __init__(self, engine: Engine, client: ClientDetails, tls: str) -> None:
        self._engine = engine
        self._client = client
        self._tls = tls
        # Whether it is the command line's own and has touched nothing else so far.
        self.is_tool = False
        self.end = ("", "")

    # --- the connection

    def opened(self, mechanism: str) -> None:
        """Report that the client has opened; one of the command line's own is left out from then on."""
        self.is_tool = self._client.name.startswith(TOOL)
        self._tell_opened(mechanism)

    def refused(self, limit: str, most: int, count: int) -> None:
        """Report that a limit on connections has refused it, the ``count``-th since the last report."""
        fields = {"limit": limit, "most": most, "user": self._client.user, "count": count}
        self._tell("connection_refused", {**self._named(), **fields})

    def left(self) -> None:
        """Report that the connection is not counted any more."""
        self._tell("connection_closed", {})

    def ends(self, condition: str, reason: str) -> None:
        """Note why the connection ends, unless a reason is known already."""
        if self.end == ("", ""):
            self.end = condition, reason

    def closed(self, was_open: bool) -> None:
        """Log in one line which connection is gone, and why."""
        client = self._client
        condition, reason = self.end
        why = ": ".join(filter(None, self.end)) or "the client went away without closing"
        opened = "" if was_open else " before it opened"
        text = "%s: closed%s, from %s, container '%s', user %s: %s"
        told = client.about(condition=condition, reason=reason or why)
        level = logging.INFO if condition else self._level()
        log.log(level, text, client.id, opened, client.address, client.name, client.user, why, extra=told)

    # --- its links

    def attached(
        self,
        link: ProducerLink | ConsumerLink | None,
        links: Iterable[ProducerLink | ConsumerLink],
        mechanism: str,
    ) -> None:
        """Report a new link; if it shows that the client is no mere tool, report all that was left out.

        ``links`` are all links of the connection, this one included.
        """
        if not self.is_tool or _is_own(link):
            self._tell_link("link_opened", link)
            return
        self.is_tool = False
        self._tell_opened(mechanism)
        for each in links:
            self._tell_link("link_opened", each)

    def detached(self, link: ProducerLink | ConsumerLink) -> None:
        """Report that a link is gone."""
        self._tell_link("link_closed", link)

    def _tell_opened(self, mechanism: str) -> None:
        self._tell("connection_opened", self._named())
        client = self._client
        text = "%s: open from %s, container '%s', user %s by %s%s"
        how = mechanism or "no SASL"
        tls = f", {self._tls}" if self._tls else ""
        told = client.about(mechanism=how)
        who = client.id, client.address, client.name, client.user
        log.log(self._level(), text, *who, how, tls, extra=told)

    def _named(self) -> dict[str, object]:
        return {"container": self._client.name[:LONGEST], "peer": self._client.address}

    def _level(self) -> int:
        return logging.DEBUG if self.is_tool else logging.INFO

    def _tell(self, kind: str, fields: Mapping[str, object], node: Node | None = None) -> None:
        if not self.is_tool or log.isEnabledFor(logging.DEBUG):
            self._engine.changes.emit(kind, node, {"connection": self._client.id, **fields})

    def _tell_link(self, kind: str, link: ProducerLink | ConsumerLink | None) -> None:
        if link is None:
            return
        role = "producer" if isinstance(link, ProducerLink) else "consumer"
        fields: dict[str, object] = {"link": link.id, "role": role, "name": link.name[:LONGEST]}
        if kind == "link_opened":
            fields["presettled"] = link.presettled
        self._tell(kind, fields, link.node)


def _is_own(link: ProducerLink | ConsumerLink | None) -> bool:
    """Whether a link is to management, to replies of it or to the broker's events."""
    if isinstance(link, SinkLink) or link is None:
        return True
    node = link.node
    return node is not None and (node.address == EVENTS or node.name.startswith(f"{TEMPORARY}/"))
