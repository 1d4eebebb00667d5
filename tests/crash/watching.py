"""What a broker in trouble says of itself, and waiting for it to say so."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import cast

from tests.crash.conftest import Broker
from tests.crash.peers import Books, Peer, Producer, turn_all


def until(peers: list[Peer], condition: Callable[[], bool], seconds: float = 20, what: object = "") -> None:
    """Let the peers run until something holds; otherwise say ``what`` as it is then."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, str(what)
        turn_all(peers, 0.02)


def ready(broker: Broker) -> tuple[int, str]:
    """What /readyz answers."""
    url = f"http://127.0.0.1:{broker.http_port}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=15) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def in_trouble(broker: Broker, why: str) -> bool:
    """Whether it isn't ready, and for that reason: a loop that is slow to answer isn't ready either."""
    status, said = ready(broker)
    return status == 503 and why in said


def stat(broker: Broker) -> dict[str, object]:
    """What ``sluice stat -g`` shows of the broker."""
    command = (sys.executable, "-m", "broker.cli.main", "stat", "-g", "--json")
    told = subprocess.run(
        [*command, "-b", f"amqp://127.0.0.1:{broker.port}"], capture_output=True, text=True, check=True
    )
    (row,) = json.loads(told.stdout)["broker"]
    return cast("dict[str, object]", row)


def stalled(producer: Producer, books: Books, seconds: float = 0.5) -> bool:
    """Whether nothing more is accepted, by a broker that answers."""
    before = len(books.accepted)
    turn_all([producer], seconds)
    until([producer], producer.ask(), what="an answer")
    return len(books.accepted) == before
