"""What clients may take of the broker, by where they come from and who they are, and how often they
were refused.

Connections that are not open yet are few: for one more the oldest of them goes, so that a flood of those
that never get anywhere can't lock everybody else out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.errors import PeerError

if TYPE_CHECKING:
    from broker.settings import Limits

# The settings whose breach is counted, as they are named in `limits`.
LIMITS = (
    *("max_connections", "max_connections_per_address", "max_connections_per_user", "max_handshakes"),
    *("handshake_timeout", "idle_timeout", "send_timeout"),
    *("max_sessions", "max_links", "max_connection_links", "max_nodes_per_user"),
    *("max_first_frame_size", "max_frame_size", "max_message_size", "max_depth"),
    *("max_selector_length", "max_unsettled", "max_request_size", "max_waiting_requests"),
)


class OverLimitError(PeerError):
    """The peer asked for more than a limit allows; ``limit`` is the setting's name."""

    def __init__(self, limit: str, description: str) -> None:
        super().__init__("amqp:resource-limit-exceeded", description)
        self.limit = limit


class Quotas:
    """Connections by address and by user."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.refused: dict[str, int] = dict.fromkeys(LIMITS, 0)
        self._addresses: Counter[str] = Counter()
        self._users: Counter[str] = Counter()

    def refuse(self, limit: str) -> None:
        """Count that a limit was reached."""
        self.refused[limit] += 1

    # --- connections

    def admits(self, network: str) -> bool:
        """Whether one more connection from there may be; ``came`` if it is."""
        most = self.limits.max_connections_per_address
        return not most or self._addresses[network] < most

    def came(self, network: str) -> None:
        """A connection from there is."""
        self._addresses[network] += 1

    def went(self, network: str) -> None:
        """It is no more."""
        _less(self._addresses, network)

    def enter(self, user: str) -> bool:
        """A connection is this user's, if one more may be; ``leave`` when it ends, if so."""
        most = self.limits.max_connections_per_user
        if most and self._users[user] >= most:
            return False
        self._users[user] += 1
        return True

    def leave(self, user: str) -> None:
        """One connection less."""
        _less(self._users, user)


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
