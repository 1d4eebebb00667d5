"""Sections as they come from a wire: checked without a crash, agreeing with Proton, header rewritten only."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, symbol, timestamp, ulong

from broker.codec import message
from broker.codec.message import scan
from tests.examples import examples

# Written out: compiled, these are C constants without a name in Python.
MALFORMED = -1
DURABLE = 1
HAS_HEADER = 2
HAS_TTL = 4
HAS_EXPIRY = 8
MAY_BE_DELAYED = 32

EMPTY = b"\x00\x53\x77\x40"
# Eight nulls; nine bytes of a timestamp complete it.
PROPERTIES_UP_TO_EXPIRY = b"\x00\x53\x73\xc0\x12\x09" + b"\x40" * 8


def encoded(**fields: Any) -> bytes:
    return bytes(Message(**fields).encode())


def decoded(data: bytes) -> Message:
    made = Message()
    made.decode(data)
    return made


def annotated(key: bytes, value: bytes, *, wide: bool = False) -> bytes:
    """A message with one annotation behind another one."""
    size = len(key).to_bytes(4 if wide else 1, "big")
    pairs = b"\xa3\x01a\xa1\x01b" + (b"\xb3" if wide else b"\xa3") + size + key + value
    return b"\x00\x53\x72\xc1" + bytes((len(pairs) + 1, 4)) + pairs + EMPTY


DELAYS = (b"x-opt-delivery-delay", b"x-opt-delivery-time", b"x-opt-scheduled-enqueue-time")
NOW_MS = 1_000_000


def later(data: bytes) -> int:
    """When it is to come, -1 where that can't be read; nobody looks where ``scan`` hasn't said so."""
    found = message.delivery_time_ms(data, NOW_MS)
    assert scan(data) & MAY_BE_DELAYED or not found
    return int(found)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", DELAYS)
def test_a_delay_is_one_in_every_encoding(name: bytes, wide: bool) -> None:
    least = 0 if name == DELAYS[0] else NOW_MS
    due = NOW_MS + 1
    for constructor, size, signed in ((b"\x70", 4, False), (b"\x80", 8, False), (b"\x71", 4, True)):
        number = (least + 1).to_bytes(size, "big", signed=signed)
        assert later(annotated(name, constructor + number, wide=wide)) == due
        number = least.to_bytes(size, "big", signed=signed)
        assert later(annotated(name, constructor + number, wide=wide)) == 0
    for constructor in (b"\x81", b"\x83"):
        assert later(annotated(name, constructor + (least + 1).to_bytes(8, "big"), wide=wide)) == due
        assert later(annotated(name, constructor + b"\xff" * 8, wide=wide)) == 0
    for nothing in (b"\x40", b"\x43", b"\x44", b"\x54\x00", b"\x52\x00"):
        assert later(annotated(name, nothing, wide=wide)) == 0
    # It is not known how long that is, or no clock reaches it.
    for value in (b"\xa1\x02PT", b"\x82" + bytes(8), b"\x45", b"\x41", b"\x80" + b"\xff" * 8):
        assert later(annotated(name, value, wide=wide)) == MALFORMED


def test_a_time_goes_before_another_and_both_before_a_delay() -> None:
    delay, due, enqueue = (symbol(name.decode()) for name in DELAYS)
    every = {delay: 5, due: NOW_MS + 2, enqueue: NOW_MS + 3}
    assert later(encoded(annotations=every, body=1)) == NOW_MS + 2
    assert later(encoded(annotations={delay: 5, enqueue: NOW_MS + 3}, body=1)) == NOW_MS + 3
    assert later(encoded(annotations={delay: 5, due: NOW_MS - 1}, body=1)) == 0
    assert later(encoded(annotations={delay: "soon", due: NOW_MS - 1}, body=1)) == MALFORMED


def test_a_delay_becomes_a_time() -> None:
    data = encoded(annotations={symbol("x-opt-a"): 1, symbol("x-opt-delivery-delay"): 5}, body="z")
    assert message.asks_for_delay(data)
    made = message.with_delivery_time(data, NOW_MS + 5)
    assert not message.asks_for_delay(made)
    assert decoded(made).annotations == {"x-opt-a": 1, "x-opt-delivery-time": NOW_MS + 5}
    assert decoded(made).body == "z"


def test_what_an_outcome_asks_for_replaces_what_the_message_did() -> None:
    def pairs(**named: int) -> bytes:
        names = {symbol("x-opt-" + name.replace("_", "-")): value for name, value in named.items()}
        return bytes(message.annotations_of(encoded(annotations=names, body=1)))

    both = message.merged_outcome(pairs(delivery_time=7, a=1), pairs(delivery_delay=5))
    assert message.delivery_time_in(both, NOW_MS) == NOW_MS + 5
    assert message.merged_outcome(pairs(delivery_time=7), pairs(a=1)) == pairs(delivery_time=7, a=1)


@pytest.mark.parametrize("name", DELAYS)
def test_a_delay_is_found_among_many_annotations(name: bytes) -> None:
    many = {symbol(f"x-opt-{number}"): number for number in range(1000)}
    data = encoded(annotations={**many, symbol(name.decode()): NOW_MS + 1}, body=1)
    assert later(data) == (2 * NOW_MS + 1 if name == DELAYS[0] else NOW_MS + 1)
    assert not scan(encoded(annotations=many, body=1)) & MAY_BE_DELAYED


@pytest.mark.parametrize(
    "name", [*(each + b"s" for each in DELAYS), *(each[:-1] for each in DELAYS), b"x" * 40]
)
def test_other_annotations_ask_for_no_delay(name: bytes) -> None:
    assert later(annotated(name, b"\x54\x05")) == 0
    assert later(annotated(b"a", b"\xa3" + bytes((len(DELAYS[0]),)) + DELAYS[0])) == 0
    assert later(b"\x00\x53\x77\xa1" + bytes((len(DELAYS[0]),)) + DELAYS[0]) == 0


# --- sections


@pytest.mark.parametrize(
    ("data", "bits"),
    [
        (EMPTY, 0),
        (b"\x00\x53\x75\xa0\x01x", 0),
        (b"\x00\x53\x75\xa0\x01x\x00\x53\x75\xb0\x00\x00\x00\x01y", 0),
        (b"\x00\x53\x76\x45\x00\x53\x76\x45", 0),
        (b"\x00\x53\x70\x45" + EMPTY, HAS_HEADER),
        # Proton leaves out a body of None.
        (b"\x00\x53\x70\x45", HAS_HEADER),
        (b"\x00\x53\x70\xc0\x02\x01\x41" + EMPTY, HAS_HEADER | DURABLE),
        (b"\x00\x53\x70\xc0\x02\x01\x42" + EMPTY, HAS_HEADER),
        (b"\x00\x53\x70\xc0\x03\x01\x56\x01" + EMPTY, HAS_HEADER | DURABLE),
        (b"\x00\x53\x70\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41" + EMPTY, HAS_HEADER | DURABLE),
        (b"\x00\x53\x70\xc0\x04\x03\x40\x40\x40" + EMPTY, HAS_HEADER),
        (b"\x00\x53\x70\xc0\x05\x03\x41\x40\x52\x09" + EMPTY, HAS_HEADER | DURABLE | HAS_TTL),
        (b"\x00\x53\x70\xd0\x00\x00\x00\x08\x00\x00\x00\x03\x40\x40\x52\x09" + EMPTY, HAS_HEADER | HAS_TTL),
        # Fewer or shorter fields than the list says it has: none of them is a ttl.
        (b"\x00\x53\x70\xc0\x03\x03\x40\x40" + EMPTY, HAS_HEADER),
        (b"\x00\x53\x70\xc0\x04\x03\x40\x40\x52", HAS_HEADER),
        (PROPERTIES_UP_TO_EXPIRY + b"\x83" + bytes(7) + b"\x05" + EMPTY, HAS_EXPIRY),
        (PROPERTIES_UP_TO_EXPIRY + b"\x83" + bytes(8) + EMPTY, 0),
        (PROPERTIES_UP_TO_EXPIRY + b"\x83\xff" + bytes(7) + EMPTY, 0),
        (b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\x45" + EMPTY, HAS_HEADER),
        (b"\x00\xa3\x10amqp:header:list\x45" + EMPTY, HAS_HEADER),
        (EMPTY + b"\x00\x53\x78\xc1\x01\x00", 0),
        (b"\x00\x53\x72\xc1\x07\x02\xa3\x01a\xa1\x01b" + EMPTY, 0),
        # An amqp-value may be described itself.
        (b"\x00\x53\x77\x00\x53\x01\x40", 0),
    ],
)
def test_whole_messages(data: bytes, bits: int) -> None:
    assert scan(data) == bits


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no section"),
        (b"hello", "no descriptor"),
        (b"\x00", "half a descriptor"),
        (b"\x00\x53\x77", "no value"),
        (b"\x00\x53\x75\xa0\x05abc", "a body cut off"),
        (b"\x00\x53\x75\xb0\xff\xff\xff\xffabc", "a size beyond the message"),
        (b"\x00\x53\x75\xb0\xff\xff\xff\xf8", "a size that is no step back"),
        (b"\x00\x53\x74\xd1\xff\xff\xff\xff\x00\x00\x00\x02\xa1\x01a\x40", "a map beyond the message"),
        (b"\x00\x53\x75\xa0", "no size"),
        (EMPTY + b"\x00", "bytes behind the body"),
        (EMPTY + EMPTY, "two amqp-values"),
        (b"\x00\x53\x75\xa0\x00" + EMPTY, "two kinds of body"),
        (EMPTY + b"\x00\x53\x70\x45", "header behind the body"),
        (b"\x00\x53\x72\xc1\x01\x00\x00\x53\x70\x45" + EMPTY, "header behind the annotations"),
        (b"\x00\x53\x70\x45\x00\x53\x70\x45" + EMPTY, "two headers"),
        (b"\x00\x53\x78\xc1\x01\x00" + EMPTY, "a body behind the footer"),
        (b"\x00\x53\x75\x40", "data that is no binary"),
        (b"\x00\x53\x72\x45" + EMPTY, "annotations that are no map"),
        (b"\x00\x53\x79\x40", "an unknown section"),
        (b"\x00\x80\x00\x00\x00\x01\x00\x00\x00\x70\x45" + EMPTY, "another domain's descriptor"),
        (b"\x00\xa3\x04nope\x45" + EMPTY, "an unknown name"),
        (b"\x00\xa3\xff", "a name cut off"),
        (b"\x00\x53\x77\x3f", "an undefined constructor"),
        (b"\x00\x53\x77" + b"\x00\x53\x01" * 40 + b"\x40", "described too deeply"),
    ],
)
def test_malformed_messages(data: bytes, why: str) -> None:
    assert scan(data) == MALFORMED, why


# --- agreeing with Proton

KEYS = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=8)
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=20), st.binary()
)
BODIES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=10,
)
IDS = st.one_of(
    st.text(max_size=300), st.integers(0, 2**64 - 1).map(ulong), st.binary(max_size=300), st.uuids()
)
MESSAGES = st.fixed_dictionaries(
    {"body": BODIES, "inferred": st.booleans()},
    optional={
        "durable": st.booleans(),
        "priority": st.integers(0, 255),
        "ttl": st.integers(0, 4_000_000),
        "first_acquirer": st.booleans(),
        "delivery_count": st.integers(0, 2**32 - 1),
        "id": IDS,
        "expiry_time": (st.integers(0, 2**34) | st.integers(0, 2**40)).map(float),
        "address": st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=300),
        "subject": st.text(max_size=20),
        "annotations": st.dictionaries(KEYS.map(symbol), PLAIN, max_size=4),
        "properties": st.dictionaries(KEYS, PLAIN, max_size=4),
    },
)


@given(fields=MESSAGES)
def test_whatever_proton_encodes_is_whole(fields: dict[str, Any]) -> None:
    data = encoded(**fields)
    bits = scan(data)
    assert bits != MALFORMED
    assert bool(bits & DURABLE) == decoded(data).durable
    assert message.address_of(data) == (fields.get("address") or "")
    assert bool(bits & HAS_TTL) == bool(message.ttl_ms(data)) == bool(fields.get("ttl"))
    assert message.ttl_ms(data) == fields.get("ttl", 0) * 1000
    expiry_ms = fields.get("expiry_time", 0) * 1000
    expiry_ms = 0 if expiry_ms > message.FURTHEST_MS else expiry_ms
    assert bool(bits & HAS_EXPIRY) == bool(expiry_ms)
    assert message.absolute_expiry_ms(data) == expiry_ms
    assert bool(message.message_id(data)) == ("id" in fields)
    # Cut anywhere, it is refused or still a message to Proton as well.
    for end in range(len(data)):
        if scan(data[:end]) != MALFORMED:
            decoded(data[:end])


@given(fields=MESSAGES, count=st.integers(0, 300), redelivered=st.booleans())
def test_only_the_header_changes(fields: dict[str, Any], count: int, redelivered: bool) -> None:
    before = encoded(**fields)
    after = message.with_delivery(before, count, redelivered)
    assert scan(after) != MALFORMED
    assert after[message.header_end(after) :] == before[message.header_end(before) :]
    one, other = decoded(before), decoded(after)
    assert (one.durable, one.priority, one.ttl) == (other.durable, other.priority, other.ttl)
    assert other.delivery_count == min(one.delivery_count + count, 2**32 - 1)
    assert other.first_acquirer == (one.first_acquirer and not redelivered)


def test_fields_behind_the_fifth_are_kept() -> None:
    data = b"\x00\x53\x70\xc0\x09\x07\x41\x40\x40\x40\x43\xa1\x01x" + b"\x40" + EMPTY
    data = data.replace(b"\xc0\x09\x07", b"\xc0\x0a\x07")
    assert scan(data) == HAS_HEADER | DURABLE
    after = message.with_delivery(data, 2, True)
    assert message.header_fields(after) == [
        b"\x41",
        b"\x40",
        b"\x40",
        b"\x42",
        b"\x52\x02",
        b"\xa1\x01x",
        b"\x40",
    ]


def test_annotations_are_replaced_in_their_place() -> None:
    merged = b"\xc1\x05\x02\xa3\x01k\x41"
    plain = encoded(body="x", durable=True)
    once = message.with_annotations(plain, merged)
    assert decoded(once).annotations == {symbol("k"): True}
    assert message.annotations_of(once) == merged
    assert message.annotations_of(plain) == b""
    again = message.with_annotations(once, b"\xc1\x05\x02\xa3\x01n\x42")
    assert decoded(again).annotations == {symbol("n"): False}
    assert (decoded(again).body, decoded(again).durable) == ("x", True)


# --- ttl, expiry and message-id


@given(fields=MESSAGES, left_ms=st.integers(0, 2**63 - 1))
def test_a_ttl_reads_what_remains_of_it(fields: dict[str, Any], left_ms: int) -> None:
    before = encoded(**fields)
    after = message.with_delivery(before, 1, False, 0, left_ms)
    assert message.ttl_ms(after) == min(left_ms, message.ttl_ms(before))
    assert after[message.header_end(after) :] == before[message.header_end(before) :]
    assert decoded(after).delivery_count == min(decoded(before).delivery_count + 1, 2**32 - 1)


def test_a_ttl_of_nothing_stays_one_whatever_an_absolute_expiry_time_leaves() -> None:
    """Some clients write 0 for "none"; what is left until the year 2200 is no uint."""
    header = b"\x00\x53\x70\xc0\x05\x03\x41\x50\x04\x43"
    after = message.with_delivery(header + encoded(body="x")[-6:], 0, False, 0, 2**40)
    assert message.header_fields(after)[2] == b"\x43"


def test_a_message_that_brings_no_time_reads_the_one_it_was_given() -> None:
    after = message.with_delivery(encoded(body="x"), 0, False, 0, 1500, True)
    assert (message.ttl_ms(after), decoded(after).body) == (1500, "x")
    brought = encoded(body="x", expiry_time=4_000_000_000)
    assert message.ttl_ms(message.with_delivery(brought, 0, False, 0, 1500, True)) == 0


@given(one=IDS, other=IDS)
def test_ids_are_equal_where_their_bytes_are(one: Any, other: Any) -> None:
    """Across types as well: a binary is no string though their bytes be the same (§3.2.11 to §3.2.14)."""
    first, second = message.message_id(encoded(id=one)), message.message_id(encoded(id=other))
    assert (first == second) == (type(one) is type(other) and one == other)
    assert first == message.message_id(encoded(id=one, subject="another", ttl=5, body="x"))


def with_id(value: bytes) -> bytes:
    return b"\x00\x53\x73\xc0" + bytes((len(value) + 1, 1)) + value + EMPTY


@pytest.mark.parametrize(
    "encodings",
    [
        (b"\x44", b"\x53\x00", b"\x80" + bytes(8)),
        (b"\x53\x09", b"\x80" + bytes(7) + b"\x09"),
        (b"\xa1\x02ab", b"\xb1\x00\x00\x00\x02ab"),
        (b"\xa0\x02ab", b"\xb0\x00\x00\x00\x02ab"),
    ],
)
def test_every_encoding_of_an_id_is_the_same_id(encodings: tuple[bytes, ...]) -> None:
    assert {message.message_id(with_id(value)) for value in encodings} == {encodings[-1]}


@pytest.mark.parametrize(
    "data", [EMPTY, with_id(b"\x40"), b"\x00\x53\x73\x45" + EMPTY, with_id(b"\xa1\x05ab")]
)
def test_no_id_is_empty(data: bytes) -> None:
    assert message.message_id(data) == b""


# --- dead letters

REASON = symbol("x-opt-sluice-dead-letter-reason")
ADDRESS = symbol("x-opt-sluice-original-address")
TIME = symbol("x-opt-sluice-dead-letter-time")
COUNT = symbol("x-opt-sluice-dead-letter-count")


@given(fields=MESSAGES, reason=st.text(max_size=300), address=st.text(max_size=300))
def test_a_dead_letter_says_why_whence_when_and_how_often(
    fields: dict[str, Any], reason: str, address: str
) -> None:
    before = encoded(**fields)
    assert not message.is_dead_lettered(before)
    after = message.dead_lettered(before, reason, address, 1_700_000_000_123)
    assert message.is_dead_lettered(after)
    one, other = decoded(before), decoded(after)
    told = {REASON: reason, ADDRESS: address, TIME: timestamp(1_700_000_000_123), COUNT: 1}
    if message.ttl_ms(before):
        told[symbol("x-opt-sluice-original-ttl")] = message.ttl_ms(before)
    if one.expiry_time:
        told[symbol("x-opt-sluice-original-expiry-time")] = timestamp(round(one.expiry_time * 1000))
    assert other.annotations == {**(one.annotations or {}), **told}
    assert (other.ttl, other.expiry_time, other.delivery_count) == (0, 0, 0)
    assert (one.durable, one.priority, one.id, one.subject) == (
        other.durable,
        other.priority,
        other.id,
        other.subject,
    )
    assert other.properties == {
        **(one.properties or {}),
        "sluice_dead_letter_reason": reason,
        "sluice_dead_letter_origin": address,
        "sluice_dead_letter_count": 1,
    }
    assert one.body == other.body


def test_a_dead_letter_s_second_end_is_counted_and_its_first_address_kept() -> None:
    once = message.dead_lettered(encoded(body="x", annotations={symbol("k"): 1}), "rejected", "orders", 5)
    twice = decoded(message.dead_lettered(once, "expired", "dead", 6))
    assert twice.annotations == {
        symbol("k"): 1,
        REASON: "expired",
        ADDRESS: "orders",
        TIME: timestamp(6),
        COUNT: 2,
    }
    assert twice.body == "x"


def test_a_body_that_only_speaks_of_dead_letters_is_none() -> None:
    assert not message.is_dead_lettered(encoded(body="x-opt-sluice-dead-letter-count"))
    assert not message.is_dead_lettered(encoded(body="x", annotations={COUNT: "often"}))


def test_a_count_at_its_end_stays_there() -> None:
    """Anybody may send that annotation, with any number in it."""
    key = b"\xa3\x1ex-opt-sluice-dead-letter-count"
    forged = message.with_annotations(EMPTY, b"\xc1\x26\x02" + key + b"\x70\xff\xff\xff\xff")
    assert message.letter_count(forged) == 2**32 - 1
    assert message.letter_count(message.dead_lettered(forged, "expired", "a", 1)) == 2**32 - 1


# --- bytes that are no message


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x70",
        b"\x00\x53\x70\x45\x00",
        b"\x00\x53\x70\xc0\xff\x00",
        b"\x53\x53\x70\x45",
        b"S\x00\x53\x70\xff\x00",
        b"\x00\x53\x72\xc1\xff\x00",
        b"not a message at all",
    ],
)
def test_annotations_of_what_is_no_message_are_none(data: bytes) -> None:
    assert message.annotations_of(data) == b""


@pytest.mark.timeout(120)
def test_annotations_of_random_bytes_are_found_in_bounded_time() -> None:
    dice = random.Random(19)
    whole = encoded(annotations={symbol("a"): 1, symbol("b"): "x" * 20}, durable=True, body=1)
    found = message.annotations_of(whole)
    for _ in range(20_000):
        piece = dice.choice((dice.randbytes(dice.randrange(40)), whole[: dice.randrange(len(whole))]))
        hurt = bytearray(dice.choice((whole, piece)))
        for _ in range(dice.randrange(4)):
            if hurt:
                hurt[dice.randrange(len(hurt))] = dice.choice(
                    (0, 0x53, 0x70, 0x72, 0xA3, 0xC1, 0xFF, dice.randrange(256))
                )
        got = message.annotations_of(bytes(hurt))
        assert got == b"" or got in bytes(hurt)
    assert message.annotations_of(whole) == found != b""


# --- hostile bytes

PIECES = st.sampled_from(
    [
        *(b"\x00\x53", b"\x70", b"\x71", b"\x72", b"\x73", b"\x74", b"\x75", b"\x77", b"\x78"),
        *(b"\xa0", b"\xa1\x02", b"\xb0\x00\x00\x00", b"\xc0", b"\xd0", b"\xc1", b"\x45", b"\x40", b"\xff"),
        *(b"\x00\x80" + bytes(7), b"\x00\xa3"),
    ]
)
HOSTILE = st.one_of(
    st.binary(max_size=60),
    st.lists(st.one_of(PIECES, st.binary(max_size=3)), max_size=14).map(b"".join),
    st.builds(lambda noise: noise + EMPTY, st.lists(PIECES, max_size=8).map(b"".join)),
)


def touch_all(data: bytes) -> None:
    """Everything that is ever done to a message that was let in."""
    message.address_of(data)
    message.annotations_of(data)
    message.message_id(data)
    assert message.ttl_ms(data) >= 0
    assert message.absolute_expiry_ms(data) >= 0
    assert (message.absolute_expiry_ms(data) > 0) == bool(scan(data) & HAS_EXPIRY)
    assert not message.is_dead_lettered(data)
    letter = message.dead_lettered(data, "expired", "orders", 1)
    assert message.is_dead_lettered(letter)
    assert scan(letter) != MALFORMED
    assert not scan(letter) & HAS_TTL
    assert scan(message.with_delivery(data, 1, True)) != MALFORMED
    assert scan(message.with_delivery(data, 1, True, 0, 5)) != MALFORMED
    assert scan(message.with_annotations(data, b"\xc1\x01\x00")) != MALFORMED


@settings(max_examples=examples(1000))
@given(data=HOSTILE)
def test_hostile_bytes_are_refused_or_can_be_handled(data: bytes) -> None:
    if scan(data) != MALFORMED:
        touch_all(data)


@given(fields=MESSAGES, at=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_message_with_one_wrong_byte(fields: dict[str, Any], at: int, byte: int) -> None:
    data = bytearray(encoded(**fields))
    data[at % len(data)] = byte
    if scan(bytes(data)) != MALFORMED:
        touch_all(bytes(data))


def test_a_delivery_count_at_its_end_stays_there() -> None:
    """delivery-count is a uint (§3.2.1); the header's sender may have put anything in it."""
    data = encoded(body="x", delivery_count=2**32 - 1)
    assert decoded(message.with_delivery(data, 1, True)).delivery_count == 2**32 - 1


@pytest.mark.parametrize("body", [b"\x40", b"\x41", b"\xa1\x03abc", b"\xc1\x01\x00", b"\xf0\x00\x00\x00\x00"])
def test_a_header_that_is_no_list_is_refused(body: bytes) -> None:
    assert scan(b"\x00\x53\x70" + body + EMPTY) == MALFORMED


def test_maps_are_merged_without_looking_into_them() -> None:
    """The same key in its long form is the same key; a symbol that isn't ASCII passes through."""
    present = b"\xc1\x0a\x04\xa3\x01k\x41\xa3\x02\xc3\xa4\x40"
    added = b"\xd1\x00\x00\x00\x0b\x00\x00\x00\x02\xb3\x00\x00\x00\x01k\x42"
    merged = message.merged_maps(present, added)
    assert message.list_fields(merged, 0) == [b"\xa3\x01k", b"\x42", b"\xa3\x02\xc3\xa4", b"\x40"]
    assert message.merged_maps(b"", added).endswith(b"\xa3\x01k\x42")
    assert message.merged_maps(b"", b"") == b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00"


def test_a_header_of_thousands_of_fields_is_none() -> None:
    def headed(count: int) -> bytes:
        size, number = (count + 4).to_bytes(4, "big"), count.to_bytes(4, "big")
        return b"\x00\x53\x70\xd0" + size + number + b"\x40" * count + b"\x00\x53\x77\x40"

    assert scan(headed(1000)) >= 0
    assert scan(headed(5000)) == MALFORMED
