"""The history of flow as clients and operators read it: the file, the topic, HTTP and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from proton import Message
from proton.utils import BlockingReceiver, LinkDetached, SendException

from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from broker.errors import OperatorError
from broker.manage.events.schema import event_schema
from tests.crash.conftest import Broker
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.terminus import Asks, connected, is_silent, selector

pytestmark = [pytest.mark.wire, pytest.mark.flow]

TOPIC = "$sluice/events"
CONFIG = "events: {sample_interval: 100ms}\n"
POLICIES = """
policies:
  - {match: orders, flow_stop_count: 10, flow_resume_count: 5}
  - {match: small, max_count: 3, overflow: ring}
  - {match: 'news.>', kind: topic}
"""
VALID = Draft202012Validator(event_schema())
BODY = sections.text_body("hello")
Event = dict[str, Any]


@pytest.fixture
def watched(start_broker: StartBroker) -> RunningBroker:
    """A broker that samples often."""
    return start_broker(CONFIG, POLICIES)


def lines_of(file: Path) -> list[Event]:
    """Every whole line; each is an event of the schema."""
    text = file.read_text() if file.exists() else ""
    events = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    for event in events:
        VALID.validate(event)
    return events


def file_of(broker: RunningBroker) -> Path:
    return broker.config_file.parent / "data" / "events.jsonl"


def await_event(file: Path, what: Callable[[Event], bool], described: str) -> Event:
    """Until there is such an event in the file."""
    found: list[Event] = []

    def look() -> bool:
        found[:] = [event for event in lines_of(file) if what(event)]
        return bool(found)

    wait_until(look, 10, f"{described} in {file}")
    return found[0]


def has(**fields: object) -> Callable[[Event], bool]:
    """Whether an event has these fields."""
    return lambda found: {name: found.get(name) for name in fields} == fields


def fill(broker: RunningBroker, count: int, address: str = "orders") -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for _ in range(count):
            sender.send(BODY, 10)
        sender.flush(10)


def drain(broker: RunningBroker, count: int) -> None:
    with Connection(broker.url) as connection:
        receiver = connection.receiver("orders", credit=count, limit=count)
        got = 0
        while got < count:
            got += len(receiver.take(count, 10))


def operate(broker: RunningBroker, action: str, target: str) -> None:
    with Management(broker.url) as management:
        management.call(f"{action}-producers", type="org.sluice.broker", body={"target": target})


def next_event(receiver: BlockingReceiver) -> tuple[Message, Event]:
    message = receiver.receive(timeout=10)
    receiver.accept()
    body = message.body
    assert isinstance(body, bytes | memoryview)
    return message, json.loads(bytes(body))


def sluice(broker: RunningBroker, *words: str, status: int = 0) -> str:
    done = run_sluice(*words, env={"SLUICE_BROKER": broker.url})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


# --- the file


def test_the_file_tells_the_story_of_a_queue_that_stopped_and_opened(watched: RunningBroker) -> None:
    file = file_of(watched)
    fill(watched, 10)
    drain(watched, 10)
    await_event(file, has(event="opened", node="orders"), "an opened gate")
    await_event(file, has(event="sample", node="orders", settled_total=10, consumers=0), "the last sample")
    events = lines_of(file)
    assert has(event="started", seq=1, pid=watched.pid, sample_interval_ms=100)(events[0])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["mono_ns"] for event in events] == sorted(event["mono_ns"] for event in events)
    about = [event for event in events if event["node"] == "orders"]
    story = [event["event"] for event in about if event["event"] not in ("sample", "revoked")]
    assert story == ["link_opened", "stopped", "link_closed", "link_opened", "opened", "link_closed"]
    stopped, opened = (next(e for e in about if e["event"] == kind) for kind in ("stopped", "opened"))
    assert has(reason="count", depth_msgs=10, stop_msgs=10, resume_msgs=5)(stopped)
    assert opened["stopped_ms"] == pytest.approx((opened["mono_ns"] - stopped["mono_ns"]) / 1e6, abs=0.01)
    samples = [event for event in about if event["event"] == "sample"]
    assert sum(event["received"] for event in samples) == 10
    assert sum(event["settled"] for event in samples) == 10
    opening = next(event for event in about if event["event"] == "link_opened")
    who = next(event for event in events if event["event"] == "connection_opened")
    assert opening["connection"] == who["connection"]
    assert opening["role"] == "producer"


def test_what_is_dropped_and_refused_is_told(watched: RunningBroker) -> None:
    fill(watched, 10, "small")
    dropped = await_event(file_of(watched), has(event="dropped", node="small"), "dropped messages")
    assert 0 < dropped["count"] <= 7


def test_a_stop_in_order_is_the_last_chapter(watched: RunningBroker) -> None:
    fill(watched, 1)
    watched.stop()
    events = lines_of(file_of(watched))
    assert "stopping" in [event["event"] for event in events]
    [stopped] = [event for event in events if event["event"] == "stopped"]
    assert has(node="orders", reason="shutdown")(stopped)
    # The last interval was shorter than others; what happened in it is told all the same.
    assert has(event="sample", node="orders", received_total=1, state="stopped")(events[-1])


def test_a_file_that_cannot_be_written_stops_no_message(start_broker: StartBroker) -> None:
    broker = start_broker("events: {file: /dev/full, sample_interval: 100ms}\n", POLICIES)
    fill(broker, 10)
    drain(broker, 10)
    broker.wait_for_log("events can't be written to /dev/full")
    assert json.loads(sluice(broker, "events", "--json", "--kind", "opened"))["node"] == "orders"


def test_events_can_be_switched_off(start_broker: StartBroker) -> None:
    broker = start_broker("events: {enabled: false}\n", POLICIES)
    fill(broker, 10)
    assert not file_of(broker).exists()
    assert "keeps no events" in sluice(broker, "events", status=1)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/api/v1/events", timeout=START_SECONDS)
    with connected(broker.url) as connection, pytest.raises(LinkDetached, match="amqp:not-found"):
        connection.create_receiver(TOPIC)


def test_the_history_goes_on_after_a_kill(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", POLICIES, CONFIG)
    file = broker.data / "events.jsonl"
    broker.start()
    await_event(file, has(event="started"), "the first start")
    broker.kill()
    with file.open("a") as half:
        half.write('{"v":1,"seq":')
    broker.start()
    wait_until(lambda: len(lines_of(file)) > 1, 10, "the second start")
    assert broker.stop() == 0
    assert [event["seq"] for event in lines_of(file) if event["event"] == "started"] == [1, 1]


# --- the topic


def test_any_client_may_subscribe_and_select(watched: RunningBroker) -> None:
    with connected(watched.url) as connection:
        everything = connection.create_receiver(TOPIC, credit=100, name="everything")
        stops = Asks(filters=selector("event = 'stopped' AND node LIKE 'ord%'"))
        selected = connection.create_receiver(TOPIC, credit=10, options=stops)
        fill(watched, 10)
        message, event = next_event(selected)
        VALID.validate(event)
        assert has(event="stopped", node="orders", reason="count")(event)
        assert (message.subject, str(message.content_type)) == ("stopped", "application/json")
        assert message.properties == {"event": "stopped", "node": "orders", "seq": event["seq"], "v": 1}
        seen: list[Event] = []
        while not seen or seen[-1] != event:
            seen.append(next_event(everything)[1])
        assert [each["seq"] for each in seen] == list(range(seen[0]["seq"], event["seq"] + 1))
        assert is_silent(selected)


def test_nobody_may_send_move_change_or_delete_there(watched: RunningBroker) -> None:
    with connected(watched.url) as connection:
        receiver = connection.create_receiver(
            TOPIC, credit=10, options=Asks(filters=selector("event = 'forged'"))
        )
        with pytest.raises(LinkDetached, match="amqp:not-allowed"):
            connection.create_sender(TOPIC)
        relay = connection.create_sender(None)
        with pytest.raises(SendException):
            relay.send(Message(address=TOPIC, properties={"event": "forged"}))
        fill(watched, 3)
        with Management(watched.url) as management:
            for operation, fields in (
                ("move", {"body": {"source": "orders", "target": TOPIC}}),
                ("DELETE", {"type": "org.sluice.topic", "name": TOPIC}),
                ("UPDATE", {"type": "org.sluice.topic", "name": TOPIC, "attributes": {"max_count": 1}}),
            ):
                with pytest.raises(OperatorError, match="broker's own"):
                    management.call(operation, **{"type": "org.sluice.broker", **fields})  # type: ignore[arg-type]
        assert is_silent(receiver)


def test_no_pattern_means_the_brokers_own_topic(watched: RunningBroker) -> None:
    with connected(watched.url) as connection:
        events = connection.create_receiver(TOPIC, credit=100)
        patterns = [connection.create_receiver(each, credit=100) for each in (">", "*", "#")]
        operate(watched, "stop", "orders")
        while next_event(events)[1]["event"] != "operator":
            pass
        for receiver in patterns:
            assert is_silent(receiver, 0.1)


def test_what_is_not_subscribed_is_not_there(watched: RunningBroker) -> None:
    assert sluice(watched, "stat", "-q") == sluice(watched, "stat", "-q")
    with Management(watched.url) as management:
        page = management.call("QUERY", type="org.sluice.topic", body={"attributeNames": ["name"]}).body
    assert isinstance(page, dict)
    assert page["results"] == []


def test_a_subscriber_that_reads_nothing_stops_nobody(watched: RunningBroker) -> None:
    with connected(watched.url) as connection:
        lazy = connection.create_receiver(TOPIC, credit=0, name="lazy")
        prompt = connection.create_receiver(
            TOPIC, credit=500, options=Asks(filters=selector("event = 'operator'"))
        )
        for _ in range(20):
            operate(watched, "stop", "orders")
            operate(watched, "start", "orders")
        actions = [next_event(prompt)[1]["action"] for _ in range(40)]
        assert actions == ["stop", "start"] * 20
        assert lazy.link.queued == 0


# --- HTTP and the command line


def test_http_tells_the_last_events(watched: RunningBroker) -> None:
    fill(watched, 10)
    await_event(file_of(watched), has(event="sample", node="orders"), "a sample")
    url = f"http://127.0.0.1:{watched.http_port}/api/v1/events"

    def get(query: str) -> list[Event]:
        with urllib.request.urlopen(url + query, timeout=START_SECONDS) as response:
            assert response.headers["Content-Type"] == "application/json"
            found: list[Event] = json.load(response)
        return found

    events = get("")
    for event in events:
        VALID.validate(event)
    assert "stopped" in [event["event"] for event in events]
    # A sample of what came after the first one may fall between two looks.
    wait_until(lambda: get("?count=2") == get("?count=3")[-2:], 10, "two looks at the same events")
    assert "sample" not in [event["event"] for event in get("?samples=false")]
    for query in ("?count=0", "?count=1001", "?count=x"):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(url + query, timeout=START_SECONDS)


def test_the_command_line_shows_what_was(watched: RunningBroker) -> None:
    fill(watched, 10)
    await_event(file_of(watched), has(event="stopped"), "a stopped gate")
    [line] = sluice(watched, "events", "--node", "orders", "--kind", "stopped").splitlines()
    assert "stopped" in line
    assert "reason=count depth_msgs=10" in line
    assert len(sluice(watched, "events", "--count", "2", "--json").splitlines()) == 2
    assert "sample " not in sluice(watched, "events")


def test_the_command_line_follows(watched: RunningBroker) -> None:
    fill(watched, 10)
    await_event(file_of(watched), has(event="stopped"), "a stopped gate")
    command = (sys.executable, "-m", "broker.cli.main", "events", "--follow", "--json", "-b", watched.url)
    with subprocess.Popen(
        [*command, "--kind", "stopped", "--kind", "opened"], stdout=subprocess.PIPE
    ) as shown:
        assert shown.stdout is not None
        first = json.loads(shown.stdout.readline())
        drain(watched, 10)
        second = json.loads(shown.stdout.readline())
        shown.terminate()
    assert (first["event"], second["event"]) == ("stopped", "opened")
    assert first["seq"] < second["seq"]
