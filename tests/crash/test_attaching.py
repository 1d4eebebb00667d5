"""Behind a slow disk: who was told of a durable subscription has one, and whoever leaves before is let go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import Broker
from tests.crash.shim import Shim
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    BODY,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    RECEIVED,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    RawPeer,
    Symbol,
    UByte,
    performative,
    transfer,
)

# Beside this, what needs no disk is answered at once on any machine.
SLOW_S = 4.0
BRIEF_S = 0.7
# What needs no disk: once it is answered, all that was sent before it was seen.
ASKS = performative(ATTACH, "asks", 1, SENDER, UByte(2), UByte(0), None, Described(TARGET, ["$management"]))
DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
TOPICS = "policies:\n  - {match: news, durable: true}\n"


def attach(name: str, handle: int = 0) -> bytes:
    """An ATTACH that asks for a durable subscription, or for the one of that name."""
    source = Described(SOURCE, ["topic://news", 2, Symbol("never")])
    return performative(ATTACH, name, handle, RECEIVER, UByte(2), UByte(0), source, Described(TARGET))


class World:
    """A broker whose syncs take their time when told so."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(folder / "broker", TOPICS)
        self.shim = Shim(folder, self.broker.data)
        self.broker.start(env=self.shim.env)
        with self.peer("maker") as maker:
            maker.attach_sender("topic://news")
            maker.await_credit()

    def peer(self, container: str = "app") -> RawPeer:
        """A client with a session."""
        return RawPeer(self.broker.port).open(container=container).begin()

    def slow(self, seconds: float = BRIEF_S) -> None:
        """Each sync takes longer from now on."""
        self.shim.on("slow", str(round(seconds * 1e6)))

    def again(self) -> None:
        """Killed, and started anew with a disk as quick as it is."""
        self.broker.kill()
        self.shim.off("slow")
        self.broker.start(env=self.shim.env)

    def survived(self, name: str) -> bool:
        """Whether a link of that name has something to come back to."""
        with self.peer() as peer:
            nothing = performative(ATTACH, name, 0, RECEIVER, UByte(2), UByte(0), None, Described(TARGET))
            peer.send(nothing)
            return peer.expect(ATTACH).field(5) is not None


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.broker.kill()


def test_an_answer_waits_for_the_disk_and_messages_for_the_answer(world: World) -> None:
    assert not world.survived("sub")
    world.slow(SLOW_S)
    with world.peer("source") as source, world.peer() as peer:
        source.attach_sender("topic://news")
        source.await_credit()
        peer.send(attach("sub"), performative(FLOW, 0, 10_000, 0, 10_000, 0, 0, 10))
        # What needs no disk is answered meanwhile; by then the subscription is there, and takes messages.
        peer.send(ASKS)
        answers = [peer.expect(ATTACH, 60)]
        source.send(transfer(0))
        source.expect(DISPOSITION, 60)
        answers.append(peer.expect(ATTACH, 60))
        assert [each.field(0) for each in answers] == ["asks", "sub"]
        assert not [each for each in peer.log if each.code == TRANSFER]
        peer.expect(TRANSFER, 60)
        world.again()
    assert world.survived("sub")


def test_who_comes_back_waits_for_no_disk(world: World) -> None:
    with world.peer() as peer:
        peer.send(attach("sub"))
        peer.expect(ATTACH)
    world.slow(SLOW_S)
    with world.peer() as peer:
        peer.send(attach("sub"))
        # Nothing is stored for this one, which the one that is goes behind.
        peer.send(attach("other", 1))
        assert peer.expect(ATTACH).field(0) == "sub"
        assert peer.expect(ATTACH, 60).field(0) == "other"


@pytest.mark.parametrize("closed", [False, True], ids=["detach", "close"])
def test_who_detaches_before_is_answered_both(world: World, closed: bool) -> None:
    world.slow()
    with world.peer() as peer:
        peer.send(attach("sub"), performative(DETACH, 0, closed))
        assert peer.expect(ATTACH, 60).field(0) == "sub"
        assert peer.expect(DETACH, 60).field(1) is (True if closed else None)
        # And the name is free.
        peer.send(attach("sub", 1))
        assert peer.expect(ATTACH, 60).field(0) == "sub"


@pytest.mark.parametrize("how", [END, CLOSE, None], ids=["end", "close", "no word"])
def test_who_leaves_before_is_let_go(world: World, how: int | None) -> None:
    world.slow()
    with world.peer() as peer:
        peer.send(attach("sub"))
        if how is not None:
            peer.send(performative(how))
            peer.expect(how, 60)
        if how == END:
            peer.send(performative(BEGIN, None, 0, 100, 100))
            peer.expect(BEGIN)
            peer.send(attach("sub", 0))
            assert peer.expect(ATTACH, 60).field(0) == "sub"
    with world.peer() as peer:
        peer.send(attach("sub"))
        assert peer.expect(ATTACH, 60).field(0) == "sub"


def test_a_link_that_is_stolen_before_is_told_so(world: World) -> None:
    world.slow()
    with world.peer() as first, world.peer() as second:
        first.send(attach("sub"), ASKS)
        answers = [first.expect(ATTACH, 60)]
        second.send(attach("sub"))
        answers.append(first.expect(ATTACH, 60))
        assert {each.field(0) for each in answers} == {"asks", "sub"}
        assert second.expect(ATTACH, 60).field(0) == "sub"
        assert first.expect(DETACH, 60).condition == "amqp:link:stolen"


@pytest.mark.parametrize("how", [DETACH, END])
def test_who_accepts_and_leaves_is_told_of_no_settlement_that_is_not_on_disk(world: World, how: int) -> None:
    with world.peer() as peer:
        peer.send(attach("sub", 3))
        peer.expect(ATTACH)
        peer.attach_sender("topic://news")
        peer.await_credit()
        peer.send(transfer(0, DURABLE + BODY))
        peer.expect(DISPOSITION)
        peer.give_credit(1, 3)
        number = peer.expect(TRANSFER).field(1)
        world.slow(SLOW_S)
        seen = len(peer.log)
        accepted = performative(DISPOSITION, RECEIVER, number, number, False, Described(ACCEPTED))
        peer.send(accepted, performative(how, 3, False) if how == DETACH else performative(how))
        peer.expect(how, 60)
        # Its answer doesn't wait for the disk; so nothing it says means that the disk has it.
        told = [each.field(4) for each in peer.log[seen:] if each.code == DISPOSITION]
        assert [getattr(each, "descriptor", None) for each in told] in ([], [RECEIVED])
