"""The policies in force: the settings of every address by them, and how new ones take effect at its node.

Settings follow from policies, a node's arguments, the topics above it and the broker's defaults. Only this
file gives a node that is there other settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from broker.config.flow import TAKES_DEAD_LETTERS, BrokerDefaults
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
from broker.manage.calls import ended
from broker.manage.definitions import Definition
from broker.manage.names import is_reserved, placed
from broker.manage.ownership import Ownership
from broker.manage.policy_reader import Reread
from broker.manage.subscriptions import SubscriptionKey, Subscriptions

# What is said of nodes in files.
Terms = tuple[PolicySet, BrokerDefaults]
# By name, what each topic above a node was declared with.
Parents = Mapping[str, Mapping[str, object]]
NO_PARENTS: Parents = MappingProxyType({})
NOTHING: Mapping[str, object] = MappingProxyType({})
# The names of the nodes that changed, once the last step is taken.
Steps = Generator[None, None, list[str]]


class Policies:
    """The policies and defaults in force, and the settings that follow from them for each node.

    ``auto_create`` is the broker's word on it where no policy has one. ``terms`` of a method are policies
    and defaults to work with in place of those in force. ``on_change`` is told of each node with new
    settings, to give consumers their new windows. ``subscriptions`` are what policies are about as well.
    """

    subscriptions: Subscriptions

    def __init__(
        self,
        engine: Engine,
        in_force: PolicySet,
        defaults: BrokerDefaults,
        authority: AccessControl,
        auto_create: bool = True,
    ) -> None:
        self.in_force = in_force
        self.defaults = defaults
        self.auto_create = auto_create
        self.ownership = Ownership()
        self.on_change: Callable[[Node], None] = lambda node: None
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
        policies, defaults = terms or (self.in_force, self.defaults)
        defaults = self.defaults_at(address, defaults)
        return policies.effective(
            address, arguments, defaults, parents, capability, auto_create=self.auto_create, without=without
        )

    def allowed(self, address: str, asked: Mapping[str, object]) -> dict[str, object]:
        """Return the part of an attach's wishes that policies allow; SettingError for a wish that is none."""
        if not asked:
            return {}
        given = {name: each.value for name, each in normalise(from_arguments(asked)).items()}
        return dict(bounded(given, self.in_force.said(address)))

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
        """Return the settings that a node would have with these arguments; OperatorError where it can't.

        With other ``parents`` than it has, a stream on disk stays there though it was one by what they say.
        """
        made = made_as(node.stream is not None, node.shelf is not None)
        if parents is not None and "durable" not in arguments and "durable" in made:
            arguments = {**arguments, "durable": True}
        parents = parents_of(node) if parents is None else parents
        effective = self.at(node.name, arguments, _capability(node), parents, terms)
        if effective.settings.kind != node.kind:
            kind = effective.settings.kind
            raise OperatorError(f"'{node.name}' is a {node.kind} and can't become a {kind}")
        faults = _contradicted(effective, node.name, made)
        if faults:
            raise OperatorError("\n".join(faults))
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
        made = made_as(node.stream is not None, node.shelf is not None)
        return self.restored(node.name, node.kind, node.arguments, _capability(node), parents, made, terms)

    def restored(
        self,
        name: str,
        kind: str,
        arguments: Mapping[str, object],
        capability: str,
        parents: Parents,
        made: Mapping[str, Any],
        terms: Terms | None = None,
    ) -> Effective:
        """Return the settings of a node that has to be there as it was ``made``, whatever is said of it.

        What else holds there is worked out from that: the defaults of a stream on disk are not those of a
        queue, and what a queue may not keep would be gone for good.
        """
        found = self.tolerated(name, kind, arguments, capability, parents, terms)
        faults = _contradicted(found, name, made)
        if not faults:
            return found
        given = {**arguments, "kind": kind, **made}
        again = self.tolerated(name, kind, given, capability, parents, terms)
        return replace(
            again,
            settings=replace(again.settings, **made),
            origins=again.origins | dict.fromkeys(made, "what it was made as"),
            faults=(*found.faults, *faults),
        )

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
        policies, defaults = terms or (self.in_force, self.defaults)
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
            return held.without_letters(TAKES_DEAD_LETTERS)
        return held if place == held.dead_letter_address else replace(held, dead_letter_address=place)

    def is_place_of_letters(self, address: str) -> bool:
        """Return whether dead letters of its virtual host go to this address by default."""
        return address == self._place_of_letters(address)

    def _place_of_letters(self, address: str) -> str:
        host, _ = placed(address, self._authority.hosts)
        return f"{host}/{DEAD_LETTERS}" if host else DEAD_LETTERS

    # --- putting settings into force

    def change(self, node: Node, arguments: dict[str, object], effective: Effective) -> None:
        """Put settings that were worked out into force at a node."""
        self._engine.configurator.change(node, effective.settings)
        if effective.settings.durable or node.shelf is not None:
            user, stream_id = self.ownership.user(node), 0 if node.stream is None else node.stream.id
            self._engine.lifecycle.define(node, definition(effective, arguments, user, stream_id))
        before, node.arguments = node.arguments, arguments
        node.origins = dict(effective.origins)
        self.on_change(node)
        self.letters_moved(before, arguments)

    def resettle(self, node: Node) -> None:
        """Put into force at a node that stays the settings that hold for it now."""
        self.change(node, node.arguments, self.standing(node))

    def hand_down(self, node: Node) -> None:
        """Pass a topic's settings on to those that take from it."""
        if node.is_topic:
            self.subscriptions.resettle(node.name)
        for heir in node.subscriptions:
            if not heir.is_subscription:
                self.resettle(heir)

    def letters_moved(self, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        """A node came, changed or went, with these arguments: where they name another place of dead letters,
        other settings may hold there now.
        """
        old, new = (str(each.get("dead_letter_address") or "") for each in (before, after))
        if old == new:
            return
        self._letter_places[old] -= 1
        self._letter_places[new] += 1
        self._letter_places = +self._letter_places
        for place in (old, new):
            node = self._engine.topology.nodes.get(place)
            if node is not None and not is_reserved(place):
                self.resettle(node)
                self.hand_down(node)

    # --- new policies

    def apply(self, policies: PolicySet, defaults: BrokerDefaults | None = None) -> list[str]:
        """Put new policies into force for every node, those that exist included: the names that changed.

        OperatorError, with every reason, if one of the nodes can't follow; then the old ones stand.
        """
        return ended(self._apply_in_parts(lambda: policies, defaults))

    def apply_in_parts(self, given: PolicySet) -> Steps:
        """Replace the policies of the same patterns by these, the others stay; otherwise as ``apply``.

        They hold until the policy files are read again. It is worked out in steps, and then done node by
        node, to its end even where nobody asks for the next step any more.
        """
        return self._apply_in_parts(lambda: self._with(given))

    def try_in_parts(self, given: PolicySet) -> Steps:
        """Work out which nodes ``apply_in_parts`` would change, and refuse as it does; nothing is changed."""
        planned = yield from self._planned(self._with(given), self.defaults)
        return [node.name for node, each in planned if not node.deleted and each.settings != node.settings]

    def reload_in_parts(self, read: Reread) -> Steps:
        """Apply what was read again, in steps as ``apply_in_parts``: the names of the nodes that changed."""
        changed = yield from self._apply_in_parts(lambda: read.policies, read.defaults)
        read.take_over()
        return changed

    # --- inside

    def _with(self, given: PolicySet) -> PolicySet:
        """The policies there are, and in place of those of the same patterns these."""
        replaced = {policy.key for policy in given.policies}
        kept = [policy for policy in self.in_force.policies if policy.key not in replaced]
        return PolicySet.of([*kept, *given.policies])

    def _apply_in_parts(
        self, wanted: Callable[[], PolicySet], defaults: BrokerDefaults | None = None
    ) -> Steps:
        """New policies for every node, in steps:

        1. what would hold for each node is worked out, and all of it refused where one can't follow;
        2. where policies were changed meanwhile this begins anew;
        3. the policies hold for nodes to come, and each node that is there takes them over. A node that was
           made or changed meanwhile has to do as well as it can.
        """
        while True:
            before = self.in_force, self.defaults
            policies, terms = wanted(), defaults or self.defaults
            yield from self._planned(policies, terms)
            if self.in_force is before[0] and self.defaults is before[1]:
                break
        self.in_force, self.defaults = policies, terms
        changed: list[str] = []
        following = self._follow_all(changed)
        try:
            for _ in following:
                yield
        finally:
            # Not even a caller that goes away leaves half of the nodes with the policies before.
            for _ in following:
                pass
        return changed

    def _planned(
        self, policies: PolicySet, defaults: BrokerDefaults
    ) -> Generator[None, None, list[tuple[Node, Effective]]]:
        """Work out what would hold for each node. OperatorError, with every reason, if one can't follow."""
        planned: list[tuple[Node, Effective]] = []
        problems: list[str] = []
        terms = policies, defaults
        for node in self._concerned():
            try:
                planned.append((node, self.followed(node, terms=terms)))
            except OperatorError as refusal:
                problems.append(str(refusal))
            yield
        for wanted in self.subscriptions.all_wanted():
            try:
                self.check_subscription(wanted, terms)
            except OperatorError as refusal:
                problems.append(str(refusal))
            yield
        if problems:
            raise OperatorError("\n".join(problems))
        return planned

    def _follow_all(self, changed: list[str]) -> Iterator[None]:
        """Every node, and every subscription, takes over what holds for it now: one after each ``next``."""
        for node in self._concerned():
            effective = self.standing(node)
            if effective.settings != node.settings:
                self.change(node, node.arguments, effective)
                changed.append(node.name)
            node.origins = dict(effective.origins)
            yield
        yield from self.subscriptions.resettle_in_parts()

    def _concerned(self) -> Iterator[Node]:
        """The queues and topics that policies are about, each as long as it is there when its turn comes."""
        for node in list(self._engine.topology.nodes.values()):
            if not is_reserved(node.name) and not node.deleted:
                yield node


def made_as(is_stream: bool, on_disk: bool) -> dict[str, Any]:
    """Return the settings that a node keeps for life."""
    if not is_stream:
        return {"queue_type": "classic"}
    return {"queue_type": "stream", "durable": True} if on_disk else {"queue_type": "stream"}


def _contradicted(effective: Effective, name: str, made: Mapping[str, object]) -> list[str]:
    """Say what settings would have a node be that it wasn't made as."""
    faults = []
    if effective.settings.queue_type != made["queue_type"]:
        faults.append(f"queue_type: '{name}' is {made['queue_type']} and stays so")
    if made.get("durable") and not effective.settings.durable:
        faults.append(f"durable: '{name}' is a stream on disk and stays so")
    return faults


def definition(effective: Effective, arguments: Mapping[str, object], maker: str, stream_id: int) -> bytes:
    """Return what the store keeps of a node that is made or changed."""
    kind = effective.settings.kind
    asked = kind if effective.origins.get("kind") == CAPABILITY else ""
    return Definition(kind, arguments, asked, maker, stream_id).encode()


def _capability(node: Node) -> str:
    """The kind a client asked for when the node came to be, where that is what decided."""
    return node.kind if node.origins.get("kind") == CAPABILITY else ""
