"""Handling of attach and detach: a request is granted, or answered with the error that refuses it."""

from __future__ import annotations

import logging

from proton import Condition, Endpoint, Link, Terminus

from broker.amqp.control.attach_consumer import ConsumerAttach
from broker.amqp.control.attach_producer import ProducerAttach
from broker.amqp.control.attached import STOLEN, AttachedLinks
from broker.amqp.control.client import ClientDetails
from broker.amqp.control.decoding import copy_terminus
from broker.amqp.control.foreign import NOT_FOUND, ForeignLinks
from broker.amqp.control.handles import handle_of
from broker.amqp.control.lifetimes import CLOSED, DETACHED
from broker.amqp.control.permissions import DeniedError, LinkPermissions
from broker.amqp.control.placement import LinkPlacement
from broker.amqp.control.report import ConnectionReport
from broker.amqp.control.termini import KeptTermini
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.loop.client_quotas import OverLimitError, Quotas
from broker.config.limits import Limits
from broker.errors import PeerError, SelectorError
from broker.loggers import about

log = logging.getLogger("sluice.amqp")


class AttachHandler:
    """Answers the attach and detach requests of one client."""

    __slots__ = (
        *("_client", "_consumers", "_limits", "_links", "_permissions", "_producers", "_quotas", "_report"),
        *("_foreign", "_placement", "_termini", "_wire"),
    )

    def __init__(
        self,
        wire: Wire,
        client: ClientDetails,
        links: AttachedLinks,
        producers: ProducerAttach,
        consumers: ConsumerAttach,
        termini: KeptTermini,
        permissions: LinkPermissions,
        report: ConnectionReport,
        limits: Limits,
        quotas: Quotas,
        placement: LinkPlacement | None,
        foreign: ForeignLinks | None,
    ) -> None:
        self._wire = wire
        self._client = client
        self._links = links
        self._producers = producers
        self._consumers = consumers
        self._termini = termini
        self._permissions = permissions
        self._report = report
        self._limits = limits
        self._quotas = quotas
        # Both None where there is one cell, and where another cell passes links on.
        self._placement = placement
        self._foreign = foreign

    def on_attach(self, link: Link) -> None:
        """Attach a link, or refuse it with the error that says why."""
        if link.state & Endpoint.LOCAL_ACTIVE:
            return
        try:
            if self._placement is None or self._foreign is None:
                self._attach(link)
            else:
                self._attach_at(self._placement, self._foreign, link)
        except UnicodeDecodeError:
            self._refuse(link, PeerError("amqp:decode-error", "an address that is not UTF-8"))
        except SelectorError as fault:
            if fault.over:
                self._quotas.refuse("max_selector_length")
            self._refuse(link, fault)
        except PeerError as fault:
            if isinstance(fault, OverLimitError):
                self._quotas.refuse(fault.limit)
            self._refuse(link, fault)

    def _attach_at(self, placement: LinkPlacement, foreign: ForeignLinks, link: Link) -> None:
        """Attach a link in the cell of its node, unless the connection goes to that cell."""
        place = placement.place_of(link)
        if place is None:
            return
        cell, address = place
        if placement.is_here(cell):
            if link.is_sender and link.remote_source.type == Terminus.UNSPECIFIED:
                self._come_back(placement, foreign, link)
            else:
                self._attach(link)
            return
        if self._note_link(link):
            raise PeerError("amqp:not-implemented", "a source or target of an unknown type")
        self._links.steal_name(link)
        foreign.attach(link, cell, address)

    def _come_back(self, placement: LinkPlacement, foreign: ForeignLinks, link: Link) -> None:
        """Attach a link without a source, as JMS does to unsubscribe, in the cell that knows its name."""
        try:
            self._attach(link)
        except PeerError as fault:
            if fault.condition != NOT_FOUND:
                raise
            foreign.seek(link, placement.others())

    def _note_link(self, link: Link) -> bool:
        """Count a link among those of its session; whether a terminus is of an unknown type."""
        odd = _take_note(self._wire.incoming.odd, link)
        if link.is_receiver and not _take_note(self._wire.incoming.sourceless, link):
            # Proton takes one without an address for none.
            link.remote_source.type = Terminus.SOURCE
        handles = link.session.sluice_links
        handles.add(handle_of(link))
        if len(handles) > self._limits.max_links:
            raise OverLimitError("max_links", "too many links in this session")
        foreign = 0 if self._foreign is None else len(self._foreign)
        if len(self._links.by_handle) + foreign >= self._limits.max_connection_links:
            raise OverLimitError("max_connection_links", "too many links on this connection")
        return odd

    def _attach(self, link: Link) -> None:
        odd = self._note_link(link)
        self._links.steal_name(link)
        if odd:
            raise PeerError("amqp:not-implemented", "a source or target of an unknown type")
        if link.is_sender:
            self._consumers.attach(link)
        else:
            self._producers.attach(link)
        self._links.keep_name(link)
        attached = self._links.by_handle
        mechanism = self._permissions.identity.mechanism
        self._report.attached(attached.get(handle_of(link)), attached.values(), mechanism)

    def on_detach(self, link: Link, closed: bool) -> None:
        """Answer a detach, for good (``closed``) or for now, in kind (§2.6.4)."""
        handle = handle_of(link)
        stolen = _take_note(self._wire.incoming.stolen, link)
        if self._foreign is not None and self._foreign.has(link):
            if not stolen and self._foreign.leave(link, closed):
                # The other cell's outcomes come before its answer.
                return
            self._foreign.on_detach(link, closed)
        link.session.sluice_links.discard(handle)
        # A link that is lost to another of its name loses nothing that stands at the link's end.
        self._links.drop(handle, CLOSED if closed and not stolen else DETACHED)
        if link.state & Endpoint.LOCAL_UNINIT:
            link.open()  # it left before the disk had what it attached for
        if link.state & Endpoint.LOCAL_ACTIVE:
            if stolen:
                client = self._client
                told = about(client.address, connection=client.id, link=link.name, condition=STOLEN[0])
                text = "%s: '%s' attached again: the link that had the name is stolen"
                log.info(text, client.id, link.name, extra=told)
                link.condition = Condition(*STOLEN)
            if closed:
                link.close()
            else:
                link.detach()
        self._wire.part(handle)
        link.free()

    def _refuse(self, link: Link, fault: PeerError) -> None:
        """Attach with a null terminus, then detach with the error: the form clients expect (§2.6.3)."""
        self._log_refused(link, fault)
        if link.is_sender:
            copy_terminus(link.target, link.remote_target)
            link.source.type = Terminus.UNSPECIFIED
        else:
            copy_terminus(link.source, link.remote_source)
            link.target.type = Terminus.UNSPECIFIED
        link.open()
        link.condition = Condition(fault.condition, fault.description)
        link.close()
        self._links.mark_wronged(link, refused=True)
        self._termini.discard(handle_of(link))

    def _log_refused(self, link: Link, fault: PeerError) -> None:
        told = self._client.about(
            link=link.name,
            role="consumer" if link.is_sender else "producer",
            node=_readable(link.remote_source if link.is_sender else link.remote_target),
            condition=fault.condition,
            reason=fault.description,
        )
        why = f"{fault} ({fault.rule})" if isinstance(fault, DeniedError) else str(fault)
        log.info("%s: refused link '%s': %s", self._client.id, link.name, why, extra=told)


def _take_note(notes: set[tuple[int, str, bool]], link: Link) -> bool:
    """Whether there is a note of this link; it is gone then."""
    note = (link.session.sluice_channel, link.name, link.is_receiver)
    if note not in notes:
        return False
    notes.discard(note)
    return True


def _readable(terminus: Terminus) -> str:
    """Return the address of a terminus, which may be no text at all."""
    try:
        return terminus.address or ""
    except UnicodeDecodeError:
        return "?"
