"""Where to listen, where a broker is, what a client calls a node, which addresses a pattern means."""

from __future__ import annotations

from broker import units
from broker.amqp.control.addresses import inside, outside, parsed
from broker.client import url
from broker.config.listeners import (
    AddressType,
    HostName,
    ListenAddress,
    Listener,
    ListenerType,
    OriginType,
)
from broker.config.patterns import Pattern, parse_pattern, parse_subscription_pattern
from broker.errors import OperatorError
from tests.fuzz.target import Target, expect

ENDPOINTS = (AddressType(), ListenerType(), OriginType())
WORDS = b"""
amqp:// amqps:// http:// https:// 127.0.0.1 localhost [::1] [fe80::1%eth0] 0.0.0.0 :5672 :0 :65536
?allow_plain=true ?allow_plain=false user:pass@ %40 %00 %zz queue:// topic:// / . * > # $ KB GB ms
"""


def check(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for kind in ENDPOINTS:
        try:
            found = kind.parse(text)
        except ValueError:
            continue
        # What is shown can be read again, and means the same place.
        expect(_place(kind.parse(str(found))) == _place(found), "shown and read again it is another", found)
    _url(text)
    _pattern(text)
    _quantities(text)
    name = parsed(text)
    expect(
        outside("shop", inside("shop", name.name)) == name.name or name.name.startswith("$"), "a virtual host"
    )
    try:
        HostName().parse(text)
    except ValueError:
        return
    expect("/" not in text, "a virtual host with a slash in its name")


def _place(found: ListenAddress | Listener | str) -> object:
    return found if isinstance(found, str) else (found.host, found.port)


def _url(text: str) -> None:
    try:
        found = url.parse(text)
    except OperatorError:
        return
    expect(found.host != "" and 0 <= found.port <= 65535, "no place", found)
    again = url.parse(str(found))
    expect(
        (again.scheme, again.host, again.port) == (found.scheme, found.host, found.port), "read again", found
    )
    expect("@" not in str(found), "somebody is shown", found)


def _pattern(text: str) -> None:
    for parse in (parse_pattern, parse_subscription_pattern):
        try:
            pattern: Pattern = parse(text)
        except ValueError:
            continue
        means_one = pattern.literal and pattern.owner is None and parse is parse_pattern
        expect(not means_one or pattern.matches(text), "a literal pattern means its own text")
        pattern.matches("a.b.c")
        pattern.matches_subscription("a.b", "client.link")


def _quantities(text: str) -> None:
    for parse in (units.parse_size, units.parse_duration, units.parse_percent):
        try:
            number = parse(text)
        except ValueError:
            continue
        expect(0 <= number <= units.MOST, "a quantity out of all bounds", number)
    for show, parse in ((units.format_size, units.parse_size), (units.format_duration, units.parse_duration)):
        try:
            number = parse(text)
        except ValueError:
            continue
        expect(parse(show(number)) == number, "shown and read again it is another", number)


TARGET = Target(
    "addresses",
    check,
    ("config/listeners.py", "client/url.py", "amqp/control/addresses.py", "config/patterns.py", "units.py"),
    tuple(WORDS.split()),
    largest=300,
)
