"""A node that can't be restored, as an operator and its clients see it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from proton.utils import LinkDetached

from broker.manage.definitions import Definition
from tests.store.test_set_aside import open_log, redefine
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.terminus import close, connected, flush
from tests.wire.test_cli_wire import sluice

pytestmark = pytest.mark.wire

POLICIES = "policies: [{match: '>', durable: true}]\n"


def test_a_node_that_is_set_aside_is_seen_refused_and_discarded(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    data = tmp_path / "broker" / "data"
    open_log(data, "odd", b"?", "one", "two")
    open_log(data, "gone", b"?", "three")
    open_log(data, "q", Definition("queue", {"dead_letter_address": "odd"}).encode(), "refused")
    broker = RunningBroker(tmp_path / "broker", "", POLICIES, ())
    try:
        api = Api(broker)
        assert [each["name"] for each in api.get("/broker")["set_aside"]] == ["odd", "gone"]
        assert "sluice_set_aside 2" in Api(broker, "").get("/metrics").decode()
        assert api.get("/events?samples=false")[1]["event"] == "set_aside"
        assert any("ERROR" in line and "'odd' can't be restored" in line for line in broker.lines)
        assert "odd" in sluice(broker, "stat", "-g")
        with connected(broker.url) as connection:
            with pytest.raises(LinkDetached) as refused:
                connection.create_sender("odd")
            assert refused.value.condition == "amqp:precondition-failed"
            assert "set aside" in str(refused.value)
            # Dead letters for it wait in the broker.
            receiver = connection.create_receiver("q")
            receiver.receive(20)
            receiver.reject()
            flush(connection)
            close(receiver)
        assert (depth(api, "q"), api.get("/queues/q")["unsettled_msgs"]) == (1, 1)
        assert "1 messages" in sluice(broker, "store", "discard", "gone")
        sluice(broker, "store", "discard", "q", status=1)
        broker.signal(signal.SIGKILL)
        broker.stop()
        redefine(data, "odd", Definition("queue").encode())
        broker = RunningBroker(tmp_path / "broker", "", POLICIES, ())
        api = Api(broker)
        assert api.get("/broker")["set_aside"] == []
        with connected(broker.url) as connection:
            receiver = connection.create_receiver("q")
            receiver.receive(20)
            receiver.reject()
            flush(connection)
            wait_until(lambda: depth(api, "odd") == 3, 20, "the letter to arrive")
    finally:
        broker.stop()


def depth(api: Api, name: str) -> int:
    return int(api.get(f"/queues/{name}")["depth_msgs"])
