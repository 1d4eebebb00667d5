"""What a well-behaved pair has of a broker: alone, during an attack, and beside a process that takes as much
of the machine as the attacker does and does nothing with it.

The broker, the pair and the attacker share the machine's processors. What the attacker takes for itself is
missing whatever the broker does, so the broker's loss is what the attack costs beyond that control.

One pair runs through it all, in slices of less than a second: the attack, its control, the pair alone, and
again. So a slow moment of the machine's meets all three. A round in which something else ran doesn't count.
"""

from __future__ import annotations

import re
import secrets
import statistics
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass

from bench.attacks.companion import Burner, Companion
from bench.attacks.machine import MOST_FOREIGN, Watch, spent_s
from broker.client.load.loop import LoadLoop
from broker.codec import sections
from tests.wire.conftest import RunningBroker

RATE = 2000
BODY_BYTES = 100
MOST_BACKLOG = 5000
# Rounds that count, and those that are begun at most for them.
ROUNDS, MOST_ROUNDS = 3, 6
SLICE_S = 0.4
# Of a slice, before it counts.
SETTLE_S = 0.2
# Until an attacker is at work.
BEGIN_S = 0.5
PACED_S = 1.0
PACED_TRIES = 3
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Round:
    """Messages a second in the three slices, what the attacker took of a processor, and what others did."""

    attacked: float
    control: float
    alone: float
    attacker: float
    foreign: float


@dataclass(frozen=True, slots=True)
class Line:
    """One attack. Messages a second in a closed loop: ``alone``, beside the ``control`` and ``attacked``;
    what is ``kept`` of the control's, the middle of all rounds. The latency is that of a pair of two thousand
    a second, ``turn_ms`` the loop's longest turn during the attack, ``attacker`` the share of one processor
    that it took; ``foreign`` is what others took.
    """

    name: str
    alone: float
    control: float
    attacked: float
    kept: float
    attacker: float
    foreign: float
    control_p99_ms: float
    attacked_p99_ms: float
    turn_ms: float


def pair_on(broker: RunningBroker, address: str, rate: float = 0.0) -> LoadLoop:
    """A producer and a consumer that have begun; the caller closes them."""
    body = bytes(97 + n % 26 for n in range(BODY_BYTES))
    frame = sections.header(durable=False) + sections.binary_body(body)
    loop = LoadLoop(secrets.randbits(63), frame, BODY_BYTES, 1, max_backlog=MOST_BACKLOG, rate=rate)
    for is_sender in (False, True):
        loop.connect(broker.url, address, is_sender=is_sender, index=0)
    deadline_s = time.monotonic() + PATIENCE_S
    while not loop.attached:
        assert time.monotonic() < deadline_s, "the pair's links are not attached"
        loop.spin(0.01)
    loop.begin()
    loop.spin(SETTLE_S)
    return loop


def slice_of(loop: LoadLoop) -> float:
    """Messages a second, once what was before has settled."""
    loop.spin(SETTLE_S)
    began_s, before = time.monotonic(), loop.received
    loop.spin(SLICE_S)
    return (loop.received - before) / (time.monotonic() - began_s)


def round_of(loop: LoadLoop, broker: RunningBroker, attacker: Companion, burner: Burner) -> Round:
    """The attack, its control and neither."""
    watch = Watch((broker.process.pid, attacker.pid, burner.pid))
    before_s, began_s = spent_s(attacker.pid), time.monotonic()
    with attacker.running():
        attacked = slice_of(loop)
    share = (spent_s(attacker.pid) - before_s) / (time.monotonic() - began_s)
    burner.share(share)
    with burner.running():
        control = slice_of(loop)
    return Round(attacked, control, slice_of(loop), share, watch.foreign())


def rounds_of(broker: RunningBroker, attacker: Companion, burner: Burner) -> list[Round]:
    """Those of them that were disturbed least."""
    found: list[Round] = []
    with closing(pair_on(broker, "neighbours")) as loop:
        while len(found) < MOST_ROUNDS and sum(each.foreign <= MOST_FOREIGN for each in found) < ROUNDS:
            found.append(round_of(loop, broker, attacker, burner))
    return sorted(found, key=lambda each: each.foreign)[:ROUNDS]


def p99_ms(broker: RunningBroker, companion: Companion) -> float:
    """The 99th percentile of a paced pair's latency beside a companion, while others took least."""
    found: list[tuple[float, float]] = []
    while len(found) < PACED_TRIES and not any(foreign <= MOST_FOREIGN for foreign, _ in found):
        with closing(pair_on(broker, "neighbours.paced", RATE)) as loop, companion.running():
            loop.spin(SETTLE_S)
            watch = Watch((broker.process.pid, companion.pid))
            loop.measuring = True
            loop.spin(PACED_S)
            loop.measuring = False
            latency_us = loop.latency_us()
            assert latency_us is not None
            found.append((watch.foreign(), latency_us["p99"] / 1000))
    return min(found)[1]


def longest_turn_ms(broker: RunningBroker) -> float:
    """The loop's longest turn since the last time this was asked."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=30) as answer:
                found = re.search(
                    r"^sluice_loop_turn_seconds_max (\S+)", answer.read().decode(), re.MULTILINE
                )
        except OSError:
            # After an attack on HTTP its places are free once what they asked is answered.
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
            continue
        assert found is not None
        return float(found[1]) * 1000


def measured(name: str, broker: RunningBroker, attack: Callable[[], AbstractContextManager[int]]) -> Line:
    """The pair in rounds, and then the latency. ``attack`` yields the attacker's process."""
    longest_turn_ms(broker)
    with attack() as pid, Burner() as burner:
        attacker = Companion(pid)
        time.sleep(BEGIN_S)
        attacker.hold()
        rounds = rounds_of(broker, attacker, burner)
        latency_ms = p99_ms(broker, attacker), p99_ms(broker, burner)
        # Else what it sent last is in the way of the question.
        attacker.go()
    turn_ms = longest_turn_ms(broker)
    return Line(
        name,
        alone=statistics.median(each.alone for each in rounds),
        control=statistics.median(each.control for each in rounds),
        attacked=statistics.median(each.attacked for each in rounds),
        kept=statistics.median(each.attacked / each.control for each in rounds),
        attacker=statistics.median(each.attacker for each in rounds),
        foreign=max(each.foreign for each in rounds),
        control_p99_ms=latency_ms[1],
        attacked_p99_ms=latency_ms[0],
        turn_ms=turn_ms,
    )
