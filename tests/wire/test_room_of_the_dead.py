"""Disk room of a subscription that ends with a backlog there: given back, and who waited for it goes on."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from broker.client.link import Connection
from broker.codec import sections
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import credit_comes, number_of, numbers_of, queue_of
from tests.wire.terminus import LASTING, connected, detach
from tests.wire.test_budgets import MB, drained, fill

pytestmark = [pytest.mark.wire, pytest.mark.flow]

PAGES = (
    "policies:\n  - {match: news, kind: topic, overflow: page, memory_limit: 1MB}\n"
    "  - {match: deep, overflow: page, memory_limit: 1MB}\n"
)
KEEPS = "policies:\n  - {match: '#', durable: true}\n  - {match: news, kind: topic, overflow: page}\n"
COUNT = 100_000
# How long it may take until the room is there again.
BOUND_S = 20


def figure(broker: RunningBroker, name: str) -> int:
    value = queue_of(broker, "broker", "broker")[name]
    assert isinstance(value, int)
    return value


def on_disk(*paths: Path) -> int:
    """The blocks that these files have."""
    return sum(path.stat().st_blocks * 512 for path in paths)


def test_room_of_a_paging_subscription_whose_connection_dies(start_broker: StartBroker) -> None:
    """100,000 messages are on disk; a queue that pages has the rest of `temp_limit`, and all of it later."""
    broker = start_broker("", PAGES, ("--memory-limit", "16MB", "--temp-limit", "64MB"))
    runs = broker.config_file.parent / "data" / "temp" / "runs"
    plug = socket.create_connection(("127.0.0.1", broker.port))
    slow = Connection(broker.url, container_id="slow", socket=plug)
    slow.receiver("news", credit=1)
    assert fill(broker, "news", COUNT, 400, wait_s=30.0) == COUNT
    [name] = numbers_of(broker, "depth_msgs", "subscription")
    assert number_of(broker, name, "paged_msgs", "subscription") > COUNT * 0.9
    theirs = figure(broker, "temp_bytes")
    before = fill(broker, "deep", COUNT, 1000, wait_s=3.0)
    assert before < COUNT, "temp_limit is reached"
    full, length = figure(broker, "temp_bytes"), runs.stat().st_size
    assert on_disk(runs) > 0.9 * theirs
    with Connection(broker.url) as one, Connection(broker.url) as other:
        held = [one.sender("deep"), other.sender("news")]
        assert not credit_comes(broker, one, held[0], 0.5)
        assert not credit_comes(broker, other, held[1], 0.5)
        plug.shutdown(socket.SHUT_RDWR)
        plug.close()
        assert one.wait_until(held[0].may_send, BOUND_S), "there is room for what the queue pages"
        assert other.wait_until(held[1].may_send, BOUND_S)
    wait_until(lambda: figure(broker, "temp_bytes") <= full - theirs, BOUND_S, "the account to be right")
    # The file's room is used again: as much comes in as went, and it is hardly any longer than it was.
    more = fill(broker, "deep", COUNT, 1000, wait_s=3.0)
    assert more > 0.9 * theirs / 1100
    assert runs.stat().st_size < 1.05 * length
    assert drained(broker, "deep", before + more) == [*range(before), *range(more)]
    wait_until(lambda: on_disk(runs) < MB, BOUND_S, "an empty file")
    assert figure(broker, "temp_bytes") == 0


def test_room_of_a_durable_subscription_that_is_ended(start_broker: StartBroker) -> None:
    """Its backlog is what fills `store_limit`; who waits for that at another node goes on."""
    broker = start_broker("store: {journal_file_size: 1MB}\n", KEEPS, ("--store-limit", "16MB"))
    with connected(broker.url, "app") as app:
        detach(app.create_receiver("news", name="keeps", options=LASTING, credit=0))
    accepted = fill(broker, "news", COUNT, 1000, durable=True, wait_s=4.0)
    assert 12_000 < accepted <= 16 * MB // 1000
    folder = broker.config_file.parent / "data"

    def taken() -> int:
        return on_disk(*(each for each in folder.rglob("*") if each.is_file()))

    before = taken()
    with Connection(broker.url) as source:
        held = source.sender("kept")
        assert not credit_comes(broker, source, held, 0.5)
        with connected(broker.url, "app") as app:
            ended: Any = app.create_receiver("news", name="keeps", options=LASTING, credit=0)
            ended.close()
        assert source.wait_until(held.may_send, BOUND_S)
        held.send(sections.header(durable=True) + sections.binary_body(b"x"), timeout_s=20)
        held.flush(20)
        assert held.accepted == 1
    wait_until(lambda: figure(broker, "store_bytes") < 1000, BOUND_S, "the account to be right")
    again = fill(broker, "kept", COUNT, 1000, durable=True, wait_s=4.0)
    assert again > 0.95 * accepted
    assert taken() < 1.3 * before + 4 * MB, "the room on disk is used again"
