"""Which names a queue or a topic may bear."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

from broker.errors import OperatorError

LONGEST = 255
# What lies there is made, filled and kept by the broker alone.
OWN = "$sluice/"
# Controls, halves of surrogate pairs, line and paragraph separators: they would break a log or a terminal.
UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")


def check_name(name: str) -> str:
    """The name itself; OperatorError if no node may be called so."""
    if not name:
        raise OperatorError("a name may not be empty")
    if len(name) > LONGEST:
        raise OperatorError(f"a name may have at most {LONGEST} characters, not {len(name)}")
    if any(unicodedata.category(character) in UNPRINTABLE for character in name):
        raise OperatorError(f"a name may not hold control characters: {name!a}")
    if name in (".", ".."):
        raise OperatorError(f"'{name}' can't be a name: in the path of a URL it means another place")
    if name.startswith("$"):
        raise OperatorError(f"names that start with '$' are the broker's own: '{name}'")
    return name


def placed(name: str, virtual_hosts: Collection[str]) -> tuple[str, str]:
    """The virtual host a node belongs to, '' for the common one, and what a client there calls it."""
    host, slash, rest = name.partition("/")
    return (host, rest) if slash and host in virtual_hosts else ("", name)


def is_own(name: str) -> bool:
    """Whether it is a node that clients may read and nothing else."""
    return name.startswith(OWN)


def is_reserved(name: str) -> bool:
    """Return whether a name is the broker's own or a link's: no policy and no hold is about such a node."""
    return name.startswith("$")
