"""Ways round the rules and the quotas that somebody has tried: each ends where the straight way does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from proton import Link, Message
from proton.reactor import LinkOption
from proton.utils import LinkDetached

from broker.client.request import Management
from broker.errors import ForbiddenError, LimitError, OperatorError
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    ATTACH,
    DETACH,
    RECEIVER,
    SOURCE,
    TARGET,
    Described,
    RawPeer,
    UByte,
    performative,
)
from tests.wire.secured import Secured
from tests.wire.terminus import connected

pytestmark = pytest.mark.wire

QUEUE, BRIDGE = "org.sluice.queue", "org.sluice.bridge"
RULES = """\
rules:
  - allow: connect
  - allow: all
    groups: [operators]
  - allow: [create, send, receive, manage-read, manage-write]
    users: [bob]
    addresses: ["bob.#"]
  - allow: manage-write
    users: [carol]
    virtual_hosts: ["/"]
  - allow: manage-read
    users: [olga]
  - allow: create
    addresses: [$temporary]
  - allow: send
    users: [bob]
    addresses: ["letters.#", $temporary]
"""
USERS = {"root": "operators", "bob": "", "carol": "", "olga": ""}
MORE = "limits: {max_nodes_per_user: 10, max_links: 20}\nvirtual_hosts: [shop]\n"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with users, few nodes for each, and a virtual host."""
    folder = tmp_path_factory.mktemp("kept")
    running: list[RunningBroker] = []

    def start(config: str = "", policies: str = "") -> RunningBroker:
        running.append(RunningBroker(folder / "broker", config, policies, ()))
        return running[0]

    yield Secured(start, folder, RULES, USERS, MORE)
    assert "Traceback" not in running[0].log
    assert running[0].stop() == 0


def test_the_ends_of_bridges_are_counted_among_their_makers_nodes(kept: Secured) -> None:
    with Management(kept.url("bob")) as bob:
        for number in range(5):
            bob.call("CREATE", BRIDGE, f"bob.from{number}->bob.to{number}", {})
        with pytest.raises((LimitError, OperatorError), match="made 10 nodes"):
            bob.call("CREATE", BRIDGE, "bob.one->bob.more", {})
        for number in range(5):
            bob.call("DELETE", BRIDGE, f"bob.from{number}->bob.to{number}")
    kept.forget()


def test_dead_letters_make_no_node_that_their_sender_may_not_make(kept: Secured) -> None:
    with Management(kept.url("bob")) as bob:
        letters = {"dead_letter_address": "letters.new"}
        with pytest.raises(ForbiddenError, match="create"):
            bob.call("CREATE", QUEUE, "bob.q", letters)
        with Management(kept.url("root")) as root:
            root.call("CREATE", QUEUE, "letters.new", {})
        bob.call("CREATE", QUEUE, "bob.q", letters)
    kept.forget()


def test_events_come_from_the_broker_and_from_no_bridge(kept: Secured) -> None:
    with (
        Management(kept.url("root")) as root,
        pytest.raises(OperatorError, match="not be sent to"),
    ):
        root.call("CREATE", BRIDGE, "q->$sluice/events", {})
    kept.forget()


@pytest.mark.parametrize("everything", [">", "#", "*"])
def test_a_pattern_of_the_common_host_stops_nobody_of_another(kept: Secured, everything: str) -> None:
    with Management(kept.url("carol")) as carol:
        with pytest.raises(ForbiddenError, match="shop/"):
            carol.call("stop-producers", body={"target": everything})
        carol.call("stop-producers", body={"target": "orders.>"})
        carol.call("start-producers", body={"target": "orders.>"})
    with Management(kept.url("root")) as root:
        root.call("stop-producers", body={"target": everything})
        root.call("start-producers", body={"target": everything})


def test_one_who_only_looks_is_answered_at_a_node_of_ones_own(kept: Secured) -> None:
    with Management(kept.url("olga"), timeout_s=20.0) as olga:
        assert olga.call("READ", "org.sluice.broker").status == 200


def test_a_receiver_of_replies_too_many_is_refused_alone(kept: Secured) -> None:
    with kept.connected("bob") as bob:
        for number in range(10):
            bob.create_receiver("$management", name=f"replies {number}")
        with pytest.raises(LinkDetached, match="made 10 nodes"):
            bob.create_receiver("$management", name="one more")
        assert bob.create_sender("bob.still").link.state


def test_half_a_character_names_no_dead_letter_queue(broker: RunningBroker) -> None:
    """As JSON may have it, and AMQP can't say it."""
    api = Api(broker)
    raw = rb'{"name": "q", "arguments": {"dead_letter_address": "half \ud800"}}'
    answer = api.call("POST", "/queues", raw=raw)
    assert answer.status == 400
    assert "the name of a node" in answer.error
    with Management(broker.url) as management:
        assert management.call("QUERY", QUEUE, body={}).status == 200


def test_answers_that_nobody_reads_are_bounded_for_a_connection(start_broker: StartBroker) -> None:
    """However many places it has them sent to: nobody else's producers pay for them."""
    broker = start_broker("limits: {control_share: 1}\n")
    with Management(broker.url) as management:
        for number in range(200):
            management.call("CREATE", QUEUE, f"{number}-{'x' * 200}", {})
    with connected(broker.url, "deaf") as input_stopped, Management(broker.url) as management:
        for number in range(20):
            input_stopped.create_receiver(
                "$management", name=f"in{number}", credit=0, options=Into(f"place {number}")
            )
        requests = input_stopped.create_sender("$management")
        ask = {"operation": "QUERY", "entityType": QUEUE}
        for number in range(400):
            requests.send(Message(reply_to=f"place {number % 20}", properties=ask, body={}))

        def held() -> int:
            found: Any = management.call("READ", "org.sluice.broker").body
            return int(found["depth_bytes"])

        # Requests are accepted before they are answered, each in its turn.
        wait_until(lambda: held() > 10 << 20, 30, "answers that nobody reads")
        broker.wait_for_log("those before it are not read", 30)
        assert 10 << 20 < held() < 20 << 20


class Into(LinkOption):
    """What a receiver calls the place it wants its messages in."""

    def __init__(self, address: str) -> None:
        self.address = address

    def apply(self, link: Link) -> None:
        """Before the link is opened."""
        link.target.address = self.address


def test_who_lets_go_of_nothing_that_was_refused_is_closed(kept: Secured) -> None:
    with attaching(kept, detaching=False) as peer:
        peer.await_end()
        assert peer.log[-1].condition == "amqp:resource-limit-exceeded"
        assert "20 links were refused and not detached" in str(peer.log[-1].error)


def test_who_lets_go_of_it_may_try_as_often_as_it_likes(kept: Secured) -> None:
    with attaching(kept, detaching=True) as peer:
        for _ in range(200):
            assert peer.expect(DETACH).condition == "amqp:unauthorized-access"


@contextmanager
def attaching(kept: Secured, *, detaching: bool) -> Iterator[RawPeer]:
    """A peer that attaches two hundred times where it may not."""
    with RawPeer(kept.broker.port).open().begin() as peer:
        for number in range(200):
            modes, termini = (UByte(2), UByte(0)), (Described(SOURCE, ["elsewhere"]), Described(TARGET))
            peer.send(performative(ATTACH, f"link {number}", number, RECEIVER, *modes, *termini))
            if detaching:
                peer.send(performative(DETACH, number, True))
            elif number == 100:
                # What comes in one read is looked at before any of it is answered.
                peer.expect(DETACH)
        yield peer
