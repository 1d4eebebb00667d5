"""A session's numbers from the frames of both directions, and the flow that tells them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from proton import Data

from broker.amqp.guard.flow_reply import SessionFlowState
from tests.wire.frames import ATTACH, BEGIN, DETACH, FLOW, RECEIVER, SENDER, performative


class Frames:
    """One direction: frames that were kept, and counts of transfers."""

    def __init__(self) -> None:
        self.rare: list[bytes] = []
        self.lost = False
        self.counts: dict[int, int] = {}
        self.allowed: dict[int, int] = {}

    def transfer_count(self, channel: int) -> int:
        return self.counts.get(channel, 0)

    def allow(self, channel: int, transfers: int) -> None:
        self.allowed[channel] = transfers


def begun(first_id: int = 100, window: int = 50) -> tuple[Any, Any, SessionFlowState]:
    """A session: channel 3 of the peer's is channel 5 of the broker's, which sends by handle 8."""
    incoming: Any = Frames()
    outgoing: Any = Frames()
    state = SessionFlowState(incoming, outgoing)
    incoming.rare.append(performative(BEGIN, None, first_id, 10, 10, channel=3))
    state.read_incoming()
    outgoing.rare += [
        performative(BEGIN, 3, 0, window, 10, channel=5),
        performative(ATTACH, "mine", 8, SENDER, channel=5),
        performative(ATTACH, "mine", 9, RECEIVER, channel=5),
    ]
    state.read_outgoing()
    return incoming, outgoing, state


def link(name: str = "mine", drains: bool = False) -> Any:
    return SimpleNamespace(
        name=name,
        delivery_count=lambda: 2**32 + 7,
        link_credit=lambda: 4,
        drains=lambda: drains,
        ready_msgs=lambda: 6,
    )


def fields_of(body: bytes) -> list[Any]:
    data = Data()
    data.decode(body)
    data.rewind()
    data.next()
    found: Any = data.get_object()
    return [int(each) if not isinstance(each, bool) else each for each in found.value]


def test_a_flow_tells_the_links_and_the_sessions_state() -> None:
    incoming, outgoing, state = begun()
    incoming.counts[3], outgoing.counts[5] = 20, 30
    found = state.flow_frame(3, link())
    assert found is not None
    channel, body = found
    assert channel == 5
    assert fields_of(body) == [120, 30, 30, 0x7FFFFFFF, 8, 7, 4, 6]


def test_a_flow_says_that_it_drains() -> None:
    _, _, state = begun()
    found = state.flow_frame(3, link(drains=True))
    assert found is not None
    assert fields_of(found[1])[-1] is True


def test_windows_are_passed_on_and_wrap() -> None:
    incoming, outgoing, state = begun(first_id=2**32 - 10, window=30)
    assert incoming.allowed == {3: 30}
    outgoing.rare.append(performative(FLOW, 15, 40, 0, 10, channel=5))
    state.read_outgoing()
    assert incoming.allowed == {3: 65}
    incoming.counts[3] = 25
    found = state.flow_frame(3, link())
    assert found is not None
    assert fields_of(found[1])[:2] == [15, 40]


def test_nothing_is_told_of_what_is_not_known() -> None:
    incoming, outgoing, state = begun()
    assert state.flow_frame(4, link()) is None
    assert state.flow_frame(3, link("other")) is None
    outgoing.rare.append(performative(DETACH, 8, True, channel=5))
    state.read_outgoing()
    assert state.flow_frame(3, link()) is None
    assert state.sent_on(3) == 0
    outgoing.lost = True
    assert state.sent_on(3) == -1
    incoming.lost = True
    assert state.sent_on(4) == -1


def test_sessions_are_listed_as_they_began() -> None:
    incoming, _, state = begun()
    incoming.rare.append(performative(BEGIN, None, 0, 10, 10, channel=1))
    state.read_incoming()
    assert state.begun == [3, 1]
