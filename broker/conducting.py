"""Routes and channels of a running broker: the part of the composition root that joins them to it."""

from __future__ import annotations

import socket
from dataclasses import replace

from broker.amqp.reactor import Reactor
from broker.conduits import RouteDefinition
from broker.flow.limits import NodeSettings
from broker.manage.conduits import RouteView
from broker.manage.model import Model
from broker.manage.routed import Routed
from broker.node import Node
from broker.routes.route import UP_EVENT, Route, client_name
from broker.routes.routes import Routes
from broker.settings import Settings

HERE = "route"


class Conducting:
    """Runs what the settings define, beside a reactor. ``start`` once that is about to turn."""

    def __init__(self, model: Model, reactor: Reactor) -> None:
        self._model = model
        self._reactor = reactor
        self._routed = Routed(
            model.subscriptions, model.resolve, self._limits, model.engine._apply, client_name
        )
        self._routes = Routes(self._dial_here, self._told, self._routed.prepare, self._routed.retire)
        model.routes = self._route_views
        before = model.on_change

        def changed(node: Node) -> None:
            before(node)
            self._routed.changed(node)

        model.on_change = changed

    def configure(self, settings: Settings) -> None:
        """What these settings define, in place of what there was."""
        self._routes.configure(settings.routes)

    def wind_down(self) -> None:
        """The broker is shutting down: routes give back what they hold."""
        self._routes.ask_to_stop()

    def stop(self) -> None:
        """The reactor turns no more."""
        self._routes.stop()

    def _dial_here(self) -> socket.socket:
        """A connection to this broker that needs no port: on the route's thread."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._reactor.post(lambda: self._adopt(theirs))
        return ours

    def _adopt(self, sock: socket.socket) -> None:
        self._reactor.adopt(sock, HERE, True, lambda: None)

    def _told(self, route: Route, kind: str, fields: dict[str, object]) -> None:
        self._reactor.post(lambda: self._tell(route.definition, kind, fields))

    def _tell(self, definition: RouteDefinition, kind: str, fields: dict[str, object]) -> None:
        if kind == UP_EVENT:
            # Its subscription may have been made anew, if the topic was deleted.
            self._routed.limit(definition)
        self._model.engine.tell(kind, self._model.engine.nodes.get(definition.local), fields)

    def _limits(self, address: str, limits: dict[str, object]) -> NodeSettings:
        effective = self._model.policies.effective(
            address, limits, self._model.defaults, capability="topic", auto_create=True
        )
        return replace(effective.settings, kind="topic")

    def _route_views(self) -> list[RouteView]:
        return [self._route_view(route) for route in self._routes.running.values()]

    def _route_view(self, route: Route) -> RouteView:
        definition, pump = route.definition, route.pump
        return RouteView(
            name=definition.name,
            url=str(definition.remote_broker),
            direction=definition.direction,
            local=definition.local,
            remote=definition.remote,
            state=route.state,
            since_ns=route.since_ns,
            last_error=route.last_error,
            forwarded=route.counts.forwarded,
            backlog=self._routed.backlog(definition),
            unsettled=0 if pump is None else pump.unsettled,
            credit=0 if pump is None else pump.credit,
            rejected=route.counts.rejected,
            returned=route.counts.returned,
            connects=route.connects,
        )
