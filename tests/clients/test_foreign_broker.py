"""Routes against a broker that isn't ours: RabbitMQ from Debian's package, with its AMQP 1.0 plugin."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from broker.cli import main
from broker.client.link import Connection
from tests.clients import rabbit
from tests.clients.rabbit import Rabbit
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.test_bridges_wire import DURABLE, receive, send, text_of

# A foreign broker takes its time to start, twice in one of them.
pytestmark = [pytest.mark.clients, pytest.mark.flow, pytest.mark.timeout(600)]

# Twice as long as a foreign broker takes to write down what it was told to make.
DEFINED_S = 4.0
DURABLE_POLICIES = "policies:\n  - {match: '#', durable: true}\n"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    missing = rabbit.missing()
    if missing:
        pytest.skip(f"a foreign broker needs {', '.join(missing)}: apt-get install rabbitmq-server")
    running = Rabbit(tmp_path_factory.mktemp("rabbit"))
    try:
        running.start()
        yield running
    finally:
        running.close()


def route(other: Rabbit, **words: object) -> str:
    given = {"name": "hare", "url": other.url, "retry_max": "500 ms", **words}
    return "routes:\n  - " + json.dumps(given) + "\n"


def show(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert main.main(["stat", "-r", "--json", "-b", broker.url]) == 0
    return dict(json.loads(capsys.readouterr().out)["routes"][0])


def receive_there(other: Rabbit, address: str, count: int) -> list[str]:
    with Connection(other.url) as connection:
        receiver = connection.receiver(address, credit=100, durable=True)
        got: list[bytes] = []
        while len(got) < count:
            taken = receiver.take(100, 20)
            assert taken, f"{len(got)} of {count} came"
            got += taken
        return [text_of(each) for each in got]


def test_a_queue_goes_out_to_rabbitmq(
    other: Rabbit, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    here = start_broker(route(other, local="orders", remote="/queue/orders"))
    send(here, "orders", *(f"{i}" for i in range(500)))
    assert receive_there(other, "/queue/orders", 500) == [f"{i}" for i in range(500)]
    wait_until(lambda: show(here, capsys)["forwarded"] == 500, 10, "500 forwarded")


def test_a_queue_comes_in_from_rabbitmq(other: Rabbit, start_broker: StartBroker) -> None:
    here = start_broker(route(other, direction="in", local="copies", remote="/queue/source"))
    with Connection(other.url) as connection:
        sender = connection.sender("/queue/source", durable=True)
        for i in range(300):
            sender.send(DURABLE + b"\x00\x53\x75\xa0\x03" + b"%03d" % i, 10)
        sender.flush(10)
    assert receive(here, "copies", 300) == [f"{i:03}" for i in range(300)]


def test_a_limit_here_holds_back_what_comes_in(
    other: Rabbit, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Credit at the other broker is the room in our queue."""
    policies = "policies:\n  - {match: copies, flow_stop_count: 10, flow_resume_count: 10}\n"
    here = start_broker(route(other, direction="in", local="copies", remote="/queue/held"), policies)
    with Connection(other.url) as connection:
        sender = connection.sender("/queue/held", durable=True)
        for i in range(50):
            sender.send(DURABLE + b"\x00\x53\x75\xa0\x02" + b"%02d" % i, 10)
        sender.flush(10)
    wait_until(lambda: show(here, capsys)["forwarded"] == 10, 10, "10 messages here")
    assert show(here, capsys)["unsettled"] == 0
    assert receive(here, "copies", 50) == [f"{i:02}" for i in range(50)]


def test_nothing_is_lost_when_rabbitmq_is_killed(
    other: Rabbit, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    here = start_broker(route(other, local="jobs", remote="/queue/jobs"), DURABLE_POLICIES)
    wait_until(lambda: show(here, capsys)["state"] == "up", 20, "the route to be up")
    # RabbitMQ answers before its definition of a queue is on disk: Erlang's log of changes is written up to
    # two seconds later. Killed before that, it comes back without the queue and all that it has accepted.
    time.sleep(DEFINED_S)
    wanted = [f"{i}" for i in range(3000)]
    send(here, "jobs", *wanted[:2000], durable=True)
    wait_until(lambda: int(str(show(here, capsys)["forwarded"])) > 50, 20, "some to be there")
    other.kill()
    send(here, "jobs", *wanted[2000:], durable=True)
    wait_until(lambda: show(here, capsys)["state"] == "down", 10, "the route to notice")
    other.start()
    seen: set[str] = set()
    with Connection(other.url) as connection:
        receiver = connection.receiver("/queue/jobs", credit=500, durable=True)
        while len(seen) < len(wanted):
            taken = receiver.take(500, 30)
            assert taken, f"{len(seen)} of {len(wanted)} came"
            seen |= {text_of(each) for each in taken}
    assert seen == set(wanted)
    assert "guest:" not in here.log


def test_a_wrong_password_is_said_and_not_shown(
    other: Rabbit, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "n0t-the-0ne"
    here = start_broker(
        route(other, url=other.url.replace("guest:guest", f"guest:{secret}"), address="/queue/x", local="x")
    )
    wait_until(lambda: show(here, capsys)["state"] == "down", 20, "the refusal")
    shown = show(here, capsys)
    assert shown["lastError"]
    assert secret not in json.dumps(shown) + here.log
