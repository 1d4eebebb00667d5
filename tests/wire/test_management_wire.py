"""Managing a running broker through Proton's own client, as anybody's tool would."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

from broker.codec.owned import owned
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until

pytestmark = pytest.mark.wire

QUEUE = "org.sluice.queue"
BROKER = "org.sluice.broker"


class Tool:
    """A management client made of Proton's blocking classes."""

    def __init__(self, url: str) -> None:
        self.connection = BlockingConnection(url, timeout=10)
        self.requests = SyncRequestResponse(self.connection, "$management")

    def call(self, operation: str, body: Any = None, **properties: Any) -> tuple[int, Any]:
        """Status and body; the description instead of an empty body."""
        request = Message(
            properties={"operation": operation, **properties}, body={} if body is None else body
        )
        reply = self.requests.call(request)
        assert reply.properties is not None
        status = int(reply.properties["statusCode"])
        return status, owned(reply.body) if status < 300 else reply.properties["statusDescription"]

    def read(self, name: str, type_: str = QUEUE) -> Any:
        status, body = self.call("READ", type=type_, name=name)
        assert status == 200, body
        return body


@pytest.fixture
def tool(broker: RunningBroker) -> Iterator[Tool]:
    found = Tool(broker.url)
    yield found
    found.connection.close()


def test_a_queue_lives_and_dies(tool: Tool) -> None:
    assert tool.call("CREATE", {"max_count": 10}, type=QUEUE, name="orders")[0] == 201
    assert tool.call("CREATE", {}, type=QUEUE, name="orders")[0] == 409
    assert tool.read("orders")["flow_stop_count"] == 8
    assert (
        tool.call("UPDATE", {"flow_stop_count": 5, "flow_resume_count": 2}, type=QUEUE, name="orders")[0]
        == 200
    )
    assert tool.read("orders")["flow_stop_count"] == 5
    assert tool.call("DELETE", type=QUEUE, name="orders")[0] == 204
    assert tool.call("READ", type=QUEUE, name="orders")[0] == 404


def test_the_broker_and_its_connections(tool: Tool, broker: RunningBroker) -> None:
    body = tool.read("", BROKER)
    assert body["pid"] == broker.pid
    assert body["connections"] == 1
    assert body["memory_bytes"] > 1 << 20
    assert body["uptime_s"] < 60
    _, page = tool.call(
        "QUERY", {"attributeNames": ["container", "peer", "links"]}, entityType="org.sluice.connection"
    )
    [[container, peer, links]] = page["results"]
    assert container == tool.connection.container.container_id
    assert peer.startswith("127.0.0.1:")
    assert links == 2


def test_a_blocked_producer_is_seen_explained_and_freed(tool: Tool) -> None:
    tool.call("CREATE", {"flow_stop_count": 3, "flow_resume_count": 2}, type=QUEUE, name="orders")
    sender = tool.connection.create_sender("orders")
    for _ in range(3):
        sender.send(Message(body="x"))
    wait_until(lambda: bool(tool.read("orders")["blocked_producers"]), 10, "the producer to be blocked")
    read = tool.read("orders")
    assert (read["flowStopped"], read["flowStoppedCount"], read["depth_msgs"]) == (True, 1, 3)
    [why] = tool.call("why", {"address": "orders"}, type=BROKER)[1]["answers"]
    assert (why["subject"], why["cause"], why["depth"], why["threshold"]) == (
        "producer",
        "flow_stop_count",
        3,
        3,
    )
    _, page = tool.call(
        "QUERY", {"attributeNames": ["role", "node", "credit", "blocked"]}, type="org.sluice.link"
    )
    assert ["producer", "orders", 0, True] in page["results"]
    tool.call("UPDATE", {"flow_stop_count": 10, "flow_resume_count": 10}, type=QUEUE, name="orders")
    sender.send(Message(body="y"), timeout=10)
    assert tool.read("orders")["flowStopped"] is False


def test_an_operator_stops_and_starts_producers(tool: Tool) -> None:
    sender = tool.connection.create_sender("orders")
    sender.send(Message(body="x"))
    assert tool.call("stop-producers", {"target": ">"}, type=BROKER) == (200, {"nodes": ["orders"]})
    wait_until(lambda: tool.read("orders")["promised_msgs"] == 0, 10, "credit to be taken back")
    assert tool.read("orders")["flowStoppedBy"] == "operator"
    assert tool.call("start-producers", {"target": ">"}, type=BROKER)[0] == 200
    sender.send(Message(body="y"), timeout=10)
    assert tool.read("orders")["depth_msgs"] == 2
    assert tool.call("purge", {}, type=QUEUE, name="orders") == (200, {"purged": 2})


def test_deleting_a_queue_detaches_its_links(tool: Tool, broker: RunningBroker) -> None:
    other = BlockingConnection(broker.url, timeout=10)
    try:
        sender = other.create_sender("orders")
        sender.send(Message(body="x"))
        assert tool.call("DELETE", type=QUEUE, name="orders")[0] == 204
        with pytest.raises(Exception, match="resource-deleted"):
            sender.send(Message(body="y"), timeout=10)
    finally:
        other.close()


def test_policies_reach_a_running_broker_by_text_and_by_reload(start_broker: StartBroker) -> None:
    broker = start_broker(policies='policies: [{match: "orders", max_count: 100}]\n')
    tool = Tool(broker.url)
    try:
        tool.connection.create_sender("orders")
        assert tool.read("orders")["flow_stop_count"] == 80
        text = 'policies: [{match: "orders", max_count: 50}]'
        assert tool.call("apply", {"text": text, "file": "x.yaml"}, type=BROKER) == (
            200,
            {"changed": ["orders"]},
        )
        assert tool.read("orders")["flow_stop_count"] == 40
        assert tool.call("apply", {"text": "policies: [{match: 1}]", "file": "x.yaml"}, type=BROKER)[0] == 400
        broker.policy_file.write_text('policies: [{match: "orders", max_count: 10}]\n')
        assert tool.call("apply", {}, type=BROKER) == (200, {"changed": ["orders"]})
        assert tool.read("orders")["flow_stop_count"] == 8
        broker.policy_file.write_text('policies: [{match: "orders", kind: topic}]\n')
        status, reason = tool.call("apply", {}, type=BROKER)
        assert status == 400
        assert "'orders' is a queue and can't become a topic" in reason
        assert tool.read("orders")["flow_stop_count"] == 8
    finally:
        tool.connection.close()


def test_nonsense_to_the_management_node_harms_nobody(tool: Tool) -> None:
    sender = tool.connection.create_sender("$management", name="second")
    sender.send(Message(body="no reply-to"))
    sender.send(Message(properties={"operation": "READ"}, reply_to="nowhere", body={}))
    sender.send(
        Message(properties={"operation": 5, "type": ["x"], "name": {"a": 1}}, reply_to="nowhere", body=[1])
    )
    assert tool.read("", BROKER)["name"] == "sluice"


def test_metrics_and_health(tool: Tool, broker: RunningBroker) -> None:
    tool.call("CREATE", {"flow_stop_count": 3}, type=QUEUE, name="orders")
    sender = tool.connection.create_sender("orders")
    for _ in range(3):
        sender.send(Message(body="x"))
    base = f"http://127.0.0.1:{broker.http_port}"
    for path in ("/healthz", "/readyz"):
        with urllib.request.urlopen(base + path, timeout=START_SECONDS) as response:
            assert response.status == 200
    with urllib.request.urlopen(base + "/metrics", timeout=START_SECONDS) as response:
        text = response.read().decode()
    for line in (
        'sluice_queue_depth_messages{queue="orders"} 3',
        'sluice_queue_flow_stopped{queue="orders"} 1',
        'sluice_queue_flow_stopped_total{queue="orders"} 1',
        'sluice_queue_flow_stop_messages{queue="orders"} 3',
        "sluice_connections 1",
    ):
        assert line in text.splitlines()
