"""Very many policies are read and judged while messages go on, whoever asks and however."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from broker.errors import OperatorError
from tests.wire.conftest import RunningBroker, StartBroker, wait_until

pytestmark = pytest.mark.wire

MANY = 4000
TEXT = "policies:\n" + "".join(f"- {{match: many.{number}, max_count: 5}}\n" for number in range(MANY))
BROKER = "org.sluice.broker"
PATIENCE_S = 120.0


def dry_run_by_amqp(broker: RunningBroker) -> object:
    with Management(broker.url, timeout_s=PATIENCE_S) as management:
        return management.call("apply", BROKER, body={"text": TEXT, "file": "f", "dry_run": True}).body


def dry_run_by_http(broker: RunningBroker) -> object:
    body = json.dumps({"text": TEXT, "file": "f", "dry_run": True}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.http_port}/api/v1/policies/apply",
        body,
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def reload(broker: RunningBroker) -> object:
    broker.policy_file.write_text(TEXT)
    with Management(broker.url, timeout_s=PATIENCE_S) as management:
        return management.call("apply", BROKER, body={}).body


class Traffic:
    """Messages there and back, and health probes, one after the other, until ``stop``."""

    def __init__(self, broker: RunningBroker) -> None:
        # When each of them ended.
        self.round_trips: list[float] = []
        self.probes: list[float] = []
        self._broker = broker
        self._stopped = threading.Event()
        self._faults: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(each,)) for each in (self._send, self._probe)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        assert self._faults == []

    def _run(self, kind: Callable[[], None]) -> None:
        try:
            kind()
        except BaseException as fault:  # noqa: BLE001 - the test's thread tells it
            self._faults.append(fault)

    def _send(self) -> None:
        with Connection(self._broker.url) as connection:
            sender, receiver = connection.sender("traffic"), connection.receiver("traffic")
            while not self._stopped.is_set():
                sender.send(sections.text_body("there and back"), PATIENCE_S)
                assert len(receiver.take(1, PATIENCE_S)) == 1
                self.round_trips.append(time.monotonic())

    def _probe(self) -> None:
        while not self._stopped.is_set():
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._broker.http_port}/healthz", timeout=PATIENCE_S
            ) as answer:
                assert answer.read() == b"ok\n"
            self.probes.append(time.monotonic())


def longest_pause(ends: list[float]) -> float:
    return max(after - before for before, after in pairwise(ends))


@pytest.mark.parametrize("ask", [dry_run_by_amqp, dry_run_by_http, reload])
def test_messages_and_probes_go_on_while_very_many_policies_are_read(
    start_broker: StartBroker, ask: Callable[[RunningBroker], object]
) -> None:
    """A loop that reads or judges them in one go stands still for nearly all of the time."""
    broker = start_broker()
    broker.settle()
    with Management(broker.url) as management:
        for number in range(20):
            management.call("CREATE", "org.sluice.queue", f"many.{number}")
    traffic = Traffic(broker)
    try:
        wait_until(lambda: min(len(traffic.round_trips), len(traffic.probes)) > 2, 30, "traffic")
        began = time.monotonic()
        answer = ask(broker)
        ended = time.monotonic()
    finally:
        traffic.stop()
    assert answer == {"changed": [f"many.{number}" for number in range(20)]}
    for ends in (traffic.round_trips, traffic.probes):
        assert longest_pause([began, *(each for each in ends if began < each < ended), ended]) < 0.7 * (
            ended - began
        )


def test_a_text_that_would_take_long_is_refused_at_once(broker: RunningBroker) -> None:
    with Management(broker.url) as management, pytest.raises(OperatorError, match=r"f is larger than 256"):
        management.call("apply", BROKER, body={"text": TEXT * 3, "file": "f", "dry_run": True})


def test_more_than_there_is_room_for_is_refused_and_the_rest_is_answered(broker: RunningBroker) -> None:
    refused, answered = [], []

    def ask() -> None:
        try:
            answered.append(dry_run_by_http(broker))
        except urllib.error.HTTPError as fault:
            refused.append((fault.code, fault.read()))
            fault.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answered
    assert all(code in (409, 503) for code, _ in refused), refused
    assert all(answer == {"changed": []} for answer in answered)
    assert dry_run_by_amqp(broker) == {"changed": []}


def test_trials_keep_nobody_from_changing_policies(broker: RunningBroker) -> None:
    """Whoever may only see the broker, and tries policies without end, holds up only others who try some."""
    stopped = threading.Event()

    def try_on() -> None:
        body = {"text": "".join(TEXT.splitlines(keepends=True)[:1000]), "file": "f", "dry_run": True}
        with Management(broker.url, timeout_s=PATIENCE_S) as management:
            while not stopped.is_set():
                with suppress(OperatorError):
                    management.call("apply", BROKER, body=body)

    threads = [threading.Thread(target=try_on) for _ in range(5)]
    for thread in threads:
        thread.start()
    try:
        with Management(broker.url, timeout_s=PATIENCE_S) as management:
            for number in range(3):
                text = f"policies: [{{match: other.{number}}}]"
                answer = management.call("apply", BROKER, body={"text": text, "file": "f"})
                assert answer.body == {"changed": []}
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
