"""Values out of Proton's decoder, once its memory has been freed or written over."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest
from proton import UNDESCRIBED, Array, Data, Described, Message, symbol, ulong

from broker.amqp.control.decoding import first_of
from broker.client import request
from broker.codec import sections
from broker.codec.owned import decode_message, owned
from pyspark_sluice.deadletter import annotated
from pyspark_sluice.errors import RefusedError

Decoder = Callable[[bytes], Message]
DECODERS: list[Decoder] = [decode_message, request._decoded]
# As long as memory that is taken from the heap, and given back to it, at once.
LONG = 20_000


def bodies(fill: bytes) -> list[Any]:
    """A binary wherever a body can have one."""
    binary = fill * LONG
    return [
        binary,
        {"messages": [{"message": binary, "number": 1}, {"message": fill, "number": 2}]},
        [[binary, [fill]], None, True],
        Described(symbol("a"), binary),
        Described(ulong(7), {"inside": [binary]}),
        Array(cast("Any", UNDESCRIBED), Data.BINARY, binary, fill),
        Described(symbol("b"), Array(cast("Any", UNDESCRIBED), Data.BINARY, fill, binary)),
        b"",
    ]


def message_of(body: object, fill: bytes) -> Message:
    return Message(
        body=cast("Any", body),
        properties={"p": fill * 9, "text": "t"},
        annotations={symbol("a"): fill * 300},
        instructions={symbol("i"): [fill]},
        inferred=False,
    )


def views(value: object) -> list[memoryview]:
    """Whatever in it is a view of somebody's memory."""
    if isinstance(value, memoryview):
        return [value]
    if isinstance(value, Described):
        return views(value.descriptor) + views(value.value)
    if isinstance(value, dict):
        return views(list(value)) + views(list(value.values()))
    if isinstance(value, list | tuple | Array):
        return [view for each in value for view in views(each)]
    return []


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("index", range(len(bodies(b"x"))))
def test_a_decoded_message_owns_its_bytes(decode: Decoder, index: int) -> None:
    body = bodies(b"x")[index]
    encoded = bytes(message_of(body, b"x").encode())
    kept = decode(encoded)
    found: Any = kept.body, kept.properties, kept.annotations, kept.instructions
    assert views(list(found)) == []
    # Proton writes what it decodes next where the first one's was; then all of it is freed.
    kept.decode(bytes(message_of(bodies(b"z")[index], b"z").encode()))
    del kept
    gc.collect()
    others = [decode(bytes(message_of(bodies(b"y")[index], b"y").encode())) for _ in range(20)]
    assert found == (
        body,
        {"p": b"x" * 9, "text": "t"},
        {symbol("a"): b"x" * 300},
        {symbol("i"): [b"x"]},
    )
    assert others[0].body == bodies(b"y")[index]


def test_everything_else_stays_as_it_is() -> None:
    name = UUID(int=7)
    values = [None, True, 1, 1.5, "text", symbol("s"), ulong(3), name, {"k": [1]}]
    assert owned(values) == values
    assert [type(each) for each in cast("list[object]", owned(values))] == [type(each) for each in values]


def test_a_field_of_a_terminus_owns_its_bytes() -> None:
    data = Data()
    data.put_object({symbol("filter"): Described(symbol("own"), b"x" * LONG)})
    found = cast("dict[str, Described]", first_of(data))
    data.clear()
    data.put_object({symbol("filter"): Described(symbol("own"), b"y" * LONG)})
    assert found["filter"].value == b"x" * LONG


@pytest.mark.parametrize("grown", [10, 300, 5000])
def test_a_dead_letter_keeps_its_binaries_when_it_is_one_again(grown: int) -> None:
    """Its reason grows, so that whatever stands behind it moves while the message is written."""
    reason, key, other = (symbol(name) for name in ("x-opt-sluice-dead-letter-reason", "key", "other"))
    before = {reason: "r", key: b"k" * 600, other: b"o" * 600}
    message = Message(body={"a": b"b" * 900}, annotations=before, properties={"p": b"p" * 900})
    encoded = bytes(message.encode())
    letter: Any = decode_message(annotated(encoded, "orders", RefusedError("r" * grown, "")))
    assert (letter.annotations[key], letter.annotations[other]) == (b"k" * 600, b"o" * 600)
    told = {"sluice_dead_letter_" + name for name in ("reason", "origin", "count")}
    kept = {name: value for name, value in letter.properties.items() if name not in told}
    assert (letter.body, kept) == ({"a": b"b" * 900}, {"p": b"p" * 900})


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (UUID(int=7), str(UUID(int=7))),
        (b"\xff", "\\xff"),
        (Described(symbol("d"), b"v"), "Described(symbol('d'), b'v')"),
        (Array(cast("Any", UNDESCRIBED), Data.BINARY, b"v"), "Array(UNDESCRIBED, 19, b'v')"),
    ],
)
def test_any_message_is_described_in_words_that_json_knows(body: Any, shown: str) -> None:
    encoded = Message(body=body, id=b"\x01id", properties={"id": UUID(int=9)}).encode()
    found = json.loads(json.dumps(sections.described(bytes(encoded))))
    assert (found["body"], found["id"]) == (shown, "\x01id")
    assert found["application_properties"] == {"id": str(UUID(int=9))}
