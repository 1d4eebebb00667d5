"""How often one address may ask; of IPv6 the 64 bits that one customer has are one address.

An address that is not among the last ``MOST_ADDRESSES`` begins anew: an attacker of so many addresses is
bounded by the number of clients there may be at once.
"""

from __future__ import annotations

from broker.config.networks import network_of
from broker.flow.rate import SECOND_NS, KeyedRate

MOST_ADDRESSES = 1024
BURST_S = 10


class RequestRate:
    """``rate`` a second for each address, ``burst_s`` seconds' worth at once; a rate of 0 is none."""

    def __init__(self, rate: int, burst_s: int = BURST_S) -> None:
        self.addresses = KeyedRate(SECOND_NS // rate if rate else 0, MOST_ADDRESSES)
        self._most_ns = SECOND_NS * burst_s

    def wait_ns(self, address: str, now_ns: int) -> int:
        """Count one request and return 0 where it may pass, else return after how long one may."""
        step_ns = self.addresses.step_ns
        if not step_ns:
            return 0
        network = network_of(address)
        over_ns = self.addresses.owed_ns(network, now_ns) + step_ns - self._most_ns
        if over_ns > 0:
            return over_ns
        self.addresses.count(network, now_ns)
        return 0
