"""Access rules where links attach: what is refused, on the smallest scope, by a text that tells nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from proton import ConnectionException, Message, Terminus
from proton.utils import BlockingConnection, LinkDetached, SendException

from broker.client.link import Connection
from broker.client.request import Management
from broker.errors import OperatorError
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.secured import Secured
from tests.wire.terminus import LASTING, Asks, close, detach, is_silent, send, take

pytestmark = pytest.mark.wire

RULES = """\
rules:
  - deny: connect
    users: [outcast]
  - allow: connect
  - allow: all
    groups: [operators]
  - allow: [send, receive, browse, create]
    addresses: ["${user}.#"]
  - allow: send
    addresses: ["inbox.#", sealed]
  - allow: receive
    users: [alice]
    addresses: ["news.#"]
  - allow: create
    users: [alice]
    addresses: ["news.#", $temporary]
  - allow: send
    addresses: [$temporary]
  - allow: browse
    users: [bob]
    addresses: [alice.open]
"""
USERS = {"alice": "", "bob": "", "root": "operators", "outcast": ""}
POLICIES = (
    "policies:\n  - match: 'news.#'\n    kind: topic\n  - match: 'alice.made'\n    auto_create: false\n"
)
COPY = Asks(copy=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker for all tests that leave the rules as they are."""
    folder = tmp_path_factory.mktemp("secured")
    found = Secured(
        partial(RunningBroker, folder / "broker", args=()), folder, RULES, USERS, policies=POLICIES
    )
    yield found
    found.broker.stop()
    assert "Traceback" not in found.broker.log, found.broker.log


def refusal(attempt: Any) -> str:
    """What is said when it is refused, and by which condition."""
    with pytest.raises(LinkDetached) as refused:
        attempt()
    assert refused.value.condition == "amqp:unauthorized-access", refused.value
    condition = refused.value.link.remote_condition
    assert condition is not None
    return str(condition.description)


def exists(secured: Secured, name: str) -> bool:
    with Management(secured.url("root")) as management:
        body: Any = management.call("QUERY", body={"attributeNames": ["name"]}).body
    return [name] in body["results"]


def test_everybody_has_what_is_below_his_name(secured: Secured) -> None:
    with secured.connected("alice") as connection:
        send(connection.create_sender("alice.jobs"), "one")
        assert take(connection.create_receiver("alice.jobs"), 1) == ["one"]


def test_a_refused_link_leaves_the_connection_and_other_links(secured: Secured) -> None:
    with secured.connected("alice") as connection:
        sender = connection.create_sender("alice.jobs")
        told = refusal(lambda: connection.create_sender("bob.jobs"))
        assert told == "user 'alice' may not send to 'bob.jobs'"
        secured.broker.wait_for_log(f"{told} (no rule matches: denied)")
        assert refusal(lambda: connection.create_receiver("bob.jobs")).startswith(
            "user 'alice' may not receive"
        )
        send(sender, "still here")
    assert not exists(secured, "bob.jobs")


def test_a_refusal_is_the_same_whether_the_node_exists(secured: Secured) -> None:
    with secured.connected("bob") as bob, secured.connected("alice") as alice:
        bob.create_sender("bob.there")
        for attempt in (alice.create_sender, alice.create_receiver):
            there = refusal(lambda attempt=attempt: attempt("bob.there"))
            missing = refusal(lambda attempt=attempt: attempt("bob.gone!"))
            assert there.replace("bob.there", "bob.gone!") == missing
        # Nor whether it is a stream, which has readers of those names.
        with Management(secured.url("root")) as root:
            root.call("CREATE", "org.sluice.queue", "bob.stream", {"queue_type": "stream"})
        for reader in ("r", "$x"):
            for name in ("bob.stream", "bob.there", "bob.gone!"):
                address = f"{name}::{reader}"
                told = refusal(lambda address=address: alice.create_receiver(address))
                assert told == f"user 'alice' may not receive from '{address}'"
        assert bob.create_receiver("bob.stream::r")


def test_who_may_send_need_not_be_one_who_may_create(secured: Secured) -> None:
    with secured.connected("alice") as connection:
        assert "may not create 'inbox.alice'" in refusal(lambda: connection.create_sender("inbox.alice"))
        assert not exists(secured, "inbox.alice")
        with secured.connected("root") as operator:
            operator.create_sender("inbox.alice")
        send(connection.create_sender("inbox.alice"), "one")
        refusal(lambda: connection.create_receiver("inbox.alice"))
        refusal(lambda: connection.create_receiver("inbox.alice", options=COPY))


def test_looking_is_another_right_than_taking(secured: Secured) -> None:
    with secured.connected("alice") as alice, secured.connected("bob") as bob:
        send(alice.create_sender("alice.open"), "one")
        refusal(lambda: bob.create_receiver("alice.open"))
        receiver = bob.create_receiver("alice.open", options=COPY)
        assert receiver.receive(timeout=20).body == "one"
        assert take(alice.create_receiver("alice.open"), 1) == ["one"]


def test_other_ways_to_write_an_address_are_no_way_round(secured: Secured) -> None:
    with secured.connected("alice") as connection:
        for address in (
            "/bob.jobs",
            "queue://bob.jobs",
            "topic://bob.jobs",
            "$sluice/events",
            "$temporary/x",
        ):
            refusal(lambda address=address: connection.create_receiver(address))
        for address in ("/bob.jobs", "queue://bob.jobs", "//alice.jobs"):
            refusal(lambda address=address: connection.create_sender(address))


def test_a_user_whose_name_is_a_wildcard(start_broker: StartBroker, tmp_path: Path) -> None:
    names = {">": "", "x.>": "", "..#": ""}
    secured = Secured(start_broker, tmp_path, RULES, {"alice": "", "root": "operators", **names})
    for name in names:
        with secured.connected(quote(name)) as connection:
            refusal(lambda connection=connection: connection.create_receiver("alice.jobs"))
            refusal(lambda connection=connection: connection.create_receiver("x.y"))


# --- who may connect


def test_a_connection_is_refused_as_a_whole(secured: Secured) -> None:
    with pytest.raises(ConnectionException, match=r"unauthorized-access.*may not connect"):
        BlockingConnection(secured.url("outcast"), timeout=10).create_sender("outcast.jobs")
    secured.broker.wait_for_log("amqp:unauthorized-access: user 'outcast' may not connect")
    assert not exists(secured, "outcast.jobs")


def test_what_a_refused_one_says_in_one_breath_does_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Its open, begin, attach and message come before it can have heard that it may not."""
    rules = "rules:\n  - deny: all\n    users: [anonymous]\n  - allow: all\n"
    secured = Secured(start_broker, tmp_path, rules, {"root": ""})
    with secured.connected("root") as operator:
        receiver = operator.create_receiver("orders")
        with pytest.raises(Exception, match="unauthorized"), Connection(secured.url("")) as connection:
            connection.sender("orders").send(b"\x00Sw\xa1\x01x", 1)
        assert is_silent(receiver)


# --- nodes made for a link


def test_temporary_nodes(secured: Secured) -> None:
    with secured.connected("bob") as bob:
        refusal(lambda: bob.create_receiver(None, dynamic=True))
    with secured.connected("alice") as alice, secured.connected("bob") as bob:
        receiver = alice.create_receiver(None, dynamic=True)
        address = receiver.link.remote_source.address
        send(bob.create_sender(address), "reply")
        assert take(receiver, 1) == ["reply"]


def test_nobody_reads_anothers_replies(start_broker: StartBroker, tmp_path: Path) -> None:
    """Not even where rules let everybody receive everywhere: such names are easy to count up."""
    secured = Secured(start_broker, tmp_path, "rules: [{allow: all}]\n", {"alice": "", "bob": ""})
    with secured.connected("alice") as alice, secured.connected("bob") as bob:
        address = alice.create_receiver(None, dynamic=True).link.remote_source.address
        refusal(lambda: bob.create_receiver(address))
        refusal(lambda: bob.create_receiver(address, options=COPY))
        alice.create_receiver(address)
        topic = alice.create_receiver(None, dynamic=True, options=Asks("topic"))
        published = topic.link.remote_source.address
        assert address
        assert published
        with Management(secured.url("bob")) as theirs, Management(secured.url("alice")) as hers:
            for kind in ("queue", "topic"):
                theirs.call("CREATE", f"org.sluice.{kind}", f"bobs.{kind}", {})
            for attempt in _ways_to_read(address, published):
                with pytest.raises(
                    OperatorError, match=r"user 'bob' may not \w+( messages of)? '\$temporary/"
                ):
                    theirs.call(**attempt)
                if attempt["operation"] != "CREATE":
                    hers.call(**attempt)
            # To clear away needs those rights only, and shows nothing.
            theirs.call("purge", body={"name": address})
            theirs.call("DELETE", "org.sluice.queue", address)


def _ways_to_read(address: str, published: str) -> list[dict[str, Any]]:
    """Return what management has to get at the messages of a queue, or of a topic."""
    letters = {"dead_letter_address": "bobs.queue"}
    return [
        {"operation": "browse", "body": {"name": address}},
        {"operation": "delayed", "body": {"name": address}},
        {"operation": "move", "body": {"source": address, "target": "bobs.queue"}},
        {"operation": "UPDATE", "type": "org.sluice.queue", "name": address, "attributes": letters},
        {
            "operation": "CREATE",
            "type": "org.sluice.binding",
            "attributes": {"source": published, "target": "bobs.queue"},
        },
        {"operation": "CREATE", "type": "org.sluice.bridge", "name": f"{address}->bobs.queue"},
    ]


# --- the anonymous relay


def test_the_relay_asks_for_each_address(secured: Secured) -> None:
    with secured.connected("alice") as connection, secured.connected("root") as operator:
        for name in ("bob.jobs", "sealed"):
            operator.create_sender(name)
        relay = connection.create_sender(None)
        for _ in range(3):
            with pytest.raises(SendException):
                relay.send(Message(body="no", address="bob.jobs"))
        for address in ("inbox.new", "$temporary/x"):
            with pytest.raises(SendException):
                relay.send(Message(body="no", address=address))
        send(relay, "one", address="alice.relayed")
        send(relay, "two", address="sealed")
        assert take(connection.create_receiver("alice.relayed"), 1) == ["one"]
        assert take(operator.create_receiver("sealed"), 1) == ["two"]
        assert is_silent(operator.create_receiver("bob.jobs"))
    assert not exists(secured, "inbox.new")


# --- topics


def test_a_subscription_to_many_topics_needs_a_right_to_all(secured: Secured) -> None:
    with secured.connected("alice") as connection, secured.connected("root") as operator:
        for pattern in ("#", "*.eu", "*", "bob.>"):
            refusal(lambda pattern=pattern: connection.create_receiver(pattern))
        receiver = connection.create_receiver("news.*")
        send(operator.create_sender("news.eu"), "one")
        assert take(receiver, 1) == ["one"]
        refusal(lambda: connection.create_sender("news.eu"))


def test_a_durable_subscription_is_its_users(start_broker: StartBroker, tmp_path: Path) -> None:
    """Container and link name are said by the client: another user's are no key to what is his."""
    secured = Secured(
        start_broker, tmp_path, "rules: [{allow: all}]\n", {"alice": "", "bob": ""}, policies=POLICIES
    )
    with secured.connected("alice", "app") as alice, secured.connected("bob", "app") as bob:
        mine = alice.create_receiver("news.eu", name="sub", options=LASTING)
        theirs = bob.create_receiver("news.eu", name="sub", options=LASTING)
        sender = alice.create_sender("news.eu")
        send(sender, "both")
        assert take(mine, 1) == take(theirs, 1) == ["both"]
        detach(mine)
        send(sender, "alice's, who is away")
        assert take(theirs, 1) == ["alice's, who is away"]
        close(theirs)
        theirs = bob.create_receiver("news.eu", name="sub", options=LASTING)
        assert is_silent(theirs)
        mine = alice.create_receiver("news.eu", name="sub", options=LASTING)
        assert take(mine, 1) == ["alice's, who is away"]


def test_coming_back_needs_the_right_still(start_broker: StartBroker, tmp_path: Path) -> None:
    rules = "rules: [{allow: connect}, {allow: [receive, create], addresses: 'news.#'}]\n"
    secured = Secured(start_broker, tmp_path, rules, {"alice": "", "root": ""}, policies=POLICIES)
    with secured.connected("alice", "app") as alice:
        detach(alice.create_receiver("news.eu", name="sub", options=LASTING))
        secured.change("rules: [{allow: connect}]\n")
        refusal(lambda: alice.create_receiver("news.eu", name="sub", options=LASTING))
        none = Asks(expiry=Terminus.EXPIRE_NEVER)
        with pytest.raises(LinkDetached):
            alice.create_receiver(None, name="sub", options=none)


def test_events_are_the_operators(secured: Secured) -> None:
    with secured.connected("root") as operator, secured.connected("alice") as alice:
        refusal(lambda: alice.create_receiver("$sluice/events"))
        receiver = operator.create_receiver("$sluice/events")
        operator.create_sender("root.new")
        assert receiver.receive(timeout=20) is not None


# --- virtual hosts


def test_each_virtual_host_has_its_own_rules(start_broker: StartBroker, tmp_path: Path) -> None:
    rules = """\
rules:
  - allow: all
    virtual_hosts: [shop]
    users: [alice]
  - allow: [connect, send, receive, create]
    virtual_hosts: [/]
"""
    more = "virtual_hosts: [shop, lab]\n"
    policies = "policies: [{match: news, kind: topic}, {match: shop/news, kind: topic}]\n"
    secured = Secured(start_broker, tmp_path, rules, {"alice": "", "bob": ""}, more, policies)
    with secured.connected("alice", host="shop") as shop, secured.connected("bob") as common:
        send(shop.create_sender("orders"), "one")
        receivers = [common.create_receiver(address) for address in ("#", "*")]
        send(shop.create_sender("news"), "not for them")
        assert all(map(is_silent, receivers))
        with pytest.raises(LinkDetached, match="another virtual host"):
            common.create_receiver("shop/orders")
    for user, host in (("bob", "shop"), ("alice", "lab")):
        with pytest.raises(ConnectionException, match="may not connect"):
            BlockingConnection(secured.url(user), timeout=10, virtual_host=host).create_sender("orders")


# --- texts


NASTY = "evil\r\nX-Admin: 1\x1b[31m\x07\u202eabc<script>"


def test_a_name_commands_neither_a_terminal_nor_a_log(secured: Secured) -> None:
    with secured.connected("alice") as connection:
        for attempt in (connection.create_sender, connection.create_receiver):
            told = refusal(lambda attempt=attempt: attempt(NASTY))
            assert "evil\\r\\nX-Admin: 1\\x1b[31m\\x07\\u202eabc<script>" in told
            assert told.isprintable()
        told = refusal(lambda: connection.create_sender("x" * 3000))
        assert len(told) < 400
    assert "\x1b" not in secured.broker.log
    assert not [line for line in secured.broker.lines if line.startswith("X-Admin")]


# --- how many


def test_nodes_per_user(start_broker: StartBroker, tmp_path: Path) -> None:
    more = "limits: {max_nodes_per_user: 3}\n"
    secured = Secured(start_broker, tmp_path, "rules: [{allow: all}]\n", {"alice": "", "bob": ""}, more)
    with secured.connected("alice") as alice, secured.connected("bob") as bob:
        first, *_ = [alice.create_sender(name) for name in ("a", "b", "g")]
        temporary = [alice.create_receiver(None, dynamic=True) for _ in range(3)]
        with pytest.raises(LinkDetached, match="may make no more"):
            alice.create_receiver(None, dynamic=True)
        close(temporary[0])
        with pytest.raises(LinkDetached, match="may make no more"):
            alice.create_sender("c")
        bob.create_sender("c")
        alice.create_sender("c")
        close(first)
        with Management(secured.url("alice")) as management:
            management.call("DELETE", "org.sluice.queue", "a")
        alice.create_sender("d")
        with pytest.raises(LinkDetached, match="may make no more"):
            alice.create_sender("e")
