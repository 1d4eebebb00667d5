"""Faults of members with several cells under load: ``python -m tests.cluster.cell_rounds --rounds 10``.

In each cell there are a queue with consumers and one without, which stands at its threshold all the time.
Clients connect to any member. After each round all that was accepted must come, what was confirmed must not
come again, and no queue may be deeper, with what it has promised, than its threshold.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.spread import CELLS, CellsCluster, CellsMember, cells_cluster, queue_in
from tests.cluster.world import wait_until
from tests.crash.peers import Books, Consumer, Peer, Producer, turn_all

STOP = 300
POLICIES = f"""policies:
  - match: "*.>"
    kind: queue
    durable: true
    flow_stop_count: {STOP}
    flow_resume_count: {STOP // 2}
"""
FLOWING, BRIM = "flowing", "brim"
RECOVERY_S = 60.0
HEARTBEAT_S = 3.0
STOPPED_S = 6.0

Undo = Callable[[], None]
Fault = Callable[[CellsCluster, CellsMember], Undo]


def nothing() -> None:
    """Nothing has to be undone."""


def kill_member(made: CellsCluster, member: CellsMember) -> Undo:
    """kill -9 of all processes of a member."""
    member.kill()
    return member.start


def stop_member(made: CellsCluster, member: CellsMember) -> Undo:
    """SIGSTOP of all its processes for some seconds."""
    member.signal_all(signal.SIGSTOP)
    return lambda: member.signal_all(signal.SIGCONT)


def cut_off_member(made: CellsCluster, member: CellsMember) -> Undo:
    """None of its cells can be heard by the log, nor hear it."""
    member.freeze(True)
    return lambda: member.freeze(False)


def restart_member(made: CellsCluster, member: CellsMember) -> Undo:
    """A step of a rolling restart: it is told to stop, and started again."""
    member.stop()
    return member.start


def empty_member(made: CellsCluster, member: CellsMember) -> Undo:
    """A member is killed, and comes back with an empty disk."""
    member.kill()
    shutil.rmtree(member.data)
    return member.start


def kill_server(made: CellsCluster, member: CellsMember) -> Undo:
    """kill -9 of a server of the log, which leads some of the cells' logs; all members stay."""
    server = made.log.servers[made.members.index(member)]
    server.kill()
    return server.start


def kill_machine(made: CellsCluster, member: CellsMember) -> Undo:
    """A machine is gone, with its member and its server of the log."""
    start_server, start_member = kill_server(made, member), kill_member(made, member)

    def start() -> None:
        start_server()
        start_member()

    return start


FAULTS: dict[str, Fault] = {
    "kill-member": kill_member,
    "stop-member": stop_member,
    "cut-off-member": cut_off_member,
    "rolling-restart": restart_member,
    "empty-member": empty_member,
    "kill-server": kill_server,
    "kill-machine": kill_machine,
}


@dataclass
class Outcome:
    """What came of some rounds."""

    fault: str
    books: Books = field(default_factory=Books)
    rounds: int = 0
    outages_s: list[float] = field(default_factory=list)
    deepest: int = 0
    # Of each round: the members that had a cell of the one that failed, one for each cell.
    successors: list[list[str]] = field(default_factory=list)

    def __str__(self) -> str:
        books = self.books
        longest = max(self.outages_s, default=0.0)
        return (
            f"| {self.fault} | {self.rounds} | {len(books.accepted):,} | {len(books.lost)} |"
            f" {len(books.confirmed_again)} | {len(books.unflagged_again)} | {max(0, self.deepest - STOP)} |"
            f" {self.deepest} | {longest:.1f} s |"
        )


class Crowd:
    """Clients of queues of all cells, each at a member of its own, that come back wherever they can."""

    def __init__(self, made: CellsCluster, books: Books, dice: random.Random) -> None:
        self._made = made
        self._dice = dice
        self._tried: dict[int, float] = {}
        self._silent_since = 0.0
        self.flowing = [
            Producer(books, queue_in(cell, begin=FLOWING), cell, filler=(0, 200)[cell % 2])
            for cell in range(CELLS)
        ]
        self.brimming = [
            Producer(books, queue_in(cell, begin=BRIM), CELLS + cell, filler=100) for cell in range(CELLS)
        ]
        self.consumers = [
            Consumer(books, queue_in(cell, begin=FLOWING), second, f"{cell}-{second}")
            for cell in range(CELLS)
            for second in (True, False)
        ]
        self.emptying = [
            Consumer(books, queue_in(cell, begin=BRIM), cell % 2 == 0, f"brim-{cell}")
            for cell in range(CELLS)
        ]
        self.drains = False

    def run(self, seconds: float) -> None:
        """Work for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.turn()

    def run_until(self, reached: Callable[[], bool], what: str, seconds: float = RECOVERY_S) -> None:
        """Work until something is reached. Raises AssertionError where it isn't."""
        until = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < until, f"{what}: waited {seconds:g} s\n{self._made.logs()}"
            self.turn()

    def turn(self) -> None:
        """Connect those that are lost to any member that runs, and work a little."""
        peers: list[Peer] = [*self.flowing, *self.brimming, *self.consumers]
        peers += self.emptying if self.drains else []
        now = time.monotonic()
        members = [each for each in self._made.members if each.is_running]
        silent = {each.amqp for each in members if each.is_stopped}
        if not silent:
            self._silent_since = now
        for peer in peers:
            tried = self._tried.get(id(peer), 0.0)
            if peer.sock is not None and peer.port in silent and now - self._silent_since > HEARTBEAT_S:
                peer.drop()
            lost = peer.sock is None and now - tried > 0.2
            if lost or (peer.sock is not None and peer.refused and now - tried > 1.0):
                peer.refused = ""
                peer.connect(self._dice.choice(members).amqp)
                self._tried[id(peer)] = now
        turn_all(peers, 0.02)

    def drop(self) -> None:
        """Lose every connection."""
        for each in (*self.flowing, *self.brimming, *self.consumers, *self.emptying):
            each.drop()

    def stop_emptying(self) -> None:
        """The consumers of queues that are to be full go."""
        self.drains = False
        for each in self.emptying:
            each.drop()


def one_round(made: CellsCluster, crowd: Crowd, outcome: Outcome, member: CellsMember) -> None:
    """Have a member fail, and come back. Raises AssertionError where a law is broken."""
    books = outcome.books
    crowd.run_until(lambda: is_full(made), "queues that stand at their threshold")
    before = made.wait_for_owners()
    lost = [cell for cell, owner in before.items() if owner == member.name]
    undo = FAULTS[outcome.fault](made, member)
    began = time.monotonic()
    # Answers that were under way already tell nothing of the outage.
    crowd.run(0.2)
    sent = [each.next for each in crowd.flowing]

    def all_go_on() -> bool:
        return all(each.next > now + STOP for each, now in zip(crowd.flowing, sent, strict=True))

    if outcome.fault == "stop-member":
        # A consumer that came in by a member that stands still keeps what it holds (limits.idle_timeout).
        crowd.run_until(lambda: len(made.owners()) == CELLS, "owners of all cells")
        crowd.run(max(0.0, began + STOPPED_S - time.monotonic()))
        undo()
        undo = nothing
    crowd.run_until(all_go_on, "all cells to go on")
    outcome.outages_s.append(time.monotonic() - began)
    after = made.wait_for_owners()
    outcome.successors.append([after[cell] for cell in lost])
    if outcome.fault == "kill-member":
        # Each of them has gone to another one, or goes there.
        crowd.run_until(made.is_even, "cells that are spread over those that are left")
    outcome.deepest = max(outcome.deepest, deepest(made))
    undo()
    crowd.run(1.0)
    outcome.deepest = max(outcome.deepest, deepest(made))
    drain(made, crowd, books)
    outcome.rounds += 1
    assert not books.lost, f"{books}\n{made.logs()}"
    assert not books.confirmed_again, f"{books}\n{made.logs()}"
    assert not books.unflagged_again, f"{books} {books.unflagged_again[:50]}\n{made.logs()}"
    assert outcome.deepest <= STOP, f"{outcome}\n{made.logs()}"


def drain(made: CellsCluster, crowd: Crowd, books: Books) -> None:
    """Work until all that was accepted has come."""
    producers = [*crowd.flowing, *crowd.brimming]
    for each in producers:
        each.paused = True
    crowd.drains = True
    deadline = time.monotonic() + RECOVERY_S
    quiet = 0
    while quiet < 3:
        before = books.deliveries
        crowd.run(0.2)
        quiet = quiet + 1 if books.deliveries == before and not books.lost else 0
        assert time.monotonic() < deadline, f"{len(books.lost)} don't come: {books}\n{made.logs()}"
    crowd.stop_emptying()
    for each in producers:
        each.paused = False


def depths(made: CellsCluster) -> list[tuple[int, int]]:
    """Return the depth of each queue, and that with what it has promised, as owners say."""
    found = []
    for begin in (FLOWING, BRIM):
        for cell, owner in made.wait_for_owners().items():
            shown = made.member(owner).api(f"/api/v1/queues/{queue_in(cell, begin=begin)}")
            depth = int(shown["depth_msgs"])
            found.append((depth, depth + int(shown["promised_msgs"])))
    return found


def is_full(made: CellsCluster) -> bool:
    """Whether each queue without consumers stands at its threshold."""
    with suppress(OSError, KeyError):
        return all(depth == STOP for depth, _ in depths(made)[CELLS:])
    return False


def deepest(made: CellsCluster) -> int:
    """Return the depth with promises of the deepest queue."""
    found: list[int] = []

    def told() -> bool:
        with suppress(OSError):
            found.append(max(each for _, each in depths(made)))
        return bool(found)

    wait_until(told, "the depths")
    return found[0]


def main() -> int:
    """Print a row of a table for each fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.cell_rounds", description=__doc__)
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one (may be repeated)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of each (5)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    args = parser.parse_args()
    print(
        "| fault | rounds | accepted | lost | confirmed, and again | again, not flagged | overshoot"
        " | deepest | longest outage |\n|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for fault in args.fault or list(FAULTS):
        dice = random.Random(args.seed)
        with (
            tempfile.TemporaryDirectory() as folder,
            cells_cluster(Path(folder), policies=POLICIES, extra="  rebalance: 3s\n") as made,
        ):
            made.wait_for_standbys()
            outcome = Outcome(fault)
            crowd = Crowd(made, outcome.books, dice)
            for number in range(args.rounds):
                began = time.monotonic()
                owners = made.wait_for_owners()
                one_round(made, crowd, outcome, made.member(dice.choice(sorted(set(owners.values())))))
                made.wait_for_standbys()
                made.wait_for_spread()
                text = f"{fault} {number + 1}: outage {outcome.outages_s[-1]:.1f} s, to"
                took_s = time.monotonic() - began
                print(f"{text} {outcome.successors[-1]}, {took_s:.0f} s", file=sys.stderr, flush=True)
            print(outcome, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
