"""The verbs about queues, topics and their bindings: resolve, create, change, bind, delete.

Only this file puts nodes into the engine or takes them out for somebody outside it. Everything that has to
know of that (bridges, subscriptions, bindings, limits of users, links) is told here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from broker.config.node import NodeSettings
from broker.config.patterns import is_pattern
from broker.config.policies import Effective
from broker.config.synonyms import ARGUMENTS, from_arguments
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ConflictError, NotFoundError, OperatorError, SluiceError
from broker.manage.access import TEMPORARY
from broker.manage.aside import Aside
from broker.manage.bindings import Bindings, check, check_ends, check_kind, parents_of
from broker.manage.bridges import DefinedBridges
from broker.manage.names import check_name, is_own, is_reserved
from broker.manage.partitions import partition_name, partitions_of, share_out, topic_lacking, topic_of
from broker.manage.partitions import restore as restore_partitions
from broker.manage.policies import NO_PARENTS, NOTHING, Parents, Policies, definition
from broker.manage.subscriptions import Subscriptions
from broker.manage.totals import Totals
from broker.store.port import QueueLog

log = logging.getLogger("sluice.store")

# Told of a node, after it came, changed or went.
OnNode = Callable[[Node], None]


def _ignore(node: Node) -> None:
    """Nobody wants to know."""


class Nodes:
    """The queues and topics, with their subscriptions, bindings and bridges.

    ``hold`` stops the producers of a new node where an operator's hold is about it. ``on_create`` is told of
    each queue and topic that came to be, ``on_delete`` of each node and subscription that went, to detach its
    links. ``own`` are topics of the broker's own, which clients may subscribe to and not send to; one is made
    when it is first asked for. A ``user`` is the one who makes a node, '' for the broker itself.
    ``elsewhere`` is asked for the error where a node of some name belongs to another cell.
    """

    def __init__(self, engine: Engine, policies: Policies, hold: OnNode, totals: Totals) -> None:
        self._engine = engine
        self._policies = policies
        self._hold = hold
        self._totals = totals
        self.own: dict[str, NodeSettings] = {}
        # Names of nodes that are on their way to or from another cell: nothing of them may change.
        self.moving: set[str] = set()
        # Says what is to be known of a node's cell: a sentence with a space in front, or nothing.
        self.place_of: Callable[[Node], str] = lambda node: ""
        self.elsewhere: Callable[[str], OperatorError | None] = lambda name: None
        self.on_create: OnNode = _ignore
        self.on_delete: OnNode = _ignore
        self.aside = Aside(engine, lambda: resolve({}, policies.defaults))
        self.bindings = Bindings(engine)
        self.bridges = DefinedBridges(engine, self.resolve, self.destination)
        self.subscriptions = Subscriptions(
            engine,
            self._topic,
            policies.of_subscription,
            self._subscription_gone,
            lambda node: policies.on_change(node),
        )
        self.subscriptions.standing = policies.standing_subscription
        self.subscriptions.surviving = self.surviving_topic
        self.subscriptions.is_taken = self.is_taken
        self.ownership = self.subscriptions.ownership = policies.ownership
        policies.subscriptions = self.subscriptions

    # --- looking up

    def find(self, name: str) -> Node:
        """Return the queue, topic or subscription of that name; NotFoundError if there is none."""
        node = self._engine.topology.nodes.get(name) or self._engine.topology.subscriptions.get(name)
        if node is None:
            self._check_place(name)
            raise NotFoundError(f"no queue, topic or subscription named '{name}'")
        return node

    def typed(self, kind: str, name: str) -> Node:
        """Return the node of that name and kind; NotFoundError if there is none."""
        node = self.find(name)
        if node.kind != kind:
            raise NotFoundError(f"no {kind} named '{name}'")
        return node

    def is_taken(self, name: str) -> bool:
        """Return whether a queue, a topic or a subscription has that name, or had when it was set aside."""
        return self._engine.topology.has(name) or self.aside.has(name)

    def is_stream(self, name: str) -> bool:
        """Return whether a name is a stream's, partitioned or not, or would be if somebody used it."""
        node = self._engine.topology.nodes.get(name)
        if node is not None:
            return node.stream is not None or node.settings.partitions > 0
        try:
            settings = self._of_new(name, "").settings
        except SluiceError:
            return False
        return settings.queue_type == "stream" or settings.partitions > 0

    def resolve(
        self,
        address: str,
        wanted_kind: str | None = None,
        user: str = "",
        asked: Mapping[str, object] = NOTHING,
    ) -> Node:
        """Return the node at an address, created if a policy allows it.

        Its kind is the policy's, else the one that is wanted, else queue. One that is created gets the
        settings that are ``asked`` for, in Qpid's words, as far as policies don't say less.
        """
        node = self._engine.topology.nodes.get(address)
        if node is not None:
            return node
        if address in self.own:
            return self._engine.lifecycle.create(address, self.own[address])
        arguments = self._policies.allowed(address, asked)
        effective = self._of_new(address, wanted_kind or "", arguments=arguments)
        return self.add(address, arguments, effective, user=user)

    def destination(self, address: str, wanted_kind: str | None = None, user: str = "") -> Node:
        """Return the node that messages to this address go to; OperatorError if nobody may send there."""
        check_not_own(address, "sent to")
        self.check_stays(address)
        return self.resolve(address, wanted_kind, user)

    def dead_letter_box(self, address: str) -> Node:
        """Return the node for dead letters to an address. Where no node can have that name for now they wait:
        for one that was set aside, or until the subscription that has it is gone.
        """
        node = self._engine.topology.nodes.get(address)
        if node is not None:
            return node
        if self.is_taken(address):
            return self.aside.box(address)
        if self._policies.is_place_of_letters(address):
            # Nobody could be asked to allow it, and without it they would be lost.
            effective = self._policies.tolerated(address, "queue", {}, "queue", NO_PARENTS)
            return self.add(address, {}, effective)
        # Dead letters stay in their cell, wherever a client's node of that name would be.
        check_not_own(address, "sent to")
        return self.add(address, {}, self._of_new(address, "", anywhere=True))

    def surviving_topic(self, address: str) -> Node | None:
        """Return the topic of a subscription that survived a restart, made whether or not a client might make
        it; None where there can't be one.
        """
        node = self._engine.topology.nodes.get(address)
        if node is None and address in self.own:
            node = self.resolve(address)
        if node is None and not is_reserved(address) and not self.is_taken(address):
            effective = self._policies.tolerated(address, "topic", {}, "topic", NO_PARENTS)
            for fault in effective.faults:
                log.error("'%s' is there for a subscription that survived: %s", address, fault)
            node = self.add(address, {}, effective)
        return node if node is not None and node.is_topic else None

    # --- creating and changing

    def create(
        self,
        kind: str,
        name: str,
        arguments: Mapping[str, object] | None = None,
        durable: bool | None = None,
        user: str = "",
    ) -> Node:
        """Make a queue or topic; ``arguments`` in our words or Qpid's stand above every policy."""
        _check_new(name)
        self._check_place(name)
        self._check_free(name)
        explicit = from_arguments(arguments or {})
        if explicit.setdefault("kind", kind) != kind:
            raise OperatorError(f"kind {explicit['kind']!r} contradicts the type {kind!r}")
        if durable is not None:
            explicit["durable"] = durable
        return self.add(name, explicit, self._policies.at(name, explicit), user=user)

    def add(
        self,
        name: str,
        arguments: dict[str, object],
        effective: Effective,
        shelf: QueueLog | None = None,
        user: str = "",
        stream_id: int = 0,
    ) -> Node:
        """Make a node with settings that were worked out, and tell everybody; with a shelf it is restored,
        and was the stream ``stream_id`` before.
        """
        parts: list[str] = []
        if shelf is None:
            parts = self._parts_of(name, effective)
            self.ownership.check(user, made=1 + len(parts))
            if parts:
                # What is on disk counts, whatever a policy says after a restart.
                arguments = {**arguments, "partitions": effective.settings.partitions}
            if effective.settings.queue_type == "stream":
                stream_id = self._engine.streams.new_id()
        known = definition(effective, arguments, user, stream_id)
        node = self._engine.lifecycle.create(name, effective.settings, known, shelf, stream_id)
        node.arguments = arguments
        node.origins = dict(effective.origins)
        self.ownership.made(node, user)
        self._hold(node)
        if node.is_topic:
            self.subscriptions.topic_made(node)
        self.bridges.node_made(node)
        self._policies.letters_moved(NOTHING, arguments)
        self.on_create(node)
        if parts:
            self._add_partitions(node, parts, user)
        return node

    def _parts_of(self, name: str, effective: Effective) -> list[str]:
        """Return the names of the streams that a new node needs, none without partitions.

        ConflictError where one is taken.
        """
        names = [partition_name(name, at) for at in range(effective.settings.partitions)]
        for each in names:
            _check_new(each)
            self._check_free(each)
        return names

    def _add_partitions(self, topic: Node, names: Sequence[str], user: str) -> None:
        try:
            for name in names:
                self._add_partition(topic, name, user)
        except SluiceError:
            self.delete(topic.name, anyway=True)
            raise
        share_out(topic)

    def _add_partition(self, topic: Node, name: str, user: str) -> None:
        arguments: dict[str, object] = {"queue_type": "stream", "partitions": 0}
        effective = self._policies.at(name, arguments, "queue", {topic.name: topic.arguments})
        self.bindings.bind(topic, self.add(name, arguments, effective, user=user))

    def update(self, name: str, arguments: Mapping[str, object]) -> Node:
        """Change settings at runtime; None takes an argument back, so that the policy's holds again."""
        node, explicit, effective = self.planned(name, arguments)
        self._policies.change(node, explicit, effective)
        self._policies.hand_down(node)
        return node

    def planned(
        self, name: str, arguments: Mapping[str, object]
    ) -> tuple[Node, dict[str, object], Effective]:
        """Work out an ``update``: the node, its arguments and its settings afterwards. It changes nothing.

        OperatorError where the node, or one that takes from it, can't follow.
        """
        check_not_own(name, "changed")
        self.check_stays(name)
        node = self._engine.topology.node(name)
        explicit = _changed_arguments(node, arguments)
        effective = self._policies.checked(node, explicit)
        self._check_heirs(node, explicit)
        return node, explicit, effective

    # --- bindings

    def bind(self, source: str, target: str, user: str = "") -> None:
        """Have a queue take the messages of a topic, and from now on the settings it lacks (FLOW §6)."""
        # All is looked at first, what is there and what would be made: a refusal makes no node.
        self.check_stays(source)
        self.check_stays(target)
        topic, queue = self._engine.topology.nodes.get(source), self._engine.topology.nodes.get(target)
        check_ends(topic, queue)
        if source == target:
            raise OperatorError(f"'{source}' can't be bound to itself")
        if topic is not None and queue is not None:
            check(topic, queue)
        added = None
        if topic is None and source not in self.own:
            added = self._of_new(source, "topic")
            check_kind(source, added.settings.kind, "topic")
        above = {source: {} if topic is None else topic.arguments}
        if queue is None:
            effective = self._of_new(target, "queue", above)
            check_kind(target, effective.settings.kind, "queue")
        else:
            effective = self._policies.followed(queue, {**parents_of(queue), **above})
        self.ownership.check(user, made=(added is not None) + (queue is None))
        if topic is None:
            topic = self.resolve(source) if added is None else self.add(source, {}, added, user=user)
        if queue is None:
            queue = self.add(target, {}, effective, user=user)
        self.bindings.bind(topic, queue)
        self._policies.change(queue, queue.arguments, effective)
        self.bindings.keep()

    def unbind(self, source: str, target: str) -> None:
        """End a binding: the queue takes no more messages, and loses the settings it had from the topic."""
        topic, queue = self._engine.topology.node(source), self._engine.topology.node(target)
        _check_whole(queue)
        parents = {name: given for name, given in parents_of(queue).items() if name != source}
        effective = self._policies.followed(queue, parents)
        self.bindings.unbind(topic, queue)
        self._policies.change(queue, queue.arguments, effective)

    # --- deleting

    def delete(self, name: str, anyway: bool = False) -> Node:
        """Remove a queue, a topic with its subscriptions, or one subscription; with all its messages.

        OperatorError where what a queue has from a topic is needed there; with ``anyway`` such a queue goes
        on without the settings that contradict others then.
        """
        check_not_own(name, "deleted")
        self.check_stays(name)
        node = self.find(name)
        if not anyway:
            _check_whole(node)
            self._check_heirs(node, None)
        for part in partitions_of(node):
            self.delete(part.name, anyway=True)
        gone = [*(each for each in node.subscriptions if each.is_subscription), node]
        for each in gone:
            self._totals.retire(each)
        if node.is_subscription:
            self._engine.lifecycle.unsubscribe(node)
        else:
            heirs = [each for each in node.subscriptions if not each.is_subscription]
            bound = bool(heirs or node.topics)
            self._engine.lifecycle.delete(name)
            if bound:
                self.bindings.keep()
            for each in heirs:
                self._policies.resettle(each)
        for each in gone:
            if each.deleted:
                self.aside.empty_box(each.name)
                self.forget(each)
                self.on_delete(each)
        return node

    def forget(self, node: Node) -> None:
        """Strike a node that is gone out of everything that knew it."""
        self.ownership.gone(node)
        self.subscriptions.forget(node)
        self.bridges.node_gone(node)
        self._policies.letters_moved(node.arguments, NOTHING)

    def discard(self, name: str) -> int:
        """Remove what was set aside under a name, with all its messages: how many those were.

        A partition of a stream is made anew, empty, as one is that is lacking without having been set aside.
        """
        topic = topic_lacking(self._engine, name)
        msgs = 0
        if topic is None or self.aside.has(name):
            msgs = self.aside.discard(name)
        else:
            self.aside.empty_box(name)
        self.subscriptions.discard(name)
        self.bindings.discard(name)
        log.warning("'%s', which was set aside, was discarded with %d messages", name, msgs)
        if topic is not None:
            self._replace_partition(topic, name)
        return msgs

    def _replace_partition(self, topic: Node, name: str) -> None:
        """Make a partition anew. Where that can't be, a box is in its place again, and producers wait."""
        try:
            self._add_partition(topic, name, self.ownership.user(topic))
        except SluiceError:
            restore_partitions(self._engine, self.aside.box)
            raise
        share_out(topic)
        log.warning("'%s', a partition of '%s', was made anew and begins at offset 0", name, topic.name)

    # --- inside

    def _of_new(
        self,
        address: str,
        kind: str,
        parents: Parents = NO_PARENTS,
        arguments: Mapping[str, object] = NOTHING,
        *,
        anywhere: bool = False,
    ) -> Effective:
        """The settings of a node that is to be made because somebody uses it; OperatorError if it may not."""
        if address.startswith(f"{TEMPORARY}/"):
            raise NotFoundError(
                f"the reply address '{address}' is gone: a temporary node goes with its link or connection"
            )
        if is_reserved(address):
            raise NotFoundError(f"no node '{address}': names that start with '$' are the broker's own")
        _check_new(address)
        if not anywhere:
            self._check_place(address)
        self._check_free(address)
        effective = self._policies.at(address, arguments, kind, parents)
        if not effective.auto_create:
            why = effective.origins["auto_create"]
            raise NotFoundError(f"no queue or topic named '{address}', and auto_create is false ({why})")
        return effective

    def check_stays(self, name: str) -> None:
        """ConflictError while a node of that name is on its way to another cell, or from there."""
        if name in self.moving:
            raise ConflictError(f"'{name}' is being moved to another cell: try again once it is there")

    def _check_place(self, name: str) -> None:
        """ElsewhereError if a node of that name belongs to another cell, ConflictError if it is about to."""
        error = self.elsewhere(name)
        if error is not None:
            raise error

    def _check_free(self, name: str) -> None:
        """ConflictError if a new node can't be called so because something is."""
        if name in self._engine.topology.subscriptions:
            raise ConflictError(f"'{name}' is the name of a subscription: no queue or topic can have it")
        if name in self._engine.topology.nodes:
            raise ConflictError(f"'{name}' exists already")
        self.aside.check(name)

    def _check_heirs(self, topic: Node, arguments: Mapping[str, object] | None) -> None:
        """OperatorError if those that take from a topic couldn't where it had these arguments, or, with
        None, where it were gone with its subscriptions.
        """
        for heir in topic.subscriptions:
            if not heir.is_subscription:
                parents = dict(parents_of(heir))
                if arguments is None:
                    del parents[topic.name]
                else:
                    parents[topic.name] = arguments
                self._policies.followed(heir, parents)
        if arguments is not None and topic.is_topic:
            for wanted in self.subscriptions.all_wanted(topic.name):
                self._policies.check_subscription(wanted, arguments=arguments)

    def _topic(self, address: str) -> Node:
        self.check_stays(address)
        node = self.resolve(address, "topic")
        if not node.is_topic:
            raise OperatorError(f"'{address}' is a queue: only topics have subscriptions")
        return node

    def _subscription_gone(self, node: Node) -> None:
        self.aside.empty_box(node.name)
        self.ownership.gone(node)
        self._totals.retire(node)
        self.on_delete(node)


def check_not_own(name: str, what: str) -> None:
    """Raise OperatorError if it is a node that the broker alone fills; ``what`` it can't be."""
    if is_own(name):
        raise OperatorError(f"'{name}' is the broker's own: it can be subscribed, and not be {what}")


def _check_new(name: str) -> None:
    """OperatorError if no new queue or topic may be called so."""
    check_name(name)
    if is_pattern(name):
        raise OperatorError(f"'{name}' stands for many topics: it can be subscribed, and be no node's name")


def _changed_arguments(node: Node, arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments a node was declared with, as these change them; None takes one back."""
    given = {key: value for key, value in arguments.items() if value is not None}
    explicit = {**node.arguments, **from_arguments(given)}
    for key in arguments.keys() - given.keys():
        if explicit.pop(ARGUMENTS.get(key, key), None) is None:
            raise OperatorError(f"'{node.name}' has no argument {key!r} to take back")
    return explicit


def _check_whole(node: Node) -> None:
    """OperatorError where a topic would lose one of its partitions."""
    topic = topic_of(node)
    if topic is not None:
        raise OperatorError(f"'{node.name}' is a partition of '{topic.name}', and stays as long as that")
