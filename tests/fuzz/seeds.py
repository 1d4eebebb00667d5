"""How the committed inputs were made: `python -m tests.fuzz.seeds` writes those that are missing.

Each is one thing that a peer, an operator or a disk may say, under a name that says what. Inputs that once
were faults stand beside them as `fault-…`, by hand.
"""

from __future__ import annotations

import random
import struct
from typing import Any
from zlib import crc32

from proton import Message, symbol, ulong

from tests.fuzz import corpus
from tests.fuzz.messages import MESSAGES
from tests.wire.encodings import SIMPLE
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    BODY,
    CLOSE,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    MODIFIED,
    OPEN,
    RECEIVER,
    REJECTED,
    SASL_INIT,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Symbol,
    UByte,
    ULong,
    encode,
    frame,
    performative,
    transfer,
)

OPENED = performative(OPEN, "fuzz", None, 65536, 100, 60_000)
BEGUN = OPENED + performative(BEGIN, None, 0, 100, 100, 1000)
Seeds = dict[str, bytes]


def _section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


def messages() -> Seeds:
    header = _section(0x70, b"\xc0\x0b\x05\x41\x50\x04\x70\x00\x00\x27\x10\x42\x52\x03")
    notes = _section(0x71, b"\xc1\x05\x02\xa3\x01d\x40")
    annotations = _section(0x72, b"\xc1\x08\x04\xa3\x01x\x54\x01\xa3\x00\x40")
    properties = _section(
        0x73,
        b"\xd0\x00\x00\x00\x1c\x00\x00\x00\x09\x53\x07\x40\xa1\x02to"
        + b"\x40" * 5
        + b"\x83"
        + struct.pack(">q", 99),
    )
    named = _section(0x74, b"\xc1\x0a\x04\xa1\x01a\x54\x05\xa1\x01b\x41")
    found = {
        "value": BODY,
        "header-only": _section(0x70, b"\x45"),
        "header-every-field": header + BODY,
        "header-list32-with-more-fields": _section(
            0x70, b"\xd0\x00\x00\x00\x0b\x00\x00\x00\x07\x41\x40\x40\x42\x43\x43\x43"
        )
        + BODY,
        "every-section": header
        + notes
        + annotations
        + properties
        + named
        + _section(0x75, b"\xa0\x03abc")
        + _section(0x78, b"\xc1\x01\x00"),
        "descriptors-as-ulong-and-symbol": b"\x00\x80"
        + bytes(7)
        + b"\x70\x45"
        + b"\x00\xa3\x13amqp:properties:list\x45"[:2]
        + b"\x14amqp:properties:list\x45"
        + BODY,
        "many-data-sections": _section(0x75, b"\xa0\x01a") * 40,
        "sequences": _section(0x76, b"\xc0\x03\x01\x54\x01") * 3,
        "described-in-described": _section(0x77, b"\x00\x53\x01" * 31 + b"\x40"),
        "described-too-deep": _section(0x77, b"\x00\x53\x01" * 40 + b"\x40"),
        "lists-in-lists": _section(0x77, b"\xd0\x00\x00\x01\x00\x00\x00\x00\x01" * 20 + b"\x40"),
        "size-of-4-gib": _section(0x75, b"\xb0\xff\xff\xff\xff"),
        "size-that-wraps": _section(0x75, b"\xb0\xff\xff\xff\xf0" + bytes(20)),
        "count-of-4-billion": _section(0x73, b"\xd0\x00\x00\x00\x06\xff\xff\xff\xff\x40\x40"),
        "map-with-an-odd-count": _section(0x74, b"\xc1\x05\x03\xa1\x01a\x40"),
        "key-that-comes-twice": _section(0x74, b"\xc1\x0a\x04\xa1\x01a\x54\x05\xa1\x01a\x41") + BODY,
        "dead-letter": _section(0x72, b"\xc1\x23\x02\xa3\x1ex-opt-sluice-dead-letter-count\x52\x03") + BODY,
    }
    found |= {
        f"type-{name}": _section(0x77, bytes((code,)) + data) for name, code, data in SIMPLE if len(data) < 40
    }
    return found | {f"proton-{number}": each for number, each in enumerate(MESSAGES)}


def _attach(
    name: str, handle: int, role: bool, *, source: object = None, target: object = None, mode: int = 2
) -> bytes:
    count = 0 if role == SENDER else None
    termini = source or Described(SOURCE), target or Described(TARGET)
    return performative(ATTACH, name, handle, role, UByte(mode), UByte(0), *termini, None, None, count)


def _sender(address: str | None, name: str = "out", handle: int = 0, mode: int = 2) -> bytes:
    return _attach(name, handle, SENDER, target=Described(TARGET, [address]), mode=mode)


def _receiver(address: str | None, name: str = "in", handle: int = 1, *more: object) -> bytes:
    return _attach(name, handle, RECEIVER, source=Described(SOURCE, [address, *more]))


def _credit(handle: int = 1, credit: int = 10, *, drain: bool = False, echo: bool = False) -> bytes:
    return performative(FLOW, 0, 100, 0, 100, handle, 0, credit, None, drain, echo)


def _settle(first: int, last: int, state: object, *, settled: bool = True) -> bytes:
    return performative(DISPOSITION, RECEIVER, first, last, settled, state)


def _filtered(selector: str, *, dynamic: bool = False) -> bytes:
    """A receiver with a selector, whose map of filters our frames can't write."""
    text = encode(selector)
    described = b"\x00" + encode(Symbol("apache.org:selector-filter:string")) + text
    entries = encode(Symbol("jms-selector")) + described
    filters = b"\xd1" + (len(entries) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + entries
    address = b"\x40" if dynamic else encode("queue")
    fields = address + b"\x40" * 3 + (b"\x41" if dynamic else b"\x40") + b"\x40" * 2 + filters
    source = b"\x00\x53\x28\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x08" + fields
    parts = [encode("picky"), encode(2), b"\x41\x40\x40", source, encode(Described(TARGET))]
    body = b"".join(parts)
    return frame(b"\x00\x53\x12\xd0" + (len(body) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x07" + body)


def connections() -> Seeds:
    flow = BEGUN + _sender("queue") + _receiver("queue") + _credit()
    sent = b"".join(transfer(number) for number in range(3))
    accepted = Described(ACCEPTED)
    modified = Described(MODIFIED, [True, True])
    request = Message(reply_to="answers", properties={"operation": "QUERY", "type": "org.sluice.queue"})
    asked = bytes(request.encode())
    return {
        "open-and-close": OPENED + performative(CLOSE),
        "begin-and-end": BEGUN + performative(END) + performative(BEGIN, None, 0, 9, 9, channel=1),
        "send-and-receive": flow + sent + _settle(0, 2, accepted) + performative(DETACH, 1, True),
        "rejected-released-modified": flow + sent + _settle(0, 0, Described(REJECTED)) + _settle(1, 1, Described(0x26)) + _settle(2, 2, modified),
        "settled-in-two-steps": flow + sent + _settle(0, 2, accepted, settled=False) + _settle(0, 2, accepted),
        "settled-far-beyond": flow + sent + _settle(0, 4_000_000_000, accepted),
        "settled-backwards": flow + sent + _settle(2, 0, accepted),
        "pre-settled": BEGUN + _sender("queue", mode=1) + transfer(0, settled=True) + transfer(1, settled=True),
        "in-pieces": BEGUN + _sender("queue") + transfer(0, BODY[:3], more=True) + transfer(0, BODY[3:]),
        "aborted": BEGUN + _sender("queue") + transfer(0, BODY[:3], more=True) + transfer(0, b"", aborted=True) + transfer(1),
        "pieces-without-bytes": BEGUN + _sender("queue") + transfer(0, b"", more=True) * 20 + transfer(0),
        "two-links-in-turn": BEGUN + _sender("queue") + _sender("ring", "b", 5) + transfer(0, more=True) + transfer(1, handle=5),
        "no-message": BEGUN + _sender("queue") + transfer(0, b"\xff\xff") + transfer(1, b""),
        "tag-of-33-bytes": BEGUN + _sender("queue") + transfer(0, tag=b"t" * 33) + transfer(1),
        "delivery-id-skipped": BEGUN + _sender("queue") + transfer(0) + transfer(5),
        "on-a-handle-without-link": BEGUN + transfer(0, handle=7),
        "more-than-the-window": BEGUN + _sender("queue") + b"".join(transfer(number) for number in range(30)),
        "to-a-full-queue": BEGUN + _sender("small") + b"".join(transfer(number) for number in range(6)),
        "ring": BEGUN + _sender("ring") + b"".join(transfer(number) for number in range(5)) + _receiver("ring") + _credit(),
        "topic": BEGUN + _receiver("topic") + _credit() + _sender("topic") + sent + _settle(0, 2, accepted),
        "shared-subscription": BEGUN + _receiver("topic", "sub|global", 1, *([None] * 9), Symbol("shared")) + _credit() + _sender("topic") + sent,
        "durable-subscription": BEGUN + _receiver("topic", "sub", 1, UByte(2), Symbol("never")) + performative(DETACH, 1) + _receiver(None, "sub", 1),
        "selector": BEGUN + _filtered("a > 1 AND colour LIKE 'r%'") + _credit(2) + _sender("queue") + transfer(0, MESSAGES[2]),
        "selector-that-is-none": BEGUN + _filtered("a > > 1"),
        "browser": flow + sent + _receiver("queue", "look", 3, None, None, None, None, None, Symbol("copy")) + _credit(3),
        "drain": flow + _credit(drain=True) + transfer(0) + _credit(drain=True),
        "echo": flow + _credit(echo=True) * 3 + performative(FLOW, 0, 100, 0, 100, None, None, None, None, False, True),
        "relay": BEGUN + _sender(None) + transfer(0, _section(0x73, b"\xc0\x0a\x03\x40\x40\xa1\x05queue") + BODY) + transfer(1),
        "dynamic": BEGUN + _attach("dynamic", 1, RECEIVER, source=Described(SOURCE, [None, None, None, None, True])) + _credit(),
        "dynamic-with-a-selector-that-is-none": BEGUN + _filtered("a > > 1", dynamic=True),
        "management": BEGUN + _receiver("$management", "answers", 1) + _credit() + _sender("$management") + transfer(0, asked),
        "coordinator": BEGUN + _attach("tx", 0, SENDER, target=Described(COORDINATOR)),
        "the-same-name-twice": BEGUN + _sender("queue") + _sender("queue", "out", 4) + performative(DETACH, 0, True) + transfer(0, handle=4),
        "handle-in-use": BEGUN + _sender("queue") + _sender("ring", "other", 0),
        "channel-in-use": BEGUN + performative(BEGIN, None, 0, 100, 100),
        "channel-out-of-range": OPENED + performative(BEGIN, None, 0, 100, 100, channel=65535),
        "handle-out-of-range": BEGUN + _sender("queue", "far", 0xFFFFFFFF) + transfer(0, handle=0xFFFFFFFF),
        "resumed": BEGUN + _sender("queue") + performative(TRANSFER, 0, 0, b"t", 0, False, False, None, None, True, payload=BODY),
        "detached-with-an-error": flow + performative(DETACH, 0, True, Described(0x1D, [Symbol("amqp:internal-error"), "x"])),
        "credit-of-4-billion": flow + _credit(credit=0xFFFFFFFF) + sent,
        "names-that-are-not-utf-8": BEGUN + _sender("queue").replace(b"out", b"\xff\xfe\xfd"),
        "doff-of-one": OPENED + frame(b"", doff=1),
        "size-of-seven": OPENED + frame(b"", size=7),
        "extended-header": OPENED + frame(b"\0" * 4 + encode(Described(BEGIN, [None, 0, 9, 9])), doff=3),
        "empty-frames": OPENED + frame(b"") * 30,
        "sasl-frame-too-late": OPENED + performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1),
        "nothing-opened": performative(BEGIN, None, 0, 9, 9),
        "fields-of-the-wrong-type": BEGUN + performative(ATTACH, 5, "x", "y", 3, None, Described(SOURCE, [7])),
        "deep-properties": performative(OPEN, "x", *([None] * 8), [[[[[[[[[["deep"]]]]]]]]]]),
        "largest-message-size": BEGUN + performative(ATTACH, "big", 0, SENDER, UByte(2), UByte(0), Described(SOURCE), Described(TARGET, ["queue"]), None, None, 0, ULong(2**64 - 1)),
    }  # fmt: skip


def _in_pieces(streams: Seeds, *firsts: int) -> Seeds:
    """With the byte before them that says how many sizes follow, and these."""
    found = {}
    for name, stream in streams.items():
        # By its name, so that one more changes no other.
        first = firsts[crc32(name.encode()) % len(firsts)]
        found[name] = bytes((first,)) + random.Random(name).randbytes(first % 8) + stream
    return found


def bodies() -> Seeds:
    return _in_pieces(
        {name: data for name, data in messages().items() if not name.startswith("type-")}, 0, 1, 3
    )


def sasl() -> Seeds:
    header, amqp = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"

    def began(mechanism: str, said: bytes | None = None, *more: bytes) -> bytes:
        frames = [performative(SASL_INIT, Symbol(mechanism), said, "host", kind=1)]
        frames += [performative(0x43, each, kind=1) for each in more]
        return header + b"".join(frames)

    streams = {
        "anonymous": began("ANONYMOUS", b"me") + amqp + OPENED,
        "without-sasl": amqp + OPENED,
        "without-sasl-where-it-may": amqp,
        "unknown-mechanism": began("GSSAPI"),
        "plain": began("PLAIN", b"\0alice\0wonderland") + amqp,
        "plain-with-a-wrong-password": began("PLAIN", b"\0alice\0looking-glass") + amqp,
        "plain-as-another": began("PLAIN", b"bob\0alice\0wonderland") + amqp,
        "plain-as-one-it-may-not-be": began("PLAIN", b"carol\0alice\0wonderland") + amqp,
        "plain-of-nobody": began("PLAIN", b"\0nobody\0x") + amqp,
        "plain-in-the-response": began("PLAIN", None, b"\0alice\0wonderland") + amqp,
        "external": began("EXTERNAL", b"") + amqp,
        "external-as-another": began("EXTERNAL", b"bob") + amqp,
        "scram-first": began("SCRAM-SHA-256", b"n,,n=alice,r=abc"),
        "scram-of-nobody": began("SCRAM-SHA-512", b"n,,n=nobody,r=abc"),
        "scram-without-init": began("SCRAM-SHA-256", None, b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA"),
        "scram-with-a-binding": began("SCRAM-SHA-256", b"p=tls-unique,,n=alice,r=abc"),
        "scram-final-of-nothing": began("SCRAM-SHA-256", b"n,,n=alice,r=abc", b""),
        "oauthbearer": began("OAUTHBEARER", b"n,,\x01auth=Bearer e30.e30.\x01\x01"),
        "a-response-too-early": header + performative(0x43, b"x", kind=1),
        "frames-too-many": header + performative(0x43, b"x", kind=1) * 9,
        "frame-too-large": header + frame(bytes(600), kind=1),
        "amqp-frame-instead": header + OPENED,
        "header-of-tls": b"AMQP\x02\x01\x00\x00",
        "header-of-a-browser": b"GET / HTTP/1.1\r\n\r\n",
        "descriptor-as-ulong": header + frame(b"\x00\x80" + bytes(7) + b"\x41\xc0\x0c\x01\xa3\x09ANONYMOUS", kind=1) + amqp,
        "small-symbol": header + frame(b"\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS", kind=1) + amqp,
    }  # fmt: skip
    found = {
        name: bytes((first,)) + stream
        for first in (0, 128)
        for name, stream in streams.items()
        if _half(name) == first
    }
    changes = {
        "as-it-is": b"",
        "one-letter-of-the-name": b"\x00\x05A",
        "one-of-the-proof": b"\x01\x60A",
        "cut-short": b"\x07\x08\x00",
    }
    for number, (name, change) in enumerate(changes.items()):
        found[f"scram-{name}"] = bytes((1, number % 3)) + change
    return found


def _half(name: str) -> int:
    """For half of the names one byte, for half of them another."""
    return 128 * (crc32(name.encode()) % 2)


def websockets() -> Seeds:
    def masked(first: int, payload: bytes, mask: bytes = b"\1\2\3\4") -> bytes:
        size = len(payload)
        head = bytes((first, 0x80 | size)) if size < 126 else bytes((first, 0xFE)) + size.to_bytes(2, "big")
        return head + mask + bytes(each ^ mask[at % 4] for at, each in enumerate(payload))

    return _in_pieces(
        {
            "binary": masked(0x82, b"AMQP\x00\x01\x00\x00"),
            "fragments": masked(0x02, b"AM") + masked(0x00, b"") + masked(0x80, b"QP"),
            "dust": masked(0x02, b"a") + masked(0x00, b"b") * 40,
            "ping-between-fragments": masked(0x02, b"a") + masked(0x89, b"hello") + masked(0x80, b"b"),
            "close-and-more": masked(0x82, b"x") + masked(0x88, b"\x03\xe8bye") + masked(0x82, b"late"),
            "close-with-half-a-code": masked(0x88, b"\x03"),
            "close-with-a-code-that-may-not-be": masked(0x88, b"\x03\xed"),
            "text": masked(0x81, b"text"),
            "not-masked": b"\x82\x03abc",
            "unknown-opcode": masked(0x83, b"x"),
            "reserved-bit": masked(0xC2, b"x"),
            "length-of-126-in-eight-bytes": b"\x82\xff" + (5).to_bytes(8, "big") + b"\0\0\0\0hello",
            "length-beyond-all": b"\x82\xff\x7f" + b"\xff" * 7 + b"\0\0\0\0",
            "ping-too-long": masked(0x89, b"x" * 126),
            "a-hundred-small-ones": masked(0x82, b"") * 100,
            "larger": masked(0x82, bytes(range(256)) * 3),
        },
        1, 0, 2,
    )  # fmt: skip


def requests() -> Seeds:
    def request(body: Any = None, **properties: object) -> bytes:
        return b"\0" + bytes(
            Message(reply_to="answers", id=ulong(1), properties=dict(properties), body=body).encode()
        )

    found = {
        "query": request(
            {"attributeNames": ["name", "depth_msgs"]}, operation="QUERY", entityType="org.sluice.queue"
        ),
        "create": request({"max_count": 5}, operation="CREATE", type="org.sluice.queue", name="new"),
        "create-with-a-wrong-setting": request(
            {"max_cuont": 5}, operation="CREATE", type="org.sluice.queue", name="new"
        ),
        "update": request({"flow_stop_count": 3}, operation="UPDATE", type="org.sluice.queue", name="orders"),
        "delete": request(operation="DELETE", type="org.sluice.queue", name="orders"),
        "read": request(operation="READ", type="org.sluice.broker", name="x"),
        "bind": request(
            {"source": "news", "target": "orders"}, operation="CREATE", type="org.sluice.binding"
        ),
        "bridge": request(
            {"from": "orders", "to": "copy"}, operation="CREATE", type="org.sluice.bridge", name="b"
        ),
        "purge": request(operation="purge", type="org.sluice.queue", name="orders"),
        "move": request({"source": "orders", "target": "other", "count": 2}, operation="move"),
        "browse": request({"name": "orders", "count": 5}, operation="browse"),
        "apply": request({"text": "policies:\n  - {match: a, max_count: 1}\n"}, operation="apply"),
        "explain": request({"address": "orders.eu"}, operation="explain"),
        "effect": request({"name": "orders", "arguments": {"max_count": 1}}, operation="effect"),
        "stop-producers": request({"target": "orders.>"}, operation="stop-producers"),
        "no-operation": request(operation="nonsense"),
        "filtered-and-sorted": request(
            {"sort": "-depth_msgs", "filter": "name = 'orders'"}, operation="QUERY"
        ),
        "symbols": request({symbol("name"): symbol("orders")}, operation="browse"),
        "trace": request({"connection": "c1", "frames": 3, "seconds": 1}, operation="trace"),
        "no-message": b"\0\xff",
    }
    return found | {
        f"of-words-{number}": bytes((1, 7, number)) + random.Random(number).randbytes(8)
        for number in range(24)
    }


def journals() -> Seeds:
    def change(place: int, piece: bytes) -> bytes:
        return place.to_bytes(2, "big") + bytes((len(piece),)) + piece

    return {
        "nothing-changed": b"\0",
        "one-bit-of-a-record": b"\0" + change(120, b"\x01"),
        "a-group-of-zeros": b"\0" + change(4096, bytes(64)),
        "the-last-group-torn": b"\0" + change(11 * 4096 + 30, bytes(80)),
        "cut-short": b"\0" + change(5 * 4096 + 7, b""),
        "cut-at-a-block": b"\0" + change(3 * 4096, b""),
        "no-journal-at-all": b"\1SLUICEGR" + bytes(80),
        "a-record-head-alone": b"\1" + bytes(40),
        "a-record-of-4-gib": b"\1" + bytes(12) + b"\xff" * 8 + bytes(20),
    }


SELECTORS = {
    "comparison": "a = 1 AND colour <> 'red'",
    "arithmetic": "a * 2 + x / 0.5 - -1 > 9223372036854775807",
    "division-by-zero": "a / 0 = 1 OR x / 0.0 > 1e308",
    "like": "colour LIKE '_e%d' ESCAPE '\\' OR colour NOT LIKE '%%%a_b%c'",
    "between": "a NOT BETWEEN -5 AND 10.5",
    "in": "colour IN ('red', 'blue', 5, TRUE) AND a NOT IN (1, 2.0)",
    "null": "missing IS NULL AND a IS NOT NULL",
    "fields": "JMSPriority > 4 AND JMSMessageID = 'ID:id-1' AND JMSDeliveryMode = 'PERSISTENT'",
    "numbers": "a = 0x7FFFFFFFFFFFFFFF OR a = 0b101L OR a = 017 OR a = 1_000.5e-3f OR a = -9223372036854775808",
    "nested": "(((NOT (NOT (a = 1)))))",
    "quoted-name": "\"größe\" = 'x''y'",
    "many": " OR ".join(f"a = {number}" for number in range(40)),
    "deep": "(" * 70 + "a" + ")" * 70,
    "slow-like": "x LIKE '" + "%a" * 60 + "'",
    "amqp-fields": "amqp.priority = 4 AND amqp.message_id IS NOT NULL AND amqp.size > 5",
    "empty": " ",
    "half-a-surrogate": "a = '\udcff'",
}
POLICY_FILES = {
    "one": "policies:\n  - match: 'orders.>'\n    durable: true\n    max_count: 1000\n    flow_stop_count: 900\n    flow_resume_count: 500\n",
    "several": "policies:\n  - {match: orders, max_size: 10 MB}\n  - {match: '*.eu', overflow: ring, max_count: 5}\n  - {match: '#', when_full: {reject_after: 3s}}\n",
    "subscription": "policies:\n  - {match: 'a.>/client.*', kind: subscription, pending_message_limit: 10}\n",
    "letters": "policies:\n  - {match: '>', dead_letter_address: dead, max_delivery_count: 3}\n",
    "slow": "policies:\n  - {match: x, slow_consumer: 10/s for 30s notify, duplicate_window: 1000 10m, dispatch: adaptive}\n",
    "shorthand": "policies:\n  - {match: x, flow_control: 60MB, send_fail_if_no_space: true}\n",
    "memory": "policies:\n  - {match: x, memory_limit: 1 MB, overflow: page, flow_control: false}\n",
    "wrong": "policies:\n  - {match: x, flow_stop_cuont: 5, max_count: -1, durable: on}\n  - {match: x}\n",
    "contradicting": "policies:\n  - {match: x, flow_stop_count: 5, flow_resume_count: 9, max_count: 3}\n",
    "aliases": "a: &a [1, 2]\npolicies: [*a, *a]\n",
    "billion-laughs": "a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\npolicies: [*c, *c]\n",
    "an-object-of-python": "policies: !!python/object/apply:os.system ['true']\n",
    "a-loop": "policies: &a [*a]\n",
    "a-merge": "policies:\n  - {match: x, <<: {max_count: 1}}\n",
    "deep": "policies: " + "[" * 30 + "]" * 30 + "\n",
    "not-utf-8": "policies: \udcff",
    "empty": "",
}
SETTING_FILES = {
    "whole": "listeners: [amqp://127.0.0.1:5672]\nhttp: 127.0.0.1:8672\ndata: data\nlog_level: info\nlimits:\n  max_frame_size: 64 KB\n  idle_timeout: 60s\nflow:\n  producer_window: 1000\n  initial_credit: 100\n",
    "routes": "routes:\n  - {name: east, url: 'amqp://user:secret@127.0.0.1:1', from: orders, to: orders}\n",
    "bridges": 'bridges:\n  - {name: b, from: a, to: c, selector: "x = 1"}\n',
    "channels": "channels:\n  - {name: c, from: news, to: '127.0.0.1:9999', max_rate: 10 KB}\n",
    "virtual-hosts": "virtual_hosts: [shop, eu.example.org]\nwebsocket_origins: ['https://console.example.org']\n",
    "contradicting": "flow: {producer_window: 10, initial_credit: 100}\n",
    "wrong": "limits: {max_frame_size: 1, max_links: x}\nnonsense: 5\nhttp: nowhere\n",
}
_SALT, _KEY = "c2FsdHNhbHRzYWx0c2FsdA==", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
USER_FILES = {
    "two": f"!decoys {_KEY}\n!iterations 65536\nalice groups=writers,ops SCRAM-SHA-256$65536:{_SALT}${_KEY}:{_KEY}\nbob acts_as=*\n",
    "comments": "# nobody\n\n# alice\n",
    "a-password-by-hand": "alice correct-horse-battery-staple-and-more\n",
    "a-password-for-a-verifier": "alice SCRAM-SHA-256$correcthorsebatterystaple\n",
    "twice": "alice\nalice groups=a\n",
    "few-iterations": f"alice SCRAM-SHA-256$1:{_SALT}${_KEY}:{_KEY}\n",
    "a-short-key": f"alice SCRAM-SHA-512$65536:{_SALT}${_KEY}:{_KEY}\n",
    "no-base64": f"!decoys ===\nalice SCRAM-SHA-256$65536:a${_KEY}:=\n",
    "names": "größe\n\u00ad\nanonymous\n!x\n*\na,b\n",
}
ADDRESSES = (
    *(
        "amqp://127.0.0.1:5672",
        "amqp://[::1]:5672?allow_plain=true",
        "127.0.0.1:8672",
        "[fe80::1%eth0]:1",
        ":0",
    ),
    *(
        "https://console.example.org:8443",
        "*",
        "user:p%40ss@host:1",
        "amqps://u:p@[::1]/",
        "host:99999",
        "[::1",
    ),
    *(
        "queue://orders",
        "topic://",
        "/orders",
        "shop/orders",
        "$management",
        "orders.*.>",
        "a/b.c",
        "10 MB",
        "1.5h",
    ),
)


def _texts(texts: dict[str, str]) -> Seeds:
    return {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}


def seeds() -> dict[str, Seeds]:
    """Every target's, by name."""
    streams = connections()
    return {
        "message": messages(),
        "bodyscan": bodies(),
        "connection": streams,
        "sentry": _in_pieces(streams, 128, 1, 130, 0, 131),
        "frames": _in_pieces(streams, 1, 0, 2),
        "sasl": sasl(),
        "websocket": websockets(),
        "management": requests(),
        "shown": messages(),
        "journal": journals(),
        "selector": _texts(SELECTORS) | {"a-message-of-its-own": b"a = 1\0" + MESSAGES[2]},
        "policies": _texts(POLICY_FILES),
        "settings": _texts(SETTING_FILES),
        "users": _texts(USER_FILES),
        "addresses": _texts({f"{number:02}": text for number, text in enumerate(ADDRESSES)}),
    }


if __name__ == "__main__":
    for target, found in seeds().items():
        before = corpus.read(target) if corpus.path_of(target).exists() else {}
        corpus.write(target, before | found)
