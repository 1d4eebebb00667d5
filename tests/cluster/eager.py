"""``sluice`` whose owner trims the log as soon as it is 64 KB longer than what is live."""

from __future__ import annotations

import sys
from typing import Any

import broker.cluster.cleaning
import broker.server.member
from broker.cli.main import main
from broker.cluster.cleaning import LogCleaner


def eager(*given: Any) -> LogCleaner:
    """The cleaner of a cell, with a log of 64 KB."""
    engine, writer, directory, live_bytes, backup, _ = given
    return LogCleaner(engine, writer, directory, live_bytes, backup, 64 << 10, least_bytes=0)


if __name__ == "__main__":
    replaced: Any = broker.server.member
    broker.cluster.cleaning.LOOK_S = 0.3
    replaced.LogCleaner = eager
    sys.exit(main())
