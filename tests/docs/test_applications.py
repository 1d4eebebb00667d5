"""The applications that docs/clients.md shows in Python, as they stand, over restarts of the broker too."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from proton import Message, Timeout
from proton.utils import BlockingConnection

from tests.docs.pages import ROOT, applications
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.seeing import number_of

pytestmark = pytest.mark.wire

PROGRAMS = applications(ROOT / "docs" / "clients.md")
POLICIES = "policies:\n  - {match: '*', durable: true, flow_stop_count: 100, flow_resume_count: 50}\n"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """One whose queues are durable and hold their producers at 100 messages."""
    running = RunningBroker(tmp_path / "broker", "", POLICIES, ())
    try:
        yield running
    finally:
        running.stop()


def written(folder: Path, name: str) -> str:
    """The program's file, which another process may be reading already."""
    file = folder / name
    if not file.exists():
        file.write_text(PROGRAMS[name])
    return str(file)


@contextmanager
def at_work(folder: Path, name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A program of the page, until the end of the block."""
    with subprocess.Popen(
        [sys.executable, written(folder, name), *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@contextmanager
def restarted(broker: RunningBroker, folder: Path, end: signal.Signals) -> Iterator[RunningBroker]:
    """The next broker on its port and in its directory."""
    broker.signal(end)
    broker.stop()
    listen = ("--listen", f"amqp://127.0.0.1:{broker.port}")
    again = RunningBroker(folder / "broker", "", POLICIES, listen)
    try:
        yield again
    finally:
        again.stop()


def said(folder: Path, name: str, *words: str) -> list[str]:
    """The lines that a program prints until it ends."""
    command = [sys.executable, written(folder, name), *words]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    ).stdout.splitlines()


def taken(url: str, address: str, seconds: float) -> list[str]:
    """What comes in so many seconds, as text."""
    found: list[str] = []
    connection = BlockingConnection(url, timeout=30)
    try:
        receiver = connection.create_receiver(address, credit=100)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(Timeout):
                found.append(str(receiver.receive(timeout=0.2).body))
                receiver.accept()
    finally:
        connection.close()
    return found


def test_three_that_send_from_a_timer_get_their_parts(broker: RunningBroker, tmp_path: Path) -> None:
    url = f"{broker.url}/orders"
    with (
        at_work(tmp_path, "outbox.py", url, "a"),
        at_work(tmp_path, "outbox.py", url, "b"),
        at_work(tmp_path, "outbox.py", url, "c"),
    ):
        wait_until(lambda: number_of(broker, "orders", "producers") == 3, 20, "three producers")
        taken(broker.url, "orders", 3)
        sent = Counter(each.split()[0] for each in taken(broker.url, "orders", 10))
    # What they had due while nobody consumed comes as well.
    assert min(sent[name] for name in "abc") >= 0.9 * 50 * 10, sent


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_outbox_goes_on_after_a_restart_and_loses_nothing(
    broker: RunningBroker, tmp_path: Path, end: signal.Signals
) -> None:
    with at_work(tmp_path, "outbox.py", f"{broker.url}/orders", "row"):
        wait_until(lambda: number_of(broker, "orders", "depth_msgs") == 100, 20, "a full queue")
        with restarted(broker, tmp_path, end) as again:
            wait_until(lambda: number_of(again, "orders", "producers") == 1, 30, "the outbox to come again")
            found = {int(each.split()[1]) for each in taken(again.url, "orders", 5)}
    assert len(found) > 200
    assert found == set(range(max(found) + 1))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_who_asks_gets_an_answer_after_a_restart_too(
    broker: RunningBroker, tmp_path: Path, end: signal.Signals
) -> None:
    with at_work(tmp_path, "service.py", broker.url):
        wait_until(lambda: number_of(broker, "service", "consumers") == 1, 20, "the service")
        assert said(tmp_path, "ask.py", broker.url) == ["HELLO"]
        with restarted(broker, tmp_path, end) as again:
            wait_until(lambda: number_of(again, "service", "consumers") == 1, 30, "the service to come again")
            assert said(tmp_path, "ask.py", again.url) == ["HELLO"]


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGKILL])
def test_a_look_takes_nothing_after_a_restart_either(
    broker: RunningBroker, tmp_path: Path, end: signal.Signals | None
) -> None:
    connection = BlockingConnection(broker.url, timeout=30)
    sender = connection.create_sender("orders")
    for number in range(50):
        sender.send(Message(f"order {number}", durable=True))
    connection.close()
    running = broker
    if end is not None:
        broker.signal(end)
        broker.stop()
        running = RunningBroker(tmp_path / "broker", "", POLICIES, ())
    try:
        for _ in range(2):
            assert said(tmp_path, "browse.py", running.url, "orders") == [f"order {n}" for n in range(50)]
        assert number_of(running, "orders", "depth_msgs") == 50
    finally:
        running.stop()
