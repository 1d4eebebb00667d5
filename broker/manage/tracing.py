"""The operator's order to log the frames of one connection for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.errors import NotFoundError, OperatorError

# A trace ends after so many frames, or so many seconds, whichever comes first.
FRAMES, MOST_FRAMES = 1000, 100_000
SECONDS, MOST_SECONDS = 60, 3600


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The connection to trace, and for how long; 0 ``frames`` end a trace that is under way."""

    connection: str
    frames: int = FRAMES
    seconds: int = SECONDS


class Tracing:
    """``begin`` is set by the room that knows the wire: whether there was such a connection."""

    def __init__(self) -> None:
        self.begin: Callable[[TraceRequest], bool] = _nobody

    def order(self, trace: TraceRequest) -> TraceRequest:
        """Begin or end it. OperatorError for bounds out of bounds, NotFoundError for no such connection."""
        if not 0 <= trace.frames <= MOST_FRAMES:
            raise OperatorError(f"frames must be from 0, which ends a trace, to {MOST_FRAMES}")
        if not 1 <= trace.seconds <= MOST_SECONDS:
            raise OperatorError(f"seconds must be from 1 to {MOST_SECONDS}")
        if not self.begin(trace):
            raise NotFoundError(f"no connection named '{trace.connection}'")
        return trace


def _nobody(trace: TraceRequest) -> bool:
    return False
