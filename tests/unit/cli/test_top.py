"""`sluice top` without a terminal: what keys do, what is shown, what a terminal sends for a key."""

from __future__ import annotations

import pytest
from rich.console import Console

from broker.cli.terminal import board, table
from broker.cli.terminal.board import Board
from broker.cli.terminal.keyboard import named
from broker.cli.verbs import top
from broker.manage.listing import QUICK

ROWS = [
    {"name": "busy", "rate_in": 50.0, "rate_out": 60.0, "depth_msgs": 3, "depth_bytes": 30},
    {"name": "deep", "rate_in": 0.0, "rate_out": 1.0, "depth_msgs": 9000, "depth_bytes": 90},
    {"name": "large", "rate_in": 1.0, "rate_out": 1.0, "depth_msgs": 2, "depth_bytes": 1 << 30},
    {"name": "stuck", "rate_in": 0.0, "rate_out": 0.0, "depth_msgs": 900, "flowStopped": True},
    {"name": "$temporary/1", "rate_in": 99.0, "rate_out": 0.0},
]
BROKER = {
    "uptime_s": 5.0,
    "connections": 2,
    "depth_msgs": 9905,
    "depth_bytes": 1 << 30,
    "memory_bytes": 1 << 30,
    "memory_limit_bytes": 2 << 30,
    "stopped_nodes": 1,
    "blocked_producers": 3,
    "holds": ["orders.\x1b>"],
    "deadlocks": [],
    "rate_in": 1.0,
    "rate_out": 2.5,
}


def names(state: Board) -> list[object]:
    return [row["name"] for row in state.wanted(ROWS)]


def press(state: Board, *keys: str) -> Board:
    assert all(state.press(key) for key in keys)
    return state


@pytest.mark.parametrize(
    ("key", "first"),
    [("r", "busy"), ("i", "busy"), ("d", "deep"), ("b", "large"), ("s", "stuck"), ("n", "busy")],
)
def test_a_key_sorts(key: str, first: str) -> None:
    assert names(press(Board(), key))[0] == first


def test_names_go_up_and_everything_else_down_unless_reversed() -> None:
    assert names(Board(sort="n")) == ["busy", "deep", "large", "stuck"]
    assert names(press(Board(sort="n"), "R")) == ["stuck", "large", "deep", "busy"]
    assert names(press(Board(sort="d"), "R"))[0] == "large"


def test_the_brokers_own_nodes_on_request() -> None:
    assert names(press(Board(), "a"))[0] == "busy"
    assert "$temporary/1" in names(press(Board(), "a"))


def test_a_filter_is_typed_taken_and_dropped() -> None:
    state = press(Board(), "/", "e", "x", "backspace", "e")
    assert "filter: ee" in state.foot(4)
    assert len(names(state)) == 4
    assert names(press(state, "enter")) == ["deep"]
    press(state, "/", "q", "escape")
    assert state.pattern == "ee"
    assert names(press(state, "escape")) == names(Board())
    assert names(Board(pattern="*e*")) == ["large", "deep"]


def test_moving_stays_within_the_rows() -> None:
    state = Board()
    assert state.page_of(ROWS, 2, 5) == ROWS[:2]
    assert press(state, "page down", "down").page_of(ROWS, 2, 5) == ROWS[3:5]
    assert press(state, "page down", "page down").page_of(ROWS, 2, 5) == ROWS[3:5]
    assert press(state, "home").page_of(ROWS, 2, 5) == ROWS[:2]
    assert press(state, "up").page_of(ROWS, 20, 5) == ROWS


def test_q_leaves_and_so_does_a_terminal_that_is_gone() -> None:
    assert not Board().press("q")
    assert not Board().press("end of input")
    assert not Board(typing="").press("end of input")
    assert Board(typing="").press("q")


def test_the_screen_says_what_is_wrong_and_nothing_a_terminal_obeys() -> None:
    rows = [*ROWS, {"name": "evil\x1b[2J\u202e", "rate_in": 1e6, "rate_out": 0.0}]
    console = Console(width=140, height=20, force_terminal=False)
    with console.capture() as capture:
        placed = Board().wanted(rows)
        console.print(top.drawn(top.BoardReading(BROKER, placed, 5), Board(), "amqp://x", 140, 20))
    shown = capture.get()
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "evil\\x1b[2J\\u202e" in shown
    assert "1 nodes stopped   3 producers blocked   producers stopped for orders.\\x1b>" in shown
    assert "in/s 1.0   out/s 2.5" in shown
    assert "1-5 of 5, by rate" in shown


def test_ties_and_rows_without_a_value() -> None:
    rows: list[dict[str, object]] = [
        {"name": "a", "x": None},
        {"name": "b", "x": 2},
        {"name": "c", "x": "word"},
        {"name": "d"},
    ]
    assert [row["name"] for row in table.ordered(rows, ["x"], descending=True)] == ["c", "b", "a", "d"]
    assert [row["name"] for row in table.ordered(rows, ["x"], descending=False)] == ["b", "c", "a", "d"]


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1b[5~d", ["page up", "d"]),
        ("\x1b", ["escape"]),
        ("\x1b[1;5Cq", ["q"]),
        ("\x1b[", []),
        ("/ö\r", ["/", "ö", "enter"]),
        ("\x04", ["end of input"]),
        ("\x01", []),
    ],
)
def test_what_terminals_send(sent: str, keys: list[str]) -> None:
    assert named(sent) == keys


def test_what_is_asked_for_is_what_is_shown() -> None:
    assert {name for sort in board.SORTS.values() for name in sort.names} <= {*board.ATTRIBUTES, "rate"}
    assert {name for sort in board.SORTS.values() for name in sort.asked.split("+")} <= set(QUICK)
