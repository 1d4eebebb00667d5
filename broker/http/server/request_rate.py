"""How often one address may ask: a bucket of tokens for each, of the addresses seen last. Of IPv6 the 64 bits
that one customer has are one.

Time is an argument. Who isn't among the last ``MOST_ADDRESSES`` begins anew: an attacker of so many addresses
is bounded by the number of clients there may be at once.
"""

from __future__ import annotations

from collections import OrderedDict

from broker.config.networks import network_of

MOST_ADDRESSES = 1024
BURST_S = 10
SECOND_NS = 1_000_000_000


class RequestRate:
    """``rate`` a second for each address, ``BURST_S`` seconds' worth at once; a rate of 0 is none."""

    def __init__(self, rate: int, burst_s: int = BURST_S) -> None:
        self._step_ns = SECOND_NS // rate if rate else 0
        self._most_ns = SECOND_NS * burst_s
        # When each address will have paid for what it asked.
        self._due_ns: OrderedDict[str, int] = OrderedDict()

    def wait_ns(self, address: str, now_ns: int) -> int:
        """0, and it is counted, where one more may pass; else after how long one may."""
        if not self._step_ns:
            return 0
        address = network_of(address)
        due_ns = max(self._due_ns.get(address, 0), now_ns) + self._step_ns
        over_ns = due_ns - now_ns - self._most_ns
        if over_ns > 0:
            return over_ns
        self._due_ns[address] = due_ns
        self._due_ns.move_to_end(address)
        if len(self._due_ns) > MOST_ADDRESSES:
            self._due_ns.popitem(last=False)
        return 0
