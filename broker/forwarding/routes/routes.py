"""All routes of a broker: started, stopped and replaced as its file says."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from broker.config.forwards import RouteDefinition
from broker.forwarding.routes.route import Route, Told


class Routes:
    """``prepare`` is called before a route starts: true if it is a subscription of a topic's."""

    def __init__(
        self,
        dial_here: Callable[[], socket.socket],
        told: Told,
        prepare: Callable[[RouteDefinition], bool],
        retire: Callable[[RouteDefinition], None],
    ) -> None:
        self._dial_here = dial_here
        self._told = told
        self._prepare = prepare
        self._retire = retire
        self._wanted: tuple[RouteDefinition, ...] = ()
        self.running: dict[str, Route] = {}

    def configure(self, definitions: Iterable[RouteDefinition]) -> None:
        """These, in place of those there were; ones that haven't changed go on."""
        wanted = {each.name: each for each in definitions}
        for name, route in list(self.running.items()):
            if wanted.get(name) != route.definition:
                route.stop()
                del self.running[name]
                if name not in wanted:
                    self._retire(route.definition)
        for name, definition in wanted.items():
            if name not in self.running:
                on_topic = self._prepare(definition)
                self.running[name] = route = Route(definition, self._dial_here, self._told, on_topic)
                route.start()

    def ask_to_stop(self) -> None:
        """The broker is shutting down."""
        for route in self.running.values():
            route.ask_to_stop()

    def stop(self) -> None:
        """End them all."""
        self.ask_to_stop()
        for route in self.running.values():
            route.stop()
