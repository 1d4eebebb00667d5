"""Resolution of the addresses that a client's links and relayed messages name, to nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from proton import Link, Terminus

from broker.amqp.control import node_properties
from broker.amqp.control.addresses import READER_MARK, inside, is_foreign, kind_of, outside, parsed
from broker.amqp.control.client import ClientDetails
from broker.amqp.control.decoding import capabilities_of
from broker.amqp.control.handles import handle_of
from broker.amqp.control.lifetimes import Kept, lifetime_of
from broker.amqp.control.permissions import LinkPermissions
from broker.amqp.control.placement import NodeDirectory
from broker.amqp.control.temporary import TemporaryNodes
from broker.amqp.control.termini import KeptTermini
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.loop.client_quotas import OverLimitError
from broker.engine.node import Node
from broker.errors import (
    ConflictError,
    ForeignAddressError,
    LimitError,
    NotFoundError,
    OperatorError,
    PeerError,
)
from broker.manage.model import Model
from broker.manage.names import check_name, is_own
from broker.security.acl import Action


class AddressResolver:
    """Resolves addresses to the nodes that one client means and may use, and has missing ones made.

    All methods raise PeerError where there is no such node for the client.
    """

    __slots__ = ("_cells", "_client", "_hosts", "_model", "_permissions", "_temporary", "_termini", "_wire")

    def __init__(
        self,
        wire: Wire,
        client: ClientDetails,
        permissions: LinkPermissions,
        termini: KeptTermini,
        temporary: TemporaryNodes,
        model: Model,
        virtual_hosts: tuple[str, ...],
        cells: NodeDirectory | None = None,
    ) -> None:
        self._wire = wire
        self._client = client
        self._permissions = permissions
        self._termini = termini
        self._temporary = temporary
        self._model = model
        self._hosts = virtual_hosts
        # None where there is one cell.
        self._cells = cells

    # --- nodes of an address

    def node_of(self, terminus: Terminus, action: Action, of: str = "") -> Node:
        """Return the node of a link's address, or of the one it stands for, made by policy if need be."""
        address = parsed(of or self.local(terminus.address or ""))
        name = inside(self._client.host, address.name)
        self.check_host(name)
        self._permissions.require_node(action, name)
        kind = address.kind or kind_of(capabilities_of(terminus)) or None
        asked = self._asked_of(terminus, action is Action.SEND)
        try:
            return self._model.nodes.resolve(name, kind, self._permissions.maker, asked)
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault
        except NotFoundError as fault:
            raise PeerError("amqp:not-found", str(fault)) from fault
        except ConflictError as fault:
            raise PeerError("amqp:precondition-failed", str(fault)) from fault
        except OperatorError as fault:
            raise PeerError("amqp:invalid-field", str(fault)) from fault

    def local(self, address: str) -> str:
        """Return an address without the cell that it may name, which is this one."""
        if self._cells is None:
            return address
        try:
            return self._cells.split(address)[1]
        except ValueError as fault:
            raise PeerError("amqp:not-found", str(fault)) from fault

    def relayed_node_of(self, address: str) -> Node:
        """Return the node that the ``to`` of a message on an anonymous link names."""
        if not address:
            raise PeerError(
                "amqp:invalid-field", "a message on an anonymous link needs 'to' in its properties"
            )
        self._check_cell(address)
        to = parsed(self.local(address))
        name = inside(self._client.host, to.name)
        self.check_host(name)
        self.check_takes_messages(name)
        self._permissions.require_node(Action.SEND, name)
        try:
            return self._model.nodes.resolve(name, to.kind or None, self._permissions.maker)
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault
        except ConflictError as fault:
            raise PeerError("amqp:precondition-failed", str(fault)) from fault
        except OperatorError as fault:
            raise PeerError("amqp:not-found", str(fault)) from fault

    def reader_of(self, address: str, browses: bool) -> tuple[str, str]:
        """Return the address of a stream and the name of its reader, for `stream::reader`; the address itself
        and an empty name for all others, and where a node bears the whole name.

        A client that may receive from neither is refused by the whole address, whatever there is.
        """
        stream, mark, reader = address.rpartition(READER_MARK)
        if not mark:
            return address, ""
        permissions, nodes = self._permissions, self._model.nodes
        whole, part = self.name_of(address), self.name_of(stream)
        if not permissions.allows(*permissions.reading(part, browses)):
            permissions.require(*permissions.reading(whole, browses))
        if nodes.is_taken(whole) or not nodes.is_stream(part):
            return address, ""
        permissions.require(*permissions.reading(part, browses))
        try:
            return stream, check_name(reader)
        except OperatorError as fault:
            raise PeerError("amqp:invalid-field", f"the reader's name in '{address}': {fault}") from fault

    def name_of(self, address: str) -> str:
        """Return the name, in the broker, of the node that the client calls so."""
        return inside(self._client.host, parsed(address).name)

    def shown(self, name: str) -> str:
        """Return the address by which the client calls the node of a name."""
        return outside(self._client.host, name)

    def _check_cell(self, address: str) -> None:
        """ForeignAddressError if a message's address is in another cell, unless it has come from one."""
        cells = self._cells
        if cells is None or self._wire.owner.relays:
            return
        try:
            cell, rest = cells.split(address)
        except ValueError as fault:
            raise PeerError("amqp:not-found", str(fault)) from fault
        if cell is None:
            cell = cells.cell_of(self.name_of(rest))
        if cell != cells.own:
            raise ForeignAddressError(address, cell)

    # --- nodes made for a link

    def dynamic_node(self, link: Link, terminus: Terminus) -> Node:
        """Return the node this link had before it was detached, or one made for it.

        The node outlives the link only as its lifetime policy says.
        """
        self._permissions.require_temporary()
        policy = lifetime_of(terminus)
        owner = self._wire.owner
        known = self._temporary.come_back(self._client.link_key(link.name, link.is_receiver), owner)
        if known is not None:
            node, before = known
            self._termini.resume(before)
        else:
            asked = self._asked_of(terminus, link.is_receiver)
            node = self._make_node(kind_of(capabilities_of(terminus)) or "queue", asked)
        kept = Kept.of(terminus, partial(self._temporary.abandon, node, policy))
        self._temporary.keep(node, kept)
        self._termini.keep(handle_of(link), link.session.sluice_channel, kept)
        return node

    def node_for_replies(self, *, counts: bool) -> Node:
        """Return a new node for the answers of the management node; ``counts``: as one of its user's."""
        try:
            return self._temporary.make(self._wire.owner, user=self._client.user if counts else "")
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault

    def _make_node(self, kind: str, asked: Mapping[str, object]) -> Node:
        try:
            return self._temporary.make(self._wire.owner, kind, user=self._permissions.maker, asked=asked)
        except LimitError as fault:
            raise OverLimitError("max_nodes_per_user", str(fault)) from fault
        except OperatorError as fault:
            raise PeerError("amqp:invalid-field", f"dynamic-node-properties: {fault}") from fault

    def _asked_of(self, terminus: Terminus, is_target: bool) -> dict[str, object]:
        role = "target" if is_target else "source"
        return node_properties.asked_of(terminus, role, self._client.about())

    # --- names that are not this client's

    def check_takes_messages(self, name: str) -> None:
        """Raise PeerError if the node of a name is the broker's own, to which nobody may send."""
        if is_own(name):
            raise PeerError("amqp:not-allowed", f"'{name}' is the broker's own: nobody may send to it")

    def check_host(self, name: str) -> None:
        """Raise PeerError if a node of that name belongs to another virtual host."""
        if is_foreign(self._client.host, name, self._hosts):
            raise PeerError("amqp:not-found", f"'{name}' belongs to another virtual host")

    def check_receives(self, node: Node) -> None:
        """Raise PeerError if the node was made for a link of another connection, the only one to receive."""
        if self._temporary.is_anothers(node, self._wire.owner):
            text = f"'{node.name}' was made for a link of another connection, which alone receives from it"
            raise PeerError("amqp:resource-locked", text)

    def is_elsewhere(self, address: str) -> bool:
        """Whether a subscription's address is in a virtual host that isn't this client's."""
        host = self._client.host
        return is_foreign(host, address, self._hosts) or inside(host, outside(host, address)) != address
