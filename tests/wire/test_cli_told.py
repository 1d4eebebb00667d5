"""What the command line tells whoever mistypes, waits, or sends to nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from broker.client.errors import ClientError
from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from broker.manage.events.schema import KINDS
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.lines import Lines, lines

__all__ = ["lines"]

pytestmark = pytest.mark.wire

BODY = sections.binary_body(b"x")


@contextmanager
def running(broker: RunningBroker, *words: str) -> Iterator[Said]:
    """A command that goes on; what it says on stderr. It is ended with the block."""
    command = [sys.executable, "-m", "broker.cli.main", *words]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"SLUICE_BROKER": broker.url, "PYTHONUNBUFFERED": "1"},
    )
    said = Said(process)
    try:
        yield said
    finally:
        process.terminate()
        process.wait(30)
        said.close()


class Said:
    """The lines that a process has written to stderr."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str) -> None:
        """Until a line has the text."""
        wait_until(lambda: any(text in line for line in self.lines), 30, f"{text!r} in {self.lines}")

    def close(self) -> None:
        self._reader.join(30)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))


# --- names that nothing has


def test_a_table_of_a_name_that_nothing_has_is_refused(lines: Lines) -> None:
    lines("config", "add", "queue", "orders")
    for flag in ("-q", "-f", "-u", "-c"):
        told = lines("stat", flag, "order", status=1)
        assert told == "sluice stat: no queue, topic or subscription 'order' (did you mean 'orders'?)\n"
    assert lines("stat", "--json", "zzz", status=1) == (
        "sluice stat: no queue, topic or subscription 'zzz'\n"
    )
    assert "orders" in lines("stat", "orders")
    assert "Receivers" in lines("stat", "-u", "orders")  # it is there, and nobody receives
    assert "Queues" in lines("stat", "zzz*")  # a pattern may match nothing
    with Connection(lines.broker.url) as connection:
        connection.receiver("$sluice/events")
        assert "$sluice/events" in lines("stat", "$sluice/events")


def test_who_receives_from_or_sends_to_nothing_is_told_that_it_was_created(lines: Lines) -> None:
    lines("config", "add", "queue", "orders")
    with running(lines.broker, "receive", "ordres") as said:
        said.wait_for("created queue ordres, which was not there (did you mean 'orders'?)")
    with running(lines.broker, "receive", "orders") as said:
        wait_until(lambda: bool(lines.parsed("stat", "-u", "orders")["receivers"]), 30, "the receiver")
    assert not any("created" in line for line in said.lines)
    with running(lines.broker, "send", "other", "--body", "x") as said:
        said.wait_for("created queue other, which was not there")
        assert said.process.wait(30) == 0


def test_bind_tells_what_it_created(lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    lines("config", "add", "topic", "news")
    assert lines("config", "bind", "news", "orders") == "bound queue orders to topic news\n"
    lines("config", "bind", "newz", "orders")
    # ``lines`` gives stdout alone: it is on stderr, so that stdout stays as it was.
    with running(lines.broker, "config", "bind", "newss", "order") as said:
        assert said.process.wait(30) == 0
        said.wait_for("created topic newss, which was not there (did you mean 'news'?)")
        said.wait_for("created queue order, which was not there (did you mean 'orders'?)")


# --- events


def test_a_kind_of_event_that_is_none_is_refused(lines: Lines) -> None:
    told = lines("events", "--kind", "stoped", status=2)
    assert "no kind of event is 'stoped'" in told
    assert all(kind in told for kind in KINDS)
    assert "did you mean 'stopped'?" in told
    # An event waits a moment for others to be told with.
    ask = partial(lines, "events", "--kind", "started", "--json")
    wait_until(lambda: ask().count('"event": "started"') == 1, 10, "the first event")


# --- sending


def test_a_size_has_a_unit(lines: Lines) -> None:
    lines("send", "orders", "--size", "2KB")
    assert lines.parsed("stat")["queues"][0]["depth_bytes"] > 2048
    assert "expected a size such as" in lines("send", "orders", "--size", "2XB", status=2)


def test_a_message_that_is_too_large_is_not_sent(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {max_message_size: 1MB}\n")
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        assert sender.max_message_size == 1 << 20
        with pytest.raises(ClientError, match="larger than the 1 MB that the broker takes at 'orders'"):
            sender.send(sections.binary_body(bytes(1 << 20)))
        sender.send(BODY)
        sender.flush()
        assert (sender.sent, sender.accepted) == (1, 1)
    done = run_sluice("send", "orders", "--size", "500GB", env={"SLUICE_BROKER": broker.url})
    assert done.returncode == 1
    assert "larger than the 1 MB that the broker takes at 'orders'" in done.stderr
    assert "sent 0 to orders" in done.stdout


def test_a_sender_without_credit_says_that_it_waits_and_why(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - match: orders\n    flow_stop_count: 10\n    flow_resume_count: 5\n"
    )
    with running(broker, "send", "orders", "--count", "100") as said:
        said.wait_for("waiting for credit at orders: ")
        (line,) = [line for line in said.lines if "waiting for credit" in line]
        assert "10 of 10 messages" in line
        with Connection(broker.url) as connection:
            receiver = connection.receiver("orders", limit=100)
            taken = 0
            while taken < 100:
                taken += len(receiver.take(100, 30))
        assert said.process.wait(30) == 0


# --- a topic without subscribers


def test_who_sends_to_a_topic_without_subscribers_is_told(lines: Lines) -> None:
    lines("config", "add", "topic", "news")
    with running(lines.broker, "send", "news", "--count", "3") as said:
        assert said.process.wait(30) == 0
        said.wait_for("topic news: 3 messages went nowhere, since nobody subscribes to them")
    (row,) = lines.parsed("stat")["queues"]
    assert (row["name"], row["unrouted"]) == ("news", 3)
    assert "unrouted" in lines("stat")
    lines("config", "bind", "news", "orders")
    with running(lines.broker, "send", "news", "--count", "3") as said:
        assert said.process.wait(30) == 0
    assert not any("nobody" in line for line in said.lines)


# --- the tool's own connections


def test_the_tools_own_connections_leave_events_and_log_alone(broker: RunningBroker, lines: Lines) -> None:
    for words in (("stat",), ("config", "add", "queue", "orders"), ("why",), ("explain", "orders")):
        lines(*words)
    with application(broker), Management(broker.url) as management:
        events = events_until_application(management)
    assert [event["event"] for event in events] == ["started", "connection_opened"]
    broker.wait_for_log("closed, from")
    assert broker.log.count(": open from") == broker.log.count("closed, from") == 1


def test_an_application_that_bears_the_tools_mark_is_told_of(broker: RunningBroker) -> None:
    """The mark hides nobody who touches more than management: it is told of when it does."""
    with Connection(broker.url, container_id="sluice-cli-thief") as connection:
        own = connection.receiver("$sluice/events")
        assert "sluice-cli-thief" not in broker.log
        connection.receiver("orders")
        broker.wait_for_log("container 'sluice-cli-thief'")
        own.close()
        connection.receiver("orders")
        with application(broker), Management(broker.url) as management:
            events = events_until_application(management)
    # The topic of events is in no event itself.
    assert [(event["event"], event["node"]) for event in events] == [
        *(("started", None), ("connection_opened", None), ("link_opened", "orders")),
        *(("link_opened", "orders"), ("connection_opened", None)),
    ]
    broker.wait_for_log("closed, from")


def test_debug_shows_the_tools_own_connections(start_broker: StartBroker) -> None:
    broker = start_broker("log_level: debug\n")
    with Management(broker.url) as management, application(broker):
        kinds = [event["event"] for event in events_until_application(management)]
    assert kinds == ["started", "connection_opened", "link_opened", "link_opened", "connection_opened"]
    wait_until(lambda: broker.log.count("closed, from") == 2, 30, "both to be closed")
    assert broker.log.count(": open from") == 2


@contextmanager
def application(broker: RunningBroker) -> Iterator[None]:
    """A connection that is told of: what comes before it in the events is complete."""
    with Connection(broker.url, container_id="an-application"):
        yield


def events_until_application(management: Management) -> list[dict[str, object]]:
    """The broker's events without samples, until the application's connection."""
    found: list[dict[str, object]] = []

    def is_there() -> bool:
        body = {"count": 1000, "samples": False}
        answer = management.call("events", type="org.sluice.broker", body=body).body
        assert isinstance(answer, dict)
        found[:] = [json.loads(line) for line in answer["events"]]
        return any(event.get("container") == "an-application" for event in found)

    wait_until(is_there, 30, "the application's connection")
    return found
