"""What a rejected message takes with it to ``deadLetterAddress``: why it was rejected, and where."""

from __future__ import annotations

import time

from proton import Message, symbol, timestamp, uint

from .errors import RefusedError


def annotated(message: bytes, address: str | None, why: RefusedError) -> bytes:
    """The message, its id kept, with the annotations that the broker's own dead letters have."""
    found = Message()
    found.decode(message)
    annotations = dict(found.annotations or {})
    annotations[symbol("x-opt-sluice-dead-letter-reason")] = str(why)
    annotations[symbol("x-opt-sluice-original-address")] = address or found.address or ""
    annotations[symbol("x-opt-sluice-dead-letter-time")] = timestamp(int(time.time() * 1000))
    annotations[symbol("x-opt-sluice-dead-letter-count")] = uint(1)
    found.annotations = annotations
    return bytes(found.encode())
