"""Dead letters to try things on: flights that a consumer rejected, and flights that expired."""

from __future__ import annotations

import json
import time

from proton import Message
from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.errors import OperatorError
from examples.flights import table

REJECTED, EXPIRED = 2000, 500
DEAD = "orders.dead"
PATIENCE_S = 30.0


def make(url: str) -> None:
    """Leaves them in ``orders.dead``; the carrier stands in an application property."""
    rows = [json.loads(row) for row in table.rows(REJECTED + EXPIRED)]
    connection = BlockingConnection(url)
    for address, some, ttl in (
        ("orders.rejected", rows[:REJECTED], 0.0),
        ("orders.expired", rows[REJECTED:], 0.001),
    ):
        sender = connection.create_sender(address)
        for row in some:
            named = {"id": f"flight-{row['row']}", "properties": {"carrier": row["carrier"]}}
            sender.send(Message(body=json.dumps(row), ttl=ttl, **named))
    receiver = connection.create_receiver("orders.rejected", credit=100)
    for _ in range(REJECTED):
        receiver.receive(timeout=PATIENCE_S)
        receiver.reject()
    connection.close()
    _await(url, REJECTED + EXPIRED)


def _await(url: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with Management(url) as management:
        while True:
            found = management.call("READ", "org.sluice.queue", DEAD).body
            assert isinstance(found, dict)
            if found["depth_msgs"] >= count:
                return
            if time.monotonic() > deadline:
                raise OperatorError(f"only {found['depth_msgs']} of {count} letters came to {DEAD}")
            time.sleep(0.05)
