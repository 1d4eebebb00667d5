"""Settings that an attach brings for the node it makes: Qpid's arguments in dynamic-node-properties."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from proton import Described, Link, Terminus, symbol, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached

from broker.codec.owned import owned
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.secured import Secured
from tests.wire.seeing import queue_of
from tests.wire.terminus import connected, send

pytestmark = pytest.mark.wire

_numbers = count(1)
BOUNDS = {"qpid.max_count": ulong(100), "qpid.flow_stop_count": 80, "qpid.flow_resume_count": 50}


class Properties(LinkOption):
    """Node properties of a terminus; a key is a symbol unless it says otherwise itself."""

    def __init__(self, asked: Mapping[str, Any], lifetime: int = 0) -> None:
        self.asked = {symbol(key): value for key, value in asked.items()}
        if lifetime:
            self.asked[symbol("lifetime-policy")] = Described(ulong(lifetime), [])

    def apply(self, link: Link) -> None:
        """Before the link is opened."""
        (link.target if link.is_sender else link.source).properties.put_object(self.asked)


def told(terminus: Terminus) -> dict[str, Any]:
    """What the broker's answer says of the node, but for its lifetime."""
    data = terminus.properties
    data.rewind()
    found = owned(data.get_object()) if data.next() is not None else {}
    return {str(key): value for key, value in found.items() if str(key) != "lifetime-policy"}


def thresholds(broker: RunningBroker, name: str, kind: str = "queue") -> tuple[int, int, int]:
    found = queue_of(broker, name, kind)
    names = ("max_count", "flow_stop_count", "flow_resume_count")
    one, two, three = (int(str(found[each])) for each in names)
    return one, two, three


def attach(connection: BlockingConnection, address: str | None, asked: Mapping[str, Any]) -> Terminus:
    """A sender to an address, or without one a receiver from a dynamic node, that brings these."""
    options, name = Properties(asked), f"link{next(_numbers)}"
    if address is None:
        receiver = connection.create_receiver(None, dynamic=True, name=name, options=options)
        return receiver.link.remote_source
    return connection.create_sender(address, name=name, options=options).link.remote_target


def asking(connection: BlockingConnection, address: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of it."""
    return told(attach(connection, address, asked))


def refusal(connection: BlockingConnection, address: str | None, asked: Mapping[str, Any]) -> str:
    with pytest.raises(LinkDetached) as refused:
        attach(connection, address, asked)
    assert refused.value.condition == "amqp:invalid-field"
    return str(refused.value)


def test_a_queue_that_an_attach_makes_has_what_it_brings(broker: RunningBroker) -> None:
    everything = BOUNDS | {
        "qpid.max_size": ulong(1 << 20),
        "qpid.flow_stop_size": 1 << 19,
        "qpid.flow_resume_size": 1 << 18,
        "qpid.policy_type": "ring",
    }
    with connected(broker.url) as connection:
        assert asking(connection, "orders", everything) == everything
        found = queue_of(broker, "orders")
        assert thresholds(broker, "orders") == (100, 80, 50)
        assert (found["max_size"], found["flow_stop_size"], found["flow_resume_size"]) == (
            1 << 20,
            1 << 19,
            1 << 18,
        )
        assert found["overflow"] == "ring"
    settings = {each["name"]: each for each in Api(broker).get("/explain/orders")["settings"]}
    assert settings["max_count"]["origin"] == "argument"


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_a_dynamic_node_has_what_its_link_brings(broker: RunningBroker, role: str) -> None:
    options = Properties(BOUNDS, lifetime=0x2B)
    with connected(broker.url) as connection:
        if role == "receiver":
            terminus = connection.create_receiver(None, dynamic=True, options=options).link.remote_source
        else:

            class Dynamic(Properties):
                def apply(self, link: Link) -> None:
                    super().apply(link)
                    link.target.dynamic = True

            terminus = connection.create_sender(None, options=Dynamic(BOUNDS)).link.remote_target
        assert told(terminus) == BOUNDS
        assert terminus.address is not None
        assert thresholds(broker, terminus.address) == (100, 80, 50)


def test_the_limit_holds(broker: RunningBroker) -> None:
    """The eleventh message waits for room, as it would on a queue that an operator made so."""
    asked = {"qpid.max_count": 20, "qpid.flow_stop_count": 10, "qpid.flow_resume_count": 10}
    with connected(broker.url) as connection:
        sender = connection.create_sender("orders", options=Properties(asked))
        send(sender, *range(10))
        assert queue_of(broker, "orders")["flowStopped"] is True
        connection.wait(lambda: sender.link.credit == 0, timeout=10, msg="the credit to be taken")


def test_a_queue_that_is_there_keeps_what_it_has_and_says_so(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        asking(connection, "orders", BOUNDS)
        assert asking(connection, "orders", {"qpid.max_count": 7}) == {"qpid.max_count": 100}
        assert thresholds(broker, "orders") == (100, 80, 50)
        # Nobody is told what it didn't ask for.
        assert asking(connection, "orders", {}) == {}


def test_a_topic_and_its_subscriptions_have_it(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("topic://news", options=Properties(BOUNDS))
        assert told(receiver.link.remote_source) == BOUNDS
        assert thresholds(broker, "news", "topic") == (100, 80, 50)


@pytest.mark.parametrize("address", ["orders", None])
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"qpid.max_cuont": 1}, "unknown argument 'qpid.max_cuont' (did you mean 'qpid.max_count'?)"),
        ({"qpid.priorities": 10}, "unknown argument 'qpid.priorities'"),
        ({"qpid.max_count": "many"}, "max_count: expected a whole number"),
        ({"qpid.max_count": -1}, "max_count: "),
        ({"qpid.max_count": True}, "max_count: "),
        ({"qpid.max_count": 1.5}, "max_count: "),
        ({"qpid.max_count": [1]}, "max_count: "),
        ({"qpid.policy_type": "page"}, "qpid.policy_type: expected one of"),
        ({"qpid.policy_type": 3}, "qpid.policy_type: expected one of"),
        ({"durable": "yes"}, "durable: expected true or false"),
        ({"qpid.max_count": 10, "qpid.flow_stop_count": 20}, "flow_stop_count 20 is more than max_count 10"),
    ],
)
def test_what_is_no_setting_is_refused_with_its_name(
    broker: RunningBroker, address: str | None, asked: Mapping[str, Any], reason: str
) -> None:
    with connected(broker.url) as connection:
        assert reason in refusal(connection, address, asked)
        assert Api(broker).get("/queues")["items"] == []
        # The connection goes on, and so does the name.
        assert asking(connection, "orders", BOUNDS) == BOUNDS


def test_what_only_advises_is_passed_over_and_told(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        assert asking(connection, "orders", {"qpid.alert_count": 5, "qpid.max_count": 9}) == {
            "qpid.max_count": 9
        }
    broker.wait_for_log("qpid.alert_count of a target's dynamic-node-properties is passed over")


POLICY = """\
policies:
  - match: "shop.#"
    max_count: 50
    overflow: reject
"""


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ({"qpid.max_count": 1000}, {"qpid.max_count": 50}),
        ({"qpid.max_count": 0}, {"qpid.max_count": 50}),
        ({"qpid.max_count": 20}, {"qpid.max_count": 20}),
        ({"qpid.flow_stop_count": 1000}, {"qpid.flow_stop_count": 50}),
        ({"qpid.policy_type": "ring"}, {"qpid.policy_type": "reject"}),
        (
            {"qpid.max_count": 90, "qpid.flow_stop_count": 80, "qpid.flow_resume_count": 10},
            {"qpid.max_count": 50, "qpid.flow_stop_count": 50, "qpid.flow_resume_count": 10},
        ),
    ],
)
def test_policies_are_the_most_a_client_may_ask_for(
    start_broker: StartBroker, asked: Mapping[str, Any], held: Mapping[str, Any]
) -> None:
    broker = start_broker(policies=POLICY)
    with connected(broker.url) as connection:
        assert asking(connection, "shop.orders", asked) == held


def test_a_durable_one_has_it_after_a_restart(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "broker", "", "", ())
    try:
        with connected(broker.url) as connection:
            assert asking(connection, "orders", BOUNDS | {"durable": True}) == BOUNDS | {"durable": True}
            send(connection.create_sender("orders", name="another"), "x", durable=True)
        broker.signal(signal.SIGKILL)
        broker.stop()
        broker = RunningBroker(tmp_path / "broker", "", "", ())
        assert thresholds(broker, "orders") == (100, 80, 50)
        assert queue_of(broker, "orders")["durable"] is True
    finally:
        broker.stop()


def test_without_the_right_to_create_nothing_is_made_or_looked_at(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Whether what it asks for is a setting at all makes no difference to the answer."""
    rules = "rules:\n  - allow: [connect, send, receive]\n    users: [otto]\n"
    secured = Secured(start_broker, tmp_path, rules, {"otto": ""})
    with secured.connected("otto") as connection:
        for asked in (BOUNDS, {"qpid.max_cuont": 1}):
            for address in ("orders", None):
                with pytest.raises(LinkDetached) as refused:
                    attach(connection, address, asked)
                assert refused.value.condition == "amqp:unauthorized-access"


def test_properties_that_are_no_map_of_settings_make_an_ordinary_queue(broker: RunningBroker) -> None:
    """As before: what isn't Qpid's is nobody's business here."""
    with connected(broker.url) as connection:
        assert asking(connection, "orders", {"x-opt-colour": "red", "supported-dist-modes": "move"}) == {}
        assert thresholds(broker, "orders")[0] == 0
