"""The table of operations: every one of the management node, on the types that it knows."""

from __future__ import annotations

from broker.amqp.management import ManagementNode
from broker.amqp.operations import NODE, OPERATIONS
from broker.manage.attributes import ROWS
from tests.unit.amqp.world import AmqpWorld


def test_every_type_is_there_and_can_be_read(world: AmqpWorld) -> None:
    assert set(OPERATIONS) == {*ROWS, NODE}
    assert all("READ" in OPERATIONS[type_] for type_ in ROWS)


def test_the_table_lists_what_the_node_carries_out_and_nothing_else(world: AmqpWorld) -> None:
    listed = {operation for operations in OPERATIONS.values() for operation in operations}
    assert listed == set(ManagementNode(world.model).operations)
