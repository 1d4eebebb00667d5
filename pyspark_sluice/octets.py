"""The bytes of many messages, read at many offsets at once.

Offsets are arrays of int64. One beyond the buffer is read as if it were the nearest within, so nothing
outside is touched. Sizes in a message may lie: a caller compares where a value ends with where it may end
before it uses what it read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .unpack import WIDTHS

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

# A word is four bytes, the least a section takes.
WORD = 4
# Arrow counts the bytes of an array in 31 bits, and text may be longer than what it was encoded as.
MOST_BYTES = 1 << 28
# Behind every message: the end of a value that has no width.
FAR = 1 << 40


class Octets:
    """``buffer``, of WORD to MOST_BYTES bytes."""

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self._bytes = np.frombuffer(buffer, np.uint8)
        self._arrow = pa.py_buffer(buffer)

    def byte(self, at: Ints) -> Bytes:
        """The byte at each offset."""
        return self._bytes.take(at, mode="clip")

    def word(self, at: Ints) -> Ints:
        """The four bytes at each offset as an unsigned number."""
        return self.windows(at, WORD).view(">u4").astype(np.int64)

    def windows(self, at: Ints, width: int) -> npt.NDArray[np.void]:
        """The ``width`` bytes at each offset, which has to be no more than the buffer's length."""
        last = len(self.buffer) - width
        every = np.ndarray((last + 1,), f"V{width}", self.buffer, 0, (1,))
        return every[np.minimum(at, last)]

    def rows(self, at: Ints, width: int) -> Bytes:
        """The same as an array of bytes, one row of ``width`` for each offset."""
        return self.windows(at, width).view(np.uint8).reshape(len(at), width)

    def behind(self, at: Ints, codes: Bytes) -> Ints:
        """The offset behind each value, whose constructors are ``codes`` (AMQP 1.0 §1.2). It is FAR or more
        where there is no such constructor, and where the value is a described one."""
        ends = at + _WIDTHS.take(codes)
        sized = _SIZED.take(codes)
        most = int(sized.max(initial=0))
        if most:
            self._add_sizes(ends, at, sized, most)
        return ends

    def _add_sizes(self, ends: Ints, at: Ints, sized: Bytes, most: int) -> None:
        if int(sized.min()) == most:
            ends += self.byte(at + 1) if most == 1 else self.word(at + 1)
            return
        short = np.flatnonzero(sized == 1)
        ends[short] += self.byte(at[short] + 1)
        long = np.flatnonzero(sized == WORD)
        ends[long] += self.word(at[long] + 1)

    def slices(self, starts: Ints, ends: Ints) -> pa.Array:
        """A binary array of the bytes from each start to its end; they ascend and don't overlap."""
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        bounds = np.empty(2 * count, np.int32)
        bounds[0::2], bounds[1::2] = starts, ends
        # In place, with the gaps as elements of their own; taking the others copies each once.
        all_of_them = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), self._arrow]
        )
        return all_of_them.take(pa.array(np.arange(0, 2 * count, 2)))


def _by_code(of_width: dict[int, int], other: int) -> list[int]:
    """A number for each constructor, from that of its width in WIDTHS."""
    return [of_width.get(WIDTHS.get(code >> 4, -FAR), other) for code in range(256)]


# By constructor: the bytes it and what follows of a fixed width take; and how wide the size is that follows.
_WIDTHS = np.array(
    _by_code({width: 1 + abs(width) for width in WIDTHS.values()}, FAR),
    np.int64,
)
_SIZED = np.array(_by_code({-1: 1, -4: WORD}, 0), np.uint8)
