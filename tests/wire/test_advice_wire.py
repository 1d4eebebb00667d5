"""Settings that work badly on a real broker are told with what to set; with that they are told no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

import pytest

from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import number_of, update
from tests.wire.terminus import connected

pytestmark = pytest.mark.wire

BODY = sections.text_body("x" * 100)


def advice(broker: RunningBroker, name: str) -> list[str]:
    """What `why` says should be set."""
    with Management(broker.url) as management:
        body = management.call("why", "org.sluice.broker", "broker", {"address": name}).body
    answers = cast("dict[str, list[dict[str, str]]]", body)["answers"]
    found = [each for each in answers if each["cause"] == "advice"]
    assert all(each["sentence"].startswith(f"advice for '{name}': ") for each in found)
    assert all(each["sentence"].endswith(f"; {each['frees']}.") for each in found)
    return [each["frees"] for each in found]


@contextmanager
def flowing(broker: RunningBroker, name: str, producers: int = 2) -> Iterator[None]:
    """Producers that send as fast as they may, and one consumer that takes as fast as it can."""
    stop = threading.Event()
    faults: list[BaseException] = []

    def run(work: Callable[[Connection], None]) -> None:
        try:
            with Connection(broker.url) as connection:
                work(connection)
        except BaseException as fault:  # noqa: BLE001 - it is raised again by the test
            faults.append(fault)

    def produce(connection: Connection) -> None:
        sender = connection.sender(name)
        while not stop.is_set():
            if connection.wait_until(sender.may_send, 0.1):
                sender.send(BODY, 1)

    def consume(connection: Connection) -> None:
        receiver = connection.receiver(name, credit=50)
        while not stop.is_set():
            receiver.take(100, 0.1)

    works = [*[produce] * producers, consume]
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert faults == []


def test_a_gate_that_flaps_is_told_and_one_with_room_between_is_not(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: bad, flow_stop_count: 100, flow_resume_count: 0}\n"
        "  - {match: good, flow_stop_count: 100, flow_resume_count: 70}\n"
    )
    with flowing(broker, "bad"), flowing(broker, "good"):
        wait_until(lambda: advice(broker, "bad") == ["set flow_resume_count to 70"], 30, "the advice")
        # It stops as well, and often: that alone is what thresholds are for.
        wait_until(lambda: number_of(broker, "good", "flow_stopped_count") >= 40, 30, "the other to stop")
        assert advice(broker, "good") == []


def test_more_producers_than_a_threshold_has_messages_are_told(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: q, flow_stop_count: 5, flow_resume_count: 3}\n")
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(broker.url)) for _ in range(8)]
        for connection in connections[:5]:
            connection.create_sender("q")
            assert advice(broker, "q") == []
        for connection in connections[5:]:
            connection.create_sender("q")
        assert advice(broker, "q") == ["set flow_stop_count to 80"]
        update(broker, "q", flow_stop_count=80)
        assert advice(broker, "q") == []


@pytest.mark.parametrize(
    ("limit", "wanted"), [(10, ["set consumer_flow_limit to 200"]), (1000, [])], ids=["narrow", "wide"]
)
def test_a_window_that_makes_a_client_wait_is_told(
    start_broker: StartBroker, limit: int, wanted: list[str]
) -> None:
    """The client holds what it gets, settles all of it at once and has nothing to do until more comes."""
    broker = start_broker(
        policies=f"policies:\n  - {{match: q, consumer_flow_limit: {limit}, max_count: 0}}\n"
    )
    with Connection(broker.url) as sending:
        sender = sending.sender("q")
        for _ in range(20_000):
            sender.send(BODY, 20)
        sender.flush(20)
    assert advice(broker, "q") == []
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("q", credit=200)
        link = receiver.link

        def burst() -> None:
            held = [receiver.receive(timeout=10) for _ in range(10)]
            for _ in held:
                receiver.accept()
            link.flow(200 - link.credit - len(receiver.fetcher.incoming) if receiver.fetcher else 0)

        found: list[str] = []
        for _ in range(12):
            for _ in range(100):
                burst()
            found = advice(broker, "q")
            if found:
                break
        assert number_of(broker, "q", "ready_msgs") > 0
        assert [each.rpartition(" ")[0] for each in found] == [each.rpartition(" ")[0] for each in wanted]
        for each in found:
            assert 100 < int(each.rpartition(" ")[2]) <= 210
