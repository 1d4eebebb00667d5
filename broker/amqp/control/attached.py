"""The links of one connection, from their attach to their end, by handle and by name."""

from __future__ import annotations

import logging
from typing import Any

from proton import Condition, Link, Terminus

from broker.amqp.control.addresses import SHARED
from broker.amqp.control.client import ClientDetails, LinkKey
from broker.amqp.control.decoding import capabilities_of
from broker.amqp.control.handles import address_of, handle_of, link_at
from broker.amqp.control.lifetimes import CONNECTION_CLOSED, DETACHED
from broker.amqp.control.permissions import UNAUTHORIZED, LinkPermissions
from broker.amqp.control.report import ConnectionReport
from broker.amqp.control.termini import KeptTermini
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.producer import ProducerLink
from broker.amqp.links.relay import RelayLink
from broker.amqp.loop.client_quotas import LIMIT_OF, Quotas
from broker.loggers import about

log = logging.getLogger("sluice.amqp")

# Frames of incoming window a session has; they are consumed as they arrive, so this bounds the frames a
# client may have under way, not the messages the broker holds.
SESSION_FRAMES = 2048
# Of a turn, about in microseconds: the share of links that go with their connection, and the cost of a link
# and of each message that it gives back.
AT_ONCE = 2000
LINK_COST = 40
MESSAGE_COST = 8
STOLEN = ("amqp:link:stolen", "another link was attached by the same name")


class AttachedLinks:
    """The links that one connection has attached.

    ``lasting`` has the links of all connections whose terminus outlasts its connection, by their names.
    """

    __slots__ = (
        *("_client", "_lasting", "_names", "_permissions", "_quotas", "_report", "_termini", "_wire"),
        "by_handle",
    )

    def __init__(
        self,
        wire: Wire,
        client: ClientDetails,
        permissions: LinkPermissions,
        termini: KeptTermini,
        report: ConnectionReport,
        quotas: Quotas,
        lasting: dict[LinkKey, tuple[AttachedLinks, ProducerLink | ConsumerLink]],
    ) -> None:
        self._wire = wire
        self._client = client
        self._permissions = permissions
        self._termini = termini
        self._report = report
        self._quotas = quotas
        self._lasting = lasting
        self.by_handle: dict[int, ProducerLink | ConsumerLink] = {}
        # By name, and whether the client sends.
        self._names: dict[tuple[str, bool], ProducerLink | ConsumerLink] = {}

    # --- names (§2.6.1)

    def steal_name(self, link: Link) -> None:
        """Detach the link that has this one's name: on this connection, or where both claim what lasts."""
        holder = self._names.get((link.name, link.is_receiver))
        if holder is not None:
            self.detach(holder, *STOLEN)
        if self._client.name and _lasts(link):
            elsewhere = self._lasting.get(self._client.link_key(link.name, link.is_receiver))
            if elsewhere is not None:
                elsewhere[0].detach(elsewhere[1], *STOLEN)

    def keep_name(self, link: Link) -> None:
        """Note the name of a link that is attached now."""
        attached = self.by_handle.get(handle_of(link))
        if attached is None:
            return
        self._names[link.name, link.is_receiver] = attached
        if self._client.name and _lasts(link):
            self._lasting[self._client.link_key(link.name, link.is_receiver)] = (self, attached)

    def named(self, name: str, client_sends: bool) -> ProducerLink | ConsumerLink | None:
        """Return the link of a name on which the client sends, or receives."""
        return self._names.get((name, client_sends))

    def _forget_name(self, link: ProducerLink | ConsumerLink) -> None:
        key = (link.name, isinstance(link, ProducerLink))
        if self._names.get(key) is link:
            del self._names[key]
        lasting = self._client.link_key(*key)
        if self._client.name and self._lasting.get(lasting) == (self, link):
            del self._lasting[lasting]

    # --- their end

    def detach(self, link: ProducerLink | ConsumerLink, condition: str, text: str, info: Any = None) -> None:
        """Detach a link with an error, which may say more; the connection and its other links go on."""
        if condition in LIMIT_OF:
            self._quotas.refuse(LIMIT_OF[condition])
        self._gone(link, DETACHED)
        proton_link = link_at(link.handle())
        self.mark_wronged(proton_link, refused=False)
        proton_link.condition = Condition(condition, text, info)
        proton_link.close()
        client = self._client
        told = about(client.address, connection=client.id, link=link.name, condition=condition, reason=text)
        log.info("%s: detached '%s': %s: %s", client.id, link.name, condition, text, extra=told)
        self._wire.mark()

    def detach_forbidden(self) -> None:
        """Detach the links that the client's user may not have any longer."""
        relays = {handle: link for handle, link in self.by_handle.items() if isinstance(link, RelayLink)}
        relayed = {handle: [node.name for node, _ in each.open_accounts()] for handle, each in relays.items()}
        for handle, reason in self._permissions.lost(relayed):
            link = self.by_handle.get(handle)
            if link is not None:
                self.detach(link, UNAUTHORIZED, reason)

    def mark_wronged(self, link: Link, *, refused: bool) -> None:
        """Have frames that the client sends on a link taken that it doesn't know is detached yet."""
        session = link.session
        self._wire.incoming.wrong(session.sluice_channel, link.name, link.is_receiver, refused)
        if link.is_receiver:
            self._wire.repair_flows(address_of(session._impl), session.sluice_channel, SESSION_FRAMES // 2)

    def drop(self, handle: int, how: int) -> None:
        """Give back all that the link of a handle has, if it is attached; ``how`` is how it goes."""
        if self._wire.refusals is not None:
            self._wire.refusals.pop(handle, None)
        attached = self.by_handle.get(handle)
        if attached is not None:
            self._gone(attached, how)

    def shut_some(self) -> bool:
        """Give back all that links have, for as many as a turn may; true once no link is left."""
        left = AT_ONCE
        for link in list(self._wire.links):
            if left <= 0:
                return False
            held = link.in_flight if isinstance(link, ConsumerLink) else link.kept
            left -= LINK_COST + held * MESSAGE_COST
            self._gone(link, CONNECTION_CLOSED)
        self._termini.connection_closed()
        return True

    def _gone(self, link: ProducerLink | ConsumerLink, how: int) -> None:
        handle = link.handle()
        self.by_handle.pop(handle, None)
        self._permissions.drop(handle)
        self._forget_name(link)
        self._report.detached(link)
        link.shut()
        self._termini.link_gone(handle, link.name, isinstance(link, ProducerLink), how)


def _lasts(link: Link) -> bool:
    """Whether a terminus of the link, its alone, is there longer than its connection (§3.5.3, §3.5.4)."""
    termini = (link.remote_source, link.remote_target)
    if SHARED in capabilities_of(link.remote_source):
        return False
    return any(
        each.durability != Terminus.NONDURABLE or each.expiry_policy == Terminus.EXPIRE_NEVER
        for each in termini
    )
