"""Requests to the management node, from the bytes of a request to those of its answer."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message, uint

from broker.amqp.management import Awaited, ManagementNode, Pending
from broker.manage.attributes import PREFIX
from tests.unit.amqp.world import AmqpWorld


@pytest.fixture
def node(world: AmqpWorld) -> ManagementNode:
    return ManagementNode(world.model)


def encoded(operation: str, body: dict[str, object] | None = None, **properties: object) -> bytes:
    message = Message(body=body, properties={"operation": operation, **properties})
    message.reply_to = "me"
    message.id = 42
    return bytes(message.encode())


def answer_to(node: ManagementNode, *args: object, **properties: object) -> Any:
    found = node.handle(encoded(*args, **properties))  # type: ignore[arg-type]
    assert found is not None
    reply_to, data = found
    assert reply_to == "me"
    answer = Message()
    answer.decode(data)
    return answer


def status(answer: Any) -> int:
    return int(answer.properties["statusCode"])


def test_a_queue_is_made_read_and_removed(world: AmqpWorld, node: ManagementNode) -> None:
    named = {"type": f"{PREFIX}queue", "name": "orders"}
    assert status(answer_to(node, "CREATE", {"max_count": 7}, **named)) == 201
    assert answer_to(node, "READ", **named).body["max_count"] == 7
    assert status(answer_to(node, "DELETE", **named)) == 204
    assert status(answer_to(node, "READ", **named)) == 404


@pytest.mark.parametrize(
    ("operation", "properties", "code"),
    [
        ("", {}, 400),
        ("JUGGLE", {}, 501),
        ("READ", {}, 400),
        ("READ", {"type": "org.example"}, 404),
        ("purge", {"name": "nobody"}, 404),
        ("move", {"source": "a", "target": "b", "count": -1}, 400),
        ("purge", {"name": "a", "dry_run": "yes"}, 400),
    ],
)
def test_a_refusal_has_its_status(
    node: ManagementNode, operation: str, properties: dict[str, object], code: int
) -> None:
    answer = answer_to(node, operation, **properties)
    assert status(answer) == code
    assert answer.body == {}


def test_an_answer_is_correlated_by_the_requests_id_where_it_gives_no_other(node: ManagementNode) -> None:
    assert answer_to(node, "GET-TYPES").correlation_id == 42


def test_a_query_is_cut_into_pages(world: AmqpWorld, node: ManagementNode) -> None:
    for name in ("a", "b", "c"):
        world.model.nodes.create("queue", name, {})
    body = {"attributeNames": ["name"]}
    page = answer_to(node, "QUERY", body, entityType=f"{PREFIX}queue", offset=uint(1), count=uint(1))
    assert page.body["results"] == [["b"]]
    assert (page.properties["count"], page.properties["total"]) == (1, 3)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x53\x77\xa1\x02hi", b"x" * 5000])
def test_what_is_no_request_has_no_answer(node: ManagementNode, data: bytes) -> None:
    assert node.handle(data) is None


def test_a_request_over_the_limit_is_not_even_read(world: AmqpWorld) -> None:
    small = ManagementNode(world.model, 100)
    assert small.handle(encoded("GET-TYPES", name="x" * 100)) is None


def test_a_bug_is_one_requests_end(
    node: ManagementNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(node._operations, "GET-TYPES", lambda request: [][0])
    assert status(answer_to(node, "GET-TYPES")) == 500
    assert "the management request 'GET-TYPES' failed" in caplog.text


def test_policies_are_tried_beside_the_loop(node: ManagementNode) -> None:
    waiting: list[Awaited] = []
    text = "policies: [{match: orders, max_count: 3}]"
    found = node.begin(encoded("apply", {"text": text, "dry_run": True}), on_wait=waiting.append)
    assert isinstance(found, Pending)
    assert found.dry_run
    refused: Any = Message()
    refused.decode(found.refused("too much"))
    assert status(refused) == 409
    assert not waiting
