"""A name is one thing's: a queue's, a topic's or a subscription's, and every start knows which."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proton import Terminus
from proton.utils import LinkDetached

from tests.wire.apiclient import Api, quoted
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.terminus import LASTING, Asks, close, connected, detach, flush, send, take
from tools.archives import unpack

pytestmark = pytest.mark.wire

POLICIES = """
policies:
  - {match: "news.#", kind: topic, durable: true}
  - {match: ">", durable: true}
"""
TOPIC = "news.eu"
# What a durable subscription of the link "d" of the container "reader" is called.
NAME = "news.eu/reader.d"
HERE = Path(__file__).parent / "data"

Again = Callable[..., RunningBroker]


@pytest.fixture
def again(tmp_path: Path) -> Iterator[Again]:
    """Start a broker on one data directory, after the one before was killed or stopped."""
    running: list[RunningBroker] = []

    def start(kill: bool = False, policies: str = POLICIES) -> RunningBroker:
        if running:
            if kill:
                running[-1].signal(signal.SIGKILL)
            assert running[-1].stop() == (-signal.SIGKILL if kill else 0)
        running.append(RunningBroker(tmp_path / "broker", "", policies, ()))
        return running[-1]

    yield start
    if running:
        running[-1].stop()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker that is yet to be started."""
    (tmp_path / "broker").mkdir()
    return tmp_path / "broker" / "data"


def subscribe(broker: RunningBroker, topic: str = TOPIC, container: str = "reader", link: str = "d") -> None:
    """A durable subscription, whose receiver goes again."""
    with connected(broker.url, container) as connection:
        detach(connection.create_receiver(topic, name=link, options=LASTING))


def publish(broker: RunningBroker, address: str, *bodies: str) -> None:
    with connected(broker.url) as connection:
        send(connection.create_sender(address), *bodies, durable=True)


def received(broker: RunningBroker, count: int, topic: str = TOPIC) -> list[str]:
    """What the subscription of `subscribe` has, taken."""
    with connected(broker.url, "reader") as connection:
        receiver = connection.create_receiver(topic, name="d", options=LASTING)
        found = take(receiver, count)
        detach(receiver)
    return found


def names(api: Api, kind: str) -> list[str]:
    return sorted(each["name"] for each in api.get(f"/{kind}s")["items"])


# --- a name is taken, whoever bears it


def test_nothing_can_be_made_with_a_subscription_s_name_and_every_start_goes_well(again: Again) -> None:
    broker = again()
    subscribe(broker)
    publish(broker, TOPIC, "kept")
    with connected(broker.url) as connection:
        for link in (connection.create_sender, connection.create_receiver):
            with pytest.raises(LinkDetached) as refused:
                link(NAME)
            assert refused.value.condition == "amqp:precondition-failed"
            assert "is the name of a subscription" in str(refused.value)
    for kill in (False, True):
        broker = again(kill=kill)
        assert names(Api(broker), "subscription") == [NAME]
        assert names(Api(broker), "topic") == [TOPIC]
    assert received(broker, 1) == ["kept"]


def test_every_way_to_make_a_node_is_refused_a_subscription_s_name(again: Again) -> None:
    broker = again()
    api = Api(broker)
    subscribe(broker)
    for kind in ("queue", "topic"):
        assert "subscription" in api.post(f"/{kind}s", {"name": NAME}, 409)["error"]
    api.post("/bindings", {"source": NAME, "target": "q"}, 409)
    api.post("/bindings", {"source": "news.us", "target": NAME}, 409)
    # A refusal makes no node.
    assert (names(api, "queue"), names(api, "topic")) == ([], [TOPIC])
    api.post("/queues", {"name": "q"}, 201)
    publish(broker, "q", "here")
    api.post("/queues/q/move", {"target": NAME}, 409)
    assert api.get("/queues/q")["depth_msgs"] == 1


def test_a_subscription_whose_name_is_taken_has_another(again: Again) -> None:
    broker = again()
    Api(broker).post("/queues", {"name": NAME}, 201)
    publish(broker, NAME, "queued")
    subscribe(broker)
    publish(broker, TOPIC, "news")
    broker = again(kill=True)
    api = Api(broker)
    (name,) = names(api, "subscription")
    assert name.startswith(f"{NAME}/s")
    assert api.get(f"/queues/{quoted(NAME)}")["depth_msgs"] == 1
    assert api.get(f"/subscriptions/{quoted(name)}")["depth_msgs"] == 1
    assert received(broker, 1) == ["news"]


def test_a_passing_subscription_takes_no_name_that_survived(again: Again) -> None:
    """Their numbers begin anew at each start; a lasting one may be called like one of them."""
    broker = again()
    with connected(broker.url) as connection:
        asks = Asks("shared", "global", durable=True, expiry=Terminus.EXPIRE_NEVER)
        detach(connection.create_receiver(TOPIC, name="s1|global", options=asks))
    broker = again()
    assert names(Api(broker), "subscription") == [f"{TOPIC}/s1"]
    with connected(broker.url) as connection:
        connection.create_receiver(TOPIC)
        assert names(Api(broker), "subscription") == [f"{TOPIC}/s1", f"{TOPIC}/s2"]


def test_dead_letters_wait_while_a_subscription_has_the_name_of_where_they_go(again: Again) -> None:
    broker = again()
    api = Api(broker)
    api.post("/topics", {"name": "t"}, 201)
    subscribe(broker, "t")
    name = "t/reader.d"
    api.post("/queues", {"name": "q", "arguments": {"dead_letter_address": name}}, 201)
    publish(broker, "q", "refused")
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("q")
        receiver.receive(10)
        receiver.reject()
        flush(connection)
        close(receiver)
    shown = api.get("/queues/q")
    assert (shown["depth_msgs"], shown["unsettled_msgs"]) == (1, 1)
    api.delete(f"/subscriptions/{quoted(name)}")
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("q")
        receiver.receive(10)
        receiver.reject()
        flush(connection)
        wait_until(lambda: name in names(api, "queue"), 10, "the queue of the dead letters")
        wait_until(lambda: api.get(f"/queues/{quoted(name)}")["depth_msgs"] == 1, 10, "the letter")
        assert api.get("/queues/q")["depth_msgs"] == 0


# --- what an earlier version let happen


def check_both(broker: RunningBroker, kind: str, bodies: list[str]) -> None:
    """A node and a subscription that had one name can both be seen, and the subscription be purged and
    deleted.
    """
    api = Api(broker)
    (name,) = names(api, "subscription")
    assert name.startswith(f"{NAME}/s")
    assert api.get(f"/{kind}s/{quoted(NAME)}")["name"] == NAME
    shown = api.get(f"/subscriptions/{quoted(name)}")
    assert (shown["depth_msgs"], shown["topic"]) == (len(bodies), TOPIC)
    assert api.get(f"/why/{quoted(name)}")["answers"][0]["node"] == name
    assert received(broker, len(bodies)) == bodies
    publish(broker, TOPIC, "more")
    assert api.get(f"/subscriptions/{quoted(name)}")["depth_msgs"] == 1
    assert api.post(f"/queues/{quoted(name)}/purge", {})["purged"] == 1
    api.delete(f"/subscriptions/{quoted(name)}")
    assert names(api, "subscription") == []
    assert NAME in names(api, kind)


def test_a_directory_of_an_earlier_version_with_a_topic_of_a_subscription_s_name_opens(
    again: Again, data: Path
) -> None:
    """Version 1.0 wrote it: a durable subscription, one message in it, and a sender to its name."""
    unpack(HERE / "two-of-a-name.tar.xz", data.parent)
    broker = again()
    check_both(broker, "topic", ["kept"])
