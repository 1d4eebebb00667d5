"""Nodes, subscriptions and bindings as they were before a restart.

A survivor keeps its kind and its place, and goes without settings that contradict others now, which the log
tells.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from broker.config.node import SettingError, normalise
from broker.config.patterns import is_pattern
from broker.config.synonyms import from_arguments
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.manage.definitions import Definition
from broker.manage.nodes import Nodes
from broker.manage.operators import Operators
from broker.manage.partitions import restore as restore_partitions
from broker.manage.policies import Policies, made_as
from broker.manage.subscriptions import SubscriptionKey
from broker.store.port import QueueLog, StreamLog

log = logging.getLogger("sluice.store")


class Restoration:
    """The verbs of a start: everything comes back through them, empty, before its messages do."""

    def __init__(self, engine: Engine, policies: Policies, nodes: Nodes, operators: Operators) -> None:
        self._engine = engine
        self._policies = policies
        self._nodes = nodes
        self._operators = operators

    def node(self, name: str, known: Definition, shelf: QueueLog, topics: Sequence[str] = ()) -> Node:
        """Make a durable queue or topic as it was, empty; ``topics`` are those it was bound to."""
        if known.kind not in ("queue", "topic"):
            raise OperatorError(f"it is a '{known.kind}', which this version doesn't know")
        arguments, unknown = _understood(name, known.arguments)
        nodes = self._engine.topology.nodes
        parents = {each: nodes[each].arguments for each in topics if each in nodes}
        made = made_as(isinstance(shelf, StreamLog), on_disk=True)
        effective = self._policies.restored(name, known.kind, arguments, known.capability, parents, made)
        node = self._nodes.add(name, arguments, effective, shelf, known.maker, known.stream_id)
        _tell_faults(name, (*unknown, *effective.faults))
        return node

    def topic(self, address: str) -> None:
        """Make the topic of a subscription that survived where the topic didn't: before the subscriptions are
        there, whose names may be like its own.
        """
        if not is_pattern(address):
            self._nodes.surviving_topic(address)

    def subscription(self, wanted: SubscriptionKey, name: str, shelf: QueueLog) -> Node:
        """Make a durable subscription as it was, empty. Where its name is something else's by now it gets
        another: clients know it by its receiver's names, and a node by its own.
        """
        subscriptions = self._nodes.subscriptions
        called = subscriptions.free_name(name) if self._nodes.is_taken(name) else name
        node, faults = subscriptions.restore(wanted, called, shelf)
        _tell_faults(called, faults)
        return node

    def withdraw(self, shelf: QueueLog) -> None:
        """Take out what was being restored from this shelf, if it got that far; the store keeps all of it."""
        for node in [each for each in self._engine.topology.every_node() if each.shelf is shelf]:
            self._engine.lifecycle.withdraw(node)
            self._nodes.forget(node)

    def bindings(self, noted: Mapping[str, Sequence[str]]) -> None:
        """Bind queues as they were; ``noted`` has by queue its topics."""
        self._nodes.bindings.restore(noted, self._nodes.aside.has)
        restore_partitions(self._engine, self._nodes.aside.box)

    def keep_notes(self) -> None:
        """Note the holds and the bindings there are: they were read from elsewhere."""
        self._operators.keep_holds()
        self._nodes.bindings.keep()


def _tell_faults(name: str, faults: Iterable[str]) -> None:
    for fault in faults:
        log.error("'%s' survived the restart, but not all that was set: %s", name, fault)


def _understood(name: str, arguments: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Stored arguments without those this version doesn't know, and what is wrong with each of these."""
    found: dict[str, object] = {}
    faults = []
    for key, value in arguments.items():
        try:
            normalise(from_arguments({**found, key: value}))
        except SettingError as fault:
            faults.append(f"{name}: {fault}")
        else:
            found[key] = value
    return found, faults
