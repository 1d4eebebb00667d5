"""``sluice`` whose store fails, as by its disk, once there is a file ``fail`` where it works."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import broker.server.member
from broker.cli.main import main
from broker.server.server import Server

LOOK_NS = 20_000_000


class FailingServer(Server):
    """A server that looks whether its store is to fail."""

    def start(self) -> list[str]:
        opened = super().start()
        self._look_for_fault(time.monotonic_ns())
        return opened

    def _look_for_fault(self, now_ns: int) -> None:
        if Path("fail").exists():
            Path("fail").unlink()
            broken: Any = self.store
            broken._fail("the disk is broken")
        self.reactor.at(now_ns + LOOK_NS, self._look_for_fault)


if __name__ == "__main__":
    replaced: Any = broker.server.member
    replaced.Server = FailingServer
    sys.exit(main())
