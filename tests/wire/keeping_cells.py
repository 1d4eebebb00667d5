"""`sluice` whose cells keep the connections that they accept, so that most of their links are passed on.

Connections with TLS are kept so too; clients without it are handed over unless this is what is run:
``python -m tests.wire.keeping_cells serve --cells 4 ...``, which starts its cells in the same way.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from broker.amqp.loop.handover import ConnectionHandovers
from broker.cli.main import main
from broker.cli.verbs import serve

MODULE = "tests.wire.keeping_cells"


def keep_connections() -> None:
    """Have no connection of this process handed over, nor of those that it starts."""
    command: Any = serve._words

    def words(args: argparse.Namespace) -> list[str]:
        python, option, _, *rest = command(args)
        return [python, option, MODULE, *rest]

    changed: Any = serve
    changed._words = words
    handovers: Any = ConnectionHandovers
    handovers.begin = lambda _self, _peer, _cell: False


if __name__ == "__main__":
    keep_connections()
    sys.exit(main())
