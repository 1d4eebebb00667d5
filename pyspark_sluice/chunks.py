"""Chunks of a stream: many messages in one delivery, which saves executors most of a delivery's cost.

A receiver asks for them by the filter ``sluice:stream-chunk-spec``; a broker that knows it sends messages
whose data section has the number of the stream's messages in it, the length of each, and all of them one
behind the other, each number in four bytes and the most significant first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .unpack import MalformedError

# How many bytes of messages are asked for in a chunk.
CHUNK_BYTES = 1 << 18
# The sections before the data: the annotations, whose own size stands in a byte, and a binary's descriptor.
_ANNOTATIONS = b"\x00\x53\x72\xc1"
_DATA = b"\x00\x53\x75\xb0"
_NUMBERS = np.dtype(">u4")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages in order in ``data`` from the byte ``start`` on; ``sizes`` has the bytes of each (int64)."""

    data: bytes
    start: int
    sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def nbytes(self) -> int:
        """Of all its messages."""
        return len(self.data) - self.start


def chunk_of(data: bytes) -> Chunk:
    """The chunk in an encoded message. MalformedError where it is none, or doesn't have what it says."""
    if not data.startswith(_ANNOTATIONS) or len(data) < len(_ANNOTATIONS) + 1:
        raise MalformedError("a chunk's annotations are expected at byte 0")
    at = len(_ANNOTATIONS) + 1 + data[len(_ANNOTATIONS)]
    if data[at : at + 4] != _DATA:
        raise MalformedError(f"a chunk's data are expected at byte {at}")
    at += 4
    size, msgs = (int.from_bytes(data[place : place + 4], "big") for place in (at, at + 4))
    start = at + 8 + 4 * msgs
    if msgs == 0 or at + 4 + size != len(data) or start > len(data):
        raise MalformedError(
            f"a chunk of {len(data)} bytes says that it has {size} bytes and {msgs} messages"
        )
    sizes = np.frombuffer(data, _NUMBERS, msgs, at + 8).astype(np.int64)
    if int(sizes.sum()) != len(data) - start:
        raise MalformedError(f"a chunk has {len(data) - start} bytes of messages, not {int(sizes.sum())}")
    return Chunk(data, start, sizes)


def clipped(chunk: Chunk, msgs: int) -> Chunk:
    """So many of its first messages."""
    if msgs >= len(chunk):
        return chunk
    sizes = chunk.sizes[:msgs]
    return Chunk(chunk.data[: chunk.start + int(sizes.sum())], chunk.start, sizes)
