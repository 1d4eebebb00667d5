"""Values that were encoded here, as Proton and our own decoder read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Data

from broker.codec import encoding
from broker.codec.owned import owned
from pyspark_sluice.unpack import read

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
LENGTHS = st.sampled_from((0, 1, 255, 256, 70_000))


def decoded(encoded: bytes) -> Any:
    data = Data()
    assert data.decode(encoded) == len(encoded)
    data.rewind()
    data.next()
    return owned(data.get_object())


def both(encoded: bytes) -> Any:
    """The value, which both decoders have to read alike."""
    found = decoded(encoded)
    assert read(encoded, 0) == (found, len(encoded))
    return found


@given(st.text(), LONG, st.binary(), st.booleans(), st.floats(allow_nan=False))
def test_scalars(text: str, number: int, raw: bytes, flag: bool, real: float) -> None:
    assert both(encoding.text(text)) == text
    assert both(encoding.long(number)) == number
    assert both(encoding.binary(raw)) == raw
    assert both(encoding.boolean(flag)) is flag
    assert both(encoding.double(real)) == real
    assert both(encoding.NULL) is None


@given(LENGTHS)
def test_lengths(length: int) -> None:
    wide = length > 255
    for made, code in ((encoding.text("x" * length), 0xA1), (encoding.symbol(b"x" * length), 0xA3)):
        assert made[0] == code + 0x10 * wide
        assert len(both(made)) == length
    made = encoding.binary(bytes(length))
    assert (made[0], both(made)) == (0xA0 + 0x10 * wide, bytes(length))


@given(st.lists(LONG))
def test_lists_and_maps(numbers: list[int]) -> None:
    assert both(encoding.compound(encoding.LIST32, map(encoding.long, numbers), len(numbers))) == numbers
    items = [(encoding.text(str(at)), encoding.long(number)) for at, number in enumerate(numbers)]
    made = encoding.compound(encoding.MAP32, (part for pair in items for part in pair), 2 * len(items))
    assert decoded(made) == {str(at): number for at, number in enumerate(numbers)}


def test_a_long_of_more_than_eight_bytes_is_refused() -> None:
    with pytest.raises(OverflowError):
        encoding.long(1 << 63)


def test_the_connector_has_the_same_files() -> None:
    root = Path(__file__).parents[3]
    for name in ("encoding.py", "scram.py"):
        assert (root / "pyspark_sluice" / name).resolve() == root / "broker/codec" / name
