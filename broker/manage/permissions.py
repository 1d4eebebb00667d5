"""The rights of one identity in one request: the addresses it may use, the nodes and views it may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.config.patterns import ONE, REST
from broker.config.synonyms import from_arguments
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ForbiddenError
from broker.manage.access import BROKER, TEMPORARY, AccessControl, is_internal, refusal
from broker.manage.attributes import PREFIX
from broker.manage.bindings import Binding
from broker.manage.bridges import BridgeView
from broker.manage.ownership import Ownership
from broker.manage.views import ConsumerView, ProducerView
from broker.security.acl import Action
from broker.security.identity import Identity

# What is there once, or tells of all clients: who may see the broker may see these.
OF_THE_BROKER = frozenset(
    PREFIX + kind for kind in ("broker", "connection", "session", "policy", "route", "channel")
)
LINKS = (ProducerView, ConsumerView)
HANDLED = (Action.MANAGE_READ, Action.MANAGE_WRITE, Action.DELETE)
# The rights that give messages to whoever uses them.
READING = (Action.BROWSE, Action.MOVE)


class RequestPermissions:
    """The rules as they are for the identity of a request. Every ``require`` raises ForbiddenError.

    ``made`` are the nodes this request has made or changed, which it may show afterwards.
    """

    def __init__(
        self, engine: Engine, authority: AccessControl, ownership: Ownership, identity: Identity
    ) -> None:
        self.made: set[str] = set()
        self._engine = engine
        self._authority = authority
        self._ownership = ownership
        self._identity = identity

    # --- addresses

    def require(self, action: Action, address: str) -> None:
        """Require a right at an address, whether or not there is anything."""
        self._authority.require(self._identity, action, address)

    def require_node(self, action: Action, name: str) -> None:
        """Require a right at a node; at a subscription its topic's counts. Nobody reads others' replies."""
        place = self._place(name)
        self.require(action, place)
        if action in READING:
            self.require_own(action, place)

    def require_own(self, action: Action, name: str) -> None:
        """Require that a node, if it was made for a link, is theirs, whatever rules say, as for receivers."""
        node = self._engine.topology.nodes.get(name) if name.startswith(f"{TEMPORARY}/") else None
        if node is None or self._authority.is_open or is_internal(self._identity):
            return
        if self._ownership.user(node) != self._identity.user:
            raise ForbiddenError(refusal(self._identity, action, name))

    def allows_node(self, action: Action, name: str) -> bool:
        """Return whether ``require_node`` would pass."""
        return self._authority.allows(self._identity, action, self._place(name))

    def require_pattern(self, action: Action, wanted: str) -> None:
        """Require a right at all that a pattern may mean, in every virtual host."""
        self.require(action, wanted)
        if wanted.partition(".")[0] in (ONE, *REST):
            for host in self._authority.hosts:
                self.require(action, f"{host}/{wanted}")

    def require_broker(self, action: Action) -> None:
        """Require a right at the broker as a whole."""
        self.require(action, BROKER)

    def require_handling(self, name: str) -> None:
        """Require to see, to change or to delete a node."""
        address = self._place(name)
        if not self._handles(address):
            self.require(Action.MANAGE_READ, address)

    def require_made(self, name: str) -> None:
        """Require the right to make a node, if it isn't there: it is about to be made."""
        if name not in self._engine.topology.nodes:
            self.require(Action.CREATE, name)

    def require_ends(self, source: str, target: str) -> None:
        """Require to change both ends of a binding or a bridge, and to make those that aren't there; the
        source's messages are read by it.
        """
        for end in (source, target):
            self.require(Action.MANAGE_WRITE, end)
            self.require_made(end)
        self.require_own(Action.MANAGE_WRITE, source)

    def require_dead_letters(self, arguments: Mapping[str, object]) -> None:
        """Require to send to the place of dead letters that arguments name, and to make it."""
        given = from_arguments({key: value for key, value in arguments.items() if value is not None})
        target = given.get("dead_letter_address")
        if isinstance(target, str) and target:
            self.require(Action.SEND, target)
            self.require_made(target)

    def require_type(self, type_: str | None) -> None:
        """Require to see the broker for a type of entity that tells of the whole."""
        if type_ in OF_THE_BROKER:
            self.require_broker(Action.MANAGE_READ)

    # --- seeing

    def only(self) -> Callable[[object], bool] | None:
        """Return what sorts out the nodes and views they may see; None where that is all."""
        return None if self._authority.visible(self._identity) is None else self.sees

    def sees(self, item: object) -> bool:
        """Return whether they may see a node, or a view."""
        if isinstance(item, Node):
            return self.sees_node(item.name)
        if isinstance(item, LINKS):
            return self.sees_node(item.node)
        if isinstance(item, Binding | BridgeView):
            # Whoever may end it may see it.
            return all(self._handles(end) for end in (item.source, item.target))
        return self._authority.allows(self._identity, Action.MANAGE_READ, BROKER)

    def sees_node(self, name: str) -> bool:
        """Return whether they may see a node; one that this request has made they may."""
        place = self._place(name)
        return name in self.made or self._authority.allows(self._identity, Action.MANAGE_READ, place)

    def _handles(self, address: str) -> bool:
        """Whether they may see, change or delete what is there."""
        allows = self._authority.allows
        return address in self.made or any(allows(self._identity, each, address) for each in HANDLED)

    def _place(self, name: str) -> str:
        """The address by which rules mean a node of that name."""
        engine = self._engine
        # A queue first, as everywhere: whoever names a subscription after it gets no right at it.
        subscription = None if name in engine.topology.nodes else engine.topology.subscriptions.get(name)
        return name if subscription is None else subscription.address
