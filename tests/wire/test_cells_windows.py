"""Links between cells that end with messages unsent: the links that stay go on with all of their window."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message
from proton._utils import BlockingReceiver, Fetcher

from broker.client.request import Management
from tests.wire.cells import CELLS, cells, depths, names_in, settled_in
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.frames import BODY, DETACH, DISPOSITION, FLOW, TRANSFER, RawPeer, performative, transfer

__all__ = ["cells"]

# More than one session may have unsent (1 MB).
BODY_BYTES, MESSAGES = 60_000, 40
# More than is under way to a client that reads nothing: the owner's and the client's cell have 1 MB unsent
# each, a session's window between them is 16 MiB, and sockets have room for some.
MOST_BYTES = 21 << 20


@pytest.mark.parametrize("here", [0, 1], ids=["this cell", "another cell"])
def test_a_consumer_that_ends_with_messages_unsent_takes_no_window_along(
    cells: RunningBroker, here: int
) -> None:
    [name], [other] = names_in(1, CELLS, 1, f"unsent{here}"), names_in(here, CELLS, 1, f"unsent-other{here}")
    with settled_in(cells, 1) as connection:
        sender = connection.create_sender(name)
        for _ in range(MESSAGES):
            sender.send(Message(bytes(BODY_BYTES)))
        sender = connection.create_sender(other)
        for _ in range(10):
            sender.send(Message("small"))
    [first] = names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin(window=1)
    peer.attach_sender(first, handle=0)
    peer.attach_receiver(name, handle=1)
    peer.send(performative(FLOW, 0, 1, 0, 10_000, 1, 0, 100))
    peer.expect(TRANSFER)
    # The cell of the client has as much of it as it takes once a link that comes later is answered.
    wait_until(lambda: unsettled(cells, name) >= 10, 10, "messages on their way")
    peer.send(performative(DETACH, 1, True))
    peer.expect(DETACH)
    peer.attach_receiver(other, name="later", handle=2)
    peer.send(performative(FLOW, 1, 10_000, 0, 10_000, 2, 0, 10))
    for _ in range(10):
        peer.expect(TRANSFER)
    peer.close()


def test_a_client_that_reads_nothing_has_a_windowful_under_way_and_all_of_it_later(
    cells: RunningBroker,
) -> None:
    [first], [name] = names_in(0, CELLS, 1, "first"), names_in(1, CELLS, 1, "unread")
    count = 2 * MOST_BYTES // BODY_BYTES
    with settled_in(cells, 1) as connection:
        sender = connection.create_sender(name)
        for _ in range(count):
            sender.send(Message(bytes(BODY_BYTES)))
    peer = RawPeer(cells.port).open().begin(window=1)
    peer.attach_sender(first, handle=0)
    peer.attach_receiver(name, handle=1)
    peer.send(performative(FLOW, 0, 1, 0, 100_000, 1, 0, 10_000))
    ends = int(not peer.expect(TRANSFER).field(5))
    held = [0]

    def is_still() -> bool:
        held.append(unsettled(cells, name))
        return held[-1] > 10 and held[-1] == held[-2]

    wait_until(is_still, 20, "nothing more to come", 0.5)
    assert held[-1] * BODY_BYTES < MOST_BYTES
    peer.send(performative(FLOW, 1, 100_000, 0, 100_000))
    while ends < count:
        ends += not peer.expect(TRANSFER).field(5)
    peer.close()


def test_each_of_many_sessions_has_its_messages(cells: RunningBroker) -> None:
    """Messages that are larger than the window of the last session are among them."""
    names, sizes = names_in(1, CELLS, 40, "sessions"), (BODY_BYTES, 15 * BODY_BYTES, BODY_BYTES)
    with settled_in(cells, 1) as connection:
        for name in names:
            sender = connection.create_sender(name, name=name)
            for size in sizes:
                sender.send(Message(bytes(size)))
    with settled_in(cells, 0) as client:
        connected: Any = client
        receivers = []
        for name in names:
            session = connected.conn.session()
            session.open()
            fetcher = Fetcher(connected, 10)
            link = connected.container.create_receiver(session, name, handler=fetcher)
            receivers.append(BlockingReceiver(connected, link, fetcher, credit=10))
        for receiver in receivers:
            for size in sizes:
                body: Any = receiver.receive(timeout=20).body
                assert len(body) == size
                receiver.accept()


def unsettled(broker: RunningBroker, name: str) -> int:
    """Count the messages of a queue of cell 1 that its consumers hold."""
    with Management(broker.url, cell=1) as management:
        body = management.call("READ", "org.sluice.queue", name).body
    return int(body["unsettled_msgs"])  # type: ignore[index]


def test_a_producer_that_ends_with_messages_unsent_takes_no_window_along(cells: RunningBroker) -> None:
    [name, other] = names_in(1, CELLS, 2, "waits")
    [first] = names_in(0, CELLS, 1, "first")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, name="first", handle=0)
    peer.attach_sender(name, name="waits", handle=1)
    assert peer.await_credit(1) >= MESSAGES
    with Management(cells.url, cell=1) as management:
        # Of what follows nothing has credit at the owner.
        management.call("stop-producers", "org.sluice.broker", body={"target": name})
        body = BODY + bytes(BODY_BYTES)
        for number in range(MESSAGES):
            peer.send(transfer(number, body, handle=1))
        peer.attach_sender(first, name="round trip", handle=2)
        assert depths(cells, 1).get(name, 0) == 0
        management.call("DELETE", "org.sluice.queue", name)
    peer.expect(DETACH)
    peer.attach_sender(other, name="other", handle=3)
    assert peer.await_credit(3) > 0
    peer.send(transfer(MESSAGES, handle=3))
    peer.expect(DISPOSITION)
    peer.close()
    wait_until(lambda: depths(cells, 1)[other] == 1, 10, "one message")
