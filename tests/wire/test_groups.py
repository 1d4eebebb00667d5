"""Message groups over real sockets: one consumer a group, in order, whoever comes and goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from proton import Message, Timeout
from proton.reactor import AtMostOnce, Selector
from proton.utils import BlockingConnection, BlockingReceiver

from broker.cli.main import main
from broker.client.link import Connection
from broker.client.request import Management
from broker.errors import SluiceError
from tests.grouped import LAST, body_of, grouped
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, number_of, queue_of, update

pytestmark = pytest.mark.wire

POLICIES = """\
policies:
  - match: "#"
    durable: true
  - match: "work.>"
    message_groups: sticky
  - match: "work.marked"
    group_first_key: JMSXGroupFirstForConsumer
  - match: "work.moving"
    group_rebalance: true
  - match: "work.deep"
    overflow: page
    memory_limit: 1MB
  - match: "qpid.>"
    group_key: customer
  - match: "work.single"
    consumers: single_active
"""


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker(policies=POLICIES)


def send(broker: RunningBroker, address: str, *messages: bytes) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for each in messages:
            sender.send(each, 10)
        sender.flush(10)
        assert sender.accepted == len(messages)


def sluice(broker: RunningBroker, *words: str) -> int:
    """Run a verb of the command line against the broker; its exit status."""
    return main([*words, "-b", broker.url])


def numbered(group: str, *numbers: int) -> list[bytes]:
    return [grouped(group, None, b"%s%d" % (group.encode(), number)) for number in numbers]


class Hand:
    """A consumer that gives credit and settles as it is told to."""

    def __init__(self, connection: Connection, address: str, credit: int, name: str | None = None) -> None:
        self.connection = connection
        self.receiver = connection.receiver(address, credit=1000, manual=True, name=name)
        self.receiver.grant(credit)
        connection.pump()
        self.held: list[int] = []

    def take(self, count: int) -> list[str]:
        """The next messages, unsettled."""
        found: list[tuple[int, bytes]] = []

        def are_there() -> bool:
            found.extend(self.receiver.hand_over())
            return len(found) >= count

        assert self.connection.wait_until(are_there, 10), f"{len(found)} of {count} came"
        assert len(found) == count
        self.held += [delivery for delivery, _ in found]
        return [body_of(data).decode("utf-8", "replace") for _, data in found]

    def settle(self, outcome: str = "accepted") -> None:
        """Settle all that it holds, in order."""
        for delivery in self.held:
            self.receiver.settle(delivery, outcome)
        self.held.clear()
        self.connection.pump()

    def accept(self, count: int) -> list[str]:
        """The next messages, accepted, with credit for each."""
        self.receiver.grant(count)
        found = self.take(count)
        self.settle()
        return found

    def close(self) -> None:
        self.receiver.close(10)


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    """One of Proton's own clients."""
    made = BlockingConnection(broker.url, timeout=10)
    try:
        yield made
    finally:
        made.close()


def test_a_group_sticks_to_its_consumer_and_a_stuck_one_holds_nobody_up(broker: RunningBroker) -> None:
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "work.q", 1)
        send(broker, "work.q", *numbered("a", *range(5)))
        assert first.take(1) == ["a0"]
        second = Hand(other, "work.q", 10)
        send(broker, "work.q", *numbered("b", 0, 1), grouped("", None, b"free"), *numbered("a", 5))
        assert second.take(3) == ["b0", "b1", "free"]
        await_number(broker, "work.q", "group_stuck_msgs", 5)
        assert number_of(broker, "work.q", "groups") == 2
        assert number_of(broker, "work.q", "stuck_groups") == 1
        metrics = Api(broker, "").call("GET", "/metrics").body.decode()
        assert 'sluice_queue_group_stuck_messages{queue="work.q"} 5' in metrics
        first.settle()
        second.settle()
        assert first.accept(5) == ["a1", "a2", "a3", "a4", "a5"]
        await_number(broker, "work.q", "depth_msgs", 0)


def test_a_group_moves_in_order_once_its_consumer_is_gone(broker: RunningBroker) -> None:
    with Connection(broker.url) as other:
        with Connection(broker.url) as one:
            first = Hand(one, "work.q", 3)
            send(broker, "work.q", *numbered("a", *range(6)))
            assert first.take(3) == ["a0", "a1", "a2"]
            second = Hand(other, "work.q", 10)
        assert second.take(6) == [f"a{i}" for i in range(6)]


def test_the_last_of_a_sequence_ends_the_group_when_it_is_settled(broker: RunningBroker) -> None:
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "work.q", 2)
        send(broker, "work.q", *numbered("a", 0), grouped("a", LAST, b"a1"), *numbered("a", 2))
        assert first.take(2) == ["a0", "a1"]
        second = Hand(other, "work.q", 5)
        send(broker, "work.q", *numbered("b", 0))
        assert second.take(1) == ["b0"], "nothing of the group, whose messages are held"
        first.settle()
        assert second.take(1) == ["a2"]


def test_the_first_of_a_group_is_marked_for_its_consumer(broker: RunningBroker) -> None:
    with connected(broker) as one:
        receiver = one.create_receiver("work.marked", credit=10)
        sender = one.create_sender("work.marked")
        for number in range(3):
            sender.send(
                Message(id=str(number), body="x", group_id="g", properties={"kept": number}, durable=True)
            )
        marks: list[object] = []
        for number in range(3):
            message = receiver.receive(timeout=10)
            assert message.properties is not None
            marks.append(message.properties.get("JMSXGroupFirstForConsumer"))
            assert (message.properties["kept"], message.body, message.group_id) == (number, "x", "g")
            receiver.accept()
        assert marks == [True, None, None]


def test_groups_move_to_a_consumer_that_comes(broker: RunningBroker) -> None:
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "work.moving", 100)
        groups = [f"g{i}" for i in range(6)]
        messages = [grouped(each, None, each.encode()) for each in groups]
        send(broker, "work.moving", *messages)
        assert first.take(6) == groups
        first.settle()
        await_number(broker, "work.moving", "depth_msgs", 0)
        second = Hand(other, "work.moving", 10)
        send(broker, "work.moving", *messages)
        assert sorted(first.take(3) + second.take(3)) == groups


def test_a_property_names_the_group_as_in_qpidd(broker: RunningBroker) -> None:
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "qpid.q", 1)
        send(broker, "qpid.q", *(grouped("", None, b"c%d" % i, customer="c") for i in range(3)))
        assert first.take(1) == ["c0"]
        second = Hand(other, "qpid.q", 10)
        await_number(broker, "qpid.q", "group_stuck_msgs", 2)
        assert number_of(broker, "qpid.q", "unsettled_msgs") == 1
        # Shared: once it is settled any consumer may go on.
        first.settle()
        assert second.take(2) == ["c1", "c2"]


def test_a_declare_argument_of_qpidd_makes_groups(broker: RunningBroker) -> None:
    with Management(broker.url) as management:
        management.call("CREATE", "org.sluice.queue", "made", {"qpid.group_header_key": "customer"})
    found = queue_of(broker, "made")
    assert (found["message_groups"], found["group_key"]) == ("shared", "customer")


def test_a_released_message_comes_again_before_the_rest_of_its_group(broker: RunningBroker) -> None:
    with Connection(broker.url) as one:
        receiver = Hand(one, "work.q", 2)
        send(broker, "work.q", *numbered("a", *range(4)))
        assert receiver.take(2) == ["a0", "a1"]
        receiver.settle("released")
        receiver.receiver.grant(4)
        assert receiver.take(4) == ["a0", "a1", "a2", "a3"]


def test_a_rejected_message_holds_its_group_no_longer(broker: RunningBroker) -> None:
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "qpid.full", 1)
        send(broker, "qpid.full", *(grouped("", None, b"c%d" % i, customer="c") for i in range(2)))
        assert first.take(1) == ["c0"]
        second = Hand(other, "qpid.full", 5)
        first.settle("rejected")
        assert second.take(1) == ["c1"]
        await_number(broker, "DLQ", "depth_msgs", 1)


def test_selectors_and_groups(broker: RunningBroker) -> None:
    with connected(broker) as one, connected(broker) as other:
        send(
            broker,
            "work.q",
            grouped("a", None, b"red", colour="red"),
            grouped("a", None, b"blue", colour="blue"),
            grouped("b", None, b"blue2", colour="blue"),
        )
        red = one.create_receiver("work.q", credit=5, options=Selector("colour = 'red'"))
        assert accepted(red) == "red"
        blue = other.create_receiver("work.q", credit=5, options=Selector("colour = 'blue'"))
        assert accepted(blue) == "blue2", "the other one is of a group that is red's"
        red.close()  # type: ignore[no-untyped-call]
        assert accepted(blue) == "blue"


def accepted(receiver: BlockingReceiver) -> str:
    """The body of the next message."""
    message = receiver.receive(timeout=10)
    receiver.accept()
    assert isinstance(message.body, memoryview)
    return bytes(message.body).decode()


def test_one_active_consumer_has_all_groups(broker: RunningBroker) -> None:
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "work.single", 10)
        second = Hand(other, "work.single", 10)
        send(broker, "work.single", *numbered("a", 0), *numbered("b", 0), grouped("", None, b"free"))
        assert first.take(3) == ["a0", "b0", "free"]
        first.close()
        assert second.take(3) == ["a0", "b0", "free"]


def test_groups_of_a_durable_queue_after_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    count = 200
    send(broker, "work.q", *(durable(grouped(f"g{i % 7}", None, b"%d" % i)) for i in range(count)))
    with Connection(broker.url) as connection:
        Hand(connection, "work.q", 20).take(20)
        broker.process.kill()
        broker.process.wait()
    again = start_broker("", POLICIES, ["--data", str(broker.config_file.parent / "data")])
    with Connection(again.url) as one, Connection(again.url) as other:
        hands = [Hand(one, "work.q", 30), Hand(other, "work.q", 30)]
        where: dict[int, set[int]] = {}
        seen: dict[int, list[int]] = {}
        left = count
        while left:
            for at, hand in enumerate(hands):
                hand.connection.pump()
                found = hand.receiver.hand_over()
                for delivery, data in found:
                    number = int(body_of(data))
                    seen.setdefault(number % 7, []).append(number)
                    where.setdefault(number % 7, set()).add(at)
                    hand.receiver.settle(delivery, "accepted")
                hand.receiver.grant(len(found))
                hand.connection.wait_until(hand.receiver.has_message, 0.05)
                left -= len(found)
        assert seen == {group: list(range(group, count, 7)) for group in range(7)}
        assert all(len(each) == 1 for each in where.values())
        await_number(again, "work.q", "depth_msgs", 0)


def durable(data: bytes) -> bytes:
    """The message with a header that says so."""
    return b"\x00\x53\x70\xc0\x02\x01\x41" + data


def test_a_deep_queue_looks_past_a_stuck_group_on_disk(broker: RunningBroker) -> None:
    """The stuck messages in front are passed over, and more is read from disk, as far as memory allows."""
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "work.deep", 1)
        send(broker, "work.deep", grouped("a", None, b"a"))
        first.take(1)
        stuck = 1200
        send(broker, "work.deep", *(grouped("a", None, b"%0200d" % i) for i in range(stuck)))
        send(broker, "work.deep", *(grouped("b", None, b"%0200d" % i) for i in range(3000)))
        assert number_of(broker, "work.deep", "paged_msgs") > 2000
        second = Hand(other, "work.deep", 0)
        found: list[str] = []
        while len(found) < 3000:
            found += second.accept(100)
        assert [int(each) for each in found] == list(range(3000))
        assert number_of(broker, "work.deep", "group_stuck_msgs") == stuck
        first.settle()
        found = [each for _ in range(stuck // 100) for each in first.accept(100)]
        assert [int(each) for each in found] == list(range(stuck))


def test_why_and_the_operators_see_groups(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "work.q", 1, "slow")
        send(broker, "work.q", *numbered("a", *range(13)))
        assert first.take(1) == ["a0"]
        second = Hand(other, "work.q", 20, "idle")
        await_number(broker, "work.q", "group_stuck_msgs", 12)
        assert sluice(broker, "why", "work.q") == 0
        told = capsys.readouterr().out
        assert "12 messages wait for group 'a', which 'slow' of" in told, told
        assert sluice(broker, "groups", "work.q", "--json") == 0
        (group,) = json.loads(capsys.readouterr().out)
        assert (group["group"], group["waiting"], group["unsettled"]) == ("a", 12, 1)
        api = Api(broker)
        assert api.get("/queues/work.q/groups")["groups"] == [group]
        assert api.get("/queues/work.q/groups?filter=a")["groups"] == [group]
        assert api.get("/queues/work.q/groups?filter=b*")["groups"] == []
        assert sluice(broker, "groups", "work.q", "--json", "--filter", "A*") == 0
        assert json.loads(capsys.readouterr().out) == [group]
        assert sluice(broker, "groups", "work.q", "--json", "--filter", "b") == 0
        assert json.loads(capsys.readouterr().out) == []
        assert sluice(broker, "groups", "work.q", "--reset", "a") == 0
        assert "once its consumer has settled" in capsys.readouterr().out
        first.settle()
        assert second.take(12) == [f"a{i}" for i in range(1, 13)]
        assert sluice(broker, "groups", "work.q", "--reset", "nobody") == 1
        assert api.post("/queues/work.q/groups/reset", {"group": "a"}) == {"free": False}
        send(broker, "elsewhere", b"\x00\x53\x75\xa0\x01x")
        assert sluice(broker, "groups", "elsewhere") == 1
        assert "message_groups" in capsys.readouterr().err


def test_groups_are_switched_while_nobody_consumes(broker: RunningBroker) -> None:
    with Connection(broker.url) as one:
        receiver = Hand(one, "plain", 1)
        with pytest.raises(SluiceError, match="has consumers"):
            update(broker, "plain", message_groups="sticky")
        update(broker, "plain", group_rebalance=True)
        receiver.close()
        update(broker, "plain", message_groups="sticky")
        send(broker, "plain", *numbered("a", 0, 1, 2))
        first = Hand(one, "plain", 2)
        assert first.take(2) == ["a0", "a1"]
        Hand(one, "plain", 5)
        await_number(broker, "plain", "group_stuck_msgs", 1)
        assert number_of(broker, "plain", "groups") == 1


def test_purge_move_and_drain(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first = Hand(one, "work.q", 1)
        send(broker, "work.q", *numbered("a", *range(10)))
        assert first.take(1) == ["a0"]
        second = Hand(other, "work.q", 10)
        await_number(broker, "work.q", "group_stuck_msgs", 9)
        assert sluice(broker, "move", "work.q", "elsewhere", "--count", "4") == 0
        await_number(broker, "elsewhere", "depth_msgs", 4)
        await_number(broker, "work.q", "group_stuck_msgs", 5)
        assert Hand(one, "elsewhere", 4).take(4) == [f"a{i}" for i in range(1, 5)]
        assert sluice(broker, "purge", "work.q") == 0
        await_number(broker, "work.q", "group_stuck_msgs", 0)
        send(broker, "work.q", *numbered("b", 0), *numbered("a", 10))
        assert second.take(1) == ["b0"]
        first.settle()
        assert first.accept(1) == ["a10"]
    capsys.readouterr()


def test_a_drain_is_answered_while_messages_of_other_consumers_groups_wait(broker: RunningBroker) -> None:
    with Connection(broker.url) as one, connected(broker) as other:
        first = Hand(one, "work.q", 1)
        send(broker, "work.q", *numbered("a", *range(5)))
        first.take(1)
        receiver = other.create_receiver("work.q", credit=5)
        receiver.link.drain_mode = True
        receiver.link.drain(5)
        other.wait(lambda: bool(receiver.link.credit == 0), timeout=10)
        with pytest.raises(Timeout):
            receiver.receive(timeout=0.1)


def test_a_presettled_consumer_of_groups(broker: RunningBroker) -> None:
    """Each is settled as it is sent: groups end at once, and are free again."""
    for address, ends in (("work.q", True), ("qpid.q", False)):
        messages = [
            grouped("a", LAST if ends and i % 3 == 0 else None, b"%d" % i, customer="c") for i in range(50)
        ]
        with connected(broker) as one:
            receiver = one.create_receiver(address, credit=10, options=AtMostOnce())
            send(broker, address, *messages)
            found: list[int] = []
            for _ in messages:
                message = receiver.receive(timeout=10)
                assert isinstance(message.body, memoryview)
                found.append(int(bytes(message.body)))
            assert found == list(range(50))
            await_number(broker, address, "depth_msgs", 0)


def test_groups_under_one_window_of_a_connection(start_broker: StartBroker) -> None:
    """Consumers that share a window over their connection take turns; every group gets on."""
    limits = "flow:\n  connection_flow_limit: 4\n  connection_flow_limit_enabled: true\n"
    broker = start_broker(limits, POLICIES)
    with Connection(broker.url) as one:
        hands = [Hand(one, "work.q", 1000) for _ in range(3)]
        count = 90
        send(broker, "work.q", *(grouped(f"g{i % 9}", None, b"%d" % i) for i in range(count)))
        seen: dict[int, list[int]] = {}
        found = 0

        def settle_all() -> bool:
            nonlocal found
            for hand in hands:
                for delivery, data in hand.receiver.hand_over():
                    number = int(body_of(data))
                    seen.setdefault(number % 9, []).append(number)
                    hand.receiver.settle(delivery, "accepted")
                    found += 1
            # What is settled goes out now, not with the next message that comes.
            one.pump()
            return found >= count

        assert one.wait_until(settle_all, 20), found
        assert seen == {group: list(range(group, count, 9)) for group in range(9)}
