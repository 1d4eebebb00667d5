"""Permissions of one connection's user: asked when links attach, kept for each, asked when rules change.

Nothing is asked for a message, but on the anonymous relay: there once for each address.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.engine.node import Node
from broker.errors import PeerError
from broker.manage.access import EVENTS, TEMPORARY, AccessControl, is_internal, refusal
from broker.manage.model import Model
from broker.manage.names import is_own
from broker.manage.subscriptions import OF_THE_BROKER
from broker.security.acl import Action
from broker.security.identity import ANONYMOUS, Identity

UNAUTHORIZED = "amqp:unauthorized-access"
ANOTHERS = "replies are read by whoever had their node made"


class DeniedError(PeerError):
    """A rule denies it; ``rule`` is for the log, and for nobody outside."""

    def __init__(self, description: str, rule: str) -> None:
        super().__init__(UNAUTHORIZED, description)
        self.rule = rule


class LinkPermissions:
    """The rules as they are for one identity. Links go by their handles, addresses by nodes' names."""

    def __init__(self, model: Model, identity: Identity) -> None:
        self.identity = identity
        self._model = model
        self._held: dict[int, tuple[Action, str]] = {}

    @property
    def _authority(self) -> AccessControl:
        return self._model.authority

    def connects(self, virtual_host: str) -> str:
        """Why they may not open a connection there; empty if they may."""
        if self._authority.is_open or self._authority.connects(self.identity, virtual_host).allowed:
            return ""
        return refusal(self.identity, Action.CONNECT, "")

    def allows(self, action: Action, name: str) -> bool:
        """Whether they may."""
        return self._authority.allows(self.identity, action, name)

    def require(self, action: Action, name: str) -> None:
        """PeerError if they may not; it doesn't say whether there is a node of that name."""
        if not self._authority.allows(self.identity, action, name):
            rule = self._authority.decide(self.identity, action, name).rule
            raise DeniedError(refusal(self.identity, action, name), rule)

    def require_node(self, action: Action, name: str) -> None:
        """The same for a node that is made if it isn't there. Nobody reads where another awaits replies."""
        self.require(action, name)
        node = self._model.engine.topology.nodes.get(name)
        if node is None:
            if not name.startswith("$"):
                self.require(Action.CREATE, name)
        elif action is not Action.SEND and self._is_anothers(node):
            raise DeniedError(refusal(self.identity, action, name), ANOTHERS)

    def require_temporary(self) -> None:
        """PeerError if they may have no node made for a link."""
        self.require(Action.CREATE, TEMPORARY)

    def reading(self, name: str, browses: bool) -> tuple[Action, str]:
        """The right that receiving from an address takes."""
        if is_own(name):
            return Action.MANAGE_READ, EVENTS
        return (Action.BROWSE if browses else Action.RECEIVE), name

    @property
    def maker(self) -> str:
        """Whose the nodes are that it makes; nobody's where it is the broker."""
        return "" if is_internal(self.identity) else self.identity.user

    @property
    def subscriber(self) -> str:
        """Whose subscriptions are this user's alone; what nobody has proved to be theirs is anybody's."""
        if is_internal(self.identity):
            return OF_THE_BROKER
        return "" if self.identity.user == ANONYMOUS.user else self.identity.user

    # --- links

    def hold(self, handle: int, action: Action, name: str) -> None:
        """A link is there by this right."""
        self._held[handle] = action, name

    def drop(self, handle: int) -> None:
        """It is gone."""
        self._held.pop(handle, None)

    def lost(self, relayed: Mapping[int, list[str]]) -> list[tuple[int, str]]:
        """The links that may not be there any longer, and why; ``relayed``: the nodes relays sent to."""
        wanted = [(handle, *held) for handle, held in self._held.items()]
        wanted += [(handle, Action.SEND, name) for handle, names in relayed.items() for name in names]
        return [
            (handle, refusal(self.identity, action, name))
            for handle, action, name in wanted
            if not self._authority.allows(self.identity, action, name)
        ]

    def _is_anothers(self, node: Node) -> bool:
        if self._authority.is_open or not node.name.startswith(f"{TEMPORARY}/"):
            return False
        return self._model.ownership.user(node) != self.maker
