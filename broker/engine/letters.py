"""Dead letters: where those of each node go, and what is written on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker import constants
from broker.codec import message
from broker.codec.bodyscan import body_start
from broker.engine.node import DeadLetters, Node
from broker.engine.transfer import OVERFLOW, DeadLetterTransfer
from broker.engine.turn import Turn
from broker.errors import OperatorError
from broker.store.port import LARGE, UNSURE

if TYPE_CHECKING:
    from broker.engine.ports import TransferHost

# More than is written on a letter.
WRITTEN_BYTES = 1024


class Letters:
    """Sends dead letters on their way.

    ``find`` returns the node of an address, made by policy if need be; it raises OperatorError where there is
    none and none may be made.
    """

    def __init__(self, host: TransferHost, turn: Turn, find: Callable[[str], Node]) -> None:
        self._host = host
        self._turn = turn
        self.find = find

    def way(self, node: Node) -> DeadLetters | None:
        """Return the way to a node's dead-letter node, which is made if need be; None without one."""
        address = node.settings.dead_letter_address
        way = node.letters
        if way is not None and not way.target.deleted and way.target.name == address:
            return way
        if not address or address == node.name:
            return None
        try:
            target = self.find(address)
        except OperatorError:
            return None
        waiting = [] if way is None else way.leave()
        letters = node.letters = DeadLetterTransfer(self._host, node, target)
        for each in waiting:
            letters.send(each.entry, each.data, each.reason)
        return letters

    def write(self, node: Node, data: bytes, reason: str) -> bytes:
        """Return a message as it reads as a dead letter: whence it comes, why, and since when."""
        return message.dead_lettered(data, reason, node.address, self._turn.wall_ms())

    def take_overflow(self, node: Node, data: bytes, bits: int) -> int | None:
        """Take in a message that has no room at its node; return its code, None where no way is.

        A dead letter doesn't become one again.
        """
        if message.is_dead_lettered(data):
            return None
        code = self.take(node, data, bits, OVERFLOW)
        if code == constants.REFUSED:
            node.refused += 1
        return code

    def take(self, node: Node, data: bytes, bits: int, reason: str) -> int | None:
        """Take in a message of a node that is in none of its lists; return its code, None where no way is.

        It is counted where it is taken: one that is REFUSED may be offered again.
        """
        way = self.way(node)
        if way is None:
            return None
        code = way.take_in(self.write(node, data, reason), bits)
        if code != constants.REFUSED:
            node.dead_lettered += 1
        return code

    def has_room(self, target: Node, msgs: int, nbytes: int) -> bool:
        """Return whether a dead-letter node would take so many letters now, of so many bytes before they are
        written on.
        """
        gate, allocator = target.gate, target.allocator
        nbytes += msgs * WRITTEN_BYTES
        if allocator.line or allocator.room(1) < msgs or allocator.room(nbytes) < 1:
            return False
        if target.is_topic or target.hot.overflow not in (
            constants.OVERFLOW_REJECT,
            constants.OVERFLOW_DEAD_LETTER,
        ):
            return True
        return bool(
            gate.depth_msgs + msgs <= target.hard_msgs and gate.depth_bytes + nbytes <= target.hard_bytes
        )

    def look_after(self, node: Node) -> None:
        """Send what waits to where letters go now, and offer again what was refused."""
        if node.letters is not None and node.letters.waiting_msgs() > 0:
            self.way(node)
            node.letters.retry()

    def is_without_body(self, node: Node, seq: int, flags: int, data: bytes) -> bool:
        """Return whether a message that survived is large and has lost its body: nobody is sent the rest.

        One that nobody knows this of for certain, for some messages never had a body, becomes a dead letter
        where the node has a place for them and stays otherwise.
        """
        if seq in node.bodies:
            return False
        if flags & LARGE:
            return True
        if flags & UNSURE and body_start(data) < 0:
            return self.way(node) is not None
        return False
