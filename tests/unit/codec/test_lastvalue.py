"""The key of a message in a last-value queue: where it is looked for, and how values compare."""

from __future__ import annotations

import pytest
from proton import Message, symbol

from broker.codec.lastvalue import ValueKey

KEY = ValueKey("share")


def encoded(properties: object = None, annotations: object = None) -> bytes:
    message = Message(body="b")
    if properties is not None:
        message.properties = properties  # type: ignore[assignment]
    if annotations is not None:
        message.annotations = annotations  # type: ignore[assignment]
    return bytes(message.encode())


@pytest.mark.parametrize(
    ("properties", "annotations", "key"),
    [
        ({"share": "ACME"}, None, b"ACME"),
        ({"share": symbol("ACME")}, None, b"ACME"),
        ({"other": 1, "share": "ACME"}, {symbol("share"): "B"}, b"ACME"),
        (None, {symbol("share"): "ACME"}, b"ACME"),
        (None, {symbol("other"): 1, symbol("share"): symbol("ACME")}, b"ACME"),
        ({"share": ""}, {symbol("share"): "B"}, b"B"),
        (None, {symbol("share"): "x" * 300}, b"x" * 300),
        ({"share": "x" * 300}, None, b"x" * 300),
        (None, None, b""),
        ({"other": "x"}, {symbol("other"): "x"}, b""),
        ({"share": None}, None, b""),
        (None, {symbol("share"): None}, b""),
    ],
)
def test_a_property_counts_and_else_an_annotation(
    properties: object, annotations: object, key: bytes
) -> None:
    assert KEY.of(encoded(properties, annotations)) == key


def test_a_value_of_another_type_is_another_key() -> None:
    keys = {KEY.of(encoded({"share": value})) for value in ("5", 5, True, b"5", 5.0)}
    assert len(keys) == 5
    assert KEY.of(encoded({"share": 5})) == KEY.of(encoded(None, {symbol("share"): 5}))


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x00\x53\x74\xc1", b"\x00\x53\x72\xc1\x10\x02\xa3\x05share"]
)
def test_what_is_no_message_has_no_key(data: bytes) -> None:
    assert KEY.of(data) == b""
