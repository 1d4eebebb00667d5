"""The makers of nodes, and how many one user may have made.

What survives a restart is counted among its maker's again: its definition says whose it is.
"""

from __future__ import annotations

from collections import Counter

from broker.engine.node import Node
from broker.errors import LimitError
from broker.manage.access import TEMPORARY


class Ownership:
    """Counts what users made and what of it is still there. ``most`` 0 is no limit; ``refused`` counts.

    Nodes made for a link are counted apart: whoever has all the queues they may can still ask for a reply.
    """

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.refused = 0
        self._users: dict[Node, str] = {}
        self._counts: Counter[tuple[str, bool]] = Counter()

    def check(self, user: str, for_a_link: bool = False, made: int = 1) -> None:
        """LimitError if the user, who is '' where it is the broker, may not make so many more."""
        if self.most and user and made and self._counts[user, for_a_link] + made > self.most:
            self.refused += 1
            raise LimitError(f"you have made {self.most} nodes and may make no more")

    def made(self, node: Node, user: str) -> None:
        """A node came to be."""
        if user:
            self._users[node] = user
            self._counts[_kept(user, node)] += 1

    def gone(self, node: Node) -> None:
        """It is no more."""
        user = self._users.pop(node, "")
        if user:
            key = _kept(user, node)
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def count(self, user: str) -> int:
        """How many of the user's are there that weren't made for a link."""
        return self._counts[user, False]

    def user(self, node: Node) -> str:
        """Return the user who made it; '' for the broker, or for nobody who is known."""
        return self._users.get(node, "")


def _kept(user: str, node: Node) -> tuple[str, bool]:
    return user, node.name.startswith(f"{TEMPORARY}/")
