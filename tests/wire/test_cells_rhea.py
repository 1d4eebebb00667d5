"""rhea, the JavaScript client, with several cells: one queue a connection, handed over to its cell."""

from __future__ import annotations

import pytest

from tests.wire.cells import depths, names_in
from tests.wire.conftest import StartBroker
from tests.wire.test_rhea import Rhea, node

pytestmark = [pytest.mark.wire, pytest.mark.clients]
__all__ = ["node"]


def test_rhea_sends_and_receives_in_every_cell(node: str, start_broker: StartBroker) -> None:
    broker = start_broker(args=("--cells", "3"))
    client = Rhea(node, broker)
    for cell in range(3):
        [name] = names_in(cell, 3, 1)
        for _ in range(2):
            assert client.run("send", name, 500) == {"accepted": 500}
        assert depths(broker, cell)[name] == 1000
        bodies = client.run("receive", name, 1000)["bodies"]
        assert bodies == [*range(500), *range(500)]
    assert "it goes on in cell" in broker.log
