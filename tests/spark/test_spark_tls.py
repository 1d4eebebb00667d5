"""Sink and source over TLS: whom they trust, how they log in, and where they go when a broker goes."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.contenders import free_port
from pyspark_sluice.errors import AmqpError, LoginError, UnreachableError
from pyspark_sluice.options import parse
from pyspark_sluice.receiver import Receiver
from pyspark_sluice.sender import Counts, Sender
from tests.spark.conftest import ReturningBroker
from tests.spark.feeding import id_of, message, names
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.people import PASSWORDS, settings_for
from tests.wire.seeing import number_of
from tests.wire.tlsworld import Pki, url_of

PATIENCE_S = 20.0
TLS = ("--listen", "amqps://127.0.0.1:0")
# Beyond a TLS record and beyond what a socket takes at once.
LARGE = 3_000_000


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """An authority, and the broker's certificate."""
    return Pki.at(tmp_path_factory.mktemp("tls") / "certs")


@pytest.fixture
def secure(start_broker: StartBroker, pki: Pki, tmp_path: Path) -> RunningBroker:
    """A broker with TLS that knows users by password and by certificate."""
    config = pki.section(client_ca=str(pki.ca)) + settings_for(tmp_path / "people", rules="")
    return start_broker(config, args=TLS)


def sent(count: int, options: Mapping[str, str], size: int = 100) -> Counts:
    """So many messages to `orders`, in one task."""
    sender = Sender(parse({"address": "orders", **options}, "sink"), "test")
    try:
        sender.start()
        sender.put(message(name, size) for name in names(count))
        return sender.finish()
    finally:
        sender.close()


def taken(count: int, options: Mapping[str, str]) -> list[bytes]:
    """So many messages of `orders`, settled."""
    receiver = Receiver(parse({"address": "orders", **options}, "source"))
    receiver.start()
    try:
        found: list[bytes] = []
        while len(found) < count:
            more = receiver.take(count - len(found), None, wait_s=1.0, patience_s=PATIENCE_S)
            assert more, f"{len(found)} came, and no more"
            found += more
            receiver.settle(len(more))
        return found
    finally:
        receiver.close()


def known(pki: Pki, folder: Path, how: str) -> dict[str, str]:
    """The options of alice, by password or by certificate."""
    if how == "EXTERNAL":
        return {"tlsCa": str(pki.ca), "tlsCertificate": str(pki.client("client", "alice"))}
    (folder / "password").write_text(PASSWORDS["alice"])
    login = {"user": "alice", "passwordFile": str(folder / "password"), "saslMechanisms": how}
    return {"tlsCa": str(pki.ca), **login}


@pytest.mark.parametrize("how", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "EXTERNAL"])
def test_each_way_to_log_in_carries_messages_of_every_size(
    secure: RunningBroker, pki: Pki, tmp_path: Path, how: str
) -> None:
    options = {"url": url_of(secure), **known(pki, tmp_path, how)}
    for count, size in ((2000, 100), (3, LARGE)):
        assert sent(count, options, size).accepted == count
        found = taken(count, options)
        assert [id_of(each) for each in found] == names(count)
        assert {len(each) for each in found} == {len(message(names(1)[0], size))}


def refusal(**options: str) -> AmqpError:
    """Why nothing can be sent."""
    with pytest.raises(AmqpError) as refused:
        sent(1, {"reconnectTimeout": "300ms", **options})
    return refused.value


def test_a_broker_of_another_authority_is_not_trusted(
    secure: RunningBroker, pki: Pki, tmp_path: Path
) -> None:
    other = Pki.at(tmp_path / "other")
    found = refusal(url=url_of(secure), **known(pki, tmp_path, "PLAIN") | {"tlsCa": str(other.ca)})
    assert isinstance(found, LoginError)
    assert "certificate" in str(found)
    assert PASSWORDS["alice"] not in str(found)


def test_a_broker_of_another_name_is_not_trusted(start_broker: StartBroker, pki: Pki, tmp_path: Path) -> None:
    pki.server("elsewhere", ("elsewhere.example.org",))
    config = pki.section(certificate=f"{pki.folder}/elsewhere.pem", key=f"{pki.folder}/elsewhere-key.pem")
    broker = start_broker(config, args=TLS)
    found = refusal(url=url_of(broker), tlsCa=str(pki.ca))
    assert isinstance(found, LoginError)
    assert "localhost" in str(found)


def test_plain_amqp_where_tls_is_spoken_and_the_reverse_end_in_time(secure: RunningBroker, pki: Pki) -> None:
    port = url_of(secure).rpartition(":")[2]
    assert isinstance(refusal(url=f"amqp://localhost:{port}", connectTimeout="3s"), UnreachableError)
    plain = refusal(url=f"amqps://localhost:{secure.port}", tlsCa=str(pki.ca), connectTimeout="3s")
    assert isinstance(plain, UnreachableError)


def test_a_broker_that_takes_the_connection_and_says_nothing_is_given_up_in_time(pki: Pki) -> None:
    """In the middle of the TLS handshake: the system has accepted, nobody reads the hello."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        found = refusal(url=f"amqps://127.0.0.1:{port}", tlsCa=str(pki.ca), connectTimeout="1s")
        assert isinstance(found, UnreachableError)
        assert "did not answer within 1 s" in str(found)
        assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize("wrong", ["expired", "of another authority", "missing"])
def test_who_shows_no_certificate_that_holds_is_refused(
    secure: RunningBroker, pki: Pki, tmp_path: Path, wrong: str
) -> None:
    options = {"url": url_of(secure), "tlsCa": str(pki.ca), "saslMechanisms": "EXTERNAL"}
    if wrong == "expired":
        options["tlsCertificate"] = str(pki.client("expired", "alice", expired=True))
    elif wrong == "of another authority":
        options["tlsCertificate"] = str(Pki.at(tmp_path / "other").client("client", "alice"))
    refusal(**options)
    assert not opened(secure)
    # Whoever shows one that holds is seen there.
    assert sent(1, {"url": url_of(secure), **known(pki, tmp_path, "EXTERNAL")}).accepted == 1
    wait_until(lambda: opened(secure) != [], PATIENCE_S, "the log to say so")


def opened(broker: RunningBroker) -> list[str]:
    """What the broker has said of connections that opened."""
    return [line for line in broker.log.splitlines() if ": open from" in line]


def test_a_file_that_is_not_there_is_named(secure: RunningBroker, tmp_path: Path) -> None:
    found = refusal(url=url_of(secure), tlsCa=str(tmp_path / "none.pem"))
    assert "tlsCa" in str(found)
    assert "No such file" in str(found)


def test_the_next_broker_of_the_list_is_taken_where_the_first_is_none(
    secure: RunningBroker, pki: Pki, tmp_path: Path
) -> None:
    urls = f"amqps://localhost:{free_port()},{url_of(secure)}"
    options = {"url": urls, **known(pki, tmp_path, "SCRAM-SHA-512")}
    assert sent(100, options).accepted == 100
    assert [id_of(each) for each in taken(100, options)] == names(100)


def test_a_task_goes_on_at_the_next_broker_when_its_own_is_killed(
    returning_broker: ReturningBroker, start_broker: StartBroker
) -> None:
    """What the first had accepted is there when it comes back; the second has all that it had not."""
    other = start_broker()
    options = {"url": f"{returning_broker.url},{other.url}", "address": "orders"}
    sender = Sender(parse(options, "sink"), "test")
    try:
        sender.start()
        sender.put(message(name, durable=True) for name in names(500))
        wait_until(lambda: sender.counts.accepted == 500, PATIENCE_S, "the first broker to have its part")
        returning_broker.kill()
        sender.put(message(name, durable=True) for name in names(500, 500))
        counts = sender.finish()
    finally:
        sender.close()
    assert (counts.accepted, counts.reconnected) == (1000, 1)
    returning_broker.start()
    first = taken(500, {"url": returning_broker.url})
    second = taken(number_of(other, "orders", "depth_msgs"), {"url": other.url})
    assert {id_of(each) for each in (*first, *second)} == set(names(1000))
    assert [id_of(each) for each in first] == names(500)


def test_a_source_goes_on_at_the_next_broker_when_its_own_is_killed(
    returning_broker: ReturningBroker, start_broker: StartBroker
) -> None:
    other = start_broker()
    sent(10, {"url": returning_broker.url})
    sent(20, {"url": other.url})
    receiver = Receiver(parse({"url": f"{returning_broker.url},{other.url}", "address": "orders"}, "source"))
    receiver.start()
    try:
        first = receiver.take(10, None, wait_s=1.0, patience_s=PATIENCE_S) or []
        assert len(first) == 10
        returning_broker.kill()
        found: list[bytes] = []
        while len(found) < 20:
            found += receiver.take(20, None, wait_s=1.0, patience_s=PATIENCE_S) or []
        # What was taken from the first is settled in vain, and does not settle what the second gave.
        receiver.settle(10)
        assert [id_of(each) for each in found] == names(20)
    finally:
        receiver.close()
    wait_until(
        lambda: number_of(other, "orders", "ready_msgs") == 20, PATIENCE_S, "all of it to be given back"
    )
