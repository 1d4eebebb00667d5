"""What the client encodes, Proton reads; what arrives is shown safely."""

from __future__ import annotations

import pytest
from proton import Message

from broker.cli.terminal.printable import LONGEST, safe
from broker.codec import sections


def test_proton_reads_what_we_write() -> None:
    head = sections.header(durable=True) + sections.application_properties(
        {"a": "x" * 300, "b": -7, "c": 1.5, "d": True, "e": None}
    )
    message = Message()
    message.decode(head + sections.text_body("é" * 200))
    assert message.durable
    assert message.properties == {"a": "x" * 300, "b": -7, "c": 1.5, "d": True, "e": None}
    assert message.body == "é" * 200


@pytest.mark.parametrize("size", [0, 255, 256, 70_000])
def test_bodies_of_every_size(size: int) -> None:
    message = Message()
    message.decode(sections.binary_body(b"x" * size))
    assert message.body == b"x" * size
    assert sections.shown(sections.binary_body(b"x" * size)) == "x" * size
    assert sections.shown(sections.text_body("y" * size)) == "y" * size


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("plain", "plain"),
        (b"\xff\x00", "\\xff\x00"),
        ({"a": [1, b"x"]}, '{"a": [1, "x"]}'),
        (7, "7"),
        (None, ""),
    ],
)
def test_any_body_is_shown(body: object, text: str) -> None:
    message = Message(body=body, subject="s", properties={"k": "v"})  # type: ignore[arg-type]
    assert sections.shown(message.encode()) == text


@pytest.mark.parametrize(
    "junk", [b"", b"\x00", b"\x00\x53\x75", b"\x00\x53\x70\xff", b"\x00\x53\x75\xa0\x09x"]
)
def test_junk_is_shown_and_raises_nothing(junk: bytes) -> None:
    assert isinstance(sections.shown(junk), str)
    assert isinstance(sections.described(junk), dict)


def test_described_names_what_is_set_and_no_more() -> None:
    encoded = Message(body="b", subject="s", properties={"k": 1}).encode()
    assert sections.described(encoded) == {
        "subject": "s",
        "application_properties": {"k": 1},
        "durable": False,
        "body": "b",
    }


def test_a_very_long_body_is_cut() -> None:
    assert safe("x" * (LONGEST + 1)).endswith(f"… ({LONGEST + 1:,} characters)")
