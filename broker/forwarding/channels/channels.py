"""All channels of a broker: their subscriptions and their sockets, as its file says."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address

from broker.config.forwards import ChannelDefinition
from broker.engine.deferred import DeferredSettlement, channel_settings
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.forwarding.channels.channel import Channel

log = logging.getLogger("sluice.channels")

SEND_BUFFER = 1 << 20


class Channels:
    """``topic`` finds or makes a topic; ``at`` calls a function at a time, on the engine's thread."""

    def __init__(
        self,
        engine: Engine,
        topic: Callable[[str], Node],
        at: Callable[[int, Callable[[int], None]], None],
    ) -> None:
        self._engine = engine
        self._topic = topic
        self._at = at
        self.running: dict[str, Channel] = {}
        self._wanted: tuple[ChannelDefinition, ...] = ()
        self._sockets: dict[str, socket.socket] = {}

    def configure(self, definitions: Iterable[ChannelDefinition]) -> None:
        """These, in place of those there were; ones that haven't changed keep their backlog.

        One that can't be is logged and left out.
        """
        self._wanted = tuple(definitions)
        wanted = {each.name: each for each in self._wanted}
        for name, channel in list(self.running.items()):
            if wanted.get(name) != channel.definition or channel.node.deleted:
                self._close(name)
        for name, definition in wanted.items():
            if name not in self.running:
                self._try(definition)

    def node_made(self, node: Node) -> None:
        """A topic is there, and so are its channels."""
        for definition in self._wanted:
            if definition.topic == node.name and definition.name not in self.running:
                self._try(definition)

    def node_gone(self, node: Node) -> None:
        """Its channels end; they are there again when it is."""
        for definition in self._wanted:
            if definition.topic == node.name and definition.name in self.running:
                self._close(definition.name)

    def close(self) -> None:
        """End them all; what they hold is gone."""
        for name in list(self.running):
            self._close(name)

    def waiting(self, channel: Channel) -> int:
        """How many messages at its topic wait for their settlement."""
        topics = channel.node.topics
        return len(topics[0].awaiting) if topics and topics[0].awaiting is not None else 0

    def _try(self, definition: ChannelDefinition) -> None:
        try:
            self._open(definition)
        except (OperatorError, OSError) as fault:
            log.error("channel '%s' can't be opened: %s", definition.name, fault)

    def _open(self, definition: ChannelDefinition) -> None:
        engine = self._engine
        topic = self._topic(definition.topic)
        if definition.name in self.running:
            return  # making the topic has opened it
        if not topic.is_topic:
            raise OperatorError(f"'{definition.topic}' is no topic")
        sock = open_socket(definition)
        settings = channel_settings(topic)
        # Its address is not the topic's: thresholds that the topic is given later play no part here.
        node = engine.lifecycle.subscribe(
            f"{topic.name}/channel.{definition.name}", f"$channel/{definition.name}", settings
        )
        engine.topology.bind(topic, node)
        destination = (definition.host, definition.port)
        channel = Channel(
            engine,
            node,
            definition,
            lambda data: _send(sock, data, destination),
            lambda when_ns: self._at(when_ns, lambda _: engine.turn.mark_dirty(node)),
        )
        engine.delivery.add_consumer(node, channel)
        if topic.awaiting is None:
            topic.awaiting = DeferredSettlement(engine, topic)
        topic.awaiting.channels.append(node)
        self.running[definition.name] = channel
        self._sockets[definition.name] = sock

    def _close(self, name: str) -> None:
        channel = self.running.pop(name)
        self._sockets.pop(name).close()
        for topic in list(channel.node.topics):
            if topic.awaiting is not None:
                topic.awaiting.channels.remove(channel.node)
                self._engine.lifecycle.unsubscribe(channel.node)
                topic.awaiting.moved()
                if not topic.awaiting.channels:
                    topic.awaiting = None
        self._engine.lifecycle.unsubscribe(channel.node)


def open_socket(definition: ChannelDefinition) -> socket.socket:
    """A socket for datagrams to where the channel goes. OSError if its interface isn't there."""
    address = ip_address(definition.host)
    six = address.version == 6
    sock = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        if address.is_multicast:
            _set_multicast(sock, six, definition)
        elif definition.interface:
            sock.bind((definition.interface, 0))
    except OSError:
        sock.close()
        raise
    return sock


def _set_multicast(sock: socket.socket, six: bool, definition: ChannelDefinition) -> None:
    if six:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, definition.ttl)
        if definition.interface:
            sock.bind((definition.interface, 0))
        return
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, definition.ttl)
    if definition.interface:
        interface = socket.inet_aton(definition.interface)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)


def _send(sock: socket.socket, data: bytes, destination: tuple[str, int]) -> None:
    sock.sendto(data, destination)
