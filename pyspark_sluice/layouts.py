"""Maps of many messages as one Arrow array, where many have the same keys in the same order.

1. The first map's keys are the layout. All maps are walked pair by pair as long as they have its keys; their
   values may differ in type and width.
2. The maps that came to their end have a layout in common: the values behind each key are read together.
3. With the others this is done again, a few times at most. The rest are read one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .arrays import maps
from .octets import Ints, Mask, Octets
from .places import Places, UnusualError
from .readers import Piece, ValueKind, values
from .rows import read_map
from .unpack import MalformedError

# So many layouts are tried, with as many pairs at most, each for as many maps at least.
LAYOUTS, MOST_PAIRS, FEWEST_MAPS = 4, 32, 16
_NULL, _MAP8, _MAP32 = 0x40, 0xC1, 0xD1


def map_pieces(octets: Octets, found: Places, kind: ValueKind, type_: pa.MapType) -> list[Piece]:
    """The maps that aren't null; ``kind`` is that of their values. Raises UnusualError."""
    found = found.only(found.codes != _NULL)
    is_map = (found.codes == _MAP8) | (found.codes == _MAP32)
    if not is_map.all():
        raise UnusualError(found.rows[~is_map])
    pieces = []
    for _ in range(LAYOUTS):
        if len(found.rows) < FEWEST_MAPS:
            break
        alike, columns, keys = _alike(octets, found)
        if not alike.any():
            break
        rows = found.rows[alike]
        items = [values(octets, column.only(alike), kind) for column in columns]
        pieces.append((rows, _joined(len(rows), keys, items, type_)))
        found = found.only(~alike)
    if len(found.rows):
        pieces.append((found.rows, _one_by_one(octets.buffer, found, kind, type_)))
    return pieces


def _alike(octets: Octets, found: Places) -> tuple[Mask, list[Places], list[bytes]]:
    """Which maps have the keys of the first one, where their values stand, by key, and the keys. Of maps that
    aren't alike the places mean nothing."""
    short = found.codes == _MAP8
    at = found.at + np.where(short, 3, 9)
    counts = np.where(short, octets.byte(found.at + 2), octets.word(found.at + 5))
    alike = (counts == counts[0]) & (counts <= found.ends - at)
    columns: list[Places] = []
    keys: list[bytes] = []
    if counts[0] > 2 * MOST_PAIRS:
        return np.zeros(len(alike), np.bool_), columns, keys
    for _ in range(int(counts[0]) // 2):
        at, key = _step_over_keys(octets, at, alike)
        codes = octets.byte(at)
        behind = octets.behind(at, codes)
        columns.append(Places(found.rows, at, behind, codes))
        keys.append(key)
        at = behind
        if not alike[0] or key in keys[:-1]:
            return np.zeros(len(alike), np.bool_), columns, keys
    alike &= at == found.ends
    return alike, columns, keys


def _step_over_keys(octets: Octets, at: Ints, alike: Mask) -> tuple[Ints, bytes]:
    """The offsets behind the keys, and the first key. A map with another one, or with one that isn't short
    text, is taken out of ``alike``."""
    codes, sizes = octets.byte(at), octets.byte(at + 1)
    start, size = int(at[0]) + 2, int(sizes[0])
    key = octets.buffer[start : start + size]
    alike &= ((codes == 0xA1) | (codes == 0xA3)) & (sizes == size)
    if len(key) < size:
        alike[0] = False
    elif size:
        alike &= (octets.rows(at + 2, size) == np.frombuffer(key, np.uint8)).all(axis=1)
    return at + 2 + sizes, key


def _joined(count: int, keys: list[bytes], items: list[pa.Array], type_: pa.MapType) -> pa.Array:
    """``count`` maps, all with ``keys``, whose values are given by key."""
    width = len(keys)
    if not width:
        return maps(type_, [{}] * count)
    by_row = items[0]
    if width > 1:
        order = np.arange(width * count).reshape(width, count).T.ravel()
        by_row = pa.concat_arrays(items).take(pa.array(order))
    bounds = pa.array(np.arange(0, width * count + 1, width), pa.int32())
    return pa.MapArray.from_arrays(bounds, _repeated(keys, count), by_row, type=type_)


def _repeated(keys: list[bytes], count: int) -> pa.Array:
    """The keys as text, over and over."""
    valid = [key.decode("utf-8", "replace").encode() for key in keys]
    bounds = np.zeros(len(valid) * count + 1, np.int32)
    np.cumsum(np.tile([len(key) for key in valid], count), out=bounds[1:])
    return pa.Array.from_buffers(
        pa.string(),
        len(valid) * count,
        [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(valid) * count)],
    )


def _one_by_one(buffer: bytes, found: Places, kind: ValueKind, type_: pa.MapType) -> pa.Array:
    pairs: list[Any] = []
    unreadable = []
    for row, at, end in zip(found.rows.tolist(), found.at.tolist(), found.ends.tolist(), strict=True):
        try:
            pairs.append(read_map(buffer[at:end], 0, kind.convert)[0])
        except (MalformedError, IndexError):
            unreadable.append(row)
    if unreadable:
        raise UnusualError(np.array(unreadable, np.int64))
    return maps(type_, pairs)
