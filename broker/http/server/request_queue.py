"""The line in which requests wait while the HTTP port has had its share of the processor."""

from __future__ import annotations

import asyncio
import time

from broker.http.server.cpu_share import CpuShare


class RequestQueue:
    """A place in a line of requests, of which the first goes on once the share allows it."""

    def __init__(self, share: CpuShare) -> None:
        self.share = share
        self.waited = 0
        self._line = asyncio.Lock()

    async def passed(self) -> None:
        """Wait for this one's turn."""
        if not self._line.locked() and not self.share.wait_ns(time.monotonic_ns()):
            return
        self.waited += 1
        async with self._line:
            while wait_ns := self.share.wait_ns(time.monotonic_ns()):
                await asyncio.sleep(wait_ns / 1e9)
