"""`sluice` whose cells hand a connection to the cell after its first link's, so that this link is passed on.

Connections that can't be handed over, with TLS and over WebSocket, stay in the cell that accepted them, and
so do those whose first link names no node: two links of three are passed on there, of three cells. Run as
``python -m tests.wire.wrong_cells serve --cells 3 ...``, which starts its cells in the same way.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from proton import Link, Terminus

from broker.amqp.control.placement import LinkPlacement
from broker.cli.main import main
from broker.cli.verbs import serve

MODULE = "tests.wire.wrong_cells"


def misplace_connections() -> None:
    """Have connections of this process handed to a wrong cell, and those of the cells that it starts."""
    command: Any = serve._words

    def words(args: argparse.Namespace) -> list[str]:
        python, option, _, *rest = command(args)
        return [python, option, MODULE, *rest]

    changed: Any = serve
    changed._words = words
    placement: Any = LinkPlacement
    right = placement.place_of

    def place_of(self: Any, link: Link) -> tuple[int, str] | None:
        if not self._is_settled and not self._leaves and _names_a_node(link):
            wrong = (self._cell_of(link)[0] + 1) % self._cells.cells
            if not self.is_here(wrong) and self._hand_over(wrong):
                self._leaves = True
                return None
            self._is_settled = True
            self._settle()
        place: tuple[int, str] | None = right(self, link)
        return place

    placement.place_of = place_of


def _names_a_node(link: Link) -> bool:
    """Whether it is a link to a node of the users': those of the broker's own are in each cell."""
    terminus = link.remote_source if link.is_sender else link.remote_target
    if terminus.type == Terminus.COORDINATOR or terminus.dynamic or not terminus.address:
        return False
    return not terminus.address.startswith("$")


if __name__ == "__main__":
    misplace_connections()
    sys.exit(main())
