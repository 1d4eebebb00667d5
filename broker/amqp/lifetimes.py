"""What is left of a link's terminus when the link goes, and for how long (AMQP 1.0 §3.5.1, §3.5.10).

A link goes in one of four ways, each of which includes those before it: it is detached, its session
ends, its connection closes; or it is closed, which ends its terminus whatever the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proton import Data, Described, Terminus, symbol, ulong

from broker.amqp.decoding import first_of

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
    """What outlives its link: ``end`` is called once, ``timeout_s`` after what ``until`` names."""

    def __init__(self, until: int, timeout_s: int, end: Callable[[], None]) -> None:
        self.until = until
        self.timeout_s = timeout_s
        self._end: Callable[[], None] | None = end

    @classmethod
    def of(cls, source: Terminus, end: Callable[[], None]) -> Kept:
        """As the terminus asks for it; Proton answers with session-end where it asks for nothing."""
        return cls(_EXPIRY.get(source.expiry_policy, SESSION_ENDED), source.timeout, end)

    def is_over(self, how: int) -> bool:
        """Whether it ends when its link goes so."""
        return how >= self.until

    def end(self) -> None:
        """It is over."""
        end, self._end = self._end, None
        if end is not None:
            end()


def lifetime_of(terminus: Terminus) -> int:
    """The lifetime policy a dynamic node is asked to have; deleted with its link where none is (§3.5.11)."""
    policy = _properties(terminus.properties).get("lifetime-policy")
    if isinstance(policy, Described):
        descriptor = policy.descriptor
        code = int(descriptor) if isinstance(descriptor, int) else _LIFETIMES.get(str(descriptor), 0)
        if code in _LIFETIMES.values():
            return code
    return ON_CLOSE


def tell_lifetime(terminus: Terminus, policy: int) -> None:
    """Say in our terminus which lifetime the node has."""
    terminus.properties.clear()
    terminus.properties.put_object({symbol("lifetime-policy"): Described(ulong(policy), [])})


def _properties(data: Data) -> dict[Any, Any]:
    found = first_of(data)
    return found if isinstance(found, dict) else {}
