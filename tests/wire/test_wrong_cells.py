"""Brokers that tests start by pytest's ``--cells``: clients are in a cell that has not their first node."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest
from proton.utils import BlockingConnection

from broker.cli.terminal.ask import rows
from broker.client.request import TOOL, Management
from tests.wire.cells import CELLS, one_in_each
from tests.wire.conftest import StartBroker


def test_a_client_is_in_the_cell_after_its_first_links(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_TEST_CELLS", str(CELLS))
    broker = start_broker()
    names = one_in_each("misplaced")
    with ExitStack() as stack:
        for name in names:
            client = stack.enter_context(closing(BlockingConnection(broker.url, timeout=30)))
            client.create_sender(name)
            with Management(broker.url) as asking:
                links = {row["node"]: row["cell"] for row in rows(asking, "link", ["node"])}
                found = rows(asking, "connection", ["identity", "container"])
            assert links[name] == names.index(name), "the node is where it belongs"
            clients = [row["cell"] for row in found if not str(row["container"]).startswith(TOOL)]
            assert clients.count((names.index(name) + 1) % CELLS) == 1
