"""The names of a client, by which its links and log lines are known."""

from __future__ import annotations

from broker.amqp.control.client import ClientDetails
from broker.security.exchange import ListenerTrust


def a_client(name: str = "") -> ClientDetails:
    return ClientDetails("c7", "192.0.2.1:5000", "alice", ListenerTrust(), name=name)


def test_a_link_is_known_by_its_container_and_else_by_its_connection() -> None:
    assert a_client("app").link_key("in", False) == ("alice", "app", "in", False)
    assert a_client().link_key("in", True) == ("alice", "c7", "in", True)


def test_a_line_of_the_log_says_who_it_is_before_anything_else() -> None:
    fields = a_client("app").about(link="in")["fields"]
    assert list(fields.items()) == [
        ("peer", "192.0.2.1:5000"),
        ("connection", "c7"),
        ("container", "app"),
        ("user", "alice"),
        ("link", "in"),
    ]
