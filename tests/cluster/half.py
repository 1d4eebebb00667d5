"""``sluice`` that is killed while its directory becomes the beginning of a log, in the first epoch.

With ``STUCK`` in its environment it never comes to the end of that instead.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import broker.server.member
from broker.cli.main import main
from broker.cluster.records import SNAPSHOT_END, SNAPSHOT_PIECE
from broker.cluster.writer import LogWriter


class KilledWriter(LogWriter):
    """A writer whose process ends once the first piece is durable, or which drops the end."""

    def append(self, kind: int, group: int, payload: bytes, done: Callable[[], None] | None = None) -> None:
        def kill() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        if self.epoch > 1:
            super().append(kind, group, payload, done)
        elif "STUCK" not in os.environ:
            super().append(kind, group, payload, kill if kind == SNAPSHOT_PIECE else done)
        elif kind != SNAPSHOT_END:
            super().append(kind, group, payload, done)


if __name__ == "__main__":
    replaced: Any = broker.server.member
    replaced.LogWriter = KilledWriter
    sys.exit(main())
