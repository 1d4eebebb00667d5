"""How full a queue is, asked of the broker's ``$management`` node; unknown where that can't be read."""

from __future__ import annotations

from dataclasses import dataclass

from .engine import Handle
from .management import QUEUE, Attributes, Reads


@dataclass(frozen=True, slots=True)
class Depth:
    """``messages``: all that are in the queue. ``ready``: those that nobody has been sent yet."""

    messages: int
    ready: int


class Inquiry(Reads):
    """Asks for one queue's depth; ``answered`` is set with every answer."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address

    @property
    def depth(self) -> Depth | None:
        """The last answer; None if there is none, or it doesn't say."""
        return depth_of(self.answers[0]) if self.answers else None

    @property
    def is_stream(self) -> bool:
        """Whether the last answer is a stream's."""
        return bool(self.answers) and (self.answers[0] or {}).get("queue_type") == "stream"

    def ask(self, session: Handle) -> None:
        """Begin, as soon as the links are there."""
        self.ask_for(session, [(QUEUE, self.address)])


def depth_of(attributes: Attributes | None) -> Depth | None:
    """What a queue's attributes say of it."""
    try:
        return Depth(int(attributes["depth_msgs"]), int(attributes["ready_msgs"])) if attributes else None
    except (KeyError, TypeError, ValueError):
        return None
