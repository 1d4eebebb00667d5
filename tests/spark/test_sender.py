"""A task's sender against a real broker, without Spark: credit, outcomes, lost connections, logins."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from proton import Message

from broker.codec.message import dead_lettered
from pyspark_sluice import encoding
from pyspark_sluice.deadletter import annotated
from pyspark_sluice.engine import Engine
from pyspark_sluice.errors import AmqpError, CreditTimeoutError, LoginError, RefusedError, UnreachableError
from pyspark_sluice.jobs import redrive, tables
from pyspark_sluice.options import Options, parse
from pyspark_sluice.sender import Counts, Sender
from tests.spark.conftest import ReturningBroker
from tests.spark.reading import bodies, body_of, messages, tally
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.people import PASSWORDS, settings_for

HEAD = b"\x00\x53\x70\xc0\x02\x01\x41"


def message(body: bytes) -> bytes:
    """Durable, its id made of its body."""
    name = encoding.text(body.decode())
    return HEAD + b"\x00\x53\x73\xc0%c\x01" % (len(name) + 1) + name + b"\x00\x53\x75" + encoding.binary(body)


def encoded(count: int, start: int = 0) -> Iterator[bytes]:
    return (message(body) for body in bodies(count, start))


class Task:
    """A sender in use; ``finished`` on a thread, so that a test can look on."""

    def __init__(self, url: str, count: int, **options: str) -> None:
        self.sender = Sender(parse({"url": url, "address": "orders"} | options, "sink"), "test")
        self.counts: Counts | None = None
        self.failure: AmqpError | None = None
        self._thread = threading.Thread(target=self._run, args=(count,))
        self._thread.start()

    def _run(self, count: int) -> None:
        try:
            self.sender.start()
            for at in range(0, count, 1000):
                self.sender.put(encoded(min(1000, count - at), at))
            self.counts = self.sender.finish()
        except AmqpError as fault:
            self.failure = fault
        finally:
            self.sender.close()

    @property
    def is_done(self) -> bool:
        """Whether it has come to its end."""
        return not self._thread.is_alive()

    def result(self) -> Counts:
        """What became of it; its failure is raised."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure
        assert self.counts is not None
        return self.counts


def hurry(sender: Sender, seconds: float) -> None:
    """A shorter creditTimeout from now on: what a slow broker had still to say has been said."""
    sender.options = replace(sender.options, credit_timeout=seconds)
    sender.post(lambda: None)


def test_every_message_is_accepted_once(broker: RunningBroker) -> None:
    counts = Task(broker.url, 2500, maxInFlight="100").result()
    assert (counts.accepted, counts.resent, counts.skipped) == (2500, 0, 0)
    found = tally(broker.url, "orders")
    assert (found.count, found.lost(bodies(2500))) == (2500, 0)


def test_nothing_to_send_is_no_failure(broker: RunningBroker) -> None:
    assert Task(broker.url, 0).result().accepted == 0


STOPPED = "policies:\n  - {match: orders, flow_stop_count: 50, flow_resume_count: 20, max_count: 100}\n"


def test_no_credit_is_waited_for(start_broker: StartBroker) -> None:
    broker = start_broker(policies=STOPPED)
    task = Task(broker.url, 400)
    wait_until(lambda: task.sender.counts.accepted == 50, 20, "the queue to be full")
    found = messages(broker.url, "orders")
    # An empty queue may be one that the task is about to fill again.
    while not task.is_done:
        found += messages(broker.url, "orders")
    assert task.result().accepted == 400
    assert len(found) + len(messages(broker.url, "orders")) == 400


def test_no_credit_for_too_long_is_a_failure(start_broker: StartBroker) -> None:
    broker = start_broker(policies=STOPPED)
    task = Task(broker.url, 400, creditTimeout="60s")
    wait_until(lambda: task.sender.counts.accepted == 50, 20, "the queue to be full")
    hurry(task.sender, 0.5)
    with pytest.raises(CreditTimeoutError, match="has accepted 50, 0 are in flight"):
        task.result()
    assert len(messages(broker.url, "orders")) == 50


@pytest.mark.parametrize("others", [0, 30], ids=["alone", "beside-another"])
def test_rows_that_use_the_last_credit_are_all(start_broker: StartBroker, others: int) -> None:
    broker = start_broker(policies=STOPPED)
    Task(broker.url, others, creditTimeout="20s").result()
    assert Task(broker.url, 50 - others, creditTimeout="20s").result().accepted == 50 - others


def test_batches_that_use_the_last_credit_are_all(start_broker: StartBroker) -> None:
    broker = start_broker(policies=STOPPED)
    options = {"url": broker.url, "address": "orders", "creditTimeout": "20s"}
    sender = Sender(parse(options, "sink"), "test")
    sender.start()
    try:
        for at, count in ((0, 20), (20, 30), (50, 0), (50, 0)):
            sender.put(encoded(count, at))
        assert sender.finish().accepted == 50
    finally:
        sender.close()


def test_letters_that_fill_their_target_are_moved(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(policies=STOPPED)

    def hurried(given: Mapping[str, str], end: Literal["sink", "source"]) -> Options:
        return parse({**given, **({"creditTimeout": "20s"} if end == "sink" else {})}, end)

    monkeypatch.setattr(redrive, "parse", hurried)
    Task(broker.url, 50, address="letters").result()
    ids = [name.decode() for name in bodies(50)]
    batch = tables.batch(ASKED, [{"queue": "letters", "target": "orders", "message_id": i} for i in ids])
    (moved,) = redrive.redrive([batch], {"url": broker.url})
    assert moved.to_pylist()[0]["moved"] == 50
    assert tally(broker.url, "letters").count == 0
    assert tally(broker.url, "orders").lost(bodies(50)) == 0


ASKED = {"queue": "string", "target": "string", "message_id": "string"}
REJECTING = "policies:\n  - {match: orders, max_count: 10, flow_stop_count: 10, when_full: reject}\n"


def test_a_rejection_fails_the_task(start_broker: StartBroker) -> None:
    broker = start_broker(policies=REJECTING)
    with pytest.raises(RefusedError, match="amqp:resource-limit-exceeded: the broker rejected a message"):
        Task(broker.url, 400).result()


def test_a_rejected_message_can_be_skipped(start_broker: StartBroker) -> None:
    broker = start_broker(policies=REJECTING)
    counts = Task(broker.url, 400, onReject="skip").result()
    assert counts.accepted + counts.skipped == 400
    assert counts.accepted == len(messages(broker.url, "orders")) >= 10


def test_a_rejected_message_can_go_elsewhere_with_the_reason(start_broker: StartBroker) -> None:
    broker = start_broker(policies=REJECTING)
    counts = Task(broker.url, 400, onReject="deadletter", deadLetterAddress="rejected").result()
    assert counts.accepted + counts.dead_lettered == 400
    dead = messages(broker.url, "rejected")
    assert len(dead) == counts.dead_lettered >= 300
    noted = {str(key): value for key, value in (dead[0].annotations or {}).items()}
    assert noted["x-opt-sluice-original-address"] == "orders"
    assert "amqp:resource-limit-exceeded" in noted["x-opt-sluice-dead-letter-reason"]
    assert {str(each.id).encode() for each in dead} <= set(bodies(400))


SMALL = "policies:\n  - {match: orders, max_message_size: 2000}\n  - {match: tiny, max_message_size: 500}\n"
# The one in the middle is larger than `orders` takes.
UNEQUAL = (b"first", b"x" * 3000, b"last")


def send_unequal(url: str, **options: str) -> Counts:
    """A task of these three rows."""
    sender = Sender(parse({"url": url, "address": "orders", **options}, "sink"), "test")
    sender.start()
    try:
        sender.put(large_message(body) for body in UNEQUAL)
        return sender.finish()
    finally:
        sender.close()


def large_message(body: bytes) -> bytes:
    return bytes(Message(body=body, id=f"row-{len(body)}", durable=True, inferred=True).encode())


def test_a_row_that_is_too_large_is_rejected_and_the_link_stays(start_broker: StartBroker) -> None:
    broker = start_broker(policies=SMALL)
    counts = send_unequal(broker.url, onReject="skip")
    assert (counts.accepted, counts.skipped, counts.reconnected) == (2, 1, 0)
    with pytest.raises(RefusedError, match=r"size-exceeded: .* 'row-3000' has 3,\d+ bytes, and orders takes"):
        send_unequal(broker.url)
    dead = {"onReject": "deadletter", "deadLetterAddress": "rejected"}
    counts = send_unequal(broker.url, **dead)
    assert (counts.accepted, counts.dead_lettered) == (2, 1)
    [letter] = messages(broker.url, "rejected")
    assert (letter.id, body_of(letter)) == ("row-3000", UNEQUAL[1])
    # Nowhere to go: the task says which row it is.
    with pytest.raises(RefusedError, match="a dead letter was rejected: message 'row-3000' has"):
        send_unequal(broker.url, **dead | {"deadLetterAddress": "tiny"})
    assert all(len(body_of(each)) <= 5 for each in messages(broker.url, "orders"))


@pytest.mark.parametrize("count", [1, 2])
def test_a_dead_letter_is_as_the_brokers_own(count: int) -> None:
    """Its ttl is gone, the first address stays, and how often it became one is counted."""
    message = Message(body=b"x", inferred=True, id="m-1", ttl=1.0, expiry_time=9e9, durable=True, priority=7)
    message.annotations = {"x-opt-origin": "test"}
    ours = theirs = bytes(message.encode())
    why = RefusedError("amqp:not-allowed", "no")
    for address in ("first", "second")[:count]:
        ours = annotated(ours, address, why)
        theirs = dead_lettered(theirs, str(why), address, 1)
    found, model = Message(), Message()
    found.decode(ours)
    model.decode(theirs)
    for each in (found, model):
        assert each.annotations is not None
        assert each.annotations.pop("x-opt-sluice-dead-letter-time") > 0
    assert found.annotations == model.annotations
    assert found.properties == model.properties
    assert found.annotations is not None
    assert found.annotations["x-opt-sluice-original-address"] == "first"
    assert (found.id, found.durable, found.priority, found.ttl) == ("m-1", True, 7, 0.0)
    assert (model.ttl, found.body) == (0.0, b"x")


def test_rows_wait_where_dead_letters_get_no_credit(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies=f"{REJECTING}  - {{match: rejected, flow_stop_count: 10, max_count: 20}}\n"
    )
    options = {
        "url": broker.url,
        "address": "orders",
        "onReject": "deadletter",
        "deadLetterAddress": "rejected",
        "maxInFlight": "20",
        "creditTimeout": "60s",
    }
    sender = Sender(parse(options, "sink"), "test")
    rows = encoded(20000)
    sender.start()
    try:
        sender.put(rows)
        wait_until(lambda: sender._dead.unsettled >= 20, 20, "as many to be dead as may be in flight")
        hurry(sender, 1.0)
        with pytest.raises(CreditTimeoutError, match=r"dead letters are not yet accepted by rejected"):
            sender.finish()
    finally:
        sender.close()
    # Accepted there and there, and twice maxInFlight: rejected all at once, none of them dead yet.
    assert 20000 - sum(1 for _ in rows) <= 10 + 20 + 2 * 20 + 1


def test_no_topic_is_made_for_dead_letters(broker: RunningBroker) -> None:
    options = {
        "address": "news",
        "nodeKind": "topic",
        "onReject": "deadletter",
        "deadLetterAddress": "rejected",
    }
    assert Task(broker.url, 10, **options).result().accepted == 10
    Task(broker.url, 3, address="rejected").result()
    assert tally(broker.url, "rejected").count == 3


def test_a_lost_connection_is_made_again_and_what_is_in_doubt_sent_again(
    returning_broker: ReturningBroker,
) -> None:
    task = Task(returning_broker.url, 20000, maxInFlight="500")
    wait_until(lambda: task.sender.counts.accepted > 3000, 30, "the task to be at work")
    returning_broker.kill()
    accepted = task.sender.counts.accepted
    returning_broker.start()
    counts = task.result()
    assert accepted < 20000
    assert (counts.accepted, counts.reconnected) == (20000, 1)
    found = tally(returning_broker.url, "orders")
    assert (found.lost(bodies(20000)), found.surplus(bodies(20000))) == (0, 0)


def test_the_next_broker_of_the_list_is_taken(broker: RunningBroker) -> None:
    assert Task(f"amqp://127.0.0.1:1,{broker.url}", 10).result().accepted == 10


def test_nobody_there_is_given_up_in_time() -> None:
    with pytest.raises(
        UnreachableError, match=r"gave up after 0\.3 s: amqp://127\.0\.0\.1:1: Connection refused"
    ):
        Task("amqp://127.0.0.1:1", 10, reconnectTimeout="300ms").result()


FULL_UP = "limits:\n  max_nodes_per_user: 1\n"


def test_a_link_that_is_refused_for_now_is_given_up_in_time(start_broker: StartBroker) -> None:
    broker = start_broker(FULL_UP)
    Task(broker.url, 1, address="first").result()
    task = Task(broker.url, 1, address="second", reconnectTimeout="10s")
    with pytest.raises(UnreachableError, match=r"gave up after 10 s: amqp://\S+: .*resource-limit-exceeded"):
        task.result()
    # 0.1, 0.2, 0.4, 0.8, 1.6 and 3.2 s lie between them, less a random part.
    assert 3 <= task.sender.lost_count <= 9


def test_a_link_that_is_refused_for_ever_grants_no_credit(start_broker: StartBroker) -> None:
    broker = start_broker(FULL_UP)
    Task(broker.url, 1, address="first").result()
    task = Task(broker.url, 1, address="second", reconnectTimeout="0", creditTimeout="60s")
    wait_until(lambda: task.sender.useless != "", 20, "the link to be refused")
    hurry(task.sender, 1.0)
    with pytest.raises(CreditTimeoutError, match=r"no credit for .*resource-limit-exceeded"):
        task.result()


def test_a_connection_that_was_of_use_is_tried_again_for_as_long(broker: RunningBroker) -> None:
    """It stood idle for longer than reconnectTimeout when it was lost."""
    options = {"url": broker.url, "address": "orders", "reconnectTimeout": "500ms"}
    sender = Sender(parse(options, "sink"), "test")
    attached = attaching(sender)
    sender.start()
    try:
        assert attached.wait(20)
        attached_at = time.monotonic()
        wait_until(lambda: time.monotonic() > attached_at + 1.2, 20, "the link to have stood for a while")
        sender.post(lose)
        wait_until(lambda: sender.lost_count == 1, 20, "the connection to be lost")
        sender.put(encoded(10))
        assert sender.finish().accepted == 10
    finally:
        sender.close()


def attaching(sender: Sender) -> threading.Event:
    """Set once the broker has attached the link for rows; of a sender that has not started."""
    attached = threading.Event()
    seen: Callable[[object], None] = sender.on_attached

    def see(link: object) -> None:
        seen(link)
        attached.set()

    sender.on_attached = see  # type: ignore[method-assign]
    return attached


def lose() -> None:
    raise UnreachableError("lost")


def test_a_broker_silent_behind_the_login_is_waited_for_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    tick = Engine.tick

    def counted(engine: Engine) -> float | None:
        nonlocal turns
        turns += 1
        return tick(engine)

    monkeypatch.setattr(Engine, "tick", counted)
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = threading.Thread(target=log_in_and_say_nothing, args=(server,))
        silent.start()
        url = f"amqp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UnreachableError, match="the broker did not open the connection in time"):
            Task(url, 10, connectTimeout="2s", reconnectTimeout="1s").result()
        silent.join(20)
    assert turns < 20


def log_in_and_say_nothing(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        for said in (
            b"AMQP\x03\x01\x00\x00",
            b"\0\0\0\x19\x02\x01\0\0\x00\x53\x40\xc0\x0c\x01\xa3\x09ANONYMOUS",
            b"\0\0\0\x10\x02\x01\0\0\x00\x53\x44\xc0\x03\x01\x50\x00",
        ):
            peer.sendall(said)
        while peer.recv(4096):
            pass


def test_a_refused_address_is_final(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(settings_for(tmp_path / "people"))
    (tmp_path / "otto").write_text(PASSWORDS["otto"])
    with pytest.raises(RefusedError, match="amqp:unauthorized-access"):
        Task(broker.url, 10, user="otto", passwordFile=str(tmp_path / "otto"), address="other").result()


def with_users(start_broker: StartBroker, folder: Path) -> str:
    """A broker that knows users and takes their passwords as they are, too; its URL."""
    settings = settings_for(folder / "people", rules="", more="  plain_without_tls: true\n")
    return start_broker(settings).url


@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
@pytest.mark.parametrize("user", ["alice", "zoë"])
def test_who_it_is_is_said_and_believed(
    start_broker: StartBroker, tmp_path: Path, mechanism: str | None, user: str
) -> None:
    url = with_users(start_broker, tmp_path)
    (tmp_path / "password").write_text(PASSWORDS[user] + "\n")
    more = {} if mechanism is None else {"saslMechanisms": mechanism}
    task = Task(url, 10, user=user, passwordFile=str(tmp_path / "password"), **more)
    assert task.result().accepted == 10


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_wrong_password_is_final_and_not_shown(
    start_broker: StartBroker, tmp_path: Path, mechanism: str
) -> None:
    url = with_users(start_broker, tmp_path)
    (tmp_path / "password").write_text("wunderland")
    with pytest.raises(LoginError, match="user or password is wrong") as refused:
        Task(
            url, 10, user="alice", passwordFile=str(tmp_path / "password"), saslMechanisms=mechanism
        ).result()
    assert "wunderland" not in str(refused.value)


def test_heartbeats_go_on_while_spark_is_slow(start_broker: StartBroker) -> None:
    """The broker hangs up on peers that are silent for so long; Spark takes twice as long."""
    # Long enough that a machine which stands still for a moment is not taken for a silent peer.
    broker = start_broker("limits:\n  idle_timeout: 6s\n")
    sender = Sender(parse({"url": broker.url, "address": "orders", "heartbeat": "6s"}, "sink"), "slow")
    sender.start()
    try:
        sender.put(encoded(10))
        wait_until(lambda: sender.counts.accepted == 10, 20, "the first rows")
        time.sleep(12)  # the slowness itself
        sender.put(encoded(10, 10))
        counts = sender.finish()
    finally:
        sender.close()
    assert (counts.accepted, counts.reconnected) == (20, 0)
