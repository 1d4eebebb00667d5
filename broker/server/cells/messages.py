"""What one cell says to another first, on a Unix socket: what the connection is for. No I/O, no clock.

Layout, big-endian: magic, version, lengths of the text and of the bytes, the text (JSON), the bytes. A
client's socket goes along as a descriptor (SCM_RIGHTS), and behind it a ticket: an eventfd that holds 1. The
cell that has read that 1 may write to the client, and the other one may no more. The answer is one byte.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from broker.amqp.loop.handover import MOST_BYTES, Step
from broker.security.exchange import ListenerTrust
from broker.security.identity import Identity

MAGIC = b"SLUICECL"
VERSION = 2
_HEAD = struct.Struct(">8sBxxxII")
HEAD_BYTES = _HEAD.size
MOST_TEXT = 1 << 18

# A client's connection that goes on in the other cell.
CONNECTION = "connection"
# A connection of the cell's own, by which it passes on links of a client: AMQP follows, and no answer.
LINKS = "links"
# One request over HTTP of the cell that a client of HTTP reached; its answer follows as HTTP has it.
HTTP = "http"
# A queue that goes to the other cell: its content follows in frames (``parcels``).
MOVE = "move"
TAKEN, REFUSED = b"T", b"R"


class MessageError(ValueError):
    """What came is no message of a cell's; the text says why."""


def written(kind: str, fields: Mapping[str, object], data: bytes = b"") -> bytes:
    """Write a message of some kind, with fields for JSON and some bytes."""
    text = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode()
    return _HEAD.pack(MAGIC, VERSION, len(text), len(data)) + text + data


def missing_bytes(received: bytes) -> int:
    """Count the bytes until the message is whole, or more can be said. MessageError if it can't be one."""
    if not MAGIC.startswith(received[: len(MAGIC)]):
        raise MessageError("no message of a cell")
    if len(received) < HEAD_BYTES:
        return HEAD_BYTES - len(received)
    _, version, text, data = _HEAD.unpack_from(received)
    if version != VERSION:
        raise MessageError(f"a message of version {version}, and this cell speaks {VERSION}")
    if text > MOST_TEXT or data > MOST_BYTES:
        raise MessageError(f"a message of {text} and {data} bytes")
    return max(HEAD_BYTES + int(text) + int(data) - len(received), 0)


def read(received: bytes) -> tuple[dict[str, Any], bytes]:
    """Read a whole message: its fields, with their ``kind``, and its bytes. MessageError for no message."""
    _, _, length, _ = _HEAD.unpack_from(received)
    end = HEAD_BYTES + int(length)
    try:
        found = json.loads(received[HEAD_BYTES:end])
    except (ValueError, RecursionError) as fault:
        raise MessageError("a message that can't be read") from fault
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise MessageError("a message without a kind")
    return found, received[end:]


def client_fields(address: str, door: ListenerTrust, identity: Identity, seconds: float) -> dict[str, object]:
    """Return the fields that say who a client is and how it came in."""
    return {
        "address": address,
        "door": asdict(door),
        "identity": {**asdict(identity), "groups": sorted(identity.groups)},
        "seconds": seconds,
    }


def client_of(fields: Mapping[str, Any]) -> tuple[str, ListenerTrust, Identity, float]:
    """Read what ``client_fields`` has made. MessageError where it makes no sense."""
    try:
        identity = Identity(**{**fields["identity"], "groups": frozenset(fields["identity"]["groups"])})
        return str(fields["address"]), ListenerTrust(**fields["door"]), identity, float(fields["seconds"])
    except (KeyError, TypeError, ValueError) as fault:
        raise MessageError("a message without its client") from fault


def step_fields(steps: tuple[Step, ...]) -> tuple[dict[str, object], bytes]:
    """Return the fields and the bytes that have a connection's steps."""
    sizes = [[int(is_ours), len(data)] for is_ours, data in steps]
    return {"steps": sizes}, b"".join(data for _, data in steps)


def steps_of(fields: Mapping[str, Any], data: bytes) -> tuple[Step, ...]:
    """Read the steps that ``step_fields`` has written. MessageError where they aren't the bytes that came."""
    steps: list[Step] = []
    at = 0
    try:
        for is_ours, size in fields["steps"]:
            steps.append((bool(is_ours), data[at : at + size]))
            at += size
    except (KeyError, TypeError, ValueError) as fault:
        raise MessageError("a message without its steps") from fault
    if at != len(data):
        raise MessageError("steps of another length than their bytes")
    return tuple(steps)
