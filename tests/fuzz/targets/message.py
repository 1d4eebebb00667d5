"""An encoded message: its sections scanned, its header rewritten, what a selector or a store asks of it."""

from __future__ import annotations

from types import ModuleType

from proton import Data

from broker.codec import message as compiled
from tests.fuzz.decoder import decoded
from tests.fuzz.mutate import AMQP_WORDS
from tests.fuzz.target import Target, expect
from tests.fuzz.twin import pure

(python,) = pure("broker.codec.message")
REASON, ADDRESS, TIME_MS = "expired", "orders", 1_700_000_000_000


def check(data: bytes) -> None:
    bits = compiled.scan(data)
    expect(bits == python.scan(data), "compiled and as Python the scan differs", bits, python.scan(data))
    _agree_with_proton(data, bits)
    expect(_asked(compiled, data) == _asked(python, data), "what a selector asks differs")
    if bits < 0:
        return
    ours, theirs = _answers(compiled, data), _answers(python, data)
    expect(ours == theirs, "compiled and as Python these differ", ours, theirs)
    _rewrite(data)


def _asked(module: ModuleType, data: bytes) -> object:
    """What is asked of every message in a queue with selectors, whole or not."""
    wanted = module.WantedFields()
    for index in range(5):
        wanted.field(python.HEADER, index)
    for index in range(13):
        wanted.field(python.PROPERTIES, index)
    for name in (b"a", b"colour", b"x" * 40):
        wanted.name(name)
    places = module.value_places(data, wanted)
    if places is None:
        return None
    found = [(at, module.value_at(data, at), module.binary_at(data, at)) for at in places if at >= 0]
    return repr(found)


def _answers(module: ModuleType, data: bytes) -> list[object]:
    return [
        module.ttl_ms(data),
        module.absolute_expiry_ms(data),
        module.message_id(data),
        module.header_end(data),
        module.header_fields(data),
        module.address_of(data),
        module.annotations_of(data),
        module.letter_count(data),
        module.is_dead_lettered(data),
        module.delivery_time_ms(data, TIME_MS),
        module.without_delivery_annotations(data),
        module.with_delivery(data, 3, True, 1, 500),
        module.dead_lettered(data, REASON, ADDRESS, TIME_MS),
        module.merged_maps(module.annotations_of(data), b"\xc1\x05\x02\xa3\x01a\x43"),
    ]


def _rewrite(data: bytes) -> None:
    """Nothing behind the header changes, and what comes out is a message."""
    behind = data[compiled.header_end(data) :]
    for written in (compiled.with_delivery(data, 0, False), compiled.with_delivery(data, 7, True, 2, 1)):
        expect(written[compiled.header_end(written) :] == behind, "the bare message was changed")
        expect(compiled.scan(written) >= 0, "a rewritten message is none")
    letter = compiled.dead_lettered(data, REASON, ADDRESS, TIME_MS)
    expect(_body(letter) == _body(data), "a dead letter's body was changed")
    expect(compiled.scan(letter) >= 0, "a dead letter is no message")
    expect(compiled.letter_count(letter) > 0, "a dead letter doesn't say that it is one")
    expect(compiled.ttl_ms(letter) == 0, "a dead letter keeps its ttl")
    expect(compiled.absolute_expiry_ms(letter) == 0, "a dead letter keeps its expiry")
    without = compiled.without_delivery_annotations(data)
    expect(_bare(without) == _bare(data), "the bare message was changed")


def _bare(data: bytes) -> bytes:
    return _from(data, python.PROPERTIES)


def _body(data: bytes) -> bytes:
    """With all that stands behind it."""
    return _from(data, python.APPLICATION_PROPERTIES + 1)


def _from(data: bytes, section: int) -> bytes:
    """From that section on, found with the code under test: what it says was checked before."""
    at = 0
    while at < len(data) and python.section_code(data, at) < section:
        at = python.skip_value(data, python.after_descriptor(data, at), len(data))
    return data[at:]


def _agree_with_proton(data: bytes, bits: int) -> None:
    """What is a message to Proton is one to us, and says the same."""
    found = decoded(data)
    if found is None or found.deep:
        return
    expect(bits >= 0, "Proton reads a message here:", found.letters)
    expect(bool(bits & python.HAS_HEADER) == ("h" in found.letters), "the header")
    expect(bool(bits & python.HAS_DELIVERY_NOTES) == ("d" in found.letters), "the delivery-annotations")
    header, properties = found.header, found.properties
    durable = bool(header) and header[0] == (Data.BOOL, True)
    expect(bool(bits & python.DURABLE) == durable, "durable", header)
    has_ttl = len(header) > 2 and header[2][0] != Data.NULL
    expect(bool(bits & python.HAS_TTL) == has_ttl, "ttl", header)
    if len(header) > 2 and header[2][0] == Data.UINT:
        expect(compiled.ttl_ms(data) == header[2][1], "the ttl's value", header)
    expires = properties[8] if len(properties) > 8 else (Data.NULL, 0)
    expiry = expires[1] if expires[0] == Data.TIMESTAMP and isinstance(expires[1], int) else 0
    expect(compiled.absolute_expiry_ms(data) == max(expiry, 0), "the expiry", properties)
    expect(bool(bits & python.HAS_EXPIRY) == (expiry > 0), "whether it expires", properties)


TARGET = Target("message", check, ("codec/message.py",), AMQP_WORDS, largest=1024)
