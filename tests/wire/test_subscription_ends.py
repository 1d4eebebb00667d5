"""When a subscription ends that nobody receives from, who may end it, and what it counts for until then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from proton import Endpoint, Link, Terminus
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from broker.client.request import Management
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    ATTACH,
    CLOSE,
    DETACH,
    RECEIVER,
    SOURCE,
    TARGET,
    Described,
    RawPeer,
    Symbol,
    UByte,
    performative,
)
from tests.wire.secured import Secured
from tests.wire.seeing import memory_kb
from tests.wire.terminus import LASTING, Asks, close, connected, detach, flush, is_silent, send, take

pytestmark = pytest.mark.wire

POLICIES = "policies:\n  - {match: 'news.>', kind: topic}\n"
SHARED_BY_ALL = Asks("shared", "global", durable=True, expiry=Terminus.EXPIRE_NEVER)
LONGEST_S = (1 << 32) - 1


class NoSource(LinkOption):
    """Asks for what is known by the link's name."""

    def apply(self, link: Link) -> None:
        """Before the link is opened."""
        link.source.type = Terminus.UNSPECIFIED


def for_seconds(timeout: int) -> Asks:
    """A subscription that is kept so long once its link is detached."""
    return Asks(expiry=Terminus.EXPIRE_WITH_LINK, timeout=timeout)


def subscribed(
    connection: BlockingConnection, topic: str, asks: Asks, name: str = "sub", credit: int = 10
) -> BlockingReceiver:
    receiver: BlockingReceiver = connection.create_receiver(topic, name=name, credit=credit, options=asks)
    return receiver


def subscriptions(url: str) -> list[str]:
    """The names of all there are."""
    with Management(url) as management:
        asked = {"attributeNames": ["name"]}
        body: Any = management.call("QUERY", "org.sluice.subscription", body=asked).body
    return sorted(name for [name] in body["results"])


@pytest.fixture
def news(start_broker: StartBroker) -> RunningBroker:
    """A broker whose `news.>` are topics."""
    return start_broker(policies=POLICIES)


# --- when


def test_who_leaves_again_has_the_whole_time_again(news: RunningBroker) -> None:
    with connected(news.url, "app") as connection:
        detach(subscribed(connection, "news.a", for_seconds(2)))
        first_over = time.monotonic() + 2
        time.sleep(1.2)
        again = subscribed(connection, "news.a", for_seconds(2))
        left = time.monotonic()
        detach(again)
        time.sleep(max(0.0, first_over + 0.3 - time.monotonic()))
        found = subscriptions(news.url)
        # Who asks too late, on a machine that is busy, finds the second time over as well.
        assert found == ["news.a/app.sub"] or time.monotonic() - left >= 2
        wait_until(lambda: not subscriptions(news.url), 10, "its second time to be over")
        assert time.monotonic() - left > 1.9


def test_who_comes_back_for_good_is_not_ended_by_an_earlier_time(news: RunningBroker) -> None:
    with connected(news.url, "app") as connection:
        detach(subscribed(connection, "news.a", for_seconds(1)))
        receiver = subscribed(connection, "news.a", LASTING)
        detach(receiver)
        send(connection.create_sender("news.a"), "kept")
        time.sleep(1.3)
        assert take(subscribed(connection, "news.a", LASTING), 1) == ["kept"]


def test_an_earlier_time_does_not_end_another_of_the_same_name(news: RunningBroker) -> None:
    with connected(news.url, "app") as connection:
        detach(subscribed(connection, "news.a", for_seconds(1)))
        receiver = subscribed(connection, "news.b", LASTING)
        time.sleep(1.3)
        detach(receiver)
        send(connection.create_sender("news.b"), "kept")
        assert subscriptions(news.url) == ["news.b/app.sub"]
        receiver = subscribed(connection, "news.b", LASTING)
        assert take(receiver, 1) == ["kept"]
        close(receiver)
    assert subscriptions(news.url) == []


def test_the_end_of_the_session_first_left_in_does_not_end_what_was_come_back_to(news: RunningBroker) -> None:
    with connected(news.url, "app") as connection, connected(news.url, "app") as later:
        receiver = subscribed(connection, "news.a", Asks(expiry=Terminus.EXPIRE_WITH_SESSION))
        detach(receiver)
        detach(subscribed(later, "news.a", LASTING))
        session = receiver.link.session
        session.close()
        connection.wait(lambda: bool(session.state & Endpoint.REMOTE_CLOSED))
        assert len(subscriptions(news.url)) == 1


def test_the_last_of_those_who_share_it_says_how_long_it_stays(news: RunningBroker) -> None:
    brief = Asks("shared", expiry=Terminus.EXPIRE_WITH_LINK, timeout=1)
    lasting = Asks("shared", durable=True, expiry=Terminus.EXPIRE_NEVER)
    with connected(news.url, "app") as connection:
        one = subscribed(connection, "news.a", brief, "sub|1")
        other = subscribed(connection, "news.a", lasting, "sub|2")
        detach(one)
        detach(other)
        time.sleep(1.3)
        assert subscriptions(news.url) == ["news.a/app.sub"]
        detach(subscribed(connection, "news.a", brief, "sub|1"))
        wait_until(lambda: not subscriptions(news.url), 10, "the time of the last one to be over")


def test_connections_that_left_a_time_behind_are_let_go(broker: RunningBroker) -> None:
    """A thousand of them with the longest time there is had taken 40 MB for as long as that."""

    def come_and_go(times: int) -> None:
        fields = ["news", 0, Symbol("connection-close"), LONGEST_S, *[None] * 6, Symbol("topic")]
        for _ in range(times):
            with RawPeer(broker.port) as peer:
                peer.open(container="app").begin()
                modes = (UByte(2), UByte(0))
                termini = (Described(SOURCE, fields), Described(TARGET))
                peer.send(performative(ATTACH, "sub", 0, RECEIVER, *modes, *termini))
                peer.expect(ATTACH)
                peer.send(performative(CLOSE))
                peer.await_end()

    broker.settle()
    come_and_go(100)
    before = memory_kb(broker)
    come_and_go(250)
    assert memory_kb(broker) - before < 6000
    assert len(subscriptions(broker.url)) == 1


# --- who


RULES = """\
rules:
  - allow: connect
  - allow: all
    groups: [operators]
  - allow: [send, receive, create]
    addresses: ["${user}.#"]
"""
USERS = {"alice": "", "bob": "", "root": "operators"}
TOPICS = "policies:\n  - {match: '#', kind: topic}\n"


def test_nobody_ends_a_shared_one_by_its_name_who_may_not_take_from_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    secured = Secured(start_broker, tmp_path, RULES, USERS, policies=TOPICS)
    with secured.connected("alice") as alice, secured.connected("bob") as bob:
        detach(subscribed(alice, "alice.news", SHARED_BY_ALL, "jobs"))
        send(alice.create_sender("alice.news"), "one", "two")
        with pytest.raises(LinkDetached, match="amqp:resource-locked") as refused:
            subscribed(bob, "bob.news", SHARED_BY_ALL, "jobs")
        assert "subscription 'jobs' is another user's" in str(refused.value)
        assert "alice" not in str(refused.value)
        assert subscriptions(secured.url("root")) == ["alice.news/jobs"]
        receiver = subscribed(alice, "alice.news", SHARED_BY_ALL, "jobs")
        assert take(receiver, 2) == ["one", "two"]
        detach(receiver)
    with secured.connected("root") as root:
        subscribed(root, "root.news", SHARED_BY_ALL, "jobs")
        assert subscriptions(secured.url("root")) == ["root.news/jobs"]


def test_a_subscription_is_of_one_virtual_host(start_broker: StartBroker) -> None:
    broker = start_broker("virtual_hosts: [shop]\n", TOPICS)
    with connected(broker.url, "app", host="shop") as shop, connected(broker.url, "app") as common:
        for connection, name in ((shop, "sub"), (common, "mine")):
            detach(subscribed(connection, "news", LASTING, name))
            send(connection.create_sender("news"), name)
        for stranger, name in ((common, "sub"), (shop, "mine")):
            with pytest.raises(LinkDetached, match="amqp:not-found"):
                stranger.create_receiver(None, name=name, options=NoSource())
            with pytest.raises(LinkDetached, match="amqp:resource-locked"):
                subscribed(stranger, "other", LASTING, name)
        for connection, name in ((shop, "sub"), (common, "mine")):
            receiver = connection.create_receiver(None, name=name, credit=10, options=NoSource())
            assert take(receiver, 1) == [name]


@pytest.mark.parametrize("pattern", ["#", ">", "*"])
def test_a_pattern_takes_nothing_from_what_was_made_for_anothers_link(
    start_broker: StartBroker, tmp_path: Path, pattern: str
) -> None:
    rules = "rules:\n  - allow: [connect, send, receive, create]\n"
    secured = Secured(start_broker, tmp_path, rules, USERS, policies=TOPICS)
    with secured.connected("alice") as alice, secured.connected("bob") as bob:
        before = subscribed(bob, pattern, Asks("topic"), "before")
        replies = alice.create_receiver(None, dynamic=True, credit=10, options=Asks("topic"))
        after = subscribed(bob, pattern, Asks("topic"), "after")
        address = replies.link.remote_source.address or ""
        assert address.startswith("$temporary/")
        send(alice.create_sender(address), "secret")
        assert take(replies, 1) == ["secret"]
        assert is_silent(before, 0.2)
        assert is_silent(after, 0.2)
        send(alice.create_sender("news"), "for all")
        assert take(before, 1) == take(after, 1) == ["for all"]


# --- how many


@pytest.mark.parametrize("expiry", ["session-end", "connection-close", "never"])
def test_what_outlives_its_link_counts_for_its_user(start_broker: StartBroker, expiry: str) -> None:
    broker = start_broker("limits: {max_nodes_per_user: 5}\n", POLICIES)
    with RawPeer(broker.port) as peer:
        peer.open().begin()

        def attach(number: int, policy: str) -> bool:
            termini = (Described(SOURCE, ["news.a", 0, Symbol(policy), 0]), Described(TARGET))
            peer.send(performative(ATTACH, f"l{number}", number, RECEIVER, UByte(2), UByte(0), *termini))
            source: Any = peer.expect(ATTACH).field(5)
            return source is not None

        def leave(number: int) -> None:
            peer.send(performative(DETACH, number, False))
            peer.expect(DETACH)

        for number in range(4):  # and their topic
            assert attach(number, expiry)
            leave(number)
        assert not attach(4, expiry)
        assert peer.expect(DETACH).condition == "amqp:resource-limit-exceeded"
        for number in range(5, 10):  # those that go with their links don't count
            assert attach(number, "link-detach")
        assert attach(0, expiry)  # nor does whoever comes back


def test_one_that_goes_with_its_link_counts_once_a_second_receiver_lets_it_stay(
    start_broker: StartBroker,
) -> None:
    broker = start_broker("limits: {max_nodes_per_user: 2}\n", POLICIES)
    brief = Asks("shared", expiry=Terminus.EXPIRE_WITH_LINK)
    staying = Asks("shared", expiry=Terminus.EXPIRE_WITH_CONNECTION)
    with connected(broker.url, "app") as connection:
        for name in ("one", "two"):
            subscribed(connection, "news.a", brief, f"{name}|1")
        detach(subscribed(connection, "news.a", staying, "one|2"))
        with pytest.raises(LinkDetached, match="amqp:resource-limit-exceeded"):
            subscribed(connection, "news.a", staying, "two|2")
        flush(connection)
