"""The brokers that tests start, where they don't start."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import pytest

from tests.wire.conftest import RunningBroker

pytestmark = pytest.mark.wire


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_broker_that_does_not_start_leaves_nothing_open(tmp_path: Path) -> None:
    """What stays open is warned of when it is collected: in another test, which fails.

    One is started before, for the process that brokers are forked from stays.
    """
    with pytest.raises(RuntimeError):
        RunningBroker(tmp_path / "first", "nonsense: 1\n", "", ())
    before = descriptors()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="unknown key 'nonsense'"):
            RunningBroker(tmp_path / "refused", "nonsense: 1\n", "", ())
        gc.collect()
    assert [str(each.message) for each in warned] == []
    assert descriptors() == before
