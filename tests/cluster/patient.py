"""``sluice`` whose member takes two seconds longer than others to restore what it has taken over."""

from __future__ import annotations

import sys
import time
from typing import Any

import broker.server.member
from broker.cli.main import main
from broker.server.server import Server


class SlowServer(Server):
    """A server that waits before it restores anything."""

    def start(self) -> list[str]:
        sys.stderr.write("restoring\n")
        sys.stderr.flush()
        time.sleep(2)
        return super().start()


if __name__ == "__main__":
    replaced: Any = broker.server.member
    replaced.Server = SlowServer
    sys.exit(main())
