"""Which version of a node's settings somebody has seen, so that two who change them don't undo each other."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2s

from broker.engine.node import Node
from broker.errors import StaleError

ANY = "*"


def version_of(node: Node) -> str:
    """A word that changes with the node's arguments and effective settings, and with nothing else."""
    told = repr((node.name, node.kind, sorted(node.arguments.items()), node.settings))
    return blake2s(told.encode(), digest_size=10).hexdigest()


def check_version(node: Node, seen: Collection[str]) -> None:
    """StaleError if the node isn't as one of those that were seen; nothing seen means that nobody minds."""
    if seen and ANY not in seen and version_of(node) not in seen:
        raise StaleError(f"the settings of '{node.name}' have changed meanwhile: read them again")
