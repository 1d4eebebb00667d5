"""The look at consumer links once a second that finds those which have become slow."""

from __future__ import annotations

from collections.abc import Iterable

from broker.amqp.control.live import LiveConnection
from broker.amqp.links.consumer import ConsumerLink
from broker.engine.engine import Engine
from broker.units import SECOND_NS


class Sampler:
    """The samples of every consumer link's rate; a link that has become slow is reported or detached."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sampled_ns = 0

    def sample(self, peers: Iterable[LiveConnection], now_ns: int) -> None:
        """Now is that second."""
        seconds = (now_ns - self.sampled_ns) / SECOND_NS if self.sampled_ns else 1.0
        self.sampled_ns = now_ns
        for peer in list(peers):
            for link in peer.wire.sample(now_ns, max(seconds, 0.001)):
                self._changed(peer, link)

    def _changed(self, peer: LiveConnection, link: ConsumerLink) -> None:
        node, watch = link.node, link.watch
        settings = node.settings
        if watch is None:
            return
        seconds = settings.slow_consumer_for_ms / 1000
        detaches = link.slow and settings.slow_consumer_action == "detach"
        self.engine.changes.emit(
            "slow_consumer",
            node,
            {
                "slow": link.slow,
                "action": "detach" if detaches else "notify",
                "link": link.id,
                "name": link.name,
                "connection": peer.id,
                "rate": settings.slow_consumer_rate,
                "for_s": seconds,
                "unsettled": link.in_flight,
                "credit": link.credit(),
                "ready": node.queue.ready,
            },
        )
        if detaches:
            text = (
                f"slow_consumer: fewer than {settings.slow_consumer_rate} messages a second settled for"
                f" {seconds:g} s, {link.in_flight:,} unsettled and {node.queue.ready:,} waiting"
            )
            peer.detach(link, "amqp:resource-limit-exceeded", text)
