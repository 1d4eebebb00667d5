"""Lines of the log: one each, whatever a peer is called, and no more than a bound about any of them."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
import select
import time
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import OperatorError
from broker.loggers import LOGGERS, LoggerLevel, LoggerLevelType, about
from broker.manage.loglevels import LogLevels
from broker.server.logging.bound import HOSTS, WINDOW_S, Bound, host_of
from broker.server.logging.descriptor import PATIENCE_S, Descriptor
from broker.server.logging.formats import LONGEST, JsonFormatter, TextFormatter
from broker.server.logging.output import Output


def record(text: str, *args: object, **fields: object) -> logging.LogRecord:
    found = logging.LogRecord("sluice.amqp", logging.INFO, "", 0, text, args, None)
    found.fields = fields
    return found


def with_exception(text: str) -> logging.LogRecord:
    found = record("failed")
    fault = ValueError(text)
    found.exc_info = (ValueError, fault, None)
    return found


@settings(deadline=None)
@given(st.text())
def test_a_name_never_breaks_a_line_of_text(name: str) -> None:
    line = TextFormatter().format(record("open, container '%s'", name))
    assert line.isprintable()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO sluice\.amqp: open, container '", line)


def test_what_looks_like_a_line_is_shown_as_an_escape() -> None:
    line = TextFormatter().format(
        record("container '%s'", "x\n2026-01-01 00:00:00,000 ERROR sluice: \x1b[2Jforged")
    )
    assert "x\\n2026-01-01" in line
    assert "\\x1b[2Jforged" in line
    assert "\\u202e" in TextFormatter().format(record("%s", "\u202etxt.exe"))


def test_a_traceback_is_indented_and_a_message_in_it_cannot_leave_it() -> None:
    lines = TextFormatter().format(with_exception("a\n2026-01-01 ERROR forged\x1b")).split("\n")
    assert len(lines) == 3
    assert all(line.startswith("    ") for line in lines[1:])
    assert "\x1b" not in lines[-1]


@settings(deadline=None)
@given(st.text(), st.text())
def test_json_is_one_line_of_ascii_with_its_fields(name: str, user: str) -> None:
    line = JsonFormatter().format(record("open %s", name, container=name, user=user, number=3))
    assert line.isascii()
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("info", "sluice.amqp", f"open {name}")
    assert (told["container"], told["user"], told["number"]) == (name, user, 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told["time"])


def test_json_has_the_exception_in_a_field() -> None:
    told = json.loads(JsonFormatter().format(with_exception("a\nb")))
    assert "ValueError: a\nb" in told["exception"]


def test_a_long_name_is_cut() -> None:
    long = "x" * 60_000
    assert len(TextFormatter().format(record("%s", long))) < LONGEST + 100
    told = json.loads(JsonFormatter().format(record("%s", long, container=long)))
    assert told["container"] == "x" * LONGEST + f"… ({60_000 - LONGEST} more)"


# --- how many


def test_a_host_has_so_many_lines_and_what_is_left_out_is_told_once() -> None:
    bound = Bound(3)
    assert bound.turn(100.0) == []
    assert [bound.admits("10.0.0.1") for _ in range(10)] == [True] * 3 + [False] * 7
    assert bound.admits("10.0.0.2")
    assert bound.turn(100.0 + WINDOW_S / 2) == []
    assert bound.turn(100.0 + WINDOW_S) == ["7 more lines about 10.0.0.1 were left out"]
    assert bound.turn(100.0 + WINDOW_S) == []
    assert bound.turn(100.0 + 2 * WINDOW_S) == []
    assert bound.admits("10.0.0.1")
    assert bound.left_out_total == 7


def test_many_hosts_together_have_a_bound_and_take_no_memory_beyond_it() -> None:
    bound = Bound(3)
    bound.turn(0.1)
    admitted = sum(bound.admits(f"2001:db8::{number:x}") for number in range(10_000))
    assert admitted == 3 * HOSTS
    assert len(bound._written) + len(bound._left_out) <= 2 * admitted
    assert bound.turn(0.1 + WINDOW_S) == [f"{10_000 - admitted} lines about other peers were left out"]


def test_no_bound() -> None:
    bound = Bound(0)
    assert all(bound.admits("h") for _ in range(10_000))


@pytest.mark.parametrize(("peer", "host"), [("127.0.0.1:5", "127.0.0.1"), ("::1:5", "::1"), ("?", "?")])
def test_the_host_of_an_address(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_only_lines_about_peers_are_bounded() -> None:
    stream = io.StringIO()
    output = Output(lambda line: stream.write(line) > 0, "text", 2)
    # However long the lines take, they are in one window.
    output.bound._until_s = math.inf
    logger = logging.Logger("sluice.amqp")
    logger.addHandler(output)
    for number in range(5):
        logger.info("refused %d", number, extra=about("127.0.0.1:9"))
        logger.error("disk %d", number)
    found = stream.getvalue().splitlines()
    assert sum("refused" in line for line in found) == 2
    assert sum("disk" in line for line in found) == 5
    assert output.lines_total == {"debug": 0, "info": 2, "warning": 0, "error": 5}
    output.bound._until_s = 0.0
    output.sweep()
    assert (
        stream.getvalue().splitlines()[-1].endswith("3 more lines about 127.0.0.1 were left out within 10 s")
    )


class Waits:
    """Asks a poll, and notes how long it was to wait where there was no room."""

    def __init__(self, poll: select.poll) -> None:
        self.poll_ = poll
        self.seconds = 0.0

    def poll(self, ms: float) -> list[tuple[int, int]]:
        ready = self.poll_.poll(ms)
        self.seconds += 0.0 if ready else ms / 1000
        return ready


class Reader:
    """A pipe, its descriptor and what comes out of it; the descriptor's clock goes while it waits only."""

    def __init__(self) -> None:
        self.end, self.begin = os.pipe()
        self.descriptor = Descriptor(self.begin, lambda: self.waits.seconds)
        self.waits = Waits(self.descriptor._poll)
        self.descriptor._poll = self.waits  # type: ignore[assignment]

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.begin)
        os.close(self.end)

    def fill(self) -> int:
        """So many lines until there is room for no more."""
        return next(number for number in count() if not self.descriptor.write(f"{number:04}{'x' * 1000}\n"))

    def read(self) -> list[str]:
        """What has come so far, by lines."""
        found = b""
        while select.select([self.end], [], [], 0)[0]:
            found += os.read(self.end, 1 << 16)
        return found.decode().splitlines()


def test_a_reader_that_stalls_is_waited_for_once_and_then_not() -> None:
    with Reader() as reader:
        began = time.monotonic()
        written = reader.fill()
        assert time.monotonic() - began >= PATIENCE_S
        assert reader.waits.seconds == PATIENCE_S
        assert not any(reader.descriptor.write("more\n") for _ in range(1000))
        assert reader.waits.seconds == PATIENCE_S
        assert [line[:4] for line in reader.read()[:written]] == [f"{number:04}" for number in range(written)]
        assert reader.descriptor.write("again\n")
        assert reader.read()[-1] == "again"


def test_a_line_of_which_a_part_was_written_ends_before_the_next() -> None:
    with Reader() as reader:
        assert not reader.descriptor.write("y" * 1_000_000 + "\n")
        assert set("".join(reader.read())) == {"y"}
        assert reader.descriptor.write("whole\n")
        assert reader.read() == ["", "whole"]


def test_a_reader_that_is_gone_costs_lines_and_nothing_else() -> None:
    with Reader() as reader:
        gone, reader.end = reader.end, os.dup(reader.begin)
        os.close(gone)
        assert not reader.descriptor.write("to nobody\n")


def test_lines_that_nobody_read_are_counted_and_told_of() -> None:
    found: list[str] = []
    reads = True

    def write(line: str) -> bool:
        if reads:
            found.append(line)
        return reads

    output = Output(write, "text", 0)
    logger = logging.Logger("sluice.amqp")
    logger.addHandler(output)
    reads = False
    for number in range(3):
        logger.info("unread %d", number)
    assert not found
    reads = True
    logger.info("read")
    assert [line.partition(": ")[2] for line in found] == [
        "3 lines were left out: nobody read them\n",
        "read\n",
    ]
    assert output.left_out_total == 3
    assert output.lines_total["info"] == 1


# --- from which level on


@pytest.fixture
def levels() -> Iterator[LogLevels]:
    before = {name: logging.getLogger(name).level for name in ("", *LOGGERS)}
    yield LogLevels()
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_levels_are_the_settings_until_they_are_changed(levels: LogLevels) -> None:
    levels.configure("warning", [LoggerLevel("sluice.store", "debug")])
    assert levels.effective()["sluice.amqp"] == "warning"
    assert levels.effective()["sluice.store"] == "debug"
    assert levels.change("sluice.amqp", "info")["sluice.amqp"] == "info"
    assert levels.change("sluice", "error")["sluice.http"] == "error"
    assert levels.change("sluice.store", "")["sluice.store"] == "error"
    levels.configure("info", [])
    assert set(levels.effective().values()) == {"info"}


@pytest.mark.parametrize(
    ("logger", "level", "reason"),
    [
        ("sluice.ampq", "info", "did you mean 'sluice.amqp'?"),
        ("root", "info", "no logger 'root'"),
        ("sluice.amqp", "verbose", "expected 'debug', 'info', 'warning' or 'error'"),
        ("sluice", "", "sluice needs a level"),
    ],
)
def test_what_is_no_logger_or_level_is_refused(
    levels: LogLevels, logger: str, level: str, reason: str
) -> None:
    before = levels.effective()
    with pytest.raises(OperatorError, match=re.escape(reason)):
        levels.change(logger, level)
    assert levels.effective() == before


def test_a_level_in_settings() -> None:
    assert LoggerLevelType().parse("sluice.amqp = debug") == LoggerLevel("sluice.amqp", "debug")
    for wrong in ("sluice.amqp", "nobody=info", "sluice.amqp=loud", 7, None):
        with pytest.raises(ValueError, match=r"expected|no logger"):
            LoggerLevelType().parse(wrong)


def test_a_line_says_which_of_several_cells_it_is_from() -> None:
    record = logging.LogRecord("sluice.amqp", logging.INFO, "", 0, "open", None, None)
    assert " INFO cell-2 sluice.amqp: open" in TextFormatter(2).format(record)
    assert " INFO sluice.amqp: open" in TextFormatter().format(record)
    assert json.loads(JsonFormatter(2).format(record))["cell"] == 2
    assert "cell" not in json.loads(JsonFormatter().format(record))
