"""Named readers of a stream: no place goes back, and the slowest is always known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.queues.named_readers import NamedReaders


def test_the_slowest_is_the_least_that_is_stored() -> None:
    readers = NamedReaders()
    assert readers.slowest == -1
    billing, audit = readers.add("billing", 5), readers.add("audit", 3)
    assert readers.slowest == 3
    assert readers.commit(audit, 9)
    assert readers.slowest == 3, "not on disk yet"
    assert readers.store(audit, 9)
    assert readers.slowest == 5
    assert not readers.store(audit, 12), "it wasn't the slowest"
    readers.remove("billing")
    assert readers.slowest == 12
    assert not readers.store(billing, 20), "it is forgotten"
    readers.remove("audit")
    assert readers.slowest == -1
    with pytest.raises(KeyError):
        readers.remove("audit")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["commit", "store"]), st.integers(0, 30))))
def test_no_place_goes_back(steps: list[tuple[str, str, int]]) -> None:
    readers = NamedReaders()
    for name in "abc":
        readers.add(name, 0)
    committed = dict.fromkeys("abc", 0)
    stored = dict.fromkeys("abc", 0)
    for name, verb, offset in steps:
        reader = readers.by_name[name]
        if verb == "commit":
            assert readers.commit(reader, offset) == (offset > committed[name])
            committed[name] = max(committed[name], offset)
        else:
            before = min(stored.values())
            stored[name] = max(stored[name], offset)
            assert readers.store(reader, offset) == (min(stored.values()) != before)
        assert (reader.committed, reader.stored) == (committed[name], stored[name])
        assert readers.slowest == min(stored.values())
