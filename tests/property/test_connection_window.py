"""One window over many links: random verbs, and nobody with credit and messages waits for ever (FLOW §5)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.flow.window import Shared, Window
from tests.examples import examples

pytestmark = pytest.mark.flow


class Link:
    """A consumer link of the connection: its own credit, its own queue, its own window."""

    def __init__(self, shared: Shared, limit: int, threshold: int) -> None:
        self.window = Window(limit, threshold, shared, self)
        self.credit = 0
        self.ready = 0
        self.got = 0

    def wants(self) -> int:
        return min(self.credit, self.ready, self.window.own_room())


class Connection:
    """The wire's part: dispatch what is touched, deal while it is due."""

    def __init__(self, limit: int) -> None:
        self.shared = Shared(limit, lambda window: window.owner.wants())  # type: ignore[attr-defined]
        self.links: list[Link] = []
        self.touched: list[Link] = []

    def attach(self, limit: int, threshold: int) -> Link:
        link = Link(self.shared, limit, threshold)
        self.links.append(link)
        return link

    def touch(self, link: Link) -> None:
        if link not in self.touched:
            self.touched.append(link)

    def turn(self) -> None:
        """As the reactor ends one."""
        self._dispatch()
        while self.shared.due():
            for window in self.shared.deal():
                assert isinstance(window.owner, Link)
                self.touch(window.owner)
            self._dispatch()
        self.check()

    def _dispatch(self) -> None:
        for link in self.touched:
            if link.ready > 0:
                for _ in range(min(link.credit, link.ready, link.window.room())):
                    link.window.sent()
                    link.credit -= 1
                    link.ready -= 1
                    link.got += 1
        self.touched = []

    def settle(self, link: Link) -> None:
        link.window.settled()
        if link.ready:
            self.touch(link)

    def leave(self, link: Link) -> None:
        while link.window.unsettled:
            link.window.settled()
        self.shared.leave(link.window)
        self.links.remove(link)
        self.touched = [each for each in self.touched if each is not link]

    def check(self) -> None:
        shared = self.shared
        assert shared.unsettled == sum(link.window.unsettled for link in self.links) <= shared.limit
        wanting = [link for link in self.links if link.wants() > 0]
        assert not wanting or shared.unsettled == shared.limit, "room is left and somebody waits for it"
        assert all(link.window.waiting for link in wanting), "it waits and stands in no line"
        assert sum(link.window.share for link in self.links) <= max(shared.limit - shared.unsettled, 0)


VERBS = st.lists(
    st.tuples(
        st.sampled_from(["credit", "messages", "settle", "settle", "settle many", "attach", "leave"]),
        st.integers(0, 7),
        st.integers(1, 20),
    ),
    max_size=150,
)


@settings(max_examples=examples(150), deadline=None)
@given(limit=st.integers(1, 25), verbs=VERBS)
def test_room_is_never_left_while_somebody_waits(limit: int, verbs: list[tuple[str, int, int]]) -> None:
    connection = Connection(limit)
    for verb, which, count in verbs:
        links = connection.links
        link = links[which % len(links)] if links else connection.attach(count, 50)
        if verb == "credit":
            link.credit += count
            connection.touch(link)
        elif verb == "messages":
            link.ready += count
            connection.touch(link)
        elif verb == "attach" and len(links) < 8:
            connection.attach(count, which * 10)
        elif verb == "leave":
            connection.leave(link)
        elif verb.startswith("settle"):
            for _ in range(min(count if verb == "settle many" else 1, link.window.unsettled)):
                connection.settle(link)
        connection.turn()


@settings(max_examples=examples(60), deadline=None)
@given(limit=st.integers(1, 30), count=st.integers(2, 10), seed=st.integers(0, 2**32))
def test_nobody_waits_for_ever_while_others_are_served(limit: int, count: int, seed: int) -> None:
    """Endless backlogs, one settled at a time at random: who holds nothing is served in turn."""
    connection = Connection(limit)
    chooser = random.Random(seed)
    for _ in range(count):
        link = connection.attach(1000, 50)
        link.credit = link.ready = 1_000_000
        connection.touch(link)
        connection.turn()
    waited = dict.fromkeys(connection.links, 0)
    for _ in range(400):
        holders = [link for link in connection.links if link.window.unsettled]
        before = {link: link.got for link in connection.links}
        connection.settle(chooser.choice(holders))
        connection.turn()
        for link in connection.links:
            idle = link.got == before[link] and link.window.unsettled == 0
            waited[link] = waited[link] + 1 if idle else 0
            assert waited[link] < count, "others had a turn each, and it had none"


def test_a_huge_backlog_doesnt_take_every_slot_that_comes_free() -> None:
    connection = Connection(100)
    huge = connection.attach(1000, 50)
    huge.credit = huge.ready = 1_000_000
    connection.touch(huge)
    connection.turn()
    assert huge.window.unsettled == 100
    small = connection.attach(1000, 50)
    small.credit = small.ready = 1000
    connection.touch(small)
    connection.turn()
    assert small.got == 0
    for _ in range(50):
        connection.settle(huge)
        connection.turn()
    assert (huge.window.unsettled, small.window.unsettled) == (50, 50)
    for _ in range(300):
        for link in (huge, small):
            connection.settle(link)
        connection.turn()
        assert abs(huge.window.unsettled - small.window.unsettled) <= 1


def test_one_that_never_settles_keeps_no_more_than_its_part() -> None:
    connection = Connection(90)
    links = [connection.attach(1000, 50) for _ in range(3)]
    for link in links:
        link.credit = link.ready = 1_000_000
        connection.touch(link)
    connection.turn()
    *others, stuck = links
    for _ in range(3000):
        for link in others:
            if link.window.unsettled:
                connection.settle(link)
        connection.turn()
    assert 29 <= stuck.window.unsettled <= 31
    assert min(link.got for link in others) > 1000


def test_equals_take_turns() -> None:
    connection = Connection(1)
    links = [connection.attach(10, 50) for _ in range(4)]
    for link in links:
        link.credit = link.ready = 1000
        connection.touch(link)
    connection.turn()
    order = []
    for _ in range(40):
        holder = next(link for link in links if link.window.unsettled)
        order.append(links.index(holder))
        connection.settle(holder)
        connection.turn()
    assert sorted(order[4:8]) == [0, 1, 2, 3]
    assert order[8:] == order[4:-4]
