"""Reading a broker's address."""

from __future__ import annotations

import pytest

from broker.client.url import BrokerUrl, parse
from broker.errors import OperatorError


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("amqp://h", BrokerUrl("amqp", "h", 5672)),
        ("h:5", BrokerUrl("amqp", "h", 5)),
        ("amqps://h", BrokerUrl("amqps", "h", 5671)),
        ("amqp://u:p%40@[::1]:7/", BrokerUrl("amqp", "::1", 7, "u", "p@")),
    ],
)
def test_read(text: str, url: BrokerUrl) -> None:
    assert parse(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "http://h", "amqp://h:x", "amqp://h:99999", "amqp://", "amqp://h/q", "amqp://a]b", "amqp://a b"],
)
def test_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="is no broker address"):
        parse(text)


def test_a_password_is_never_shown() -> None:
    assert str(parse("amqp://u:secret@[::1]:7")) == "amqp://[::1]:7"


@pytest.mark.parametrize("text", ["amqp://u:secret@h:x", "u:secret@h/q", "amqp://u:secret#@h", "u:secret@"])
def test_nor_is_one_of_what_is_no_address(text: str) -> None:
    with pytest.raises(OperatorError) as refusal:
        parse(text)
    assert "secret" not in str(refusal.value)
    assert refusal.value.__cause__ is None
