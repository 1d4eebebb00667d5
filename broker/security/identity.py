"""Who somebody is, once that is settled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, the groups that user is in, and how it was proved.

    ``user`` is "anonymous" when nobody authenticated; ``mechanism`` is SASL's name for how it was proved,
    empty when the connection began without SASL. ``proved`` is who it was proved to be where that is
    somebody else, who may act as the user.
    """

    user: str
    groups: frozenset[str] = frozenset()
    mechanism: str = ""
    proved: str = ""


ANONYMOUS = Identity("anonymous")
# The broker itself, where it is a client of its own: for a route. No user can bear that name.
BROKER = Identity("$broker")
