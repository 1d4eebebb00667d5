"""Termini of one connection that outlive their links: dynamic nodes, subscriptions, nodes for replies."""

from __future__ import annotations

from functools import partial

from broker.amqp.control.client import ClientDetails
from broker.amqp.control.lifetimes import CLOSED, CONNECTION_CLOSED, SESSION_ENDED, Kept
from broker.amqp.control.temporary import TemporaryNodes
from broker.amqp.loop.timers import Timers
from broker.engine.engine import Engine
from broker.manage.subscriptions import Subscription, Subscriptions
from broker.units import SECOND_NS


class KeptTermini:
    """The termini of one connection's links, each until its expiry policy ends it (§3.5.3)."""

    __slots__ = ("_client", "_engine", "_joined", "_kept", "_left", "_subscriptions", "_temporary", "_timers")

    def __init__(
        self,
        engine: Engine,
        timers: Timers,
        subscriptions: Subscriptions,
        temporary: TemporaryNodes,
        client: ClientDetails,
    ) -> None:
        self._engine = engine
        self._timers = timers
        self._subscriptions = subscriptions
        self._temporary = temporary
        self._client = client
        # By handle: the session's channel, and what outlives the link.
        self._kept: dict[int, tuple[int, Kept]] = {}
        # Those whose link is gone and that wait for its session or for this connection to end: the
        # channel, and the subscription it is about.
        self._left: dict[Kept, tuple[int, Subscription | None]] = {}
        # By handle, the subscription that a receiver has joined.
        self._joined: dict[int, Subscription] = {}

    def keep(self, handle: int, channel: int, kept: Kept) -> None:
        """Note what outlives the link of a handle."""
        self._kept[handle] = channel, kept

    def kept_of(self, handle: int) -> Kept | None:
        """Return what outlives the link of a handle; None for nothing."""
        return self._kept.get(handle, (0, None))[1]

    def join(self, handle: int, subscription: Subscription) -> None:
        """Note the subscription that a receiver has joined."""
        self._joined[handle] = subscription

    def resume(self, before: Kept) -> None:
        """Call off the end of a terminus whose link is back with another."""
        before.cancel()
        self._left.pop(before, None)

    def discard(self, handle: int) -> None:
        """End what was made for a link that is refused: nothing else asks for it when the client detaches."""
        kept = self._kept.pop(handle, (0, None))[1]
        if kept is not None:
            kept.end()

    def link_gone(self, handle: int, name: str, client_sends: bool, how: int) -> None:
        """Leave the link's subscription, and end what outlived the link if it is over when a link goes so."""
        subscription = self._joined.pop(handle, None)
        if subscription is not None:
            self._subscriptions.leave(subscription)
            subscription.node.not_from = None
        channel, kept = self._kept.pop(handle, (0, None))
        if subscription is not None and subscription.receivers:
            kept = None  # the last one to leave says how long it stays
        if kept is not None and kept.is_over(how):
            self._expire(kept, how, subscription)
        elif kept is not None and kept.is_over(CONNECTION_CLOSED):
            self._left[kept] = channel, subscription
            if subscription is not None:
                subscription.ends_later(partial(self._left.pop, kept, None))
        if kept is not None and not kept.is_ended:
            self._temporary.detached(kept, self._client.link_key(name, client_sends))
        if self._temporary.orphans:
            self._temporary.look_after_orphans()

    def session_ended(self, channel: int) -> None:
        """End what waited for the session of a channel."""
        for kept, (its, subscription) in list(self._left.items()):
            if its == channel and kept.is_over(SESSION_ENDED):
                del self._left[kept]
                self._expire(kept, SESSION_ENDED, subscription)

    def connection_closed(self) -> None:
        """End what waited for the connection."""
        for kept, (_, subscription) in list(self._left.items()):
            self._expire(kept, CONNECTION_CLOSED, subscription)
        self._left.clear()

    def _expire(self, kept: Kept, how: int, subscription: Subscription | None) -> None:
        """Begin its time, or end it if it has none; a receiver that comes back calls a subscription's off."""
        if kept.timeout_s == 0 or how == CLOSED:
            kept.end()
            return
        when_ns = self._engine.turn.now_ns + kept.timeout_s * SECOND_NS
        timer = self._timers.at(when_ns, lambda _: kept.end())
        kept.ends_later(partial(self._timers.drop, timer))
        if subscription is not None:
            subscription.ends_later(kept.called_off)
