"""Files of large messages, as nodes hold them: each is counted at its node, and noted in the store."""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine.depths import Depths
from broker.engine.durability import Durability
from broker.engine.large import Body, BodyRelease, dress, note_key, note_value
from broker.engine.node import Node
from broker.queues.queue import Entry
from broker.queues.schedule import Delayed


class NodeBodies:
    """Ties the file of a large message to the nodes that have the message."""

    def __init__(self, depths: Depths, durability: Durability) -> None:
        self._depths = depths
        self._durability = durability

    def add(self, node: Node, entry: Entry | Delayed, body: Body, keep: bool) -> None:
        """Give an entry its body; ``keep`` where the node keeps it on disk.

        ``Depths.enter`` has counted the message as if all of it were in memory.
        """
        self._depths.memory.depth_bytes -= body.size
        node.bodies[entry.seq] = (body, keep)
        node.file_bytes += body.size
        dress(entry, body)
        if keep:
            body.kept += 1
            self._durability.note(note_key(body, node.name, entry.seq), note_value(body))

    def restore(self, node: Node, seq: int, body: Body) -> None:
        """Give a message that survived its body, before the message itself is restored."""
        node.bodies[seq] = (body, True)
        body.kept += 1
        node.file_bytes += body.size
        node.gate.depth_bytes += body.size

    def renumber(self, node: Node, seq: int, new_seq: int) -> None:
        """Have a body by its message's new number: the message goes into a schedule, or out of it."""
        body, noted = node.bodies.pop(seq)
        node.bodies[new_seq] = (body, noted)
        if noted:
            self._durability.note(note_key(body, node.name, seq), b"")
            self._durability.note(note_key(body, node.name, new_seq), note_value(body))

    def let_go(self, node: Node, seq: int) -> None:
        """Take a body from its node; once that is on disk nothing of the message needs the file."""
        self.unnote(node, seq, *self.take_out(node, seq))

    def take_out(self, node: Node, seq: int) -> tuple[Body, bool]:
        """Count a body out of its node: the body, and whether the store has a note of it (``unnote``)."""
        body, noted = node.bodies.pop(seq)
        node.file_bytes -= body.size
        node.gate.depth_bytes -= body.size
        return body, noted

    def unnote(self, node: Node, seq: int, body: Body, noted: bool) -> None:
        """Take a body's note from the store; once that is on disk nothing of the message needs the file."""
        if noted and self._durability.is_on():
            body.kept -= 1
            self._durability.note(note_key(body, node.name, seq), b"")
            self._durability.wait(BodyRelease(body))

    def clear(self, node: Node) -> None:
        """Take all bodies from a node that is gone with its messages."""
        for seq, (body, noted) in node.bodies.items():
            self.unnote(node, seq, body, noted)
        node.bodies.clear()

    def abandon(self, node: Node) -> None:
        """Forget the bodies of a node that is taken out; what the store has noted of them stays."""
        for body, noted in node.bodies.values():
            body.kept -= noted
        node.bodies.clear()

    def keep_aside(self, msgs: int, nbytes: int, bodies: Iterable[Body]) -> None:
        """Count what the store has of a node that isn't served, and keep the files of its messages."""
        self._depths.count_disk(msgs, nbytes)
        for body in bodies:
            body.kept += 1

    def drop_aside(self, msgs: int, nbytes: int, bodies: Iterable[Body]) -> None:
        """Let go what ``keep_aside`` counted: the store has it no more, or serves it no more."""
        self._depths.count_disk(-msgs, -nbytes)
        for body in bodies:
            body.kept -= 1
            self._durability.wait(BodyRelease(body))
