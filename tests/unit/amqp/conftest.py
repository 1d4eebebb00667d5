"""A broker of its own for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.amqp.world import AmqpWorld


@pytest.fixture
def world() -> Iterator[AmqpWorld]:
    found = AmqpWorld()
    yield found
    found.close()
