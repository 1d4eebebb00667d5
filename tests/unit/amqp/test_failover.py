"""The list of other addresses in our open: keys and types as Qpid JMS reads them."""

from __future__ import annotations

import pytest
from proton import symbol

from broker.amqp.control.failover import NAME, FailoverServers


def test_keys_are_symbols_and_values_strings_and_a_number() -> None:
    offered = FailoverServers(["amqp://b.example.org", "amqps://[::1]:5000"])
    servers = offered.properties()[NAME]
    assert isinstance(servers, list)
    [first, second] = servers
    assert first == {"network-host": "b.example.org", "port": 5672, "scheme": "amqp"}
    assert second == {"network-host": "::1", "port": 5000, "scheme": "amqps"}
    assert all(type(key) is symbol for key in first)
    assert type(first["scheme"]) is type(first["network-host"]) is str


def test_without_addresses_nothing_is_said() -> None:
    offered = FailoverServers()
    assert offered.properties() == {}
    with pytest.raises(ValueError, match="no address"):
        offered.replace(["http://a"])
