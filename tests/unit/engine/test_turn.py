"""One turn: its time and its nodes."""

from __future__ import annotations

from broker.engine.node import Node
from broker.engine.turn import Turn


def test_a_node_is_noted_once_and_taken_once() -> None:
    turn, node = Turn(), Node("a", "queue")
    turn.mark_dirty(node)
    turn.mark_dirty(node)
    assert turn.take_dirty() == [node]
    assert turn.take_dirty() == []


def test_a_node_that_was_taken_is_noted_again_once_its_mark_is_gone() -> None:
    turn, node = Turn(), Node("a", "queue")
    turn.mark_dirty(node)
    turn.take_dirty()
    turn.mark_dirty(node)
    assert turn.take_dirty() == [], "whoever took it says when it may be noted again"
    node.dirty = False
    turn.mark_dirty(node)
    assert turn.take_dirty() == [node]


def test_what_is_left_for_later_is_done_in_the_next_turn() -> None:
    turn, node = Turn(), Node("a", "queue")
    turn.mark_dirty_later(node)
    turn.mark_dirty_later(node)
    assert (turn.dirty, turn.unfinished) == ([], [node])
    turn.go_on()
    assert (turn.dirty, turn.unfinished) == ([node], [])


def test_the_wall_clock_follows_the_turn() -> None:
    turn = Turn()
    turn.epoch_ns = 5_000_000_000
    turn.now_ns = 2_500_000
    assert turn.wall_ms() == 5_002
