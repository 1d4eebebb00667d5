"""Connections by name in bounded time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.log import LogUnavailable
from broker.cluster.names import addresses_of, connected, is_address
from broker.cluster.nats import NatsConnection


class Resolver:
    """Looks names up once it is ``released``; ``asked`` are those it was asked for."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked: list[str] = []
        self.faults: dict[str, OSError] = {}
        self._real = socket.getaddrinfo

    def look_up(self, host: str, *given: Any, **named: Any) -> Any:
        if not host.endswith(".example"):
            return self._real(host, *given, **named)
        self.asked.append(host)
        assert self.released.wait(30)
        if host in self.faults:
            raise self.faults[host]
        return self._real("127.0.0.1", *given, **named)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made.look_up)
    yield made
    made.released.set()


def test_addresses_are_told_from_names() -> None:
    assert [is_address(host) for host in ("10.0.0.1", "::1", "a.example", "10.0.0", "")] == [
        *(True, True, False, False, False)
    ]


def test_an_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    assert addresses_of("10.0.0.1", 5, 0) == [("10.0.0.1", 5)]


def test_a_look_up_that_takes_long_is_given_up_and_its_answer_kept_for_the_next_one(
    resolver: Resolver,
) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError, match="not looked up"):
            addresses_of("late.example", 7, 0.01)
    resolver.released.set()
    assert addresses_of("late.example", 7, 30) == [("127.0.0.1", 7)]
    assert resolver.asked == ["late.example"]
    assert addresses_of("late.example", 7, 30) == [("127.0.0.1", 7)]
    assert len(resolver.asked) == 2


def test_a_name_that_is_not_known_is_asked_for_again(resolver: Resolver) -> None:
    resolver.released.set()
    resolver.faults["no.example"] = socket.gaierror(-2, "Name or service not known")
    for _ in range(2):
        with pytest.raises(OSError, match="not known"):
            addresses_of("no.example", 7, 30)
    assert len(resolver.asked) == 2


def test_a_connection_by_name(resolver: Resolver) -> None:
    resolver.released.set()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connected("there.example", port, 30).close()
    with pytest.raises(ConnectionRefusedError):
        connected("there.example", port, 30)


def test_a_server_of_the_log_whose_name_is_looked_up_for_ever_is_passed_over_in_time(
    resolver: Resolver,
) -> None:
    began = time.monotonic()
    with pytest.raises(LogUnavailable, match="not looked up"):
        NatsConnection(["nats://stuck.example:4222"], 0.1)
    assert time.monotonic() - began < 10
