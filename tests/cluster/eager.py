"""``sluice`` whose owner trims the log as soon as it is 64 KB longer than what is live."""

from __future__ import annotations

import functools
import sys
from typing import Any

import broker.cluster.cleaning
import broker.server.member
from broker.cli.main import main
from broker.cluster.cleaning import LogCleaner

if __name__ == "__main__":
    replaced: Any = broker.server.member
    broker.cluster.cleaning.LOOK_S = 0.3
    replaced.LogCleaner = functools.partial(LogCleaner, least_bytes=64 << 10)
    sys.exit(main())
