"""What a node's settings ask of its consumer links: their windows, who sizes those, and who is slow."""

from __future__ import annotations

from collections.abc import Iterable

from broker.amqp.control.live import LiveConnection
from broker.amqp.links.connection import ConsumerLink
from broker.config.node import NodeSettings
from broker.engine.engine import SECOND_NS, Engine
from broker.flow.adaptive import SIZED
from broker.flow.slow import SlowWatch
from broker.flow.window import Window


def wanted(window: Window) -> int:
    """What the link that owns a window could be sent if no other had the connection's room."""
    link = window.owner
    return link.wanted() if isinstance(link, ConsumerLink) else 0


def fit(link: ConsumerLink, settings: NodeSettings, now_ns: int) -> None:
    """Give a link what the settings say; it keeps what they leave as it is."""
    least, most = settings.consumer_flow_min, settings.consumer_flow_limit
    threshold = settings.consumer_flow_threshold
    sized = SIZED.get(settings.dispatch)
    if sized is None:
        link.pace = None
        link.window.configure(most, threshold)
    elif link.pace is None:
        link.pace = sized(link.window, least, most, threshold, now_ns)
    else:
        link.pace.configure(least, most, threshold)
    rate, for_ms = settings.slow_consumer_rate, settings.slow_consumer_for_ms
    if rate == 0:
        link.watch = None
        link.slow = False
    elif link.watch is None or (link.watch.rate, link.watch.for_ms) != (rate, for_ms):
        link.watch = SlowWatch(rate, for_ms)


class Sampler:
    """Looks at every consumer link once a second; of one that has become slow it says so, or detaches it."""

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
        if watch is None or settings is None:
            return
        seconds = settings.slow_consumer_for_ms / 1000
        detaches = link.slow and settings.slow_consumer_action == "detach"
        self.engine.emit(
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
