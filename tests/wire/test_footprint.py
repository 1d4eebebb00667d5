"""The disk that a full store takes: what docs/operations.md has operators provide is enough."""

from __future__ import annotations

import pytest

from bench.footprint import measure

pytestmark = pytest.mark.wire

MB = 1 << 20


def test_a_full_store_takes_no_more_disk_than_the_rule_provides() -> None:
    """Filled, consumed from at full speed, and with messages nobody consumes between those that go."""
    row = measure(1000, 64 * MB, 32 * MB, seconds=3.0)
    assert row.messages > 60 * MB // 1016, "the store was full"
    assert 1 < row.factor <= row.provided, row
