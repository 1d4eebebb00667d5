"""Changes made to an input by chance, the same ones for the same seed.

The fuzzer of `make fuzz` has changes of its own, led by what code they reach; these are for the short run in
`make test`, and to keep the outer form of inputs that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

# What AMQP is made of: constructors, sizes at their edges, descriptors of sections and performatives.
AMQP_WORDS = (
    *(
        bytes((each,))
        for each in (0x00, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x50, 0x52, 0x53, 0x54, 0x55, 0x56)
    ),
    *(
        bytes((each,))
        for each in (0x60, 0x70, 0x71, 0x72, 0x80, 0x81, 0x82, 0x83, 0x84, 0x98, 0xA0, 0xA1, 0xA3)
    ),
    *(bytes((each,)) for each in (0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0x7F, 0xFF)),
    *(
        b"\x00\x53" + bytes((each,))
        for each in (*range(0x10, 0x1E), *range(0x23, 0x2C), 0x30, *range(0x70, 0x79))
    ),
    *(each.to_bytes(4, "big") for each in (0, 1, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFB)),
    b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70",
    b"\x00\xa3\x10amqp:header:list",
    b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00",
)


def havoc(
    data: bytes, random: Random, words: Sequence[bytes], other: bytes = b"", largest: int = 4096
) -> bytes:
    """One to eight changes: bits, bytes, numbers, pieces repeated, left out, moved, or taken from
    ``other``."""
    changed = bytearray(data)
    for _ in range(1 << random.randrange(4)):
        _change(changed, random, words, other)
    return bytes(changed[:largest])


def _change(data: bytearray, random: Random, words: Sequence[bytes], other: bytes) -> None:
    at = random.randrange(len(data) + 1)
    end = min(at + (1 << random.randrange(7)), len(data))
    kind = random.randrange(9)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << random.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    elif kind == 2 and at < len(data):
        data[at] = (data[at] + random.choice((-1, 1, -3, 7))) & 0xFF
    elif kind == 3:
        del data[at:end]
    elif kind == 4:
        data[at:at] = data[at:end]
    elif kind == 5 and words:
        word = random.choice(words)
        data[at : at + random.choice((0, len(word)))] = word
    elif kind == 6 and other:
        start = random.randrange(len(other))
        data[at:end] = other[start : start + (1 << random.randrange(8))]
    elif kind == 7:
        data[at:at] = random.randbytes(1 << random.randrange(4))
    else:
        to = random.randrange(len(data) + 1)
        piece = data[at:end]
        del data[at:end]
        data[to:to] = piece


def mutate_frames(data: bytes, random: Random) -> bytes:
    """Change a stream of AMQP frames: whole ones change places, come twice or go, or one changes within."""
    frames = split_frames(data)
    for _ in range(1 << random.randrange(3)):
        if not frames:
            break
        at = random.randrange(len(frames))
        kind = random.randrange(6)
        if kind == 0:
            frames.insert(random.randrange(len(frames) + 1), frames[at])
        elif kind == 1 and len(frames) > 1:
            del frames[at]
        elif kind == 2:
            frames.insert(random.randrange(len(frames)), frames.pop(at))
        elif kind == 3 and len(frames[at]) >= 8:
            # Another channel.
            frames[at] = frames[at][:6] + bytes((0, random.randrange(4))) + frames[at][8:]
        else:
            changed = havoc(frames[at][8:], random, AMQP_WORDS, random.choice(frames))
            frames[at] = (len(changed) + 8).to_bytes(4, "big") + (frames[at][4:8] or b"\x02\0\0\0") + changed
            if random.randrange(4) and len(changed) > 6:
                frames[at] = _with_list_size(frames[at])
    return b"".join(frames)


def split_frames(data: bytes) -> list[bytes]:
    """The frames by their sizes; what is left over is the last."""
    frames = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        end = at + size if 8 <= size <= len(data) - at else len(data)
        frames.append(data[at:end])
        at = end
    return frames


def _with_list_size(frame: bytes) -> bytes:
    """The performative's list says that it goes to the frame's end, where there is nothing behind it."""
    at = 11
    if frame[at : at + 1] == b"\xc0" and len(frame) - at - 2 < 256 and frame[10:11] != b"\x14":
        return frame[: at + 1] + bytes((len(frame) - at - 2,)) + frame[at + 2 :]
    return frame
