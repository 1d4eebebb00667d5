"""The client's links against Proton's own server side and against the bare loop."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from bench.contenders import Running
from broker.client.errors import ClientError, ClientTimeoutError, ConnectionLostError, RefusedError
from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from broker.errors import ConflictError, NotFoundError, OperatorError
from tests.wire.client_fixtures import bare, peer

__all__ = ["bare", "peer"]  # fixtures

pytestmark = pytest.mark.wire

BODY = sections.text_body("hello")


def test_every_outcome_is_counted(peer: str) -> None:
    with Connection(peer) as connection:
        for address, name in (("any", "accepted"), ("released", "released"), ("modified", "modified")):
            sender = connection.sender(address)
            for _ in range(10):
                sender.send(BODY)
            sender.flush(20)
            assert (sender.sent, getattr(sender, name)) == (10, 10)


def test_a_rejection_says_which_message_and_why(peer: str) -> None:
    with Connection(peer) as connection:
        sender = connection.sender("picky")
        for _ in range(10):
            sender.send(BODY)
        sender.flush(20)
        assert (sender.accepted, sender.rejected) == (5, 5)
        numbers = [number for number, _, _ in sender.rejections]
        assert numbers in ([1, 3, 5, 7, 9], [2, 4, 6, 8, 10])
        assert sender.rejections[0][1:] == ("amqp:resource-limit-exceeded", "the queue is full")


def test_a_refused_link_raises_the_brokers_reason_and_leaves_the_connection(peer: str) -> None:
    with Connection(peer) as connection:
        with pytest.raises(RefusedError) as refused:
            connection.sender("forbidden")
        assert refused.value.condition == "amqp:unauthorized-access"
        assert refused.value.description == "no entry for you"
        assert connection.sender("any").address == "any"


def test_without_credit_send_waits_and_says_so(peer: str) -> None:
    with Connection(peer) as connection:
        sender = connection.sender("dry")
        with pytest.raises(ClientTimeoutError, match="no credit for dry"):
            sender.send(BODY, timeout_s=0.1)
        assert sender.sent == 0
        assert sender.blocked_ns >= 90_000_000


def test_a_connection_closed_by_the_broker_raises_its_reason(peer: str) -> None:
    with Connection(peer) as connection:
        sender = connection.sender("hangup")
        sender.send(BODY)
        with pytest.raises(RefusedError, match="out of order"):
            sender.flush(20)
        with pytest.raises(RefusedError, match="out of order"):
            connection.sender("any")


def test_nobody_listens() -> None:
    with pytest.raises(ConnectionLostError, match="Connection refused"):
        Connection("amqp://127.0.0.1:1")


def test_a_broker_that_hangs_up_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"127.0.0.1:{listener.getsockname()[1]}"
        client = subprocess.Popen(
            [sys.executable, "-m", "broker.cli.main", "send", "q", "-b", url],
            stderr=subprocess.PIPE,
            text=True,
        )
        listener.accept()[0].close()
        _, said = client.communicate(timeout=60)
    assert client.returncode == 1
    assert f"{url}" in said
    assert "Traceback" not in said


def test_a_broker_that_never_answers_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ClientTimeoutError, match="the connection to be opened"):
            Connection(url, timeout_s=0.1)


def test_messages_arrive_in_order_and_no_more_than_asked_for(bare: Running) -> None:
    with Connection(bare.url) as connection:
        sender = connection.sender("ordered")
        for number in range(100):
            sender.send(sections.text_body(str(number)))
        sender.flush(20)
        first = connection.receiver("ordered", credit=50, limit=10)
        taken = [sections.shown(message) for message in first.take(100, 20)]
        while len(taken) < 10:
            taken += [sections.shown(message) for message in first.take(100, 20)]
        assert taken == [str(number) for number in range(10)]
        assert first.take(1, 0.05) == []
        first.close()
        second = connection.receiver("ordered")
        assert sections.shown(second.take(1, 20)[0]) == "10"


def test_a_window_bounds_what_is_unsettled(peer: str) -> None:
    with Connection(peer) as connection:
        sender = connection.sender("any", window=3)
        for _ in range(50):
            sender.send(BODY, 20)
            assert sender.sent - sender.settled <= 3
        sender.flush(20)
        assert sender.accepted == 50


def test_presettled_messages_arrive(bare: Running) -> None:
    with Connection(bare.url) as connection:
        sender = connection.sender("presettled", presettled=True)
        for _ in range(5000):
            sender.send(BODY)
        sender.flush(20)
        receiver = connection.receiver("presettled", limit=5000)
        got = 0
        while got < 5000:
            batch = receiver.take(1000, 20)
            assert batch
            got += len(batch)


def test_a_message_of_a_mebibyte_arrives_whole(bare: Running) -> None:
    body = bytes(range(256)) * 4096
    with Connection(bare.url) as connection:
        connection.sender("large").send(sections.binary_body(body))
        (message,) = connection.receiver("large").take(1, 10)
    assert message == sections.binary_body(body)


def test_a_closed_connection_refuses_work(bare: Running) -> None:
    connection = Connection(bare.url)
    sender, receiver = connection.sender("closed"), connection.receiver("closed")
    connection.close()
    connection.close()
    with pytest.raises(ClientError):
        sender.send(BODY)
    with pytest.raises(ClientError):
        receiver.take(1, 0.1)


def test_management_answers(peer: str) -> None:
    with Management(peer) as management:
        response = management.call("READ", "org.sluice.queue", "there", {"max_count": 3})
        assert (response.status, response.description) == (200, "OK")
        assert response.body == {"name": "there", "asked": {"max_count": 3}}


@pytest.mark.parametrize(
    ("operation", "name", "error", "reason"),
    [
        ("READ", "missing", NotFoundError, "no queue 'missing'"),
        ("CREATE", "there", ConflictError, "queue 'there' exists"),
        ("UPDATE", "there", OperatorError, "flow_stop_count is above max_count"),
    ],
)
def test_management_raises_the_brokers_reason(
    peer: str, operation: str, name: str, error: type[OperatorError], reason: str
) -> None:
    with Management(peer) as management, pytest.raises(error) as raised:
        management.call(operation, "org.sluice.queue", name)
    assert type(raised.value) is error
    assert str(raised.value) == reason


def test_management_times_out_and_drops_the_late_answer(peer: str) -> None:
    with Management(peer) as management:
        # Only now: connecting takes what it takes.
        management.timeout_s = 0.1
        with pytest.raises(ClientTimeoutError, match="no answer to SLEEP"):
            management.call("SLEEP")
        management.timeout_s = 10
        assert management.call("READ", name="there").status == 200
