"""The command line on a terminal: full screens, keys, and nothing a peer wrote is obeyed by the terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from proton import Message
from proton.reactor import Container
from proton.utils import BlockingConnection

from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.lines import Lines, lines

__all__ = ["lines"]

pytestmark = pytest.mark.wire

SECONDS = 20
# Clears the screen, and turns the direction of what follows.
EVIL = "evil\x1b[2J\u202e\x9b31m"
# What programs say to a terminal: sequences of ours (rich's) that are not text.
SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>78])")


class Screen:
    """A program on a terminal of its own: what it draws, and keys for it."""

    def __init__(self, words: tuple[str, ...], broker: RunningBroker) -> None:
        self.master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 160, 0, 0))
        self.before = termios.tcgetattr(self._slave)
        self.drawn = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "broker.cli.main", *words],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=os.environ | {"SLUICE_BROKER": broker.url, "TERM": "xterm-256color"},
            # Its controlling terminal, so that Ctrl-C interrupts it.
            start_new_session=True,
            preexec_fn=partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0),
        )

    def press(self, keys: str) -> None:
        """Type; what was drawn until now is forgotten."""
        if keys:
            self.read(0)
            self.drawn = ""
            os.write(self.master, keys.encode())

    def read(self, seconds: float) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            self.drawn += os.read(self.master, 65536).decode(errors="replace")
            seconds = 0

    @property
    def text(self) -> str:
        """What was drawn, without the sequences that place and colour it."""
        return SEQUENCE.sub("", self.drawn)

    def above(self, foot: str) -> str:
        """What stands above a foot on its screen: one drawn before the key was heard isn't meant."""
        return self.text.partition(foot)[0].rpartition("sluice top ")[2]

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self.text:
            assert time.monotonic() < deadline, f"no {text!r} in {self.text!r}"
            assert self.process.poll() is None, self.text
            self.read(0.05)

    def end(self, keys: str) -> int:
        """Press the last key; the exit status."""
        self.press(keys)
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self.read(0.05)
        self.read(0)
        return self.process.returncode

    def is_restored(self) -> bool:
        """Whether the terminal is as it was before."""
        return termios.tcgetattr(self._slave) == self.before and "\x1b[?1049l" in self.drawn

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)


@contextmanager
def screen(broker: RunningBroker, *words: str) -> Iterator[Screen]:
    found = Screen(words, broker)
    try:
        yield found
    finally:
        found.close()


# --- full screens


def test_top_sorts_filters_and_leaves(broker: RunningBroker, lines: Lines) -> None:
    for name in ("orders", "stock", "news"):
        lines("config", "add", "queue", name)
    lines("send", "stock", "--count", "7")
    lines("producers", "stop", "news")
    with screen(broker, "top", "--interval", "200ms") as top:
        top.wait_for("by rate")
        top.press("s")
        top.wait_for("by stopped")
        rows = top.above("by stopped")
        assert rows.index("news") < rows.index("orders")
        top.press("d")
        top.wait_for("by depth")
        rows = top.above("by depth")
        assert rows.index("stock") < rows.index("orders")
        top.press("/ord\r")
        top.wait_for("1-1 of 1, by depth, only ord")
        top.press("\x1b")
        top.wait_for("of 3")
        assert top.end("q") == 0
        assert top.is_restored()
        assert "Traceback" not in top.text


def test_top_interrupted_or_without_its_broker_restores_the_terminal(broker: RunningBroker) -> None:
    with screen(broker, "top", "--interval", "10s") as top:
        top.wait_for("by rate")
        assert top.end("\x03") == 130
        assert top.is_restored()
    with screen(broker, "top", "--interval", "100ms") as top:
        top.wait_for("by rate")
        broker.stop()
        assert top.end("") == 1
        assert top.is_restored()
        assert "sluice top: " in top.text
        assert "Traceback" not in top.text


def test_stat_watches_on_a_screen_of_its_own(broker: RunningBroker, lines: Lines) -> None:
    lines("config", "add", "queue", "orders")
    with screen(broker, "stat", "-f", "--watch", "200ms") as watching:
        watching.wait_for("orders")
        assert "\x1b[?1049h" in watching.drawn
        lines("config", "add", "queue", "stock")
        watching.wait_for("stock")
        assert watching.end("\x03") == 130
        assert watching.is_restored()


def test_top_without_a_terminal_prints_tables_or_objects(lines: Lines) -> None:
    lines("config", "add", "queue", "orders")
    printed = lines("top", "--count", "2", "--interval", "10ms")
    assert printed.count("nodes stopped") == 2
    assert "\x1b" not in printed
    objects = lines("top", "--count", "2", "--interval", "10ms", "--json").splitlines()
    assert [[node["name"] for node in json.loads(each)["nodes"]] for each in objects] == [["orders"]] * 2


# --- what a peer wrote


def test_nothing_a_peer_wrote_is_obeyed(broker: RunningBroker, lines: Lines) -> None:
    """Names of links and containers, and bodies, are what a peer likes; such a name of a node is refused."""
    refusal = lines("config", "add", "queue", EVIL, status=1)
    assert "evil\\x1b[2J" in refusal
    assert_safe(refusal)
    container = Container()
    container.container_id = EVIL
    connection = BlockingConnection(broker.url, timeout=10, container=container)
    try:
        sender = connection.create_sender("orders", name=EVIL)
        connection.create_receiver("orders", name=EVIL + "r", credit=0)
        sender.send(Message(body=EVIL, subject=EVIL, properties={EVIL: EVIL}))
        lines("producers", "stop", "orders")
        wait_until(lambda: bool(lines.parsed("why", "orders")), 10, "the sender to wait")
        for words in (
            ("stat", "-u"),
            ("stat", "-f"),
            ("stat", "-c"),
            ("why", "orders"),
            ("browse", "orders"),
            ("events", "--count", "1000"),
            ("events", "--count", "1000", "--json"),
            ("browse", "orders", "--json"),
            ("stat", "-u", "--json"),
            ("top", "--count", "1"),
            ("producers", "list"),
        ):
            shown = lines(*words)
            assert_safe(shown)
            assert "evil" in shown or words[0] in ("top", "producers"), words
        for refused in (
            ("why", EVIL + "x"),
            ("purge", EVIL),
            ("move", EVIL, "orders"),
            ("browse", EVIL),
            ("explain", EVIL),
            ("close", EVIL),
            ("config", "del", "queue", EVIL),
            ("config", "bind", EVIL, "orders"),
            ("producers", "stop", ""),
        ):
            assert_safe(lines(*refused, status=2 if refused[0] == "producers" else 1))
        with screen(broker, "stat", "-u", "--watch", "1s") as watching:
            watching.wait_for("orders")
            assert "evil\x1b[2J" not in watching.drawn
            assert "\u202e" not in watching.drawn
            watching.end("\x03")
    finally:
        connection.close()


def assert_safe(text: str) -> None:
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
