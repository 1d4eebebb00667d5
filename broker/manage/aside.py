"""What survived a restart and can't be served: it is told of, kept as it is, and in nobody's way.

Its shelf and its notes stay in the store as they are, until a later start restores them or an operator
discards them. Its name is taken meanwhile: what was accepted under it may be served again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from broker.config.node import NodeSettings
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ConflictError, NotFoundError
from broker.store.port import QueueLog


@dataclass(frozen=True, slots=True)
class AsideView:
    """One of them: a ``queue``, ``topic``, ``subscription``, ``bridge``, ``holds``, ``bindings`` or another
    ``note``; ``kind`` is ``unknown`` where that can't be read either.
    """

    kind: str
    name: str
    depth_msgs: int
    depth_bytes: int
    reason: str


@dataclass(slots=True)
class _Known:
    view: AsideView
    shelf: QueueLog | None
    # The keys of its notes, which go with it, and the bodies of its large messages, which stay with it.
    notes: Sequence[str]
    bodies: Sequence[Any]
    is_node: bool


class Aside:
    """All of them. ``settings`` has what holds for a node of which nothing is said."""

    def __init__(self, engine: Engine, settings: Callable[[], NodeSettings]) -> None:
        self._engine = engine
        self._settings = settings
        self._known: list[_Known] = []
        self._boxes: dict[str, Node] = {}
        self._held: list[Any] = []

    def add(
        self,
        view: AsideView,
        shelf: QueueLog | None,
        notes: Sequence[str] = (),
        bodies: Sequence[Any] = (),
    ) -> None:
        """Set one aside; ``bodies`` are those of its large messages, ``notes`` the keys of its notes.

        Without a shelf it is no node, and takes no name.
        """
        self._known.append(_Known(view, shelf, notes, bodies, shelf is not None))
        self._engine.bodies.keep_aside(view.depth_msgs, view.depth_bytes, bodies)

    def views(self) -> tuple[AsideView, ...]:
        """All of them, in the order they were set aside."""
        return tuple(each.view for each in self._known)

    def has(self, name: str) -> bool:
        """Whether a node of that name was set aside."""
        return any(each.is_node and each.view.name == name for each in self._known)

    def check(self, name: str) -> None:
        """ConflictError if a node of that name was set aside."""
        for each in self._known:
            if each.is_node and each.view.name == name:
                raise ConflictError(f"'{name}' was set aside when the broker started: {each.view.reason}")

    def hold(self, bodies: Sequence[Any]) -> None:
        """Keep files of large messages of which it can't be told whose they are."""
        self._engine.bodies.keep_aside(0, 0, bodies)
        self._held += bodies

    def box(self, name: str) -> Node:
        """Where dead letters wait for a name that no node can have for now: a node without room, which nobody
        finds.
        """
        if name not in self._boxes:
            box = Node(name, "queue")
            self._engine.lifecycle.stand_in(box, self._settings())
            self._boxes[name] = box
        return self._boxes[name]

    def empty_box(self, name: str) -> None:
        """A node can have that name again: letters that waited go to their places, and from there anew."""
        box = self._boxes.pop(name, None)
        if box is not None:
            self._engine.topology.nodes[name] = box
            self._engine.lifecycle.delete(name)

    def discard(self, name: str) -> int:
        """Remove all of that name with their messages; how many these were. NotFoundError if none is."""
        gone = [each for each in self._known if each.view.name == name]
        if not gone:
            raise NotFoundError(f"nothing named '{name}' is set aside")
        for each in gone:
            self._known.remove(each)
            self._remove(each)
        self.empty_box(name)
        return sum(each.view.depth_msgs for each in gone)

    def _remove(self, known: _Known) -> None:
        storing = self._engine.durability.commit
        if storing is not None and known.shelf is not None:
            storing.store.remove(known.shelf)
        for key in known.notes:
            self._engine.durability.note(key, b"")
        self._engine.bodies.drop_aside(known.view.depth_msgs, known.view.depth_bytes, known.bodies)
