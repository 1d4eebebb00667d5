"""The settings that hold at an address: of its policies, its arguments, the topics above it and the defaults.

This file only reads the engine's nodes and changes none. ``nodes.py`` puts what it finds into force.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from broker.config.flow import BrokerDefaults
from broker.config.node import DEAD_LETTERS, normalise
from broker.config.policies import CAPABILITY, Effective, PolicySet, Setting, tolerated
from broker.config.synonyms import from_arguments
from broker.config.thresholds import bounded
from broker.engine.engine import Engine
from broker.engine.grouping import has_members, is_regrouped
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.manage.access import AccessControl
from broker.manage.bindings import parents_of
from broker.manage.names import placed
from broker.manage.subscriptions import SubscriptionKey

# What is said of nodes in files.
Terms = tuple[PolicySet, BrokerDefaults]
# By name, what each topic above a node was declared with.
Parents = Mapping[str, Mapping[str, object]]
NO_PARENTS: Parents = MappingProxyType({})
NOTHING: Mapping[str, object] = MappingProxyType({})


class AddressSettings:
    """The policies and defaults in force, and the settings that follow from them for each node.

    ``auto_create`` is the broker's word on it where no policy has one. ``terms`` of a method are policies
    and defaults to work with in place of those in force.
    """

    def __init__(
        self,
        engine: Engine,
        policies: PolicySet,
        defaults: BrokerDefaults,
        authority: AccessControl,
        auto_create: bool = True,
    ) -> None:
        self.policies = policies
        self.defaults = defaults
        self.auto_create = auto_create
        self._engine = engine
        self._authority = authority
        # How many nodes were made with each of them as their place of dead letters.
        self._letter_places: Counter[str] = Counter()

    # --- addresses

    def at(
        self,
        address: str,
        arguments: Mapping[str, object],
        capability: str = "",
        parents: Parents = NO_PARENTS,
        terms: Terms | None = None,
        without: Collection[Setting] = (),
    ) -> Effective:
        """Return the settings of a node with these arguments at an address; OperatorError if they clash."""
        policies, defaults = terms or (self.policies, self.defaults)
        defaults = self.defaults_at(address, defaults)
        return policies.effective(
            address, arguments, defaults, parents, capability, auto_create=self.auto_create, without=without
        )

    def allowed(self, address: str, asked: Mapping[str, object]) -> dict[str, object]:
        """Return the part of an attach's wishes that policies allow; SettingError for a wish that is none."""
        if not asked:
            return {}
        given = {name: each.value for name, each in normalise(from_arguments(asked)).items()}
        return dict(bounded(given, self.policies.said(address)))

    def tolerated(
        self,
        name: str,
        kind: str,
        arguments: Mapping[str, object],
        capability: str,
        parents: Parents,
        terms: Terms | None = None,
    ) -> Effective:
        """Return the settings of a node that has to be there, of this kind, whatever is said of it."""

        def of(capability: str) -> Effective:
            return tolerated(lambda without: self.at(name, arguments, capability, parents, terms, without))

        effective = of(capability)
        if effective.settings.kind != kind:
            # What a client asked for, or an operator's policy that isn't kept, where nothing else is said.
            effective = of(kind)
        if effective.settings.kind == kind:
            return effective
        origin = effective.origins["kind"]
        return replace(
            effective,
            settings=replace(effective.settings, kind=kind),
            origins=effective.origins | {"kind": f"what it was made as, against {origin}"},
            faults=(*effective.faults, f"'{name}' is a {kind} and can't become another kind ({origin})"),
        )

    # --- nodes that are there

    def checked(
        self,
        node: Node,
        arguments: Mapping[str, object],
        parents: Parents | None = None,
        terms: Terms | None = None,
    ) -> Effective:
        """Return the settings that a node would have with these arguments; OperatorError where it can't."""
        parents = parents_of(node) if parents is None else parents
        effective = self.at(node.name, arguments, _capability(node), parents, terms)
        if effective.settings.kind != node.kind:
            kind = effective.settings.kind
            raise OperatorError(f"'{node.name}' is a {node.kind} and can't become a {kind}")
        if (
            (effective.settings.message_groups != "none" or node.queue.order is not None)
            and is_regrouped(node, effective.settings)
            and not node.is_topic
            and has_members(node)
        ):
            raise OperatorError(
                f"'{node.name}' has consumers, so that message_groups and group_key stay as they are"
            )
        return effective

    def followed(self, node: Node, parents: Parents | None = None, terms: Terms | None = None) -> Effective:
        """Return the settings that a node would have by a change that is about others.

        OperatorError where it can't follow, but for a node that goes without some settings already since it
        was restored.
        """
        try:
            return self.checked(node, node.arguments, parents, terms)
        except OperatorError:
            if not self.standing(node).faults:
                raise
        return self.standing(node, parents, terms)

    def standing(self, node: Node, parents: Parents | None = None, terms: Terms | None = None) -> Effective:
        """Return the settings of a node that stays, without those that contradict others."""
        parents = parents_of(node) if parents is None else parents
        return self.tolerated(node.name, node.kind, node.arguments, _capability(node), parents, terms)

    # --- subscriptions

    def of_subscription(
        self,
        wanted: SubscriptionKey,
        terms: Terms | None = None,
        arguments: Mapping[str, object] | None = None,
        without: Collection[Setting] = (),
    ) -> Effective:
        """Return the settings of a subscription; to many topics, those of policies for the pattern's text.

        ``arguments`` are the topic's, where they are to be others than it has.
        """
        policies, defaults = terms or (self.policies, self.defaults)
        if arguments is None:
            topic = self._engine.topology.nodes.get(wanted.address)
            arguments = {} if topic is None else topic.arguments
        defaults = self.defaults_at(wanted.address, defaults)
        return policies.of_subscription(wanted.address, wanted.owner, arguments, defaults, without)

    def standing_subscription(self, wanted: SubscriptionKey) -> Effective:
        """Return the settings of a subscription that stays, without those that contradict others."""
        return tolerated(lambda without: self.of_subscription(wanted, without=without))

    def check_subscription(
        self,
        wanted: SubscriptionKey,
        terms: Terms | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Raise OperatorError if it can't follow, but for one that goes without some settings already."""
        try:
            self.of_subscription(wanted, terms, arguments)
        except OperatorError:
            if not self.standing_subscription(wanted).faults:
                raise

    # --- places of dead letters

    def defaults_at(self, address: str, defaults: BrokerDefaults | None = None) -> BrokerDefaults:
        """Return the defaults at an address: each virtual host has its place of dead letters, and a node that
        an operator has made such a place has none for its own.
        """
        held = defaults or self.defaults
        place = self._place_of_letters(address)
        if address in self._letter_places and address != place:
            return held.without_letters("dead letters come here")
        return held if place == held.dead_letter_address else replace(held, dead_letter_address=place)

    def is_place_of_letters(self, address: str) -> bool:
        """Return whether dead letters of its virtual host go to this address by default."""
        return address == self._place_of_letters(address)

    def replace_letter_place(self, before: str, after: str) -> None:
        """Count that a node's arguments name another place of dead letters; '' for none."""
        self._letter_places[before] -= 1
        self._letter_places[after] += 1
        self._letter_places = +self._letter_places

    def _place_of_letters(self, address: str) -> str:
        host, _ = placed(address, self._authority.hosts)
        return f"{host}/{DEAD_LETTERS}" if host else DEAD_LETTERS


def _capability(node: Node) -> str:
    """The kind a client asked for when the node came to be, where that is what decided."""
    return node.kind if node.origins.get("kind") == CAPABILITY else ""
