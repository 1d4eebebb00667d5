"""Values of one kind, which stand in many places, as one Arrow array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from . import convert
from .arrays import as_text, plain
from .octets import Bytes, Ints, Mask, Octets
from .places import Places, UnusualError
from .unpack import MalformedError, read

# Some rows of a column, ascending, and their values.
Piece = tuple[Ints, pa.Array]

# How a value is read, by its constructor and what is wanted.
NULL, RAW, WHOLE, FLAG, REAL, UUID, EACH = range(7)

# Widths of integers by constructor (§1.6), negative where they have a sign.
_INTEGERS = {
    **dict.fromkeys((0x43, 0x44), 0),
    **dict.fromkeys((0x50, 0x52, 0x53), 1),
    **dict.fromkeys((0x51, 0x54, 0x55), -1),
    0x60: 2,
    0x61: -2,
    0x70: 4,
    0x71: -4,
    0x80: 8,
    0x81: -8,
}
_TIMESTAMP, _ULONG, _UUID = 0x83, 0x80, 0x98
_FLAGS, _FLOAT, _DOUBLE = (0x41, 0x42, 0x56), 0x72, 0x82
# Milliseconds that are microseconds in 64 bits.
_MOST_MS = ((1 << 63) - 1) // 1000
_DIGITS = np.frombuffer(bytes.fromhex("30313233343536373839616263646566"), np.uint8)


class ValueKind:
    """How the values of a column are read, or those of a map.

    ``convert`` makes a value of ``type`` of one that ``unpack.read`` gave. ``raw``: constructors whose bytes
    are the value as they are, text even where it isn't UTF-8. ``default``: the value of an AMQP null.
    """

    def __init__(
        self, type_: pa.DataType, convert_: convert.Convert, raw: Iterable[int], default: object = None
    ) -> None:
        self.type = type_
        self.convert = convert_
        self.default = plain(type_, [default])
        self.readers = _readers(type_, convert_, raw)


def _readers(type_: pa.DataType, wanted: convert.Convert, raw: Iterable[int]) -> Bytes:
    """The reader for each constructor: EACH where no other gives what ``convert`` would."""
    found = np.full(256, EACH, np.uint8)
    is_text = wanted is convert.text
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_timestamp(type_)
    if is_text or is_number:
        found[list(_INTEGERS)] = WHOLE
    if pa.types.is_timestamp(type_):
        found[_TIMESTAMP] = WHOLE
    if is_text or pa.types.is_boolean(type_):
        found[list(_FLAGS)] = FLAG
    if is_text:
        found[_UUID] = UUID
    if pa.types.is_floating(type_):
        found[_FLOAT] = REAL
    if pa.types.is_float64(type_):
        found[_DOUBLE] = REAL
    found[list(raw)] = RAW
    found[0x40] = NULL
    return found


def spread(count: int, pieces: Sequence[Piece], default: pa.Array) -> pa.Array:
    """The rows of ``pieces`` in one array of ``count``; ``default``, an array of one, for all others."""
    if len(pieces) == 1 and len(pieces[0][0]) == count:
        return pieces[0][1]
    if not pieces:
        return pa.repeat(default[0], count) if default.null_count == 0 else pa.nulls(count, default.type)
    index = np.zeros(count, np.int64)
    behind = 1
    for rows, _ in pieces:
        index[rows] = np.arange(behind, behind + len(rows))
        behind += len(rows)
    return pa.concat_arrays([default, *(found for _, found in pieces)]).take(pa.array(index))


def values(octets: Octets, places: Places, kind: ValueKind) -> pa.Array:
    """The value at each place. Raises UnusualError with the rows of those that can't be read."""
    readers = kind.readers.take(places.codes)
    _leave_wide(octets, places, readers)
    if len(readers) and (readers == readers[0]).all():
        return _read(int(readers[0]), octets, places, kind)
    pieces = []
    for reader in np.unique(readers):
        mask = readers == reader
        pieces.append((np.flatnonzero(mask), _read(int(reader), octets, places.only(mask), kind)))
    return spread(len(readers), pieces, kind.default)


def _leave_wide(octets: Octets, places: Places, readers: Bytes) -> None:
    """Have numbers beyond a signed one of 64 bits read each for itself."""
    wide = (places.codes == _ULONG) & (readers == WHOLE)
    if wide.any():
        readers[wide & (octets.byte(places.at + 1) > 0x7F)] = EACH


def _read(reader: int, octets: Octets, places: Places, kind: ValueKind) -> pa.Array:
    if reader == RAW:
        found = octets.slices(places.at + np.where(places.codes < 0xB0, 2, 5), places.ends)
        return as_text(found) if pa.types.is_string(kind.type) else found
    if reader == WHOLE:
        return _numbers(_integers(octets, places), kind.type)
    if reader == FLAG:
        flags = pa.array(_flags(octets, places))
        return flags.cast(kind.type)
    if reader == REAL:
        return pa.array(_reals(octets, places)).cast(kind.type)
    if reader == UUID:
        return _uuids(octets.rows(places.at + 1, 16))
    if reader == NULL:
        return kind.default.take(pa.array(np.zeros(len(places.rows), np.int64)))
    return _each(octets.buffer, places, kind)


def _each(buffer: bytes, places: Places, kind: ValueKind) -> pa.Array:
    """One value after the other, as ``rows`` would read them."""
    found: list[Any] = []
    unreadable = []
    for row, at, end in zip(places.rows.tolist(), places.at.tolist(), places.ends.tolist(), strict=True):
        try:
            found.append(kind.convert(read(buffer[at:end], 0)[0]))
        except (MalformedError, IndexError):
            unreadable.append(row)
    if unreadable:
        raise UnusualError(np.array(unreadable, np.int64))
    return plain(kind.type, found)


def _by_code(codes: Bytes) -> Iterable[tuple[int, Mask | None]]:
    """Each code there is, and where; None is everywhere."""
    if (codes == codes[0]).all():
        return [(int(codes[0]), None)]
    return [(int(code), codes == code) for code in np.unique(codes)]


def _integers(octets: Octets, places: Places) -> Ints:
    found = np.zeros(len(places.rows), np.int64)
    for code, where in _by_code(places.codes):
        width = -8 if code == _TIMESTAMP else _INTEGERS[code]
        if width:
            at = places.at if where is None else places.at[where]
            form = f">{'i' if width < 0 else 'u'}{abs(width)}"
            found[slice(None) if where is None else where] = octets.windows(at + 1, abs(width)).view(form)
    return found


def _numbers(found: Ints, type_: pa.DataType) -> pa.Array:
    """Integers as numbers of that type, null where they don't fit, or as text."""
    if pa.types.is_string(type_):
        return pa.array(found).cast(type_)
    if pa.types.is_floating(type_):
        return pa.array(found.astype(np.float64)).cast(type_)
    if pa.types.is_timestamp(type_):
        fits = (found >= -_MOST_MS) & (found <= _MOST_MS)
        micros = np.where(fits, found, 0) * 1000
        return pa.array(micros, mask=~fits).cast(type_)
    most = (1 << type_.bit_width - 1) - 1
    fits = (found >= -most - 1) & (found <= most)
    return pa.array(np.where(fits, found, 0), mask=~fits).cast(type_)


def _flags(octets: Octets, places: Places) -> Mask:
    """0x41 is true, 0x42 false, and 0x56 what its byte says."""
    spelt = places.codes == 0x56
    found: Mask = places.codes == 0x41
    return np.where(spelt, octets.byte(places.at + 1) != 0, found) if spelt.any() else found


def _reals(octets: Octets, places: Places) -> np.ndarray[Any, np.dtype[np.float64]]:
    found = np.empty(len(places.rows))
    for code, where in _by_code(places.codes):
        at = places.at if where is None else places.at[where]
        width = 4 if code == _FLOAT else 8
        found[slice(None) if where is None else where] = octets.windows(at + 1, width).view(f">f{width}")
    return found


def _uuids(found: Bytes) -> pa.Array:
    """Sixteen bytes each, as text of 36 characters."""
    count = len(found)
    digits = np.empty((count, 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _DIGITS[found >> 4], _DIGITS[found & 15]
    text = np.full((count, 36), ord("-"), np.uint8)
    for begin, end, shift in ((0, 8, 0), (8, 12, 1), (12, 16, 2), (16, 20, 3), (20, 32, 4)):
        text[:, begin + shift : end + shift] = digits[:, begin:end]
    bounds = np.arange(0, 36 * (count + 1), 36).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(text)])
