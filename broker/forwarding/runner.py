"""Routes and channels of a running broker, joined to its model and its event loop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from broker.config.broker import Settings
from broker.config.forwards import RouteDefinition
from broker.config.node import NodeSettings
from broker.engine.node import Node
from broker.forwarding.channels.channel import Channel
from broker.forwarding.channels.channels import Channels
from broker.forwarding.routes.route import UP_EVENT, Route, client_name
from broker.forwarding.routes.routes import Routes
from broker.manage.forwards import ChannelView, RouteView
from broker.manage.model import Model
from broker.manage.routed import Routed
from broker.security.exchange import ListenerTrust

HERE = "route"


class EventLoop(Protocol):
    """What routes and channels need of the event loop (``amqp.loop.reactor.Reactor``)."""

    def post(self, function: Callable[[], None]) -> None:
        """Run a function on the loop's thread, soon."""

    def at(self, when_ns: int, function: Callable[[int], None]) -> None:
        """Call ``function(now_ns)`` at a monotonic time."""

    def adopt(
        self,
        sock: socket.socket,
        address: str,
        allow_plain: bool,
        door: ListenerTrust,
        gone: Callable[[], None],
    ) -> bool:
        """Take a connected socket as if it had been accepted."""


class Forwarding:
    """Runs what the settings define, beside a reactor. ``start`` once that is about to turn."""

    def __init__(self, model: Model, reactor: EventLoop) -> None:
        self._model = model
        self._reactor = reactor
        self._routed = Routed(
            model.subscriptions,
            model.nodes.resolve,
            self._limits,
            model.engine.configurator.change,
            client_name,
        )
        self._routes = Routes(self._dial_here, self._told, self._routed.prepare, self._routed.retire)
        self._channels = Channels(model.engine, lambda name: model.nodes.resolve(name, "topic"), reactor.at)
        model.queries.routes = self._route_views
        model.queries.channels = self._channel_views
        model.nodes.on_create = self._channels.node_made
        before, gone_before = model.policies.on_change, model.nodes.on_delete

        def changed(node: Node) -> None:
            before(node)
            self._routed.changed(node)

        def gone(node: Node) -> None:
            gone_before(node)
            self._channels.node_gone(node)

        model.policies.on_change = changed
        model.nodes.on_delete = gone

    def configure(self, settings: Settings) -> None:
        """What these settings define, in place of what there was."""
        self._routes.configure(settings.routes)
        self._channels.configure(settings.channels)

    def wind_down(self) -> None:
        """The broker is shutting down: routes give back what they hold."""
        self._routes.ask_to_stop()

    def stop(self) -> None:
        """The reactor turns no more."""
        self._routes.stop()
        self._channels.close()

    def _dial_here(self) -> socket.socket:
        """A connection to this broker that needs no port: on the route's thread."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._reactor.post(lambda: self._adopt(theirs))
        return ours

    def _adopt(self, sock: socket.socket) -> None:
        self._reactor.adopt(sock, HERE, True, ListenerTrust(own=True), lambda: None)

    def _told(self, route: Route, kind: str, fields: dict[str, object]) -> None:
        self._reactor.post(lambda: self._tell(route.definition, kind, fields))

    def _tell(self, definition: RouteDefinition, kind: str, fields: dict[str, object]) -> None:
        if kind == UP_EVENT:
            # Its subscription may have been made anew, if the topic was deleted.
            self._routed.limit(definition)
        self._model.engine.changes.emit(kind, self._model.engine.topology.nodes.get(definition.local), fields)

    def _limits(self, address: str, limits: dict[str, object]) -> NodeSettings:
        effective = self._model.policies.in_force.effective(
            address, limits, self._model.policies.defaults_at(address), capability="topic", auto_create=True
        )
        return replace(effective.settings, kind="topic")

    def _channel_views(self) -> list[ChannelView]:
        return [self._channel_view(channel) for channel in self._channels.running.values()]

    def _channel_view(self, channel: Channel) -> ChannelView:
        definition, node = channel.definition, channel.node
        settings = [topic.settings for topic in node.topics]
        return ChannelView(
            name=definition.name,
            topic=definition.topic,
            to=f"{definition.host}:{definition.port}",
            max_rate=definition.max_rate,
            flow_control=self._model.engine.topology.flow_control
            and any(each.flow_control for each in settings),
            state=channel.state,
            last_error=channel.last_error,
            sent=channel.sent,
            sent_bytes=channel.sent_bytes,
            backlog=node.gate.depth_msgs,
            backlog_bytes=node.gate.depth_bytes,
            waiting=self._channels.waiting(channel),
            too_large=channel.too_large,
            dropped=node.dropped,
        )

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
