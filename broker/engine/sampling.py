"""Once a second: rates are taken from counters, and what failed is tried again."""

from __future__ import annotations

from broker.engine.depths import Depths
from broker.engine.letters import Letters
from broker.engine.paging import Paging
from broker.engine.streams import Streams
from broker.engine.topology import Topology
from broker.units import SECOND_NS


class RateSampler:
    """Samples every node's counters."""

    def __init__(
        self, topology: Topology, paging: Paging, letters: Letters, depths: Depths, streams: Streams
    ) -> None:
        self._topology = topology
        self._paging = paging
        self._letters = letters
        self._depths = depths
        self._streams = streams
        self._sampled_ns = 0

    def sample(self, now_ns: int) -> int:
        """Update every node's rates (messages per second) from its counters; call it once a second.

        Return how many messages came and went since the last call.
        """
        moved = 0
        seconds = (now_ns - self._sampled_ns) / SECOND_NS
        if self._sampled_ns == 0 or seconds <= 0:
            seconds = 1.0
        self._sampled_ns = now_ns
        if self._depths.temp.held:
            self._paging.hold_temp()
        self._paging.scans.sweep()
        self._streams.recount()
        for node in self._topology.every_node():
            if node.spool is not None:
                self._paging.retry(node, node.spool)
            if node.letters is not None:
                self._letters.look_after(node)
            out = node.accepted + node.rejected + node.dropped
            moved += node.received - node.sampled_in + out - node.sampled_out
            node.rate_in = (node.received - node.sampled_in) / seconds
            node.rate_out = (out - node.sampled_out) / seconds
            node.sampled_in = node.received
            node.sampled_out = out
        return moved
