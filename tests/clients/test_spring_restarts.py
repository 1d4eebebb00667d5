"""A stock Spring Boot application goes on where the broker is stopped or killed in the middle of its work."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.clients.moving import EVERY_S, LISTENERS, broker_at, check, feed, spring, wait_until_over
from tests.wire.conftest import wait_until
from tests.wire.seeing import number_of

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900), pytest.mark.usefixtures("spring_built")]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("listener", ["stock-concurrent", "template"])
def test_ten_thousand_end_where_they_belong_although_the_broker_restarts(
    tmp_path: Path, listener: str, end: signal.Signals
) -> None:
    with broker_at(tmp_path) as broker:
        feed(broker)
        with spring(broker, *LISTENERS[listener]) as moving:
            wait_until(
                lambda: number_of(broker, "invoices", "depth_msgs") > 2000, 300, "some to be moved", EVERY_S
            )
            broker.signal(end)
            broker.stop()
            with broker_at(tmp_path, "--listen", f"amqp://127.0.0.1:{broker.port}") as again:
                wait_until_over(again, moving)
                moving.stop()
                check(again)
