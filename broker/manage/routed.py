"""What a route needs here: the node, and for a topic a subscription that collects while the route is down.

The subscription is durable and bears the route's limits, so that the topic's publishers wait when the
route can't keep up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from broker.config.forwards import RouteDefinition
from broker.config.node import NodeSettings
from broker.config.patterns import is_pattern
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.manage.subscriptions import (
    OF_THE_BROKER,
    Subscription,
    SubscriptionKey,
    Subscriptions,
)

log = logging.getLogger("sluice.routes")


class Routed:
    """The nodes at this end of all routes. ``settings`` resolves a topic's with limits above its policies;
    ``apply`` gives a subscription its own. ``called`` is what a route is called as a client.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        resolve: Callable[[str], Node],
        settings: Callable[[str, dict[str, object]], NodeSettings],
        apply: Callable[[Node, NodeSettings], None],
        called: Callable[[str], str],
    ) -> None:
        self._subscriptions = subscriptions
        self._resolve = resolve
        self._settings = settings
        self._apply = apply
        self._called = called
        self._limited: dict[str, RouteDefinition] = {}

    def prepare(self, definition: RouteDefinition) -> bool:
        """Before the route starts; whether it goes out from a topic. What is wrong shows in its state."""
        try:
            if not is_pattern(definition.local) and not self._resolve(definition.local).is_topic:
                return False
            if definition.direction == "in":
                return False
            name = self._called(definition.name)
            wanted = SubscriptionKey(
                definition.local, name, name, lasts=True, durable=True, user=OF_THE_BROKER
            )
            if self.subscription(definition) is None:
                self._subscriptions.leave(self._subscriptions.join(wanted))
            self._limited[definition.name] = definition
            self.limit(definition)
        except OperatorError as fault:
            log.warning("route '%s': %s", definition.name, fault)
            return False
        return True

    def retire(self, definition: RouteDefinition) -> None:
        """The route is defined no more: what its subscription held goes with it."""
        self._limited.pop(definition.name, None)
        found = self.subscription(definition)
        if found is not None:
            self._subscriptions.remove(found)

    def subscription(self, definition: RouteDefinition) -> Subscription | None:
        """The route's subscription, where it has one."""
        name = self._called(definition.name)
        return self._subscriptions.find(name, name, OF_THE_BROKER)

    def limit(self, definition: RouteDefinition) -> None:
        """Give its subscription the route's limits, above those of the topic."""
        found = self.subscription(definition)
        if found is not None and definition.limits:
            settings = self._settings(definition.local, dict(definition.limits))
            self._apply(found.node, replace(settings, durable=found.node.shelf is not None))

    def changed(self, node: Node) -> None:
        """A node has new settings: a subscription of ours keeps its limits above them."""
        for definition in self._limited.values():
            found = self.subscription(definition)
            if found is not None and found.node is node:
                self.limit(definition)

    def backlog(self, definition: RouteDefinition) -> int:
        """Messages that wait here to go out, those under way included; 0 for one that comes in."""
        if definition.direction == "in":
            return 0
        found = self.subscription(definition)
        if found is not None:
            return found.node.gate.depth_msgs
        try:
            return self._resolve(definition.local).gate.depth_msgs
        except OperatorError:
            return 0
