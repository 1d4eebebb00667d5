"""What the tests of the source put into queues and ask about them."""

from __future__ import annotations

from collections.abc import Iterable

from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from pyspark_sluice.options import Options, parse


def message(name: str, size: int = 20, *, durable: bool = False) -> bytes:
    """A message with an id and a data section of ``size`` bytes."""
    encoded = name.encode()
    properties = b"\x00\x53\x73\xc0" + bytes((len(encoded) + 3, 1, 0xA1, len(encoded))) + encoded
    return sections.header(durable=durable) + properties + sections.binary_body(bytes(size))


def names(count: int, first: int = 0) -> list[str]:
    """Ids, in order."""
    return [f"m-{number:08d}" for number in range(first, first + count)]


def feed(url: str, address: str, wanted: Iterable[str], size: int = 20, *, durable: bool = False) -> None:
    """A message of each name; returns when the broker has them."""
    with Connection(url) as connection:
        sender = connection.sender(address)
        for name in wanted:
            sender.send(message(name, size, durable=durable), 20)
        sender.flush(20)


def await_on_disk(url: str) -> None:
    """Until all that the broker has noted so far is on its disk: one behind the other, this message last."""
    feed(url, "written-last", names(1), durable=True)


def id_of(encoded: bytes) -> str:
    """The name ``message`` gave it."""
    at = encoded.index(b"\x00\x53\x73\xc0") + 7
    return encoded[at + 1 : at + 1 + encoded[at]].decode()


def source(url: str, address: str, **given: str) -> Options:
    """A source's options."""
    return parse({"url": url, "address": address, **given}, "source")


def consumers(url: str, address: str) -> list[dict[str, object]]:
    """The receiving links of a queue, as the broker sees them."""
    wanted = ["node", "role", "credit", "unsettled", "container"]
    with Management(url) as management:
        body = management.call("QUERY", "org.sluice.link", body={"attributeNames": wanted}).body
    assert isinstance(body, dict)
    rows = [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]
    return [row for row in rows if row["node"] == address and row["role"] == "consumer"]
