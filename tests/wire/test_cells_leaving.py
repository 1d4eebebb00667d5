"""Links to nodes of other cells that are detached while their messages wait for credit."""

from __future__ import annotations

import pytest

from tests.wire.apiclient import Api
from tests.wire.cells import ARGS, CELLS, names_in
from tests.wire.conftest import StartBroker
from tests.wire.frames import DETACH, RawPeer, performative, transfer

pytestmark = pytest.mark.wire


@pytest.mark.parametrize("closed", [False, True])
def test_a_detach_is_answered_while_messages_wait_for_room(start_broker: StartBroker, closed: bool) -> None:
    """A client may send on credit that is being taken back; nobody knows when there is room for it."""
    broker = start_broker(args=ARGS)
    [name], [first] = names_in(1, CELLS, 1, "held"), names_in(0, CELLS, 1, "first")
    peer = RawPeer(broker.port).open().begin()
    peer.attach_sender(first, "first", handle=9)
    peer.attach_sender(name, "leaving", handle=0)
    credit = min(peer.await_credit(0), 5)
    Api(broker).post("/producers/stop", {"target": name})
    peer.send(
        b"".join(transfer(number, handle=0) for number in range(credit)) + performative(DETACH, 0, closed)
    )
    peer.expect(DETACH, 5)
    peer.close()
