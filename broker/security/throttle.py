"""Pauses after failed logins, longer each time.

Failures are counted by network: an IPv4 address, or 64 bits of IPv6. A site of IPv6 has 65,536 networks, each
with some attempts that are free; so the rate of failures of a site is bounded besides. Time is passed in. The
number of addresses that are remembered is bounded, and each is forgotten once it is of no more use.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.networks import network_of as key_of
from broker.config.networks import site_of
from broker.flow.rate import KeyedRate

__all__ = ["Attempts", "key_of"]

FREE = 5
FIRST_MS = 1_000
LONGEST_MS = 60_000
# An address that has not failed for so long begins anew.
FORGOTTEN_NS = 900 * 1_000_000_000
MOST_ADDRESSES = 20_000
# A site's failures: so many times what one network has free, each paid for within this time. One customer of
# a provider's, who fails once a minute for ever, doesn't use them up for the others.
SITE_TIMES = 32
SITE_LEAK_MS = 5_000
_MS = 1_000_000


@dataclass(slots=True)
class _Record:
    failures: int = 0
    last_ns: int = 0
    until_ns: int = 0


class Attempts:
    """Failed attempts by address. After ``free`` of them the next waits ``first_ms``, each twice as long."""

    def __init__(self, free: int = FREE, longest_ms: int = LONGEST_MS, first_ms: int = FIRST_MS) -> None:
        self.free = free
        self.first_ms = first_ms
        self.longest_ms = longest_ms
        self._records: dict[str, _Record] = {}
        self._sites = KeyedRate(SITE_LEAK_MS * _MS, MOST_ADDRESSES)

    def __len__(self) -> int:
        return len(self._records)

    def blocked(self, address: str, now_ns: int) -> int:
        """Say in how many milliseconds an address may try again; 0 if it may now."""
        found = self._records.get(key_of(address))
        pause_ms = 0 if found is None else max(0, -(-(found.until_ns - now_ns) // _MS))
        return max(pause_ms, self._site_blocked(address, now_ns)) if len(self._sites) else pause_ms

    def failed(self, address: str, now_ns: int) -> None:
        """Count a failure of an address."""
        key = key_of(address)
        found = self._records.pop(key, None)
        if found is None or now_ns - found.last_ns > FORGOTTEN_NS:
            found = _Record()
        self._records[key] = found
        found.failures += 1
        found.last_ns = now_ns
        beyond = found.failures - self.free
        if beyond >= 0 and self.longest_ms:
            pause_ms = min(self.first_ms << min(beyond, 30), self.longest_ms)
            found.until_ns = now_ns + pause_ms * _MS
        site = site_of(address)
        if site:
            self._sites.count(site, now_ns)
        self._forget(now_ns)

    def _site_blocked(self, address: str, now_ns: int) -> int:
        most_ns = self.free * SITE_TIMES * self._sites.step_ns
        over_ns = self._sites.owed_ns(site_of(address), now_ns) - most_ns
        return min(over_ns // _MS + 1, self.longest_ms) if over_ns > 0 else 0

    def succeeded(self, address: str) -> None:
        """Forgive half of the failures of an address that knew a password.

        Not all of them: the owner of an account could begin anew between guesses at others'.
        """
        key = key_of(address)
        found = self._records.get(key)
        if found is not None:
            found.failures //= 2
            if not found.failures:
                del self._records[key]

    def _forget(self, now_ns: int) -> None:
        """Forget the oldest records, which stand in the order of their last failure."""
        while self._records:
            key = next(iter(self._records))
            old = now_ns - self._records[key].last_ns > FORGOTTEN_NS
            if not old and len(self._records) <= MOST_ADDRESSES:
                break
            del self._records[key]
        self._sites.forget(now_ns)
