"""Lifetimes of a link's terminus when the link is gone (AMQP 1.0 §3.5.1, §3.5.10).

A link goes in one of four ways, each of which includes those before it: it is detached, its session
ends, its connection closes; or it is closed, which ends its terminus whatever the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proton import Data, Described, Terminus, symbol, ulong

from broker.amqp.control.decoding import first_of
from broker.errors import PeerError

DETACHED, SESSION_ENDED, CONNECTION_CLOSED, CLOSED = 1, 2, 3, 9

_EXPIRY = {
    Terminus.EXPIRE_WITH_LINK: DETACHED,
    Terminus.EXPIRE_WITH_SESSION: SESSION_ENDED,
    Terminus.EXPIRE_WITH_CONNECTION: CONNECTION_CLOSED,
    Terminus.EXPIRE_NEVER: CLOSED,
}

ON_CLOSE = 0x2B
ON_NO_LINKS = 0x2C
ON_NO_MESSAGES = 0x2D
ON_NO_LINKS_OR_MESSAGES = 0x2E
_LIFETIMES = {
    "amqp:delete-on-close:list": ON_CLOSE,
    "amqp:delete-on-no-links:list": ON_NO_LINKS,
    "amqp:delete-on-no-messages:list": ON_NO_MESSAGES,
    "amqp:delete-on-no-links-or-messages:list": ON_NO_LINKS_OR_MESSAGES,
}


class Kept:
    """Something that outlives its link: ``end`` is called once, ``timeout_s`` after the way ``until``."""

    def __init__(self, until: int, timeout_s: int, end: Callable[[], None]) -> None:
        self.until = until
        self.timeout_s = timeout_s
        self._end: Callable[[], None] | None = end
        self._call_off: Callable[[], object] | None = None

    @classmethod
    def of(cls, source: Terminus, end: Callable[[], None]) -> Kept:
        """As the terminus asks for it; Proton answers with session-end where it asks for nothing."""
        return cls(_EXPIRY.get(source.expiry_policy, SESSION_ENDED), source.timeout, end)

    def is_over(self, how: int) -> bool:
        """Whether it ends when its link goes so."""
        return how >= self.until

    def followed_by(self, other: Kept) -> Kept:
        """One that ends this and then the other, when this would have ended."""

        def end() -> None:
            self.end()
            other.end()

        return Kept(self.until, self.timeout_s, end)

    @property
    def is_ended(self) -> bool:
        """Whether it is over already."""
        return self._end is None

    def ends_later(self, call_off: Callable[[], object]) -> None:
        """Its time has begun; ``call_off`` stops that."""
        self._call_off = call_off

    def called_off(self) -> None:
        """Its link is back: its time, if it had begun, doesn't run any more."""
        call_off, self._call_off = self._call_off, None
        if call_off is not None:
            call_off()

    def cancel(self) -> None:
        """Its link is back and has another: this one ends nothing."""
        self.called_off()
        self._end = None

    def end(self) -> None:
        """It is over."""
        self._call_off = None
        end, self._end = self._end, None
        if end is not None:
            end()


def lifetime_of(terminus: Terminus) -> int:
    """The lifetime policy a dynamic node is asked to have; deleted with its link where none is (§3.5.11).

    PeerError if its properties are none, or the policy isn't one.
    """
    policy = _properties(terminus.properties).get(symbol("lifetime-policy"))
    if policy is None:
        return ON_CLOSE
    if isinstance(policy, Described):
        descriptor = policy.descriptor
        code = int(descriptor) if isinstance(descriptor, int) else _LIFETIMES.get(str(descriptor), 0)
        if code in _LIFETIMES.values():
            return code
    raise PeerError("amqp:invalid-field", "a lifetime-policy that is none of the specification's")


def tell_lifetime(terminus: Terminus, policy: int) -> None:
    """Say in our terminus which lifetime the node has."""
    terminus.properties.clear()
    terminus.properties.put_object({symbol("lifetime-policy"): Described(ulong(policy), [])})


def _properties(data: Data) -> dict[Any, Any]:
    found = first_of(data)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, symbol) for key in found):
        raise PeerError("amqp:invalid-field", "dynamic-node-properties that are no map of symbols")
    return found
