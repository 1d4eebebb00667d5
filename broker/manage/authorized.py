"""The model's verbs as one user may use them: each asks first, then does what the model does.

All three faces speak to this one; none of them decides who may do what. What is about a node needs a right
at its address, a subscription goes by its topic's; what is about the broker needs one at `$broker`.
A check comes before the look-up, so that a refusal tells nobody what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from broker.config.patterns import is_pattern
from broker.config.policies import PolicySet
from broker.config.synonyms import from_arguments
from broker.engine.node import Node
from broker.manage.access import BROKER, EVENTS, INTERNAL, is_internal
from broker.manage.attributes import PREFIX
from broker.manage.audit import Audit
from broker.manage.bindings import Binding
from broker.manage.bridges import BridgeView, ends_of
from broker.manage.browsing import Browsing
from broker.manage.effect import Effect
from broker.manage.entities import Page
from broker.manage.holds import EVERYTHING
from broker.manage.model import Explanation, Model, Reread, Steps
from broker.manage.samples import Flow, Sample
from broker.manage.tracing import TraceRequest
from broker.manage.views import ConsumerView, ProducerView
from broker.manage.why.deadlocks import DeadlockView
from broker.manage.why.why import Why
from broker.security.acl import Action
from broker.security.identity import Identity

Row = dict[str, object]
# What is there once, or tells of all clients: who may see the broker may see these.
OF_THE_BROKER = frozenset(
    PREFIX + kind for kind in ("broker", "connection", "session", "policy", "route", "channel")
)
NODE_TYPES = frozenset(PREFIX + kind for kind in ("queue", "topic", "subscription"))
LINKS = (ProducerView, ConsumerView)
HANDLED = (Action.MANAGE_READ, Action.MANAGE_WRITE, Action.DELETE)


class AuthorizedModel:
    """The verbs for one identity; ForbiddenError from whatever it may not. Made for one request.

    What a request has made or changed it may show afterwards.
    """

    def __init__(self, model: Model, identity: Identity = INTERNAL) -> None:
        self._model = model
        self._identity = identity
        self._authority = model.authority
        self._user = "" if is_internal(identity) else identity.user
        self._told: set[str] = set()

    # --- nodes

    def create(
        self, kind: str, name: str, arguments: Mapping[str, object] | None = None, durable: bool | None = None
    ) -> Node:
        """As the model's."""
        self._require(Action.CREATE, name)
        self._check_target(arguments or {})
        node = self._model.create(kind, name, arguments, durable, self._user)
        self._told.add(name)
        return node

    def update(self, name: str, arguments: Mapping[str, object]) -> Node:
        """As the model's."""
        self._require(Action.MANAGE_WRITE, name)
        self._check_target(arguments)
        node = self._model.update(name, arguments)
        self._told.add(name)
        return node

    def delete(self, name: str) -> Node:
        """As the model's."""
        self._require(Action.DELETE, self._place(name))
        return self._model.delete(name)

    def find(self, name: str) -> Node:
        """A node that they may see, change or delete."""
        self._require_handling(self._place(name))
        return self._model.find(name)

    def typed(self, kind: str, name: str) -> Node:
        """The same, of that kind."""
        self._require_handling(self._place(name))
        return self._model.typed(kind, name)

    def bind(self, source: str, target: str) -> None:
        """As the model's."""
        self._require_ends(source, target)
        self._model.bind(source, target, self._user)
        self._told |= {source, target}

    def unbind(self, source: str, target: str) -> None:
        """As the model's."""
        self._require(Action.MANAGE_WRITE, source)
        self._require(Action.MANAGE_WRITE, target)
        self._model.unbind(source, target)

    def create_bridge(self, name: str, attributes: Mapping[str, object]) -> str:
        """As that of the model's bridges."""
        source, target = ends_of(name, attributes)
        self._require_ends(source, target)
        self._told |= {source, target}
        return self._model.bridges.create(name, attributes, self._user)

    def delete_bridge(self, name: str) -> None:
        """As that of the model's bridges."""
        known = [each for each in self._model.bridges.views() if each.name == name]
        ends = [(each.source, each.target) for each in known] or [name.partition("->")[::2]]
        for end in ends[0]:
            self._require(Action.MANAGE_WRITE, end)
        self._model.bridges.delete(name)

    # --- messages

    def purge(self, name: str, dry_run: bool = False) -> int:
        """As the model's."""
        self._require(Action.PURGE, self._place(name))
        return self._model.purge(name, dry_run)

    def move(self, source: str, target: str, count: int = 0, dry_run: bool = False) -> int:
        """As the model's: out of the one as with ``move``, into the other as with ``send``."""
        self._require(Action.MOVE, self._place(source))
        self._require(Action.SEND, target)
        if not dry_run:
            self._require_made(target)
        return self._model.move(source, target, count, dry_run, self._user)

    def browse(
        self, name: str, offset: int = 0, count: int = 20, told: Callable[[], None] = lambda: None
    ) -> Browsing:
        """As the model's."""
        self._require(Action.BROWSE, self._place(name))
        return self._model.browse(name, offset, count, told)

    # --- operators

    def hold(self, target: str | None, held: bool) -> list[str]:
        """As the model's; of a pattern, they need the right at all that it means, in every virtual host."""
        wanted = target or EVERYTHING
        self._require(Action.MANAGE_WRITE, wanted)
        if is_pattern(wanted.partition(".")[0]):
            for host in self._authority.hosts:
                self._require(Action.MANAGE_WRITE, f"{host}/{wanted}")
        return self._model.hold(target, held)

    def change_broker(self) -> None:
        """ForbiddenError if they may not change the broker as a whole; any thread may ask."""
        self._require(Action.MANAGE_WRITE, BROKER)

    def read_text(self, text: str, file: str, dry_run: bool) -> PolicySet:
        """As the model's; any thread may ask. To try them, they need the right to see only."""
        self.see_broker() if dry_run else self.change_broker()
        return self._model.read_text(text, file, dry_run)

    def apply_in_parts(self, given: PolicySet) -> Steps:
        """As the model's."""
        self.change_broker()
        return self._model.apply_in_parts(given)

    def discard(self, name: str) -> int:
        """As the model's."""
        self._require(Action.MANAGE_WRITE, BROKER)
        return self._model.discard(name)

    def try_in_parts(self, given: PolicySet) -> Steps:
        """As the model's."""
        self.see_broker()
        return self._model.try_in_parts(given)

    def read_again(self) -> Reread:
        """As the model's; any thread may ask."""
        self.change_broker()
        return self._model.read_again()

    def reload_in_parts(self, read: Reread) -> Steps:
        """As the model's."""
        self.change_broker()
        return self._model.reload_in_parts(read)

    def backup(self, target: str) -> str:
        """As that of the model's backups: where it is going to be."""
        self._require(Action.BACKUP, BROKER)
        return str(self._model.backups.begin(target))

    def backup_done(self) -> bool:
        """As that of the model's backups."""
        self._require(Action.BACKUP, BROKER)
        return self._model.backups.is_done()

    def close_connection(self, connection_id: str) -> None:
        """As the model's."""
        self._require(Action.MANAGE_WRITE, BROKER)
        self._model.close_connection(connection_id)

    def detach_link(self, link_id: str) -> None:
        """As the model's; of a node they may change, or, where there is no such link, of the broker."""
        views = self._model.links.every("link")
        nodes = [each.node for each in views if isinstance(each, LINKS) and each.id == link_id]
        self._require(Action.MANAGE_WRITE, self._place(nodes[0]) if nodes else BROKER)
        self._model.detach_link(link_id)

    def change_level(self, logger: str, level: str) -> dict[str, str]:
        """As that of the log levels."""
        self._require(Action.MANAGE_WRITE, BROKER)
        return self._model.log_levels.change(logger, level)

    def trace(self, order: TraceRequest) -> TraceRequest:
        """As that of tracing."""
        self._require(Action.MANAGE_WRITE, BROKER)
        return self._model.tracing.order(order)

    # --- seeing it

    def levels(self) -> dict[str, str]:
        """From which level on each logger writes."""
        self._require(Action.MANAGE_READ, BROKER)
        return self._model.log_levels.effective()

    def audit(self) -> Audit:
        """As the model's."""
        self._require(Action.MANAGE_READ, BROKER)
        return self._model.audit()

    def events(self, count: int, samples: bool = True) -> list[bytes]:
        """As the model's; any thread may ask."""
        self._require(Action.MANAGE_READ, EVENTS)
        return self._model.events(count, samples)

    def explain(self, address: str) -> Explanation:
        """As the model's."""
        self._require(Action.MANAGE_READ, self._place(address))
        return self._model.explain(address)

    def effect(self, name: str, arguments: Mapping[str, object]) -> Effect:
        """As the model's."""
        self._require(Action.MANAGE_READ, name)
        return self._model.effect(name, arguments)

    def history(self, name: str, seconds: int) -> tuple[Node, list[Sample]]:
        """A node, and a row a second of its last minutes."""
        self._require(Action.MANAGE_READ, self._place(name))
        return self._model.find(name), self._model.history(name, seconds)

    def broker_history(self, seconds: int) -> list[Flow]:
        """As the model's."""
        self.see_broker()
        return self._model.broker_history(seconds)

    def why(self, name: str = "") -> list[Why]:
        """As the model's, of the nodes they may see."""
        if name:
            self._require(Action.MANAGE_READ, self._place(name))
        return [each for each in self._model.why(name) if self._sees_node(each.node)]

    def holds(self) -> list[str]:
        """The names and patterns whose producers an operator stops."""
        self._require(Action.MANAGE_READ, BROKER)
        return list(self._model.holds.patterns)

    def deadlocks(self) -> list[DeadlockView]:
        """Those that stand now."""
        self._require(Action.MANAGE_READ, BROKER)
        return list(self._model.deadlocks.views())

    def broker_in_parts(self) -> Generator[None, None, Row]:
        """As the model's."""
        self.see_broker()
        return self._model.broker_in_parts()

    def see_broker(self) -> None:
        """ForbiddenError if they may not see the broker as a whole; any thread may ask."""
        self._require(Action.MANAGE_READ, BROKER)

    # --- lists

    def query(
        self,
        type_: str | None,
        attribute_names: Sequence[str] = (),
        offset: int = 0,
        count: int = 1000,
        sort: str = "",
        pattern: str = "",
    ) -> Page:
        """As the model's, of what they may see."""
        self._check_type(type_)
        return self._model.query(type_, attribute_names, offset, count, sort, pattern, self._only())

    def read(self, type_: str, name: str) -> Row:
        """As the model's."""
        self._check_type(type_)
        if type_ in NODE_TYPES and name not in self._told:
            self._require(Action.MANAGE_READ, self._place(name))
        return self._model.read(type_, name, None if type_ in NODE_TYPES else self._only())

    def nodes(self, kinds: Sequence[str]) -> list[str]:
        """As the listing's."""
        return self._model.listing.nodes(kinds, self._only())

    def of_topic(self, topic: str, kind: str) -> list[str]:
        """As the listing's."""
        self._require(Action.MANAGE_READ, topic)
        return self._model.listing.of_topic(topic, kind, self._only())

    def keys(self, found: Sequence[str], attribute: str) -> list[object]:
        """As the listing's, for names from ``nodes``; None for those they may not see."""
        keys = self._model.listing.keys(found, attribute)
        return [key if self._sees_node(name) else None for name, key in zip(found, keys, strict=True)]

    def rows(self, found: Sequence[str], columns: Sequence[str]) -> list[Row]:
        """As the listing's; what they may not see is left out as if it were gone."""
        return self._model.listing.rows([name for name in found if self._sees_node(name)], columns)

    def others(self, type_: str, node: str = "") -> Generator[None, None, list[object]]:
        """As the listing's."""
        self._check_type(type_)
        found = yield from self._model.listing.others(type_, node)
        return [view for view in found if self._sees(view)]

    # --- inside

    def _require(self, action: Action, address: str) -> None:
        self._authority.require(self._identity, action, address)

    def _require_handling(self, address: str) -> None:
        if not self._handles(address):
            self._require(Action.MANAGE_READ, address)

    def _handles(self, address: str) -> bool:
        """Whether they may see, change or delete what is there."""
        allows = self._authority.allows
        return address in self._told or any(allows(self._identity, each, address) for each in HANDLED)

    def _require_made(self, name: str) -> None:
        """If it isn't there, they are about to make it."""
        if name not in self._model.engine.nodes:
            self._require(Action.CREATE, name)

    def _require_ends(self, *ends: str) -> None:
        for end in ends:
            self._require(Action.MANAGE_WRITE, end)
            self._require_made(end)

    def _check_target(self, arguments: Mapping[str, object]) -> None:
        """Dead letters are sent by whoever says where to, and what takes them is made by the same."""
        given = from_arguments({key: value for key, value in arguments.items() if value is not None})
        target = given.get("dead_letter_address")
        if isinstance(target, str) and target:
            self._require(Action.SEND, target)
            self._require_made(target)

    def _check_type(self, type_: str | None) -> None:
        if type_ in OF_THE_BROKER:
            self._require(Action.MANAGE_READ, BROKER)

    def _place(self, name: str) -> str:
        """The address by which rules mean a node of that name."""
        engine = self._model.engine
        # A queue first, as everywhere: whoever names a subscription after it gets no right at it.
        subscription = None if name in engine.nodes else engine.subscriptions.get(name)
        return name if subscription is None else subscription.address

    def _only(self) -> Callable[[object], bool] | None:
        return None if self._authority.visible(self._identity) is None else self._sees

    def _sees(self, item: object) -> bool:
        """Whether they may see a node, or a view; what this request has made they may."""
        if isinstance(item, Node):
            return self._sees_node(item.name)
        if isinstance(item, LINKS):
            return self._sees_node(item.node)
        if isinstance(item, Binding | BridgeView):
            # Whoever may end it may see it.
            return all(self._handles(end) for end in (item.source, item.target))
        return self._authority.allows(self._identity, Action.MANAGE_READ, BROKER)

    def _sees_node(self, name: str) -> bool:
        place = self._place(name)
        return name in self._told or self._authority.allows(self._identity, Action.MANAGE_READ, place)
