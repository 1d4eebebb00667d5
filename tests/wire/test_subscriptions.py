"""What receivers take from topics, and what is kept for them while they are away."""

from __future__ import annotations

import json
import signal

import pytest
from proton import Described, Endpoint, Terminus, symbol
from proton.utils import BlockingReceiver, LinkDetached

from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.seeing import number_of, queue_of
from tests.wire.terminus import Asks, close, connected, detach, flush, is_silent, selector, send, take

pytestmark = pytest.mark.wire

POLICIES = "policies:\n  - {match: 'news.>', kind: topic}\n"


@pytest.fixture
def news(start_broker: StartBroker) -> RunningBroker:
    """A broker whose `news.>` are topics."""
    return start_broker(policies=POLICIES)


def subscriptions(broker: RunningBroker) -> list[str]:
    """The names of all there are."""
    done = run_sluice("stat", "-q", "--json", "-b", broker.url)
    done.check_returncode()
    answer = json.loads(done.stdout)
    return sorted(row["name"] for row in answer["queues"] if row["kind"] == "subscription")


def test_wildcards_take_from_topics_there_are_and_topics_to_come(news: RunningBroker) -> None:
    with connected(news.url) as connection:
        french = connection.create_sender("news.eu.fr")
        one = connection.create_receiver("news.eu.*", credit=10)
        rest = connection.create_receiver("news.>", credit=10)
        hashed = connection.create_receiver("news.eu.#", credit=10)
        american = connection.create_sender("news.us.ny")
        german = connection.create_sender("news.eu.de")
        deep = connection.create_sender("news.eu.de.by")
        for body, sender in (("fr", french), ("ny", american), ("de", german), ("by", deep)):
            send(sender, body)
        assert take(one, 2) == ["fr", "de"]
        assert take(rest, 4) == ["fr", "ny", "de", "by"]
        assert take(hashed, 3) == ["fr", "de", "by"]
        assert is_silent(one)
        close(one)
        send(french, "again")
        assert take(hashed, 1) == ["again"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((), ["topic"]),
        (("queue",), ["topic"]),
        (("topic",), ["topic"]),
        (("temporary-topic", "shared"), ["temporary-topic", "shared"]),
        (("shared", "x-other"), ["shared", "x-other", "topic"]),
    ],
)
def test_a_receiver_is_told_that_it_has_a_topic(
    news: RunningBroker, asked: tuple[str, ...], told: list[str]
) -> None:
    """Each of its links is sent everything: who opens several to share the work must know."""
    with connected(news.url) as connection:
        offered = connection.create_receiver("news.a", options=Asks(*asked)).link.remote_source.capabilities
        offered.rewind()
        assert offered.next() is not None
        assert [str(each) for each in offered.get_object().elements] == told


def test_a_topic_that_is_deleted_leaves_the_pattern_its_others(news: RunningBroker) -> None:
    with connected(news.url) as connection:
        receiver = connection.create_receiver("news.*", credit=10)
        first = connection.create_sender("news.a")
        send(first, "a")
        close(first)
        sender = connection.create_sender("news.b")
        run_sluice("config", "-b", news.url, "del", "topic", "news.a").check_returncode()
        send(sender, "b")
        assert take(receiver, 2) == ["a", "b"]


def test_a_stopped_pattern_subscription_stops_the_publishers_of_all_its_topics(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: 'news.>', kind: topic, flow_stop_count: 4, flow_resume_count: 2}\n"
    )
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("news.*", credit=10)
        one, other = connection.create_sender("news.a"), connection.create_sender("news.b")
        send(one, 1, 2)
        send(other, 3, 4)
        [name] = subscriptions(broker)
        assert queue_of(broker, name, "subscription")["flowStopped"] is True
        connection.wait(lambda: one.link.credit == other.link.credit == 0, msg="the credit to be taken")
        assert take(receiver, 4) == [1, 2, 3, 4]
        send(one, 5)
        send(other, 6)
        assert take(receiver, 2) == [5, 6]


def lasting(
    connection: object, topic: str = "news.all", name: str = "sub", **asks: object
) -> BlockingReceiver:
    """A durable subscription as JMS makes it."""
    wanted = Asks(durable=True, expiry=Terminus.EXPIRE_NEVER, **asks)  # type: ignore[arg-type]
    receiver: BlockingReceiver = connection.create_receiver(topic, credit=50, name=name, options=wanted)  # type: ignore[attr-defined]
    return receiver


def test_a_durable_subscription_keeps_what_comes_meanwhile(news: RunningBroker) -> None:
    with connected(news.url) as publisher:
        sender = publisher.create_sender("news.all")
        with connected(news.url, "app") as connection:
            receiver = lasting(connection)
            send(sender, 1)
            assert take(receiver, 1) == [1]
            detach(receiver)
        send(sender, 2, 3)
        with connected(news.url, "other") as stranger:
            receiver = lasting(stranger)
            assert is_silent(receiver)
        with connected(news.url, "app") as connection:
            receiver = lasting(connection)
            assert take(receiver, 2) == [2, 3]
            close(receiver)
        assert subscriptions(news) == ["news.all/other.sub"]
        send(sender, 4)
        with connected(news.url, "app") as connection:
            assert is_silent(lasting(connection))


def test_it_outlives_a_connection_that_is_lost(news: RunningBroker) -> None:
    with connected(news.url) as publisher:
        sender = publisher.create_sender("news.all")
        with connected(news.url, "app") as connection:
            receiver = lasting(connection)
            send(sender, 1, 2)
            assert receiver.receive(timeout=20).body == 1
        with connected(news.url, "app") as connection:
            assert take(lasting(connection), 2) == [1, 2]


def test_jms_unsubscribes_by_the_link_name_alone(news: RunningBroker) -> None:
    with connected(news.url, "app") as connection:
        detach(lasting(connection))
        assert subscriptions(news) == ["news.all/app.sub"]
        receiver = connection.create_receiver(None, name="sub")
        assert receiver.link.remote_source.address == "news.all"
        close(receiver)
        assert subscriptions(news) == []
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            connection.create_receiver(None, name="sub")


def test_another_topic_or_filter_under_the_same_name_begins_anew(news: RunningBroker) -> None:
    with connected(news.url) as publisher, connected(news.url, "app") as connection:
        detach(lasting(connection))
        sender = publisher.create_sender("news.all")
        send(sender, 1)
        receiver = lasting(connection, filters=selector("n = 2"))
        assert is_silent(receiver)
        detach(receiver)
        send(sender, 2, properties={"n": 2})
        assert take(lasting(connection, filters=selector("n = 2")), 1) == [2]
        assert subscriptions(news) == ["news.all/app.sub"]


@pytest.mark.parametrize("stop", ["in order", "kill"])
def test_a_durable_subscription_survives_a_restart(start_broker: StartBroker, stop: str) -> None:
    policies = "policies:\n  - {match: 'news.>', kind: topic, durable: true}\n"
    broker = start_broker(policies=policies)
    with connected(broker.url) as publisher, connected(broker.url, "app") as connection:
        detach(lasting(connection, filters=selector("n > 1")))
        detach(lasting(connection, "news.*", "wide"))
        sender = publisher.create_sender("news.all")
        for number in range(4):
            send(sender, number, properties={"n": number}, durable=True)
    if stop == "kill":
        broker.signal(signal.SIGKILL)
        broker.process.wait(10)
    else:
        broker.stop()
    data = broker.config_file.parent / "data"
    broker = start_broker(policies=policies, args=("--data", str(data)))
    with connected(broker.url, "app") as connection, connected(broker.url) as publisher:
        assert subscriptions(broker) == ["news.*/app.wide", "news.all/app.sub"]
        narrow = lasting(connection, filters=selector("n > 1"))
        wide = lasting(connection, "news.*", "wide")
        assert take(narrow, 2) == [2, 3]
        assert take(wide, 4) == [0, 1, 2, 3]
        sender = publisher.create_sender("news.all")
        for number in (1, 5):
            send(sender, number, properties={"n": number})
        assert take(narrow, 1) == [5]
        assert take(wide, 2) == [1, 5]


@pytest.mark.parametrize(
    ("expiry", "after_detach", "after_end", "after_close"),
    [
        (Terminus.EXPIRE_WITH_LINK, False, False, False),
        (Terminus.EXPIRE_WITH_SESSION, True, False, False),
        (Terminus.EXPIRE_WITH_CONNECTION, True, True, False),
        (Terminus.EXPIRE_NEVER, True, True, True),
    ],
)
def test_each_expiry_policy(
    news: RunningBroker, expiry: int, after_detach: bool, after_end: bool, after_close: bool
) -> None:
    with connected(news.url, "app") as connection:
        receiver = connection.create_receiver("news.all", name="sub", options=Asks(expiry=expiry))
        detach(receiver)
        assert bool(subscriptions(news)) == after_detach
        session = receiver.link.session
        session.close()
        connection.wait(lambda: bool(session.state & Endpoint.REMOTE_CLOSED))
        wait_until(lambda: bool(subscriptions(news)) == after_end, 20, "the session's end to be heard")
    wait_until(lambda: bool(subscriptions(news)) == after_close, 20, "the close to be heard")


def test_an_expiry_timeout_is_waited_for(news: RunningBroker) -> None:
    # Time enough to come back within it on a machine that is busy.
    wanted = Asks(expiry=Terminus.EXPIRE_WITH_LINK, timeout=5)
    with connected(news.url, "app") as connection, connected(news.url) as publisher:
        sender = publisher.create_sender("news.all")
        for body in (1, 2):
            detach(connection.create_receiver("news.all", name="sub", options=wanted))
            send(sender, body)
        assert take(connection.create_receiver("news.all", name="sub", credit=5, options=wanted), 2) == [1, 2]
        detach(connection.create_receiver("news.all", name="other", options=wanted))
        # The first detaches' times run out meanwhile: who came back is not concerned.
        wait_until(lambda: len(subscriptions(news)) == 1, 20, "the timeout")


def test_receivers_of_one_connection_share(news: RunningBroker) -> None:
    with connected(news.url, "app") as connection:
        names = ("sub|volatile1", "sub|volatile2")
        shared = [
            connection.create_receiver("news.all", name=name, credit=10, options=Asks("shared"))
            for name in names
        ]
        alone = connection.create_receiver("news.all", credit=20)
        send(connection.create_sender("news.all"), *range(10))
        assert take(alone, 10) == list(range(10))
        assert sorted(take(shared[0], 5) + take(shared[1], 5)) == list(range(10))
        assert subscriptions(news)[0] == "news.all/app.sub"
        close(shared[0])
        assert len(subscriptions(news)) == 2
        close(shared[1])
        assert len(subscriptions(news)) == 1


def test_a_durable_subscription_shared_by_all_is_kept_until_somebody_ends_it(news: RunningBroker) -> None:
    wanted = Asks("shared", "global", durable=True, expiry=Terminus.EXPIRE_NEVER)
    with connected(news.url) as publisher:
        sender = publisher.create_sender("news.all")
        with connected(news.url, "one") as one, connected(news.url, "two") as two:
            for connection in (one, two):
                detach(connection.create_receiver("news.all", name="sub|global", options=wanted))
        send(sender, 1, 2)
        with connected(news.url, "three") as connection:
            receiver = connection.create_receiver("news.all", name="sub|global", credit=5, options=wanted)
            assert take(receiver, 2) == [1, 2]
            detach(receiver)
            assert subscriptions(news) == ["news.all/sub"]
            close(connection.create_receiver(None, name="sub|global"))
        assert subscriptions(news) == []


def test_the_same_subscriber_on_another_connection_takes_it_over(news: RunningBroker) -> None:
    with connected(news.url) as publisher, connected(news.url, "app") as second:
        sender = publisher.create_sender("news.all")
        with connected(news.url, "app") as first:
            receiver = lasting(first)
            send(sender, 1, 2)
            assert receiver.receive(timeout=20).body == 1
            other = lasting(second)
            with pytest.raises(LinkDetached, match="amqp:link:stolen"):
                flush(first)
        assert take(other, 2) == [1, 2]


def test_no_local_keeps_a_connection_from_what_it_publishes_itself(news: RunningBroker) -> None:
    asks = Asks(filters={"no-local": Described(symbol("apache.org:no-local-filter:list"), [])})
    with connected(news.url) as here, connected(news.url) as there:
        receiver = here.create_receiver("news.all", credit=10, options=asks)
        mine, theirs = here.create_sender("news.all"), there.create_sender("news.all")
        send(mine, "mine")
        send(here.create_sender(None), "mine by relay", address="news.all")
        send(theirs, "theirs")
        assert take(receiver, 1) == ["theirs"]
        assert is_silent(receiver)


def test_a_subscription_takes_in_only_what_its_filter_wants(news: RunningBroker) -> None:
    with connected(news.url) as connection:
        receiver = connection.create_receiver(
            "news.all", credit=10, options=Asks(filters=selector("colour = 'red'"))
        )
        sender = connection.create_sender("news.all")
        for number, colour in enumerate(("red", "blue", "red")):
            send(sender, number, properties={"colour": colour})
        assert take(receiver, 2) == [0, 2]
        [name] = subscriptions(news)
        assert number_of(news, name, "depth_msgs", "subscription") == 0
