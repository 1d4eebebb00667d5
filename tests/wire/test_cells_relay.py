"""Messages that name a node of another cell, by the anonymous relay or as a reply to an address."""

from __future__ import annotations

import pytest
from proton import Delivery, Message, Timeout
from proton.reactor import AtLeastOnce, AtMostOnce, LinkOption
from proton.utils import SendException

from tests.wire.cells import CELLS, PAIRS, cells, depths, names_in, settled_in
from tests.wire.conftest import RunningBroker, wait_until

__all__ = ["cells"]


def test_a_reply_finds_its_way_between_cells(cells: RunningBroker) -> None:
    for here, there in PAIRS:
        [service] = names_in(there, CELLS, 1, f"service{here}")
        with settled_in(cells, here) as client, settled_in(cells, there) as server:
            replies = client.create_receiver(None, dynamic=True, credit=1)
            reply_to = replies.link.remote_source.address
            assert reply_to is not None
            assert reply_to.startswith(f"$temporary/{here}.")
            client.create_sender(service).send(Message("ask", reply_to=reply_to))
            requests = server.create_receiver(service, credit=1)
            request = requests.receive(timeout=10)
            requests.accept()
            server.create_sender(request.reply_to).send(Message("answer"))
            assert replies.receive(timeout=10).body == "answer"
            replies.accept()


@pytest.mark.parametrize("options", [AtMostOnce(), AtLeastOnce()])
def test_the_anonymous_relay_reaches_all_cells(cells: RunningBroker, options: LinkOption) -> None:
    names = [f"relayed.{number}" for number in range(12)]
    kind = type(options).__name__
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(None, options=options, name="relay")
        for number in range(60):
            sender.send(Message(number, address=f"{kind}.{names[number % 12]}"))
        sender.send(Message("explicit", address=f"$cell/2/{names_in(2, CELLS, 1, kind)[0]}"))
        connection.create_sender(names_in(0, CELLS, 1, "first")[0], name="round trip")

        def arrived() -> dict[str, int]:
            found: dict[str, int] = {}
            for cell in range(CELLS):
                found |= {
                    name: depth for name, depth in depths(cells, cell).items() if kind in name and depth
                }
            return found

        wanted = {f"{kind}.{name}": 5 for name in names} | {names_in(2, CELLS, 1, kind)[0]: 1}
        wait_until(lambda: arrived() == wanted, 10, lambda: f"all to arrive, not {arrived()}")


def test_what_a_relay_refuses_is_the_owner_s_word(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "refusing")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(None, name="relay")
        with pytest.raises(SendException) as refused:
            sender.send(Message("x", address=name))
        assert refused.value.state == Delivery.REJECTED
        for address in ("$temporary/1.gone", "$cell/7/x"):
            with pytest.raises(SendException):
                sender.send(Message("x", address=address))
        # The link is none the worse.
        sender.send(Message("x", address=names_in(2, CELLS, 1, "well")[0]))


def test_a_reply_through_the_relay_finds_its_way(cells: RunningBroker) -> None:
    for here, there in PAIRS:
        with settled_in(cells, here) as client, settled_in(cells, there) as server:
            replies = client.create_receiver(None, dynamic=True, credit=1)
            sender = server.create_sender(None, name="relay")
            sender.send(Message("answer", address=replies.link.remote_source.address))
            assert replies.receive(timeout=10).body == "answer"
            replies.accept()


def test_a_threshold_holds_through_the_relay(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "bounded.relay")
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(None, name="relay")
        for number in range(40):
            sender.send(Message(number, address=name))
        with pytest.raises(Timeout):
            sender.send(Message(40, address=name), timeout=1)
        assert depths(cells, 1)[name] == 40
