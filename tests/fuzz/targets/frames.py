"""What the broker itself sends, followed beside Proton: the first byte is how many sizes of pieces follow
it."""

from __future__ import annotations

import sys

from broker.amqp.guard.outgoing_frames import OutgoingFrames
from tests.fuzz.build import built_probe
from tests.fuzz.mutate import AMQP_WORDS, havoc, mutate_frames, split_frames
from tests.fuzz.target import Target, cut, expect, with_prefix

sys.path.append(str(built_probe()))

import probe

HEADER = b"AMQP\x00\x01\x00\x00"


def check(data: bytes) -> None:
    count = data[0] % 8 if data else 0
    sizes, stream = data[1 : 1 + count], HEADER + data[1 + count :]
    if any(8 < int.from_bytes(frame[:4], "big") < 12 for frame in split_frames(data[1 + count :])):
        return  # too short for a performative: Proton, whose frames they are, never writes one
    whole = _followed(stream, ())
    expect(whole == _followed(stream, sizes), "in pieces it differs", whole, list(sizes))
    expect(whole == _followed(stream, (1,)), "byte by byte it differs", whole)


def _followed(stream: bytes, sizes: bytes | tuple[int, ...]) -> object:
    direction = OutgoingFrames()
    for piece in cut(stream, sizes):
        probe.watch_outgoing(direction, piece)
    if direction.lost:
        return True
    counts = [direction.transfer_count(channel) for channel in range(256)]
    return direction.rare, direction.position()[0], counts


TARGET = Target(
    "frames",
    check,
    ("amqp/guard/outgoing_frames.pyx",),
    AMQP_WORDS,
    with_prefix(mutate_frames, havoc),
    largest=8192,
    short=1500,
)
