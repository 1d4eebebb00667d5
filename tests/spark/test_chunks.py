"""Chunks as a receiver unpacks them, beside the broker that packs them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.offsets import chunk
from pyspark_sluice.chunks import Chunk, chunk_of, clipped
from pyspark_sluice.offsets import offset_of
from pyspark_sluice.unpack import MalformedError

MESSAGES = st.lists(st.binary(max_size=300), min_size=1, max_size=20)


def messages_of(found: Chunk) -> list[bytes]:
    at, messages = found.start, []
    for size in map(int, found.sizes):
        messages.append(found.data[at : at + size])
        at += size
    assert at == len(found.data)
    return messages


@given(MESSAGES, st.integers(0, (1 << 63) - 1), st.integers(0, 25))
def test_it_is_what_was_packed(messages: list[bytes], offset: int, kept: int) -> None:
    packed = chunk(messages, offset)
    found = chunk_of(packed)
    assert offset_of(packed) == offset
    assert messages_of(found) == messages
    assert (len(found), found.nbytes) == (len(messages), sum(map(len, messages)))
    assert messages_of(clipped(found, kept)) == messages[:kept]


@given(MESSAGES, st.data())
def test_what_is_cut_short_or_lies_is_refused(messages: list[bytes], drawn: st.DataObject) -> None:
    packed = chunk(messages, 7)
    cut = drawn.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(MalformedError, match="chunk"):
        chunk_of(packed[:cut])
    with pytest.raises(MalformedError, match="chunk"):
        chunk_of(packed + b"x")
    # The number of messages, and the lengths, are the bytes behind the section's own size.
    head = len(packed) - sum(map(len, messages)) - 4 * len(messages) - 4
    at = drawn.draw(st.integers(head, len(packed) - sum(map(len, messages)) - 1))
    harmed = bytearray(packed)
    harmed[at] ^= 1 << drawn.draw(st.integers(0, 7))
    with pytest.raises(MalformedError, match="chunk"):
        chunk_of(bytes(harmed))


def test_a_chunk_without_messages_is_refused() -> None:
    with pytest.raises(MalformedError, match="0 messages"):
        chunk_of(chunk([], 7))
