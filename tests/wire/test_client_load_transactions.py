"""The load generator in transactions: what it counts is what the broker has committed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.client.errors import RefusedError
from broker.client.load.load import Job, LoadRun
from broker.errors import OperatorError
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import number_of, queue_of

pytestmark = pytest.mark.wire

FAULTS = ("lost", "duplicated", "unordered", "foreign", "refused")


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker(policies='policies: [{match: "durable.>", durable: true}]')


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
@pytest.mark.parametrize(("transaction", "retire"), [(1, 0), (100, 0), (0, 1), (0, 100), (7, 7), (100, 30)])
def test_a_count_is_committed_once_and_in_order(
    broker: RunningBroker, shape: tuple[int, int], transaction: int, retire: int
) -> None:
    """A count that no transaction's size divides: the rest is committed too."""
    senders, receivers = shape
    job = Job(
        broker.url,
        "durable.counted",
        senders=senders,
        receivers=receivers,
        count=503,
        transaction=transaction,
        retire=retire,
        durable=True,
    )
    result = LoadRun(job).run()
    assert (result["sent"], result["settled"], result["received"]) == (503, 503, 503)
    assert [result[name] for name in FAULTS] == [0] * 5
    queue = queue_of(broker, "durable.counted")
    assert (queue["depth_msgs"], queue["uncommitted_msgs"]) == (0, 0)


def test_so_many_transactions_were_committed(broker: RunningBroker) -> None:
    LoadRun(Job(broker.url, "durable.numbered", count=500, transaction=50, retire=10)).run()
    assert number_of(broker, "broker", "committed_transactions", "broker") == 10 + 50


@pytest.mark.parametrize("given", [{"transaction": 5}, {"retire": 5}])
def test_a_coordinator_that_refuses_ends_the_run(start_broker: StartBroker, given: dict[str, Any]) -> None:
    """The load generator declares more than one transaction ahead."""
    broker = start_broker("limits: {max_transactions: 1}")
    with pytest.raises(RefusedError, match="max_transactions: 1 are open"):
        LoadRun(replace(Job(broker.url, "refused", count=10, stall=2), **given)).run()


@pytest.mark.parametrize("wrong", [{"presettled": True}, {"credit": 9}])
def test_a_transaction_beyond_the_credit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OperatorError, match="a receiver's transaction"):
        Job("amqp://127.0.0.1", retire=10, **wrong)
