"""What clients may take of the broker, by where they come from and who they are, and how often they
were refused.

Connections that are not open yet are few: for one more the oldest of them goes, so that a flood of those
that never get anywhere can't lock everybody else out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.errors import PeerError

if TYPE_CHECKING:
    from broker.config.connection_limits import ConnectionLimit
    from broker.config.limits import Limits

# How often a refusal of the same kind is told, and of how many kinds it is known when.
TELL_NS = 1_000_000_000
MOST_TOLD = 1000

# The settings whose breach is counted, as they are named in `limits`.
LIMITS = (
    *("max_connections", "max_connections_per_address", "max_connections_per_user", "max_handshakes"),
    *("max_connections_per_listener", "max_connections_per_virtual_host"),
    *("handshake_timeout", "idle_timeout", "send_timeout"),
    *("max_sessions", "max_links", "max_connection_links", "max_nodes_per_user"),
    *("max_first_frame_size", "max_frame_size", "max_message_size", "max_depth"),
    *("max_selector_length", "max_unsettled", "max_request_size", "max_waiting_requests"),
    *("max_transactions", "max_transactions_per_user"),
    *("max_transaction_size", "max_transaction_size_per_user"),
)

# Conditions that say which limit was reached.
LIMIT_OF = {
    "amqp:link:message-size-exceeded": "max_message_size",
    "amqp:connection:framing-error": "max_frame_size",
}


class OverLimitError(PeerError):
    """The peer asked for more than a limit of ``limits:`` allows; ``limit`` is its name, one of ``LIMITS``.

    A breach of a node's own setting is a plain PeerError.
    """

    def __init__(self, limit: str, description: str) -> None:
        super().__init__("amqp:resource-limit-exceeded", description)
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Over:
    """Why one more connection can't be open: ``limit`` is the setting's name, ``text`` for its client."""

    limit: str
    text: str
    most: int


class Quotas:
    """Connections by address, by user, by listener and by virtual host.

    Those that are open are counted, each until its client closes it or its socket is gone; those that aren't
    open yet are bounded by max_handshakes.
    """

    def __init__(self, limits: Limits, rules: Sequence[ConnectionLimit] = ()) -> None:
        self.limits = limits
        self.rules = tuple(rules)
        self.refused: dict[str, int] = dict.fromkeys(LIMITS, 0)
        self._addresses: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()
        # When somebody's refusal was told last, and how many weren't since.
        self._told: dict[str, tuple[int, int]] = {}

    def refuse(self, limit: str) -> None:
        """Count that a limit was reached."""
        self.refused[limit] += 1

    def reload(self, limits: Limits, rules: Sequence[ConnectionLimit]) -> None:
        """Others hold for who comes from now on; who is there stays."""
        self.limits = limits
        self.rules = tuple(rules)

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

    def over(
        self, user: str, groups: Collection[str] = (), listener: str = "", virtual_host: str = ""
    ) -> Over | None:
        """The limit that one more connection would break; None if it may be open."""
        most = self._most_of(user, groups)
        if most and self._users[user] >= most:
            return Over("max_connections_per_user", f"user {user} has too many connections", most)
        limits = self.limits
        most = self._most_at("listener", listener, limits.max_connections_per_listener)
        if listener and most and self._listeners[listener] >= most:
            text = "too many connections have come by this listener"
            return Over("max_connections_per_listener", text, most)
        most = self._most_at("virtual_host", virtual_host, limits.max_connections_per_virtual_host)
        if virtual_host and most and self._hosts[virtual_host] >= most:
            text = f"virtual host {virtual_host} has too many connections"
            return Over("max_connections_per_virtual_host", text, most)
        return None

    def enter(
        self, user: str, groups: Collection[str] = (), listener: str = "", virtual_host: str = ""
    ) -> bool:
        """A connection is open, if one more may be; ``leave`` with the same when it ends, if so."""
        if self.over(user, groups, listener, virtual_host) is not None:
            return False
        self._users[user] += 1
        self._listeners[listener] += 1
        self._hosts[virtual_host] += 1
        return True

    def leave(self, user: str, listener: str = "", virtual_host: str = "") -> None:
        """One connection less."""
        _less(self._users, user)
        _less(self._listeners, listener)
        _less(self._hosts, virtual_host)

    def may_tell(self, whose: str, now_ns: int) -> int:
        """How many refusals of this kind there were since the last that was told, this one included; 0 where
        one was told within the last second.
        """
        at_ns, untold = self._told.get(whose, (-TELL_NS, 0))
        if now_ns - at_ns < TELL_NS:
            self._told[whose] = at_ns, untold + 1
            return 0
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told[whose] = now_ns, 0
        return untold + 1

    def _most_of(self, user: str, groups: Collection[str]) -> int:
        found = (rule.most for rule in self.rules if rule.is_for(user, groups))
        return next(found, self.limits.max_connections_per_user)

    def _most_at(self, kind: str, name: str, otherwise: int) -> int:
        found = (rule.most for rule in self.rules if (rule.kind, rule.name) == (kind, name))
        return next(found, otherwise)


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
