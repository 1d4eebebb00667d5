"""Other rules while clients are connected: who lost a right loses the links that needed it, nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from broker.client.request import Management
from broker.errors import OperatorError
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.secured import Secured
from tests.wire.seeing import good_neighbours
from tests.wire.terminus import Asks, send, take

pytestmark = pytest.mark.wire

ALL = "  - allow: all\n    users: [root]\n"
BEFORE = f"rules:\n{ALL}  - allow: [connect, send, receive, browse, create]\n"
USERS = {"alice": "", "bob": "", "root": ""}
POLICIES = "policies: [{match: 'news.#', kind: topic}]\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker for tests that each begin with the same rules."""
    folder = tmp_path_factory.mktemp("secured")
    start = partial(RunningBroker, folder / "broker", args=())
    found = Secured(start, folder, BEFORE, USERS, policies=POLICIES)
    yield found
    found.broker.stop()
    assert "Traceback" not in found.broker.log, found.broker.log


@pytest.fixture
def secured(shared: Secured) -> Iterator[Secured]:
    yield shared
    if shared.acl.read_text() != BEFORE:
        shared.change(BEFORE)
    shared.forget()


def links(secured: Secured, user: str = "") -> list[str]:
    """The nodes of the links there are but the management's own; of one user or of all."""
    with Management(secured.url("root")) as management:
        connections = rows(management, "connection", "identity", "user")
        mine = {identity for identity, name in connections if not user or name == user}
        found = rows(management, "link", "connection", "node", "role")
    shown = [f"{node} {role}" for at, node, role in found if at in mine]
    return sorted(each for each in shown if not each.startswith("$temporary"))


def rows(management: Management, kind: str, *names: str) -> list[list[Any]]:
    body: Any = management.call("QUERY", f"org.sluice.{kind}", body={"attributeNames": list(names)}).body
    found: list[list[Any]] = body["results"]
    return found


def is_detached(link: Any, connection: BlockingConnection) -> bool:
    """Whether the broker takes it away, by the right condition."""
    with pytest.raises(LinkDetached) as told:
        connection.wait(lambda: False, timeout=20)
    return told.value.link.name == link.link.name and told.value.condition == "amqp:unauthorized-access"


def test_links_that_needed_the_right_go_and_no_others(secured: Secured) -> None:
    with (
        secured.connected("alice") as alice,
        secured.connected("bob") as bob,
        good_neighbours(secured.broker),
    ):
        kept = alice.create_sender("orders.kept")
        lost = alice.create_receiver("orders.lost")
        others = bob.create_receiver("orders.lost")
        assert links(secured, "alice") == ["orders.kept producer", "orders.lost consumer"]
        rule = "  - deny: receive\n    users: [alice]\n    addresses: [orders.lost]\n"
        secured.change(f"rules:\n{rule}{BEFORE.removeprefix('rules:')[1:]}")
        assert is_detached(lost, alice)
        assert links(secured, "alice") == ["orders.kept producer"]
        send(kept, "still")
        send(bob.create_sender("orders.lost"), "one")
        assert take(others, 1) == ["one"]


@pytest.mark.parametrize(
    ("attach", "denied", "address"),
    [
        (lambda c: c.create_sender("a.b"), "send", "a.b"),
        (lambda c: c.create_receiver("a.b"), "receive", "a.b"),
        (lambda c: c.create_receiver("a.b", options=Asks(copy=True)), "browse", "a.b"),
        (lambda c: c.create_receiver("news.eu"), "receive", "news.eu"),
        (lambda c: c.create_receiver("news.*"), "receive", "news.us"),
    ],
)
def test_each_kind_of_link_goes(secured: Secured, attach: Any, denied: str, address: str) -> None:
    with secured.connected("alice") as alice:
        link = attach(alice)
        assert len(links(secured, "alice")) == 1
        rule = f"  - deny: {denied}\n    users: [alice]\n    addresses: [{address}]\n"
        secured.change(f"rules:\n{rule}{BEFORE.removeprefix('rules:')[1:]}")
        assert is_detached(link, alice)
        assert links(secured, "alice") == []


def test_events_and_their_reader(start_broker: StartBroker, tmp_path: Path) -> None:
    rules = f"rules:\n{ALL}  - allow: connect\n  - allow: manage-read\n    users: [alice]\n"
    secured = Secured(start_broker, tmp_path, rules, USERS)
    with secured.connected("alice") as alice:
        receiver = alice.create_receiver("$sluice/events")
        secured.change(f"rules:\n{ALL}  - allow: connect\n")
        assert is_detached(receiver, alice)


def test_a_relay_goes_with_the_right_to_one_of_its_addresses(secured: Secured) -> None:
    with secured.connected("alice") as alice, secured.connected("bob") as bob:
        relays = [each.create_sender(None) for each in (alice, bob)]
        for relay in relays:
            for address in ("orders.kept", "orders.lost"):
                send(relay, "one", address=address)
        rule = "  - deny: send\n    users: [alice]\n    addresses: [orders.lost]\n"
        secured.change(f"rules:\n{rule}{BEFORE.removeprefix('rules:')[1:]}")
        assert is_detached(relays[0], alice)
        send(relays[1], "two", address="orders.lost")
        again = alice.create_sender(None, name="again")
        send(again, "two", address="orders.kept")
        with pytest.raises(SendException):
            again.send(Message(body="no", address="orders.lost"))


def test_who_may_not_connect_any_more_is_sent_away(secured: Secured) -> None:
    with secured.connected("bob") as bob:
        receiver: BlockingReceiver = bob.create_receiver("orders")
        alice = BlockingConnection(secured.url("alice"), timeout=10)
        sender = alice.create_sender("orders")
        send(sender, "before")
        secured.change(f"rules:\n  - deny: connect\n    users: [alice]\n{BEFORE.removeprefix('rules:')[1:]}")
        with pytest.raises(ConnectionException, match=r"unauthorized-access.*may not connect"):
            alice.wait(lambda: False, timeout=20)
        assert take(receiver, 1) == ["before"]


def test_a_right_that_is_new_is_there_at_once(secured: Secured) -> None:
    with secured.connected("alice") as alice:
        denied = "  - deny: send\n    addresses: [vault]\n    users: [alice]\n"
        secured.change(f"rules:\n{denied}{BEFORE.removeprefix('rules:')[1:]}")
        with pytest.raises(LinkDetached):
            alice.create_sender("vault")
        secured.change(BEFORE)
        send(alice.create_sender("vault", name="again"), "one")


def test_rules_with_a_fault_change_nothing(secured: Secured) -> None:
    with secured.connected("alice") as alice:
        sender = alice.create_sender("orders")
        secured.acl.write_text("rules:\n  - allow: [connect, sned]\n")
        with (
            Management(secured.url("root")) as management,
            pytest.raises(OperatorError, match=r"2:22: allow: "),
        ):
            management.call("apply", "org.sluice.broker", body={})
        secured.change("")
        wait_until(lambda: "reload refused" in secured.broker.log, 15, "the refusal to be told")
        assert "has no rules" in secured.broker.log
        send(sender, "still")


def test_by_the_operators_command(secured: Secured) -> None:
    with secured.connected("alice") as alice:
        sender = alice.create_sender("orders")
        secured.acl.write_text(f"rules:\n{ALL}  - allow: connect\n")
        with Management(secured.url("root")) as management:
            management.call("apply", "org.sluice.broker", body={})
        assert is_detached(sender, alice)


def test_messages_under_way_come_back(secured: Secured) -> None:
    """What the detached receiver held unsettled is the next one's."""
    with secured.connected("alice") as alice, secured.connected("bob") as bob:
        send(bob.create_sender("orders"), "one")
        receiver = alice.create_receiver("orders")
        assert receiver.receive(timeout=20).body == "one"
        rule = "  - deny: receive\n    users: [alice]\n"
        secured.change(f"rules:\n{rule}{BEFORE.removeprefix('rules:')[1:]}")
        assert is_detached(receiver, alice)
        assert take(bob.create_receiver("orders"), 1) == ["one"]
