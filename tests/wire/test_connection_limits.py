"""How many connections a user, a group, a listener and a virtual host may have."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import CLOSE, OPEN, RawPeer, performative
from tests.wire.secured import Secured
from tests.wire.seeing import good_neighbours
from tests.wire.terminus import connected, send, take

pytestmark = pytest.mark.wire

RULES = "rules:\n  - {allow: all}\n"
USERS = {"ann": "", "bob": "web", "cid": "web", "root": "operators"}


def limited(start: StartBroker, folder: Path, more: str) -> Secured:
    return Secured(start, folder, RULES, USERS, more)


def refusals(broker: RunningBroker, limit: str) -> int:
    """How often a limit was reached, as Prometheus is told."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(rf'^sluice_limit_refusals_total{{limit="{limit}"}} (\d+)', text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def events(broker: RunningBroker) -> list[dict[str, Any]]:
    path = broker.config_file.parent / "data/events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [each for each in lines if each["event"] == "connection_refused"]


def is_let_in(url: str, host: str | None = None) -> bool:
    """Whether one more connection may be opened; it is closed again."""
    try:
        BlockingConnection(url, timeout=10, virtual_host=host).close()
    except ConnectionException as refused:
        if "resource-limit-exceeded" not in str(refused):
            raise
        return False
    return True


@contextmanager
def filled(urls: list[str], host: str | None = None) -> Iterator[ExitStack]:
    """So many connections that stay; closed at the end."""
    with ExitStack() as stack:
        for url in urls:
            stack.enter_context(connected(url, host=host))
        yield stack


def test_the_refusal_is_a_close_behind_an_open_and_is_told(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {max_connections_per_user: 2}\n")
    peers = [RawPeer(broker.port).open() for _ in range(2)]
    with RawPeer(broker.port) as more:
        more.authenticate().send(performative(OPEN, "more"))
        more.read_bytes(8)
        assert more.expect(OPEN)
        assert more.expect(CLOSE).condition == "amqp:resource-limit-exceeded"
        more.send(performative(CLOSE))
        more.await_end()
    assert refusals(broker, "max_connections_per_user") == 1
    wait_until(lambda: events(broker) != [], 10, "the event")
    [event] = events(broker)
    assert (event["container"], event["user"], event["limit"]) == (
        "more",
        "anonymous",
        "max_connections_per_user",
    )
    assert (event["most"], event["count"]) == (2, 1)
    broker.wait_for_log("amqp:resource-limit-exceeded: user anonymous has too many connections")
    for peer in peers:
        peer.begin()
        peer.close()


def test_users_and_groups_have_their_own(start_broker: StartBroker, tmp_path: Path) -> None:
    more = (
        "limits: {max_connections_per_user: 3}\n"
        "connection_limits:\n  - {user: root, max_connections: 0}\n  - {group: web, max_connections: 1}\n"
    )
    secured = limited(start_broker, tmp_path, more)
    with filled([secured.url("ann")] * 3), filled([secured.url("bob"), secured.url("cid")]):
        assert not is_let_in(secured.url("ann"))
        assert not is_let_in(secured.url("bob"))
        assert not is_let_in(secured.url("cid"))
        with filled([secured.url("root")] * 5):
            assert is_let_in(secured.url("root"))
    assert refusals(secured.broker, "max_connections_per_user") == 3


def test_a_listener_and_a_virtual_host_have_their_own(start_broker: StartBroker) -> None:
    config = (
        "virtual_hosts: [shop]\n"
        "connection_limits:\n  - {virtual_host: shop, max_connections: 1}\n"
        "  - {listener: 'amqp://127.0.0.1:0', max_connections: 3}\n"
    )
    broker = start_broker(config, args=("--listen", "amqp://127.0.0.2:0"))
    other = next(line for line in broker.lines if "amqp://127.0.0.2:" in line).split()[-1]
    with filled([broker.url], host="shop"):
        assert not is_let_in(broker.url, "shop")
        assert is_let_in(broker.url)
        with filled([broker.url] * 2):
            assert not is_let_in(broker.url)
            assert is_let_in(other)
        assert is_let_in(broker.url)
    assert is_let_in(broker.url, "shop")
    assert refusals(broker, "max_connections_per_virtual_host") == 1
    assert refusals(broker, "max_connections_per_listener") == 1


def test_a_reload_is_about_those_who_come(start_broker: StartBroker) -> None:
    broker = start_broker("connection_limits: [{user: anonymous, max_connections: 4}]\n")
    with connected(broker.url) as one, connected(broker.url), connected(broker.url):
        broker.config_file.write_text("connection_limits: [{user: anonymous, max_connections: 2}]\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("reloaded")
        assert not is_let_in(broker.url)
        # Those that are there stay, and work.
        sender, receiver = one.create_sender("q"), one.create_receiver("q", credit=1)
        send(sender, "x")
        assert take(receiver, 1) == ["x"]
        broker.config_file.write_text("limits: {max_connections_per_user: 5}\n")
        broker.signal(signal.SIGHUP)
        wait_until(lambda: broker.log.count("reloaded") == 2, 10, "the second reload")
        assert is_let_in(broker.url)


def test_a_reload_with_a_host_there_is_none_of_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker("connection_limits: [{user: anonymous, max_connections: 1}]\n")
    broker.config_file.write_text("connection_limits: [{virtual_host: shop, max_connections: 1}]\n")
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("connection_limits: 'shop' is none of virtual_hosts")
    with connected(broker.url):
        assert not is_let_in(broker.url)


CLIENT = """
import sys
from proton.utils import BlockingConnection
kept = [BlockingConnection(sys.argv[1], timeout=20) for _ in range(3)]
print("there", flush=True)
sys.stdin.read()
"""


def test_places_come_back_however_connections_end(start_broker: StartBroker) -> None:
    """Closed, cut, killed with their process, or refused themselves: the count is of those that are there."""
    broker = start_broker("limits: {max_connections_per_user: 6, handshake_timeout: 1s}\n")
    dice = random.Random(5)
    for _ in range(6):
        command = [sys.executable, "-c", CLIENT, broker.url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"there\n"
            peers = [RawPeer(broker.port).open() for _ in range(3)]
            half = [RawPeer(broker.port).authenticate() for _ in range(dice.randrange(4))]
            assert not is_let_in(broker.url)
            dice.shuffle(peers)
            peers[0].send(performative(CLOSE))
            peers[0].expect(CLOSE)
            # One that is closed in order makes room at once, before its socket is gone.
            assert is_let_in(broker.url)
            os.kill(client.pid, signal.SIGKILL)
            for peer in (*peers, *half):
                peer.close()
        wait_until(lambda: all_fit(broker.url, 6), 20, "all places to be free again")
    assert not all_fit(broker.url, 7)


def all_fit(url: str, count: int) -> bool:
    with ExitStack() as stack:
        for _ in range(count):
            try:
                stack.enter_context(connected(url))
            except ConnectionException:
                return False
    return True


def test_a_flood_of_refused_ones_keeps_nobody_from_working(start_broker: StartBroker, tmp_path: Path) -> None:
    secured = limited(start_broker, tmp_path, "connection_limits: [{user: anonymous, max_connections: 3}]\n")
    broker = secured.broker
    stop = threading.Event()

    def knock() -> None:
        while not stop.is_set():
            with suppress(OSError, AssertionError, IndexError), RawPeer(broker.port) as peer:
                peer.authenticate().send(performative(OPEN, "flood"), performative(CLOSE))
                peer.await_end()

    threads = [threading.Thread(target=knock) for _ in range(6)]
    with filled([broker.url]), good_neighbours(broker):
        for thread in threads:
            thread.start()
        wait_until(lambda: refusals(broker, "max_connections_per_user") >= 100, 60, "the flood")
        # Who may come in does, beside them.
        assert is_let_in(secured.url("ann"))
        stop.set()
        for thread in threads:
            thread.join()
    told = events(broker)
    assert sum(each["count"] for each in told) <= refusals(broker, "max_connections_per_user")
    assert len(told) < 60
