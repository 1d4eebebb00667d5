"""The management node: AMQP requests in, AMQP answers out, and nothing a peer sends can raise."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, symbol, uint

from broker.amqp.management import LARGEST_REQUEST, MOST_CELLS, ManagementNode
from broker.codec.owned import owned
from tests.unit.manage_world import World

QUEUE = "org.sluice.queue"
BROKER = "org.sluice.broker"


class Client:
    """Sends requests to a node and reads the answers."""

    def __init__(self, world: World) -> None:
        self.node = ManagementNode(world.model)

    def call(self, operation: str, body: Any = None, **properties: Any) -> tuple[int, str, Any]:
        request = Message(
            properties={"operation": operation, **properties}, body=body, reply_to="back", id="7"
        )
        return answered(self.node.handle(bytes(request.encode())))

    def counts(self, body: Any = None, **properties: Any) -> tuple[int, int]:
        """Of a QUERY: how many entities are in the answer, and how many there are in all."""
        request = Message(properties={"operation": "QUERY", **properties}, body=body, reply_to="back", id="7")
        reply = self.node.handle(bytes(request.encode()))
        assert reply is not None
        message = Message()
        message.decode(reply[1])
        found: Any = message.properties
        return int(found["count"]), int(found["total"])


def answered(reply: tuple[str, bytes] | None) -> tuple[int, str, Any]:
    """Status, description and body."""
    assert reply is not None
    message = Message()
    message.decode(reply[1])
    assert message.properties is not None
    status, description = message.properties["statusCode"], message.properties["statusDescription"]
    return int(status), str(description), owned(message.body)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)


def test_a_queue_is_created_read_changed_and_deleted(world: World, client: Client) -> None:
    status, _, body = client.call("CREATE", {"qpid.flow_stop_count": uint(10)}, type=QUEUE, name="orders")
    assert (status, body["flow_stop_count"], body["type"]) == (201, 10, QUEUE)
    assert client.call("READ", {}, type=QUEUE, name="orders")[2]["flow_stop_count"] == 10
    assert client.call("UPDATE", {"flow_stop_count": 5}, type=QUEUE, name="orders")[2]["flow_stop_count"] == 5
    assert client.call("DELETE", type=QUEUE, identity="orders")[:2] == (204, "OK")
    assert world.engine.topology.nodes == {}


@pytest.mark.parametrize(
    ("status", "operation", "properties"),
    [
        (400, "CREATE", {"type": QUEUE}),
        (400, "CREATE", {"name": "x"}),
        (400, "CREATE", {"type": QUEUE, "name": "$x"}),
        (404, "CREATE", {"type": "org.sluice.nonsense", "name": "x"}),
        (405, "CREATE", {"type": "org.sluice.connection", "name": "x"}),
        (405, "DELETE", {"type": BROKER, "name": "sluice"}),
        (405, "UPDATE", {"type": "org.sluice.link", "name": "x"}),
        (409, "CREATE", {"type": QUEUE, "name": "orders"}),
        (404, "READ", {"type": QUEUE, "name": "nobody"}),
        (404, "DELETE", {"type": "org.sluice.topic", "name": "orders"}),
        (404, "UPDATE", {"type": QUEUE, "name": "nobody"}),
        (400, "CREATE", {"type": "org.sluice.binding", "name": "x"}),
        (404, "DELETE", {"type": "org.sluice.binding", "name": "x"}),
        (405, "CREATE", {"type": "org.sluice.policy", "name": "x"}),
        (501, "EXPLODE", {"type": QUEUE, "name": "orders"}),
        (400, "", {}),
        (400, "explain", {"type": BROKER}),
        (400, "why", {"type": BROKER, "address": 7}),
        (404, "why", {"type": BROKER, "address": "nobody"}),
        (400, "stop-producers", {"type": BROKER, "target": 7}),
        (400, "QUERY", {"entityType": QUEUE, "offset": -1}),
        (400, "QUERY", {"entityType": QUEUE, "count": "ten"}),
        (400, "apply", {"type": BROKER}),
        (400, "CREATE", {"type": QUEUE, "name": b"x"}),
        (400, "CREATE", {"type": QUEUE, "name": UUID(int=7)}),
        (400, "READ", {"type": QUEUE, "identity": b"orders"}),
        (400, "CREATE", {"type": QUEUE, "name": ".."}),
        (400, "purge", {"type": BROKER, "name": b"orders"}),
        (400, "events", {"type": BROKER, "samples": "false"}),
        (400, "DELETE", {"type": "org.sluice.binding", "source": "x"}),
    ],
)
def test_a_refusal_has_its_status_and_a_reason(
    world: World, client: Client, status: int, operation: str, properties: dict[str, object]
) -> None:
    world.queue("orders")
    found, reason, body = client.call(operation, {}, **properties)
    assert (found, body) == (status, {})
    assert reason
    assert list(world.engine.topology.nodes) == ["orders"]


@pytest.mark.parametrize("slip", ["true", "yes", 1, 0, 1.0, b"true", [True], "", "false"])
def test_what_is_nearly_a_trial_is_not_the_real_thing(world: World, client: Client, slip: object) -> None:
    """A boolean that isn't one is refused, in the body and as a property; what was to be tried isn't done."""
    queue = world.queue("orders", max_count=10)
    world.put(queue, 3)
    text = "policies: [{match: orders, max_count: 5}]"
    asked: list[tuple[str, dict[str, object]]] = [
        ("purge", {"name": "orders"}),
        ("move", {"source": "orders", "target": "other"}),
        ("apply", {"text": text}),
        ("apply", {}),
    ]
    for operation, arguments in asked:
        found = [client.call(operation, {**arguments, "dry_run": slip}, type=BROKER)]
        if not isinstance(slip, list):
            found.append(client.call(operation, {}, type=BROKER, dry_run=slip, **arguments))
        for status, reason, _ in found:
            assert (status, reason) == (400, f"{operation}: 'dry_run' must be true or false, a boolean")
    assert (queue.gate.depth_msgs, list(world.engine.topology.nodes)) == (3, ["orders"])
    assert client.call("purge", {"name": "orders", "dry_run": True}, type=BROKER)[2] == {"purged": 3}
    assert client.call("purge", {"name": "orders", "dry_run": None}, type=BROKER)[2] == {"purged": 3}
    assert queue.gate.depth_msgs == 0


def test_files_of_the_brokers_own_cannot_be_tried(client: Client) -> None:
    assert client.call("apply", {"dry_run": True}, type=BROKER)[:2] == (
        400,
        "apply: 'dry_run' needs a 'text'; the broker's own files can't be tried",
    )


def test_policies_that_are_an_empty_text_are_applied(world: World, client: Client) -> None:
    world.queue("orders")
    for more in ({}, {"dry_run": True}):
        assert client.call("apply", {"text": "", **more}, type=BROKER)[::2] == (200, {"changed": []})


def test_a_binding_is_ended_by_its_ends_or_by_its_name_and_no_other_is(world: World, client: Client) -> None:
    binding = "org.sluice.binding"
    ends = [("x", "b/c"), ("x/b", "c")]
    for source, target in ends:
        assert client.call("CREATE", {"source": source, "target": target}, type=binding)[0] == 201
    assert client.call("DELETE", {}, type=binding, name="x/b/c")[0] == 404

    def bound() -> list[tuple[str, str]]:
        rows = client.call("QUERY", {"attributeNames": ["source", "target"]}, type=binding)[2]["results"]
        return sorted((str(source), str(target)) for source, target in rows)

    assert bound() == ends
    answer = client.call("DELETE", {"source": "x", "target": "b/c"}, type=binding, name="x/b/c")
    assert (answer[0], bound()) == (204, ends[1:])
    assert client.call("DELETE", {"source": "x", "target": "b/c"}, type=binding, name="x/b/c")[0] == 404
    assert (client.call("DELETE", type=binding, identity="x%2Fb/c")[0], bound()) == (204, [])


def test_what_is_no_text_stays_none(world: World, client: Client) -> None:
    assert client.call("CREATE", {"dead_letter_address": b"dlq"}, type=QUEUE, name="x")[0] == 400
    assert client.call("CREATE", {"selector": b"1 = 1"}, type="org.sluice.bridge", name="a->b")[0] == 400
    assert client.call("CREATE", {"durable": 1}, type="org.sluice.bridge", name="a->b")[0] == 400
    assert [name for name in world.engine.topology.nodes if "memory" in name] == []


def test_a_body_that_is_no_map_is_refused(client: Client) -> None:
    assert client.call("CREATE", "max_count=5", type=QUEUE, name="x")[0] == 400


def test_query_pages_through_more_than_one_answer_holds(world: World, client: Client) -> None:
    for number in range(1200):
        world.queue(f"q{number}")
    names: list[str] = []
    while True:
        wanted = {"attributeNames": ["name"]}
        status, _, body = client.call("QUERY", wanted, entityType=QUEUE, offset=len(names))
        assert (status, body["attributeNames"]) == (200, ["name"])
        counts = client.counts(wanted, entityType=QUEUE, offset=len(names))
        assert counts == (len(body["results"]), 1200)
        if not body["results"]:
            break
        assert len(body["results"]) <= 1000
        names += [row[0] for row in body["results"]]
    assert names == [f"q{number}" for number in range(1200)]


def test_a_wide_query_is_answered_in_smaller_pages(world: World, client: Client) -> None:
    for number in range(300):
        world.queue(f"q{number}")
    body = client.call("QUERY", {}, type=QUEUE, count=10**9)[2]
    assert len(body["results"]) == MOST_CELLS // len(body["attributeNames"]) < 300
    assert client.counts({}, type=QUEUE, count=10**9)[1] == 300


def test_a_list_can_be_sorted_and_filtered_by_the_broker(world: World, client: Client) -> None:
    for number in range(30):
        node = world.queue(f"q{number:02}", max_count=100)
        node.rate_in, node.rate_out = float(number % 7), float(number % 5)
    world.queue("other").rate_in = 99.0
    wanted = {"attributeNames": ["name", "rate_in"]}
    body = client.call("QUERY", wanted, type=QUEUE, sort="-rate_in", filter="Q", count=2, offset=1)[2]
    assert body["results"] == [["q13", 6.0], ["q20", 6.0]]
    assert client.counts(wanted, type=QUEUE, sort="-rate_in", filter="q", count=2) == (2, 30)
    assert client.call("QUERY", wanted, type=QUEUE, sort="rate_in+rate_out", count=1)[2]["results"] == [
        ["q00", 0.0]
    ]
    assert client.call("QUERY", wanted, type=QUEUE, filter="q*9")[2]["results"][0][0] == "q09"
    for sort in ("max_count", "nonsense", "name+rate_in"):
        status, reason, _ = client.call("QUERY", wanted, type=QUEUE, sort=sort)
        assert (status, "can't sort by" in reason) == (400, True)
    assert client.call("QUERY", {}, type="org.sluice.link", sort="name")[0] == 400
    assert client.call("QUERY", {}, sort="name")[0] == 400


def test_the_node_describes_itself(client: Client) -> None:
    assert QUEUE in client.call("GET-TYPES")[2]
    attributes = client.call("GET-ATTRIBUTES", entityType=QUEUE)[2]
    assert list(attributes) == [QUEUE]
    assert "flowStopped" in attributes[QUEUE]
    assert "why" in client.call("GET-OPERATIONS")[2][BROKER]
    assert client.call("GET-MGMT-NODES")[2] == []


def test_every_operation_it_has_is_listed(client: Client) -> None:
    listed = {name for known in client.call("GET-OPERATIONS")[2].values() for name in known}
    assert listed == set(client.node.operations)


def test_the_brokers_own_operations(world: World, client: Client) -> None:
    node = world.queue("orders", flow_stop_count=2)
    world.fill(node, world.producer(node), 2)
    assert client.call("stop-producers", {"target": "orders"}, type=BROKER)[2] == {"nodes": ["orders"]}
    assert client.call("start-producers", {}, type=BROKER, target=">")[2] == {"nodes": ["orders"]}
    [why] = client.call("why", {"address": "orders"}, type=BROKER)[2]["answers"]
    assert (why["cause"], why["depth"], why["eta_s"]) == ("flow_stop_count", 2, None)
    found = client.call("explain", {"address": "orders"}, type=BROKER)[2]
    assert {"name": "flow_stop_count", "value": 2, "origin": "argument"} in found["settings"]
    assert client.call("purge", {}, type=QUEUE, name="orders")[2] == {"purged": 2}
    text = 'policies: [{match: "orders", max_count: 9}]'
    assert client.call("apply", {"text": text, "file": "f.yaml"}, type=BROKER)[2] == {"changed": ["orders"]}
    status, reason, _ = client.call("apply", {"text": "policies: [{}]", "file": "f.yaml"}, type=BROKER)
    assert (status, reason.startswith("f.yaml:1:")) == (400, True)


def test_the_broker_says_who_it_is(client: Client) -> None:
    body = client.call("READ", type=BROKER, name="whatever")[2]
    assert (body["pid"], body["memory_bytes"], body["uptime_s"], body["connections"]) == (42, 1 << 20, 5.0, 0)


@pytest.mark.parametrize("correlation", [None, 0, "c", b"bytes"])
def test_the_answer_bears_the_correlation_id_or_else_the_message_id(client: Client, correlation: Any) -> None:
    request = Message(properties={"operation": "GET-TYPES"}, reply_to="back", id="7")
    if correlation is not None:
        request.correlation_id = correlation
    reply = client.node.handle(bytes(request.encode()))
    assert reply is not None
    assert reply[0] == "back"
    message = Message()
    message.decode(reply[1])
    found = message.correlation_id
    expected = "7" if correlation is None else correlation
    assert (bytes(found) if isinstance(found, memoryview) else found) == expected


def test_without_a_reply_to_nobody_is_answered(client: Client) -> None:
    assert client.node.handle(bytes(Message(properties={"operation": "GET-TYPES"}).encode())) is None


def test_what_is_too_large_or_no_message_is_not_answered(client: Client) -> None:
    assert client.node.handle(bytes(LARGEST_REQUEST + 1)) is None
    assert client.node.handle(b"\x00\x53\x77") is None
    assert client.node.handle(b"") is None


def test_a_bug_of_ours_is_answered_and_logged(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(name: str, dry_run: bool) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(world.model.messages, "purge", broken)
    assert client.call("purge", {}, name="orders")[0] == 500
    assert "RuntimeError: broken" in caplog.text


def test_a_body_nested_beyond_sense_raises_nothing(client: Client) -> None:
    head = bytes(Message(properties={"operation": "READ"}, reply_to="back").encode())
    for depth in (50, 5_000, 100_000):
        body = b"\x45"
        for _ in range(depth if depth < 1000 else 200):
            body = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + body
        client.node.handle(head + b"\x00\x53\x77" + body)
        client.node.handle(head + b"\x00\x53\x77" + b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01" * depth)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_bytes_at_random_raise_nothing(data: bytes) -> None:
    ManagementNode(World().model).handle(data)


@settings(deadline=None)
@given(st.data())
def test_a_request_with_some_bytes_changed_raises_nothing(data: st.DataObject) -> None:
    request = Message(
        properties={"operation": "CREATE", "type": symbol(QUEUE), "name": "orders", "n": 1.5},
        body={"max_count": 10, "list": [1, "two", None, b"x"], "map": {"a": True}},
        reply_to="back",
        id="7",
    )
    encoded = bytearray(request.encode())
    for _ in range(data.draw(st.integers(1, 8))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    ManagementNode(World().model).handle(bytes(encoded))
