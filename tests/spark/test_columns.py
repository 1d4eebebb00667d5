"""Messages that are read all at once become the rows that they become one after the other."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from broker.codec.offsets import with_offset
from pyspark_sluice import decode, layouts
from pyspark_sluice.decode import Decoder
from pyspark_sluice.incoming import COLUMNS, default_schema
from pyspark_sluice.octets import Octets
from pyspark_sluice.rows import Filling
from pyspark_sluice.unpack import READERS, WIDTHS, MalformedError

TEXT = StringType()
ITEMS: list[DataType] = [
    TEXT,
    BinaryType(),
    BooleanType(),
    ByteType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    VariantType(),
]


@contextmanager
def _whatever_it_costs(at_once: bool) -> Iterator[None]:
    """Messages are read at once, however few are usual, or one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "FEWEST_ROWS", 1 if at_once else 1 << 40)
        patch.setattr(decode, "MOST_UNUSUAL", 1.0)
        patch.setattr(layouts, "FEWEST_MAPS", 2)
        yield


def _outcome(messages: Sequence[bytes], wanted: StructType, lenient: bool, at_once: bool) -> Any:
    """Types and values of a batch, or the exception's; a timestamp as its number and NaN as a word."""
    with _whatever_it_costs(at_once):
        decoder = Decoder(wanted, lenient=lenient)
        try:
            batch = decoder.batch(b"".join(messages), [len(each) for each in messages])
        except MalformedError as error:
            return type(error), str(error)
    batch.validate(full=True)
    assert batch.schema.equals(decoder.arrow)
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns
    ]
    return [repr(column.to_pylist()) for column in columns]


def _same(messages: Sequence[bytes], wanted: StructType) -> None:
    for lenient in (True, False):
        assert _outcome(messages, wanted, lenient, True) == _outcome(messages, wanted, lenient, False)


# --- values and sections at random


def _sized(code: int, content: bytes) -> bytes:
    """A value of a constructor whose size stands before it."""
    if WIDTHS[code >> 4] == -1 and len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code | 0x10,)) + struct.pack(">I", len(content)) + content


def _compound(code: int, items: Sequence[bytes], *, wide: bool = False) -> bytes:
    """A list (0xC0) or a map (0xC1)."""
    content = b"".join(items)
    if wide or len(content) > 254 or len(items) > 255:
        return bytes((code | 0x10,)) + struct.pack(">II", len(content) + 4, len(items)) + content
    return bytes((code, len(content) + 1, len(items))) + content


def _fixed(codes: Sequence[int]) -> st.SearchStrategy[bytes]:
    """Constructors and as many bytes as they say, at random."""
    widths = {code: WIDTHS[code >> 4] for code in codes}
    return st.sampled_from(codes).flatmap(
        lambda code: st.binary(min_size=widths[code], max_size=widths[code]).map(
            lambda rest: bytes((code,)) + rest
        )
    )


# All that can be told how wide they are, of which some are no values; and those that senders write.
fixed = _fixed([code for code in range(0x40, 0xA0) if code >> 4 in WIDTHS])
usual_fixed = _fixed([code for code in READERS if 0x40 <= code < 0xA0 and code not in (0x45, 0x73)])
texts = st.text(max_size=8).map(str.encode) | st.just(b"long " * 60)
strings = st.builds(_sized, st.sampled_from([0xA0, 0xA1, 0xA3]), texts)
wide_strings = st.builds(
    lambda code, content: bytes((code,)) + struct.pack(">I", len(content)) + content,
    st.sampled_from([0xB0, 0xB1, 0xB3]),
    texts,
)
not_utf8 = st.builds(_sized, st.sampled_from([0xA0, 0xA1, 0xA3]), st.binary(max_size=5))
usual = usual_fixed | strings
scalars = usual | wide_strings | not_utf8 | fixed
nested = st.recursive(
    scalars,
    lambda inner: (
        st.builds(_compound, st.just(0xC0), st.lists(inner, max_size=3), wide=st.booleans())
        | st.builds(
            lambda pairs: _compound(0xC1, [item for pair in pairs for item in pair]),
            st.lists(st.tuples(inner, inner), max_size=2),
        )
        | inner.map(lambda value: b"\x00\x53\x10" + value)
        | st.just(b"\xe0\x04\x02\x54\x01\x02")
        | st.just(b"\x45")
    ),
    max_leaves=4,
)
# Any value, most of them usual.
items = st.integers(0, 40).flatmap(
    lambda chance: (
        nested if chance == 0 else not_utf8 if chance == 1 else wide_strings if chance < 4 else usual
    )
)
KEYS = [b"\xa1\x01a", b"\xa3\x01b", b"\xa3\x13x-opt-sluice-offset", b"\xb1\x00\x00\x00\x01w", b"\xa1\x01\xff"]
keys = st.sampled_from(KEYS) | items


@st.composite
def lists(draw: st.DrawFn, longest: int) -> bytes:
    """A list of a section's fields."""
    if draw(st.integers(0, 9)) == 0:
        return b"\x45"
    found = draw(st.lists(st.just(b"\x40") | items, max_size=longest))
    return _compound(0xC0, found, wide=draw(st.booleans()))


@st.composite
def maps(draw: st.DrawFn) -> bytes:
    """A map of a section, most of them with keys that are text."""
    if draw(st.integers(0, 9)) == 0:
        odd = b"\x45" if draw(st.integers(0, 9)) == 0 else b"\xc1\x02\x01\x40"
        return draw(st.sampled_from([b"\x40", b"\xc1\x01\x00", odd]))
    if draw(st.integers(0, 3)):
        pairs = [(key, draw(items)) for key in KEYS[: draw(st.integers(0, 5))]]
        pairs += pairs[:1] if draw(st.integers(0, 9)) == 0 else []
    else:
        pairs = draw(st.lists(st.tuples(keys, items), max_size=4))
    return _compound(0xC1, [item for pair in pairs for item in pair], wide=draw(st.booleans()))


def _section(code: int, value: bytes, spelt: bool = False) -> bytes:
    return (b"\x00\x80" + bytes(7) if spelt else b"\x00\x53") + bytes((code,)) + value


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message of any sections, nearly always in their order."""
    sections = [
        (0x70, lists(6)),
        (0x71, maps()),
        (0x72, maps()),
        (0x73, lists(14)),
        (0x74, maps()),
        (draw(st.sampled_from([0x75, 0x75, 0x75, 0x76, 0x77])), strings | wide_strings | items),
        (0x78, maps()),
    ]
    found = []
    for code, values in sections:
        for _ in range(draw(st.sampled_from([0, 0, *[1] * 30, 2]))):
            found.append(_section(code, draw(values), draw(st.integers(0, 60)) == 0))
    if draw(st.integers(0, 30)) == 0:
        found = draw(st.permutations(found))
    return b"".join(found)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Messages of a few templates, some of them often."""
    templates = draw(st.lists(messages(), min_size=1, max_size=5))
    return draw(st.lists(st.sampled_from(templates), min_size=1, max_size=12))


@st.composite
def schemas(draw: st.DrawFn) -> StructType:
    """Some columns, in any order, as any type they can be read as."""
    names = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, unique=True) | st.just(list(COLUMNS)))
    wanted = StructType()
    for name in names:
        type_ = COLUMNS[name].type
        if name == "body":
            type_ = draw(st.sampled_from([TEXT, BinaryType()]))
        elif isinstance(type_, MapType):
            type_ = MapType(TEXT, draw(st.sampled_from(ITEMS)))
        wanted.add(name, type_)
    return wanted


@st.composite
def mutated(draw: st.DrawFn) -> list[bytes]:
    """A batch in which some bytes are others, some lack, and some are too many."""
    found = []
    for message in draw(batches()):
        bad = bytearray(message)
        for _ in range(draw(st.integers(0, 2))):
            if bad:
                at = draw(st.integers(0, len(bad) - 1))
                bad[at] = draw(st.sampled_from([0, 1, 3, 0x40, 0x45, 0x53, 0xA1, 0xC0, 0xD0, 0xFF]))
        kept = draw(st.integers(0, len(bad))) if draw(st.integers(0, 4)) == 0 else len(bad)
        found.append(bytes(bad[:kept]) + (b"\x00" if draw(st.integers(0, 9)) == 0 else b""))
    return found


@given(batches(), schemas())
def test_any_messages_become_the_rows_they_become_one_by_one(batch: list[bytes], wanted: StructType) -> None:
    _same(batch, wanted)


@given(mutated(), schemas())
def test_any_bytes_do(batch: list[bytes], wanted: StructType) -> None:
    _same(batch, wanted)


@given(st.data())
def test_every_value_does_as_every_type(drawing: st.DataObject) -> None:
    """The same fields with values of other constructors, so that columns are of pieces."""
    drawn = drawing.draw(st.lists(scalars, min_size=2, max_size=20))
    wanted = drawing.draw(schemas())
    fields = [_section(0x70, _compound(0xC0, [value] * 5)) for value in drawn]
    properties = [_section(0x73, _compound(0xC0, [value] * 13)) for value in drawn]
    maps_ = [_section(0x74, _compound(0xC1, [b"\xa1\x01k", value])) for value in drawn]
    bodies = [_section(0x77, value) for value in drawn]
    _same(fields + properties + maps_ + bodies, wanted)
    parts = zip(fields, properties, maps_, bodies, strict=True)
    _same([b"".join(sections) for sections in parts], wanted)


PAIR = b"\xa1\x01a\xa1\x01x"
LIES = {
    "a list with more fields than bytes": _section(0x73, b"\xc0\x04\x02\xa1\x01x"),
    "one whose last field is longer than it": _section(0x73, b"\xc0\x03\x01\xa1\x09"),
    "one without a byte for its count": _section(0x70, b"\xc0\x00"),
    "a wide one without bytes for its count": _section(0x70, b"\xd0\x00\x00\x00\x01\x01"),
    "a null that is to be a list": _section(0x73, b"\x40"),
    "a map with an item and no bytes": _section(0x74, b"\xc1\x01\x01"),
    "a map with more items than bytes": _section(0x74, b"\xc1\x07\x04" + PAIR),
    "a map with bytes behind its items": _section(0x74, b"\xc1\x08\x02" + PAIR + b"\x40"),
    "a map with half a pair": _section(0x74, b"\xc1\x07\x03" + PAIR),
    "a map with the same key twice": _section(0x74, b"\xc1\x0d\x04" + PAIR + b"\xa1\x01a\xa1\x01y"),
    "two keys that only look alike": _section(
        0x74, b"\xc1\x0d\x04\xa1\x01\xff\xa1\x01x\xa1\x01\xfe\xa1\x01y"
    ),
    "a symbol that is no UTF-8": _section(0x74, b"\xc1\x07\x02\xa1\x01a\xa3\x01\xff"),
    "a string that is no UTF-8": _section(0x74, b"\xc1\x07\x02\xa1\x01a\xa1\x01\xff"),
    "a list for a map": _section(0x72, b"\x45"),
    "a map of forty pairs": _section(0x74, _compound(0xC1, [PAIR[:3] + b"\xa1\x01x"] * 40)),
    "sections in another order": _section(0x74, b"\xc1\x01\x00") + _section(0x70, b"\x45"),
    "a section twice": _section(0x73, b"\xc0\x04\x01\xa1\x01x") + _section(0x73, b"\xc0\x04\x01\xa1\x01y"),
    "no bytes": b"",
    "a section without a value": b"\x00\x53\x75",
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("behind", [b"", _section(0x75, b"\xa0\x01b")])
def test_messages_that_lie_do(lie: str, behind: bytes) -> None:
    """Alone, and among others: what follows may be what they claim to have."""
    wanted = StructType()
    for name, column in COLUMNS.items():
        wanted.add(name, column.type)
    lying = LIES[lie] + behind
    _same([lying] * 3, wanted)
    _same([_of_stream(1), lying, _of_stream(2), lying, b"\xa1\x01x" * 9], wanted)


def test_keys_that_begin_alike_are_others() -> None:
    wanted = StructType().add("application_properties", MapType(TEXT, TEXT))
    found = [
        _section(0x74, _compound(0xC1, [key, b"\xa1\x01x"])) for key in (PAIR[:3], b"\xa1\x02ab", b"\xa1\0")
    ]
    _same(found * 5, wanted)
    _same(found[1:] * 5, wanted)
    assert "('ab', 'x')" in _outcome(found * 5, wanted, False, True)[0]


# --- what is read at once, and what isn't


def _of_stream(number: int, size: int = 200, **given_: Any) -> bytes:
    message = Message(body=bytes(size), id=f"m-{number}", subject="s", properties={"n": number}, **given_)
    message.inferred = True
    message.durable = True
    return with_offset(bytes(message.encode()), number)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The messages that weren't read with the others."""
    found: list[bytes] = []
    message = Filling.message

    def noted(filling: Filling, buffer: bytes, at: int, end: int, row: int) -> None:
        found.append(buffer)
        message(filling, buffer, at, end, row)

    monkeypatch.setattr(Filling, "message", noted)
    return found


def test_a_streams_messages_are_all_read_at_once(one_by_one: list[bytes]) -> None:
    # Numbers of one, four and eight bytes, and bodies whose sizes have one byte and four.
    batch = [_of_stream(number**4, 200 + number) for number in range(500)]
    batch[7] = _of_stream(7, 7, correlation_id=7)
    got = Decoder(default_schema()).batch(b"".join(batch), [len(each) for each in batch]).to_pylist()
    assert one_by_one == []
    assert got[7]["correlation_id"] == "7"
    assert [len(row["body"]) for row in got] == [*range(200, 207), 7, *range(208, 700)]
    assert [row["message_id"] for row in got] == [f"m-{number**4}" for number in range(7)] + ["m-7"] + [
        f"m-{number**4}" for number in range(8, 500)
    ]
    assert dict(got[499]["annotations"])["x-stream-offset"] == str(499**4)
    assert dict(got[499]["application_properties"]) == {"n": str(499**4)}


def test_an_unusual_message_goes_alone(one_by_one: list[bytes]) -> None:
    batch = [_of_stream(number) for number in range(300)]
    batch[0] = _section(0x75, b"\xa0\x01a") + _section(0x75, b"\xa0\x01b")
    batch[299] = b"\x00\xa3\x10amqp:data:binary\xa0\x01n"
    got = Decoder(default_schema()).batch(b"".join(batch), [len(each) for each in batch]).to_pylist()
    assert one_by_one == [batch[0], batch[299]]
    assert [len(row["body"]) for row in got] == [2] + [200] * 298 + [1]
    assert [row["message_id"] for row in got] == [None, *(f"m-{number}" for number in range(1, 299)), None]


def test_a_malformed_message_among_many_is_told_by_its_number(one_by_one: list[bytes]) -> None:
    batch = [_of_stream(number) for number in range(300)]
    batch[150] = batch[150][:-1]
    buffer, sizes = b"".join(batch), [len(each) for each in batch]
    with pytest.raises(MalformedError, match=r"^message 150 of 300 can't be read: 1 bytes are missing$"):
        Decoder(default_schema()).batch(buffer, sizes)
    got = Decoder(default_schema(), lenient=True).batch(buffer, sizes).to_pylist()
    assert set(got[150].values()) == {None}
    assert [row["message_id"] for row in got[149:152]] == ["m-149", None, "m-151"]
    assert len(one_by_one) == 2


def test_messages_most_of_which_are_unusual_are_not_walked_over_and_over(one_by_one: list[bytes]) -> None:
    batch = [_section(0x75, b"\xa0\x01a") * (1 + (number % 3 > 0)) for number in range(300)]
    got = Decoder(default_schema()).batch(b"".join(batch), [len(each) for each in batch]).to_pylist()
    assert len(one_by_one) == 300
    assert [row["body"] for row in got[:3]] == [b"a", b"aa", b"aa"]


def test_sizes_may_be_an_array_of_any_kind() -> None:
    batch = [_of_stream(number) for number in range(200)]
    sizes = [len(each) for each in batch]
    decoder = Decoder(default_schema())
    expected = decoder.batch(b"".join(batch), sizes)
    for kind in (np.int64, np.uint32, np.uint64):
        assert decoder.batch(b"".join(batch), np.array(sizes, kind)).equals(expected)
    assert decoder.batch(b"".join(batch[:2]), np.array(sizes[:2])).equals(expected.slice(0, 2))


def test_sizes_that_go_beyond_the_buffer_are_malformed() -> None:
    batch = [_section(0x75, b"\xa0\x01a")] * 200
    sizes = [len(each) for each in batch]
    for wrong in ([*sizes[:-1], 7], [*sizes, 6], [*sizes, 1 << 62, 1 << 62, 1 << 62]):
        with pytest.raises(MalformedError):
            Decoder(default_schema()).batch(b"".join(batch), wrong)


def test_what_lies_beyond_the_buffer_is_read_as_what_is_in_it() -> None:
    octets = Octets(b"\x01\x02\x03\x04\x05")
    at = np.array([0, 1, 4, 1 << 50])
    assert octets.byte(at).tolist() == [1, 2, 5, 5]
    assert octets.word(at).tolist() == [0x01020304, 0x02030405, 0x02030405, 0x02030405]


@given(st.lists(st.binary(max_size=9), max_size=20))
def test_slices_are_the_bytes_between(parts: list[bytes]) -> None:
    gap = b"gap"
    buffer = gap + gap.join(parts) + gap
    ends = np.cumsum([len(part) + len(gap) for part in parts], dtype=np.int64)
    starts = ends - np.array([len(part) for part in parts], np.int64)
    assert Octets(buffer).slices(starts, ends).to_pylist() == parts
