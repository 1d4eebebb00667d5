"""Links of one connection to nodes of several cells: everything passes, and nothing is granted twice."""

from __future__ import annotations

import time
from typing import Any

import pytest
from proton import Delivery, Message, Terminus, symbol
from proton import Described as ProtonDescribed
from proton.reactor import AtLeastOnce, AtMostOnce, Container, Filter, LinkOption, Selector
from proton.utils import BlockingConnection, SendException

from broker.client.request import Management
from tests.wire.cells import CELLS, PAIRS, Flood, cells, depths, names_in, settled_in
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    RawPeer,
    UByte,
    performative,
)
from tests.wire.frames import transfer as transferred

__all__ = ["cells"]


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_messages_pass_both_ways_in_order(cells: RunningBroker, here: int, there: int) -> None:
    [name] = names_in(there, CELLS, 1, f"both{here}")
    with settled_in(cells, here) as connection:
        sender = connection.create_sender(name)
        receiver = connection.create_receiver(name, credit=10)
        for number in range(50):
            sender.send(Message(number, properties={"number": number}))
        for number in range(50):
            assert receiver.receive(timeout=10).body == number
            receiver.accept()
    wait_until(lambda: depths(cells, there)[name] == 0, 10, "an empty queue")


def test_one_connection_has_links_to_all_cells(cells: RunningBroker) -> None:
    names = [f"all.{number}" for number in range(20)]
    connection = BlockingConnection(cells.url, timeout=10)
    senders = {name: connection.create_sender(name) for name in names}
    for name in names:
        senders[name].send(Message(name))
    receivers = {name: connection.create_receiver(name, credit=1) for name in names}
    for name in names:
        assert receivers[name].receive(timeout=10).body == name
        receivers[name].accept()
    connection.close()

    def left() -> int:
        found = [depths(cells, cell) for cell in range(CELLS)]
        return sum(each.get(name, 0) for each in found for name in names)

    wait_until(lambda: not left(), 10, "empty queues")


def test_settled_messages_that_wait_for_room_are_passed_on(cells: RunningBroker) -> None:
    """More of them come at once than a link passes on at once."""
    [name] = names_in(1, CELLS, 1, "heavy")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(names_in(0, CELLS, 1, "first")[0], name="first", handle=1)
    peer.attach_sender(name, name="heavy", mode=1)
    count = min(peer.await_credit(), 40)
    pieces = [b"\x00\x53\x75\xb0" + (300_000).to_bytes(4, "big"), *[bytes(60_000)] * 5]
    for number in range(count):
        frames = [
            transferred(number, piece, settled=True, more=place < 5) for place, piece in enumerate(pieces)
        ]
        peer.send(b"".join(frames))
    wait_until(lambda: depths(cells, 1).get(name) == count, 20, lambda: f"{count} in {depths(cells, 1)}")
    peer.close()


@pytest.mark.parametrize("options", [AtMostOnce(), AtLeastOnce()])
def test_either_settlement_passes(cells: RunningBroker, options: LinkOption) -> None:
    [name] = names_in(1, CELLS, 1, f"settled{type(options).__name__}")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name, options=options)
        for number in range(20):
            sender.send(Message(number))
        # A blocking client writes what waits for no answer when it waits for one.
        connection.create_sender(name, name="round trip")
        wait_until(lambda: depths(cells, 1).get(name) == 20, 10, "20 messages")
        receiver = connection.create_receiver(name, credit=20, options=options)
        assert [receiver.receive(timeout=10).body for _ in range(20)] == list(range(20))
        if isinstance(options, AtLeastOnce):
            assert depths(cells, 1)[name] == 20
            for _ in range(20):
                receiver.accept()
    wait_until(lambda: depths(cells, 1)[name] == 0, 10, "an empty queue")


@pytest.mark.parametrize("outcome", [Delivery.RELEASED, Delivery.MODIFIED, Delivery.REJECTED])
def test_outcomes_of_a_consumer_reach_the_owner(cells: RunningBroker, outcome: Any) -> None:
    [name] = names_in(2, CELLS, 1, f"outcome{int(outcome)}")
    with settled_in(cells, 0) as connection:
        connection.create_sender(name).send(Message("x"))
        receiver = connection.create_receiver(name, credit=1)
        receiver.receive(timeout=10)
        if outcome == Delivery.MODIFIED:
            assert receiver.fetcher is not None
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.local.failed = True
            delivery.local.annotations = {symbol("x-opt-seen"): "once"}
            delivery.update(outcome)
            delivery.settle()
        else:
            receiver.settle(outcome)
        if outcome == Delivery.REJECTED:
            connection.create_sender(name, name="written by now")
            wait_until(lambda: depths(cells, 2)[name] == 0, 10, "no message")
            return
        receiver.link.flow(1)
        again = receiver.receive(timeout=10)
        assert again.body == "x"
        assert again.delivery_count == (outcome == Delivery.MODIFIED)
        if outcome == Delivery.MODIFIED:
            assert again.annotations is not None
            assert again.annotations["x-opt-seen"] == "once"
        receiver.accept()


def test_outcomes_of_the_owner_reach_a_producer(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "full")
    with Management(cells.url, cell=1) as management:
        limits = {"max_count": 3, "flow_stop_count": 3, "when_full": "reject"}
        management.call("CREATE", "org.sluice.queue", name, limits)
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for _ in range(3):
            sender.send(Message("x"))
        with pytest.raises(SendException) as refused:
            sender.send(Message("x"))
        assert refused.value.state == Delivery.REJECTED
        assert depths(cells, 1)[name] == 3


def test_a_client_gets_as_much_as_it_has_asked_for(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "asked")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for number in range(30):
            sender.send(Message(number))
    [first] = names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, handle=0)
    peer.attach_receiver(name, handle=1)
    peer.give_credit(7)
    for _ in range(7):
        peer.expect(TRANSFER)
    with pytest.raises(AssertionError):
        peer.expect(TRANSFER, 0.3)
    # Of ten more, six are taken back before the owner's messages run out.
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 7, 100, None, True))
    for _ in range(23):
        peer.expect(TRANSFER)
    drained = peer.expect(FLOW)
    while drained.field(4) is None:
        drained = peer.expect(FLOW)
    assert (drained.field(5), drained.field(6)) == (107, 0)
    peer.close()
    wait_until(lambda: depths(cells, 2)[name] == 30, 10, "all of them again")


def test_a_drain_of_an_empty_queue_is_answered(cells: RunningBroker) -> None:
    [name], [first] = names_in(1, CELLS, 1, "empty"), names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, handle=0)
    peer.attach_receiver(name, handle=1)
    for round_ in range(3):
        peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 5 * round_, 5, None, True))
        drained = peer.expect(FLOW)
        while drained.field(4) is None:
            drained = peer.expect(FLOW)
        assert (drained.field(5), drained.field(6)) == (5 * round_ + 5, 0)
    # With nothing left to give back it is answered all the same.
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 15, 0, None, True))
    assert peer.expect(FLOW).field(6) == 0
    # And an echo is, with what there is.
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 15, 3, None, False, True))
    echoed = peer.expect(FLOW)
    assert (echoed.field(5), echoed.field(6)) == (15, 3)
    peer.close()


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_threshold_is_held_to_the_message(cells: RunningBroker, here: int, there: int) -> None:
    [name], [first] = names_in(there, CELLS, 1, f"bounded.{here}"), names_in(here, CELLS, 1, "first")
    flood = Flood(cells.url, name, 8, first)
    container = Container(flood)
    container.timeout = 0.05
    container.start()
    deadline = time.monotonic() + 10
    while flood.accepted < 40 and time.monotonic() < deadline:
        container.process()
    for _ in range(10):
        container.process()
    assert flood.accepted == depths(cells, there)[name] == 40
    # As soon as there is room again, they go on.
    with settled_in(cells, there) as connection:
        receiver = connection.create_receiver(name, credit=30)
        for _ in range(30):
            receiver.receive(timeout=10)
            receiver.accept()
    deadline = time.monotonic() + 10
    while flood.accepted < 70 and time.monotonic() < deadline:
        container.process()
    assert flood.accepted == 70
    wait_until(lambda: depths(cells, there)[name] == 40, 10, "the threshold again")
    flood.end(container)


def test_large_messages_pass_in_pieces(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "large")
    body = bytes(range(256)) * 40_000
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        receiver = connection.create_receiver(name, credit=3)
        for number in range(3):
            sender.send(Message(body=body, properties={"number": number}), timeout=30)
        for number in range(3):
            found: Any = receiver.receive(timeout=30)
            assert found.properties["number"] == number
            assert bytes(found.body) == body
            receiver.accept()


def test_a_selector_and_browsing_are_the_owner_s(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "chosen")
    with settled_in(cells, 1) as connection:
        sender = connection.create_sender(name)
        for number in range(10):
            sender.send(Message(number, properties={"odd": bool(number % 2)}))
        copies = connection.create_receiver(name, credit=10, options=Browsing(), name="copies")
        assert [copies.receive(timeout=10).body for _ in range(10)] == list(range(10))
        copies.close()  # type: ignore[no-untyped-call]
        assert depths(cells, 2)[name] == 10
        odd = connection.create_receiver(name, credit=10, options=Selector("odd"), name="odd")
        for number in range(1, 10, 2):
            assert odd.receive(timeout=10).body == number
            odd.accept()
    wait_until(lambda: depths(cells, 2)[name] == 5, 10, "the even ones to be left")


class Browsing(LinkOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.distribution_mode = Terminus.DIST_MODE_COPY


def test_a_stream_of_another_cell_is_read_from_an_offset(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "rows")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for number in range(20):
            sender.send(Message(number, durable=True))
        offset = Filter(
            {symbol("rabbitmq:stream-offset-spec"): ProtonDescribed(symbol("rabbitmq:stream-offset-spec"), 5)}
        )
        receiver = connection.create_receiver(name, credit=15, options=offset)
        assert [receiver.receive(timeout=10).body for _ in range(15)] == list(range(5, 20))


def test_what_a_client_leaves_unsettled_is_there_again(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "left")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for number in range(10):
            sender.send(Message(number))
        receiver = connection.create_receiver(name, credit=5)
        for _ in range(5):
            receiver.receive(timeout=10)
        receiver.accept()
        receiver.close()  # type: ignore[no-untyped-call]
        again = connection.create_receiver(name, credit=9, name="again")
        bodies: list[Any] = []
        for _ in range(9):
            bodies.append(again.receive(timeout=10).body)
            again.accept()
        assert sorted(bodies) == list(range(1, 10))


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_link_that_was_detached_attaches_again(cells: RunningBroker, closed: bool, at_once: bool) -> None:
    [name], [first] = names_in(1, CELLS, 1, f"again{closed}{at_once}"), names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, "first", handle=9)
    peer.attach_sender(name, "out", handle=0)
    peer.attach_receiver(name, "in", handle=1)
    for number in range(10):
        for handle, role in ((0, SENDER), (1, RECEIVER)):
            detach = performative(DETACH, handle, closed)
            if not at_once:
                peer.send(detach)
                assert peer.expect(DETACH).error == []
                detach = b""
            source, target = (None, name) if role == SENDER else (name, None)
            termini = Described(SOURCE, [source]), Described(TARGET, [target])
            modes = UByte(2), UByte(0)
            link = ("out", "in")[handle]
            peer.send(detach + performative(ATTACH, link, handle, role, *modes, *termini, None, None, 0))
            peer._handles[handle] = peer.expect(ATTACH).field(1)
            assert role == RECEIVER or peer.await_credit(0) > 0
        peer.send(transferred(number, handle=0))
        peer.expect(DISPOSITION)
        peer.send(performative(FLOW, number, 10_000, number + 1, 10_000, 1, 0, 1))
        arrived = peer.expect(TRANSFER)
        state = Described(ACCEPTED)
        peer.send(performative(DISPOSITION, RECEIVER, arrived.field(1), arrived.field(1), True, state))
    peer.close()
    wait_until(lambda: depths(cells, 1)[name] == 0, 10, "an empty queue")


@pytest.mark.parametrize("settled", [False, True])
def test_an_empty_delivery_tag_passes(cells: RunningBroker, settled: bool) -> None:
    """Qpid JMS and protonj2 give pre-settled messages no other."""
    [name], [first] = names_in(1, CELLS, 1, f"tag{settled}"), names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, "first", handle=1)
    peer.attach_sender(name, "second", handle=0)
    assert peer.await_credit(0) >= 10
    for number in range(10):
        peer.send(transferred(number, handle=0, settled=settled, tag=b""))
        if not settled:
            peer.expect(DISPOSITION)
    wait_until(lambda: depths(cells, 1)[name] == 10, 10, "10 messages")
    peer.close()


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_outcomes_come_before_the_answer_to_a_detach(cells: RunningBroker, closed: bool, again: bool) -> None:
    """A settlement without an outcome would be all that is heard: some clients take it for success."""
    [name], [first] = names_in(1, CELLS, 1, f"leaving{closed}{again}"), names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, "first", handle=9)
    count = 0
    for _ in range(20):
        peer.attach_sender(name, "leaving", handle=0)
        credit = min(peer.await_credit(0), 20)
        frames = [transferred(count + number, handle=0) for number in range(credit)]
        frames.append(performative(DETACH, 0, closed))
        if again:
            termini = Described(SOURCE, [None]), Described(TARGET, [name])
            frames.append(
                performative(ATTACH, "leaving", 0, SENDER, UByte(2), UByte(0), *termini, None, None, 0)
            )
        peer.send(b"".join(frames))
        heard = 0
        while heard < credit:
            told: list[Any] = peer.expect(DISPOSITION).fields
            assert getattr(told[4], "descriptor", None) == ACCEPTED, told
            heard += (told[2] or told[1]) - told[1] + 1
        assert peer.expect(DETACH).error == []
        if again:
            peer.expect(ATTACH)
            peer.send(performative(DETACH, 0, closed))
            peer.expect(DETACH)
        count += credit
    wait_until(lambda: depths(cells, 1).get(name) == count, 10, f"{count} messages")
    peer.close()


@pytest.mark.parametrize("how", ["session", "connection", "socket"])
def test_a_session_may_end_behind_a_detach(cells: RunningBroker, how: str) -> None:
    [name], [first] = names_in(1, CELLS, 1, f"ending{how}"), names_in(0, CELLS, 1, "first")
    count = 0
    for _ in range(10):
        peer = RawPeer(cells.port).open().begin()
        peer.attach_sender(first, "first", handle=9)
        peer.attach_sender(name, "leaving", handle=0)
        frames = [transferred(number, handle=0) for number in range(10)]
        end = {"session": performative(END), "connection": performative(CLOSE), "socket": b""}[how]
        peer.await_credit(0)
        peer.send(b"".join(frames) + performative(DETACH, 0, True) + end)
        if how == "session":
            peer.expect(END)
        peer.close()
        count += 10
    wait_until(lambda: depths(cells, 1).get(name) == count, 10, f"{count} messages")


def test_tags_of_messages_that_are_passed_on_are_not_used_again(cells: RunningBroker) -> None:
    """The owner's are: such a message could come before the settlement of the one that had its tag before."""
    [name] = names_in(1, CELLS, 1, "tags")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        receiver = connection.create_receiver(name, credit=1)
        tags = set()
        for number in range(50):
            sender.send(Message(number))
            receiver.receive(timeout=10)
            assert receiver.fetcher is not None
            tags.add(receiver.fetcher.unsettled[0].tag)
            receiver.accept()
    assert len(tags) == 50
