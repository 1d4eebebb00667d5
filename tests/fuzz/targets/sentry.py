"""A peer's frames before Proton sees them.

The first byte is how many sizes of pieces follow it; its highest bit says whether windows are opened, as they
are once Proton has answered a begin.
"""

from __future__ import annotations

import sys

from broker.amqp.guard.frame_guard import FrameGuard
from tests.fuzz.build import built_probe
from tests.fuzz.mutate import AMQP_WORDS, havoc, mutate_frames, split_frames
from tests.fuzz.target import Target, cut, expect, with_prefix

sys.path.append(str(built_probe()))

import probe

HEADER = b"AMQP\x00\x01\x00\x00"
OPEN = b"\x00\x00\x00\x11\x02\x00\x00\x00\x00\x53\x10\xc0\x04\x01\xa1\x01x"
# More than a connection may hold back of a frame whose beginning isn't there yet.
MOST_KEPT = 8192
# Dispositions over very many deliveries are handed on a part at a time; those of more parts are not compared.
MOST_PARTS = 64


def check(data: bytes) -> None:
    first = data[0] if data else 0
    sizes, stream = data[1 : 1 + first % 8], data[1 + first % 8 :]
    allows = first >= 128
    whole = _followed(stream, (), allows)
    pieces, single = _followed(stream, sizes, allows), _followed(stream, (1,), allows)
    if whole is not None and pieces is not None and single is not None:
        expect(whole == pieces, "in pieces it differs", whole, list(sizes))
        expect(whole == single, "byte by byte it differs", whole)


def _followed(stream: bytes, sizes: bytes | tuple[int, ...], allows: bool) -> object:
    """What became of it; None where it would go on for long."""
    sentry = FrameGuard()
    passed: list[bytes | tuple[str, str, str]] = []
    passed += probe.watch_incoming(sentry, HEADER + OPEN)
    for frame in split_frames(stream) if allows else [stream]:
        for piece in cut(frame, sizes):
            if sentry.fault is not None:
                break
            passed += probe.watch_incoming(sentry, piece)
            for _ in range(MOST_PARTS):
                if not sentry.more or sentry.fault is not None:
                    break
                sentry.more = False
                passed += probe.watch_incoming(sentry, b"")
            if sentry.more:
                return None
            expect(len(sentry.position()[1]) <= MOST_KEPT, "too much of a frame is held back")
        for channel in range(4) if allows else ():
            sentry.allow(channel, 2048)
    told = [sentry.lost, sentry.fault, sentry.ended, sentry.stolen, sentry.odd, sentry.rare]
    if sentry.fault is not None:
        # What comes behind a fault is nobody's.
        return told
    counts = [sentry.transfer_count(channel) for channel in range(256)]
    faults = [each for each in passed if isinstance(each, tuple)]
    said = b"".join(each for each in passed if isinstance(each, bytes))
    return [*told, sentry.session_echoes, counts, faults, said]


TARGET = Target(
    "sentry",
    check,
    ("amqp/guard/frame_guard.pyx", "amqp/guard/session_rules.pyx", "amqp/guard/session.pyx"),
    AMQP_WORDS,
    with_prefix(mutate_frames, havoc),
    largest=8192,
)
