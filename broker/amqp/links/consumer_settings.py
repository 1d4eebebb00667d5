"""A node's settings as they apply to its consumer links."""

from __future__ import annotations

from broker.amqp.links.consumer import ConsumerLink
from broker.config.node import NodeSettings
from broker.flow.adaptive import SIZED
from broker.flow.slow import SlowWatch
from broker.flow.window import Window


def wanted(window: Window) -> int:
    """Return how many messages a window's link could be sent if it had the connection's room alone."""
    link = window.owner
    return link.wanted() if isinstance(link, ConsumerLink) else 0


def fit(link: ConsumerLink, settings: NodeSettings, now_ns: int) -> None:
    """Give a link its window, its limit to holding messages and its watch for slowness.

    Window and watch keep their state where their settings stay.
    """
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
    link.limit_hold(settings.consumer_timeout_ms * 1_000_000)
    rate, for_ms = settings.slow_consumer_rate, settings.slow_consumer_for_ms
    if rate == 0:
        link.watch = None
        link.slow = False
    elif link.watch is None or (link.watch.rate, link.watch.for_ms) != (rate, for_ms):
        link.watch = SlowWatch(rate, for_ms)
