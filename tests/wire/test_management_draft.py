"""`$management` against AMQP Management 1.0 (working draft 11), with Proton's blocking client.

The draft's sentences are in the tests' names; a generic client in another language is in tests/clients.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from proton import Message, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from broker.codec.owned import owned
from tests.wire.conftest import RunningBroker, wait_until

pytestmark = pytest.mark.wire

QUEUE, TOPIC, BROKER = "org.sluice.queue", "org.sluice.topic", "org.sluice.broker"
NODE = "org.amqp.management"
SECONDS = 10
# What tools take when they are not told another.
SHARED_NAME = "mgmt-client-node"


class Client:
    """A sender and a receiver on `$management`, the receiver under a name of the client's own."""

    def __init__(self, url: str, reply_to: str = SHARED_NAME, credit: int = 100) -> None:
        self.reply_to = reply_to
        self.connection = BlockingConnection(url, timeout=SECONDS)
        self.sender: BlockingSender = self.connection.create_sender("$management")
        self.receiver: BlockingReceiver = self.connection.create_receiver(
            "$management", credit=credit, options=_Target(reply_to)
        )

    def send(
        self, operation: str | None, body: Any = None, correlation: Any = None, **properties: Any
    ) -> None:
        named = properties if operation is None else {"operation": operation, **properties}
        request = Message(properties=named, body={} if body is None else body, reply_to=self.reply_to, id="7")
        if correlation is not None:
            request.correlation_id = correlation
        self.sender.send(request)

    def answer(self) -> Message:
        message: Message = self.receiver.receive(timeout=SECONDS)
        self.receiver.accept()
        return message

    def ask(self, operation: str | None, body: Any = None, **properties: Any) -> Message:
        self.send(operation, body, **properties)
        return self.answer()

    def call(self, operation: str | None, body: Any = None, **properties: Any) -> tuple[int, Any]:
        """Status and body; the description instead of the empty body of a refusal."""
        return of(self.ask(operation, body, **properties))

    def close(self) -> None:
        self.connection.close()


class _Target(LinkOption):
    """Says where the receiver's end of the link is called."""

    def __init__(self, address: str) -> None:
        self.address = address

    def test(self, _link: object) -> bool:
        return True

    def apply(self, link: Any) -> None:
        link.target.address = self.address


def of(answer: Message) -> tuple[int, Any]:
    properties: Any = answer.properties
    status = int(properties["statusCode"])
    assert isinstance(properties["statusDescription"], str)
    if status < 300:
        return status, owned(answer.body)
    assert answer.body == {}
    return status, properties["statusDescription"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all of them; each test leaves it without queues and topics."""
    running = RunningBroker(tmp_path_factory.mktemp("draft"), "", "", ())
    yield running
    running.stop()
    assert "Traceback" not in running.log, running.log


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    found = Client(broker.url)
    yield found
    for type_ in (QUEUE, TOPIC):
        _, page = found.call("QUERY", {"attributeNames": ["name"]}, entityType=type_)
        for (name,) in page["results"]:
            if not name.startswith("$"):
                assert found.call("DELETE", type=type_, name=name)[0] == 204
    found.close()


# --- requests and answers (§3.1, §3.2)


@pytest.mark.parametrize("correlation", ["c", ulong(9), uuid.UUID(int=5), b"bytes"])
def test_the_answer_has_the_correlation_id_of_the_request(client: Client, correlation: Any) -> None:
    client.send("GET-TYPES", correlation=correlation)
    answer = client.answer()  # a binary id is a view into it
    found = answer.correlation_id
    assert (bytes(found) if isinstance(found, memoryview) else found) == correlation


def test_the_answer_has_the_message_id_where_there_is_no_correlation_id(client: Client) -> None:
    assert client.ask("GET-TYPES").correlation_id == "7"


def test_its_own_small_window_is_renewed_as_it_is_used(client: Client) -> None:
    wait_until(
        lambda: client.connection.container.process() and client.sender.link.credit > 0, SECONDS, "credit"
    )
    assert client.sender.link.credit <= 20
    for number in range(100):
        client.send("GET-MGMT-NODES", correlation=str(number))
        assert client.sender.link.credit <= 20
    assert [client.answer().correlation_id for _ in range(100)] == [str(number) for number in range(100)]


def test_clients_that_take_the_same_name_get_their_own_answers(broker: RunningBroker) -> None:
    def work(number: int) -> list[str]:
        client = Client(broker.url)
        try:
            names = [f"q.{number}.{each}" for each in range(20)]
            assert [client.call("CREATE", {}, type=QUEUE, name=name)[0] for name in names] == [201] * 20
            return [client.call("READ", type=QUEUE, name=name)[1]["name"] for name in names]
        finally:
            client.close()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    assert found == [[f"q.{number}.{each}" for each in range(20)] for number in range(4)]


def test_a_request_without_a_usable_reply_to_is_carried_out_by_nobody_and_harms_nobody(
    client: Client,
) -> None:
    client.sender.send(Message(properties={"operation": "GET-TYPES"}, body={}))
    client.sender.send(Message(properties={"operation": "GET-TYPES"}, body={}, reply_to="nowhere"))
    client.sender.send(Message(properties={"operation": "GET-TYPES"}, body={}, reply_to=""))
    assert client.call("GET-MGMT-NODES") == (200, [])


def test_answers_nobody_reads_are_bounded(client: Client, broker: RunningBroker) -> None:
    other = BlockingConnection(broker.url, timeout=SECONDS)
    other.create_sender("orders").send(Message(body="x" * (500 << 10)))
    other.close()
    input_stopped = Client(broker.url, "deaf", credit=1)
    try:
        for _ in range(50):
            input_stopped.send("browse", {"name": "orders"}, type=BROKER)
        wanted = {"attributeNames": ["name", "depth_bytes"]}

        def waiting() -> int:
            _, page = client.call("QUERY", wanted, entityType=QUEUE)
            return int(max(size for _, size in page["results"]))

        # Who asks for so much is served in turn with the others.
        wait_until(lambda: waiting() > 15 << 20, SECONDS, "answers that nobody reads")
        for _ in range(20):
            assert waiting() < 18 << 20
    finally:
        input_stopped.close()


@pytest.mark.parametrize(
    ("status", "operation", "properties", "body"),
    [
        (400, None, {}, {}),
        (400, 5, {}, {}),
        (501, "EXPLODE", {"type": QUEUE, "name": "orders"}, {}),
        (501, "REGISTER", {"type": NODE, "name": "self", "address": "x"}, {}),
        (400, "READ", {"name": "orders"}, {}),
        (400, "READ", {"type": QUEUE}, {}),
        (400, "READ", {"type": ["x"], "name": "orders"}, {}),
        (400, "READ", {"type": QUEUE, "name": "orders", "identity": "other"}, {}),
        (404, "READ", {"type": QUEUE, "name": "nobody"}, {}),
        (404, "READ", {"type": "org.sluice.nonsense", "name": "orders"}, {}),
        (405, "CREATE", {"type": BROKER, "name": "x"}, {}),
        (409, "CREATE", {"type": QUEUE, "name": "orders"}, {}),
        (400, "CREATE", {"type": QUEUE, "name": "x"}, {"max_cuont": 5}),
        (400, "CREATE", {"type": QUEUE, "name": "x"}, {"max_count": -5}),
        (400, "CREATE", {"type": QUEUE, "name": "x"}, {"name": "y"}),
        (400, "CREATE", {"type": QUEUE, "name": "x"}, {"type": TOPIC}),
        (400, "CREATE", {"type": QUEUE, "name": "x"}, [1, 2]),
        (400, "UPDATE", {"type": QUEUE, "name": "orders"}, {"name": "renamed"}),
        (400, "QUERY", {"entityType": QUEUE}, {"attributeNames": ["nonsense"]}),
        (400, "QUERY", {"entityType": QUEUE}, {"attributeNames": "name"}),
        (400, "QUERY", {"entityType": QUEUE, "offset": "x"}, {}),
        (404, "QUERY", {"entityType": "org.sluice.nonsense"}, {}),
        (404, "GET-ATTRIBUTES", {"entityType": "org.sluice.nonsense"}, {}),
    ],
)
def test_a_refusal_has_its_status_a_reason_and_an_empty_body(
    client: Client, status: int, operation: str | None, properties: dict[str, Any], body: Any
) -> None:
    assert client.call("CREATE", {}, type=QUEUE, name="orders")[0] == 201
    found, reason = client.call(operation, body, **properties)
    assert (found, bool(reason)) == (status, True)
    _, page = client.call("QUERY", {"attributeNames": ["name"]}, entityType=QUEUE)
    assert [name for (name,) in page["results"] if not name.startswith("$")] == ["orders"]


# --- entities (§3.3)


def test_create_answers_201_with_the_entity_as_it_came_to_be(client: Client) -> None:
    given = {"max_count": "1000", "durable": "false", "dispatch": "fill", "flow_stop_size": "8 MB"}
    status, body = client.call("CREATE", given, type=QUEUE, name="orders")
    assert status == 201
    assert (body["name"], body["identity"], body["type"]) == ("orders", "orders", QUEUE)
    # Texts became what the attributes are, and what was not given has its default.
    assert (body["max_count"], body["durable"], body["flow_stop_size"]) == (1000, False, 8 << 20)
    assert body["flow_stop_count"] == 800


def test_an_entitys_own_attributes_may_stand_in_the_body_too(client: Client) -> None:
    assert client.call("CREATE", {"name": "a", "type": QUEUE}, type=QUEUE)[0] == 201
    assert client.call("CREATE", {"name": "b", "max_count": 5}, type=QUEUE, name="b")[0] == 201
    assert (
        client.call("UPDATE", {"identity": "b", "max_count": 6}, type=QUEUE, identity="b")[1]["max_count"]
        == 6
    )


def test_read_ignores_the_body_and_takes_a_name_or_an_identity(client: Client) -> None:
    client.call("CREATE", {}, type=QUEUE, name="orders")
    for properties in ({"name": "orders"}, {"identity": "orders"}, {"name": "orders", "identity": "orders"}):
        assert client.call("READ", [None, "x"], type=QUEUE, **properties)[1]["name"] == "orders"


def test_update_is_done_as_a_whole_or_not_at_all(client: Client) -> None:
    client.call("CREATE", {"max_count": 100}, type=QUEUE, name="orders")
    both = {"consumer_flow_limit": 7, "flow_stop_count": 500}
    assert client.call("UPDATE", both, type=QUEUE, name="orders")[0] == 400
    assert client.call("READ", type=QUEUE, name="orders")[1]["consumer_flow_limit"] == 1000
    status, body = client.call("UPDATE", {"consumer_flow_limit": 7}, type=QUEUE, name="orders")
    assert (status, body["consumer_flow_limit"], body["max_count"]) == (200, 7, 100)
    assert client.call("UPDATE", {"max_count": None}, type=QUEUE, name="orders")[1]["max_count"] == 0


def test_delete_answers_204_with_an_empty_map(client: Client) -> None:
    client.call("CREATE", {}, type=TOPIC, name="news")
    assert client.call("DELETE", type=TOPIC, name="news") == (204, {})
    assert client.call("DELETE", type=TOPIC, name="news")[0] == 404


# --- the management node (§3.4)


def test_query_pages_and_tells_how_many(client: Client) -> None:
    for number in range(25):
        client.call("CREATE", {"max_count": number + 1}, type=QUEUE, name=f"q{number:02}")
    names = {"attributeNames": ["max_count", "name"]}
    seen: list[list[object]] = []
    for offset, count, expected in ((1, 10, 10), (11, 10, 10), (21, 10, 5), (26, 10, 0), (1000, 5, 0)):
        answer = client.ask(
            "QUERY", names, type=NODE, name="self", entityType=QUEUE, offset=offset, count=count
        )
        properties: Any = answer.properties
        body: Any = answer.body
        assert (properties["statusCode"], properties["count"], properties["total"]) == (200, expected, 26)
        assert set(body) == {"attributeNames", "results"}
        assert body["attributeNames"] == ["max_count", "name"]
        assert len(body["results"]) == expected
        seen += body["results"]
    # The first is the one the answers go to.
    assert seen == [[number + 1, f"q{number:02}"] for number in range(25)]


def test_query_without_a_type_is_of_all_and_null_is_what_does_not_apply(client: Client) -> None:
    client.call("CREATE", {}, type=TOPIC, name="news")
    for properties in ({}, {"type": NODE, "name": "self"}):
        _, page = client.call("QUERY", {"attributeNames": ["type", "name", "role"]}, **properties)
        assert [TOPIC, "news", None] in page["results"]
        assert {"org.sluice.connection", "org.sluice.link", BROKER} <= {row[0] for row in page["results"]}
    _, page = client.call("QUERY", {}, count=1)
    union = {name for names in client.call("GET-ATTRIBUTES")[1].values() for name in names}
    assert set(page["attributeNames"]) == union


def test_the_types_their_attributes_annotations_and_operations(client: Client) -> None:
    _, types = client.call("GET-TYPES", type=NODE, name="self")
    assert {QUEUE, TOPIC, BROKER, "org.sluice.link", "org.sluice.connection"} <= set(types)
    assert all(parents == [] for parents in types.values())
    assert client.call("GET-ANNOTATIONS")[1] == types
    _, attributes = client.call("GET-ATTRIBUTES")
    assert attributes.keys() == types.keys()
    for type_, names in attributes.items():
        _, page = client.call("QUERY", {}, entityType=type_, count=1)
        assert page["attributeNames"] == names
        assert {"name", "identity", "type"} <= set(names)
        assert client.call("GET-ATTRIBUTES", entityType=type_)[1] == {type_: names}
        assert client.call("GET-TYPES", entityType=type_)[1] == {type_: []}


def test_every_operation_that_is_listed_is_there_and_no_other(client: Client) -> None:
    _, operations = client.call("GET-OPERATIONS")
    assert set(operations) == {*client.call("GET-TYPES")[1], NODE}
    for type_, known in operations.items():
        assert all(isinstance(argument, str) for arguments in known.values() for argument in arguments)
        for verb in ("CREATE", "READ", "UPDATE", "DELETE"):
            if type_ != NODE and not (type_ == BROKER and verb == "READ"):
                status, _ = client.call(
                    verb, {}, type=type_, name="no-such-entity", identity="no-such-entity"
                )
                client.call("DELETE", type=type_, name="no-such-entity")
                assert (status == 405) == (verb not in known), (type_, verb)
        for verb in known.keys() - {"CREATE", "READ", "UPDATE", "DELETE", "stop-producers", "apply"}:
            assert client.call(verb, {}, type=type_)[0] not in (405, 501), (type_, verb)


def test_the_answer_of_each_entity_has_the_attributes_its_type_has(client: Client) -> None:
    client.call("CREATE", {}, type=QUEUE, name="orders")
    client.call("CREATE", {}, type=TOPIC, name="news")
    client.call("CREATE", {}, type="org.sluice.binding", source="news", target="orders")
    _, attributes = client.call("GET-ATTRIBUTES")
    _, page = client.call("QUERY", {"attributeNames": ["type", "identity"]})
    for type_, identity in page["results"]:
        status, body = client.call("READ", type=type_, identity=identity)
        assert status == 200
        assert set(body) <= set(attributes[type_])
        assert (body["type"], body["identity"]) == (type_, identity)
