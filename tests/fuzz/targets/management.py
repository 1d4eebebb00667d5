"""Requests to the management node, on a model with a few nodes: every one is answered, or is no request.

The first byte says how the rest is read: as an encoded message, or as a few words of which a request is made.
"""

from __future__ import annotations

from typing import Any

from proton import Message, symbol

from broker.amqp.management import FAILED, ManagementNode
from broker.amqp.operations import OPERATIONS
from broker.codec.message import scan
from broker.manage.attributes import ROWS
from tests.fuzz.messages import MESSAGES
from tests.fuzz.mutate import AMQP_WORDS
from tests.fuzz.target import Target, expect, without_errors
from tests.unit.manage_world import World

NAMES = """
type name identity entityType attributeNames count offset sort filter target source key address dry_run
arguments text file logger level connection frames seconds samples max_count flow_stop_count when_full
"""
KEYS = NAMES.split()
VERBS = sorted(
    {verb for verbs in OPERATIONS.values() for verb in verbs} | set(ManagementNode(World().model).operations)
)
VALUES: tuple[object, ...] = (
    *("orders", "news", "orders.>", "*", "", "c1", "nobody", "a/b", "10 MB", "depth_msgs > 3", "-depth_msgs"),
    *(
        0,
        1,
        -1,
        2**31,
        2**63 - 1,
        -(2**63),
        True,
        None,
        1.5,
        b"bytes",
        [],
        {},
        ["name", "type"],
        {"name": "x"},
        symbol("s"),
    ),
    *ROWS,
)
POLICIES = "policies:\n  - {match: orders, max_count: 10}\n  - {match: news, kind: topic}\n"


def check(data: bytes) -> None:
    request = _made(data[1:]) if data and data[0] % 2 else data[1:]
    world = World(POLICIES)
    orders = world.queue("orders")
    for message in MESSAGES[1:4]:
        world.engine.intake.put(orders, message, scan(message))
    world.engine.end_turn()
    world.subscribe(world.model.nodes.create("topic", "news", {}), "reader")
    node = ManagementNode(world.model)
    with without_errors():
        answer = node.handle(request)
    if answer is None:
        return
    reply_to, reply = answer
    expect(isinstance(reply_to, str) and reply_to != "", "a reply to nobody")
    read = Message()
    read.decode(reply)
    properties: dict[str, Any] = read.properties or {}
    status = properties.get("statusCode")
    expect(isinstance(status, int) and 200 <= int(status) < 600, "no status", status)
    expect(status != FAILED, "an internal error", read.properties, request)
    world.engine.end_turn()
    expect(not world.model.diagnostics.audit().breaches, "the books don't agree")


def _made(data: bytes) -> bytes:
    """A request of words chosen by the bytes."""
    at = iter(data)
    correlation = next(at, 0)
    properties: dict[str, object] = {"operation": VERBS[next(at, 0) % len(VERBS)]}
    body: dict[str, object] = {}
    for which in at:
        into = body if which & 64 else properties
        into[KEYS[which % len(KEYS)]] = VALUES[next(at, 0) % len(VALUES)]
    plain = {key: value for key, value in properties.items() if not isinstance(value, list | dict)}
    message = Message(reply_to="answers", correlation_id=correlation, properties=plain, body=body or None)
    return bytes(message.encode())


TARGET = Target(
    "management",
    check,
    ("amqp/management.py", "manage/nodes.py", "manage/listing.py", "manage/attributes.py"),
    AMQP_WORDS,
    largest=2048,
    short=600,
)
