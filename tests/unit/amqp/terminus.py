"""Termini of links that belong to no broker."""

from __future__ import annotations

from proton import Connection, Terminus

# A terminus is part of its connection, which Proton's binding doesn't keep for it.
_kept: list[Connection] = []


def a_terminus() -> Terminus:
    """An empty source."""
    connection = Connection()
    _kept.append(connection)
    source: Terminus = connection.session().receiver("in").source
    return source
