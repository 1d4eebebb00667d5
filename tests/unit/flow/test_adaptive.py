"""Windows that find their size: simulated clients at a round trip and a speed of their own (FLOW §5)."""

from __future__ import annotations

import heapq

import pytest

from broker.config.node import FIELDS
from broker.flow.adaptive import SIZED, STALE_NS, Adaptive
from broker.flow.window import Window

pytestmark = pytest.mark.flow

MS = 1_000_000
SECOND = 1_000 * MS


class Client:
    """A consumer with an endless backlog: ``trip_ms`` away, ``service_ms`` for each message, one by one.

    It settles ``batch`` messages at a time. The broker's turns are a step apart.
    """

    def __init__(
        self,
        trip_ms: float,
        service_ms: float,
        *,
        least: int = 10,
        most: int = 5000,
        batch: int = 1,
        step_ms: float = 0.5,
    ) -> None:
        self.now_ns = SECOND
        self.trip_ns = round(trip_ms * MS)
        self.service_ns = round(service_ms * MS)
        self.batch = batch
        self.step_ns = round(step_ms * MS)
        self.free_ns = 0
        self.unanswered: list[int] = []
        self.answers: list[int] = []
        self.settled = 0
        self.looked_ns = self.now_ns
        self.window = Window(0, 50, None)
        self.pace = Adaptive(self.window, least, most, 50, self.now_ns)

    def run(self, seconds: float) -> float:
        """So long; messages settled a second."""
        before, end_ns = self.settled, self.now_ns + round(seconds * SECOND)
        while self.now_ns < end_ns:
            while self.answers and self.answers[0] <= self.now_ns:
                heapq.heappop(self.answers)
                self.window.settled()
                self.pace.settled(self.now_ns)
                self.settled += 1
            if self.now_ns - self.looked_ns >= SECOND:
                self.looked_ns = self.now_ns
                self.pace.look(self.now_ns)
            for _ in range(self.window.room()):
                self._send()
            assert self.window.unsettled <= max(self.pace.most, self.pace.least)
            self.now_ns += self.step_ns
        return (self.settled - before) / seconds

    def _send(self) -> None:
        self.window.sent()
        self.pace.sent(self.now_ns)
        begins_ns = max(self.now_ns + self.trip_ns // 2, self.free_ns)
        self.free_ns = begins_ns + self.service_ns
        self.unanswered.append(self.free_ns)
        if len(self.unanswered) == self.batch:
            for _ in self.unanswered:
                heapq.heappush(self.answers, self.free_ns + self.trip_ns // 2)
            self.unanswered = []


@pytest.mark.parametrize("trip_ms", [0, 1, 10, 50])
@pytest.mark.parametrize("service_ms", [0.02, 0.2, 2])
def test_it_is_as_fast_as_the_client(trip_ms: float, service_ms: float) -> None:
    client = Client(trip_ms, service_ms)
    client.run(4)
    most = min(1000 / service_ms, 5000 / max(trip_ms / 1000, 0.0005))
    assert client.run(4) > 0.95 * most


def test_a_slow_consumer_hoards_no_more_than_the_least() -> None:
    client = Client(trip_ms=1, service_ms=100)
    client.run(60)
    assert client.window.limit <= 20
    assert client.window.unsettled <= 20


def test_a_client_that_slows_down_is_left_with_less() -> None:
    client = Client(trip_ms=1, service_ms=0.05)
    client.run(5)
    wide = client.window.limit
    client.service_ns = 10 * MS
    client.run(60)
    assert client.window.limit < wide / 3


def test_a_client_that_speeds_up_gets_a_wider_window() -> None:
    client = Client(trip_ms=10, service_ms=10)
    client.run(5)
    narrow = client.window.limit
    client.service_ns = MS // 20
    client.run(5)
    assert client.window.limit > 4 * narrow
    assert client.run(2) > 0.95 * 20_000


def test_a_longer_round_trip_is_found_out() -> None:
    client = Client(trip_ms=1, service_ms=0.1)
    client.run(5)
    client.trip_ns = 40 * MS
    client.run(3 * STALE_NS / SECOND)
    assert client.run(5) > 0.95 * 10_000


def test_measuring_anew_costs_little() -> None:
    client = Client(trip_ms=50, service_ms=0.05)
    client.run(5)
    assert client.run(60) > 0.95 * 20_000


@pytest.mark.parametrize("batch", [50, 300])
def test_a_client_that_settles_more_than_the_window_at_a_time_is_not_stuck(batch: int) -> None:
    client = Client(trip_ms=1, service_ms=0.5, batch=batch)
    client.run(20)
    assert client.run(10) > 0.8 * 2000


def test_it_stays_within_its_bounds() -> None:
    client = Client(trip_ms=50, service_ms=0.01, least=5, most=70)
    client.run(5)
    assert client.window.limit == 70
    client.pace.configure(5, 30, 50)
    assert client.window.limit == 30
    client.pace.configure(200, 300, 50)
    assert client.window.limit >= 200


def test_without_a_backlog_the_window_narrows_by_half_at_a_time() -> None:
    """A time in which the window was never full says little of what the client could settle."""
    client = Client(trip_ms=10, service_ms=0.1)
    client.run(5)
    wide = client.window.limit
    while client.window.unsettled:
        client.window.settled()
        client.pace.settled(client.now_ns)
    for _ in range(4):
        client.now_ns += 100 * MS
        client.window.sent()
        client.pace.sent(client.now_ns)
        client.window.settled()
        client.pace.settled(client.now_ns + 20 * MS)
    assert wide / 3 < client.window.limit <= 2 * wide


def test_who_sizes_windows_is_a_word_of_dispatch() -> None:
    words = FIELDS["dispatch"].type.schema()["enum"]
    assert isinstance(words, list)
    assert set(SIZED) <= set(words)
