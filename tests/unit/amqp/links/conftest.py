"""A live broker for each test."""

from collections.abc import Iterator

import pytest

from tests.unit.amqp.live import LiveBroker


@pytest.fixture
def broker() -> Iterator[LiveBroker]:
    made = LiveBroker()
    yield made
    made.close()
