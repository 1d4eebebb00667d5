"""The port of a cell's log: all that is asked of the engine that replicates it.

Positions are in one total order and rise by one; a record that was appended stays where it is, as long as
it isn't trimmed.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.errors import OperatorError


class LogUnavailable(OperatorError):  # noqa: N818 - a state of the engine's, not a fault of ours
    """The engine doesn't answer, or has no leader; it may later."""


class EngineFault(OperatorError):  # noqa: N818
    """The engine answered in a way that breaks its promises; nothing it says can be relied on."""


class LogEntry(NamedTuple):
    """A record's bytes and where they stand."""

    position: int
    data: bytes


class Acked(NamedTuple):
    """A record that was to stand behind ``after`` is durable at ``position``."""

    after: int
    position: int


class AppendRefused(NamedTuple):
    """Something else stands behind ``after``: the record was not taken."""

    after: int


class Unknown(NamedTuple):
    """Whether the record behind ``after`` was taken is not known: no answer came in time."""

    after: int


Outcome = Acked | AppendRefused | Unknown


class Log(Protocol):
    """A cell's log. Nothing here waits longer than the timeout it was made with."""

    @property
    def heard_ns(self) -> int:
        """When any server of the engine was heard last, in monotonic nanoseconds."""

    def append(self, data: bytes, after: int) -> None:
        """Send a record that is to stand right behind the position ``after``, and nowhere else."""

    def outcomes(self, timeout_s: float, wake: int = -1) -> list[Outcome]:
        """Return what came of records sent, waiting for the first one or for the descriptor ``wake``.

        Each record sent has one outcome, told once; a later answer to it is never told.

        A record that isn't answered in time, or whose connection was lost, is Unknown.
        """

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        """Return records from a position on, in order and without gaps; none where none is there yet.

        They may be some time old. Raises LogUnavailable.
        """

    def first(self) -> int:
        """Return the first position there is, ``last`` + 1 where all is trimmed. Raises LogUnavailable."""

    def last(self) -> int:
        """Return the last position as the leader knows it, 0 in an empty log. Raises LogUnavailable."""

    def nbytes(self) -> int:
        """Return what the log takes on one disk. Raises LogUnavailable."""

    def trim(self, before: int) -> None:
        """Let go of everything before a position. Raises LogUnavailable."""

    def close(self) -> None:
        """Let go of the connection."""
