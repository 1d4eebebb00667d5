"""Faults of a cell under load: ``python -m tests.cluster.rounds --fault kill-owner --rounds 50``.

Producers and consumers keep books (``tests.crash.peers``); one producer sends a message at a time. After each
round all that was accepted must come, what was confirmed must not come again, and no queue may have been
deeper than its threshold. The outage of a round is the longest time without an acceptance. With ``--client``
programs of real libraries transfer messages beside them through all rounds; SLUICE_PAUSE_MS (100) says how
long their senders wait, and SLUICE_SENDERS=1 has Qpid JMS send by one connection instead of eight.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.clients import programs
from tests.cluster.disks import PowerCut, enter, missing
from tests.cluster.transfers import CLIENTS, Progress, Transfer
from tests.cluster.world import Cell, MemberProcess, cell, wait_until
from tests.crash.peers import Books, Consumer, Id, Peer, Producer, turn_all
from tools.nats import NatsServer

QUEUES = ("orders", "trades")
# To this one a producer sends one message at a time: nothing else wakes whoever waits for its answer.
LONE = "lone"
STOP = 1000
POLICIES = f"""policies:
  - match: "*"
    kind: queue
    durable: true
    flow_stop_count: {STOP}
    flow_resume_count: {STOP // 2}
"""
RECOVERY_S = 60.0
WHOLE_S = 20.0
UNDER_WAY_S = 0.1
# A client whose broker says nothing for so long looks for another one.
HEARTBEAT_S = 3.0


class TimedBooks(Books):
    """Books that know when the last message was accepted, and the longest time without one."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted_at = time.monotonic()
        self.longest_s = 0.0

    def note_accepted(self, id_: Id) -> None:
        super().note_accepted(id_)
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self.accepted_at)
        self.accepted_at = now


@dataclass
class Result:
    """What came of some rounds of one fault."""

    fault: str
    rounds: int = 0
    outages_s: list[float] = field(default_factory=list)
    books: TimedBooks = field(default_factory=TimedBooks)
    deepest: int = 0
    owners: int = 0

    def __str__(self) -> str:
        return (
            f"| {self.fault} | {self.rounds} | {len(self.books.accepted):,} | {len(self.books.lost)} |"
            f" {len(self.books.confirmed_again)} | {len(self.books.unflagged_again)} |"
            f" {max(0, self.deepest - STOP)} | {spread(self.outages_s)} | {self.owners} |"
        )


def spread(seconds: list[float]) -> str:
    """Return the median of some times and their 99th percentile."""
    ordered = sorted(seconds)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else 0.0
    return f"{median(ordered) if ordered else 0.0:.1f} / {last:.1f} s"


class Transfers:
    """Programs of real libraries that transfer messages through all rounds, and the outages each saw."""

    def __init__(self, made: Cell, clients: list[str]) -> None:
        self._all = [Transfer(made, client) for client in clients]
        self._outages_s: dict[str, list[float]] = {client: [] for client in clients}
        self._before: dict[str, int] = {}
        self.addresses = [each.address for each in self._all]

    def look(self) -> None:
        """Notice how far each is. Raises AssertionError where one has ended."""
        for each in self._all:
            each.look()

    def begin_round(self) -> None:
        """Outages are counted from here."""
        for each in self._all:
            each.watch_anew()

    def note_fault(self) -> None:
        """The fault has happened: what each goes on with counts from here."""
        self.look()
        self._before = {each.client: each.accepted for each in self._all}

    @property
    def are_going_on(self) -> bool:
        """Whether each of them has had messages accepted since the fault."""
        return not self.waiting

    @property
    def waiting(self) -> list[str]:
        """Those that haven't."""
        return [each.client for each in self._all if each.accepted < self._before[each.client] + GOES_ON]

    def end_round(self) -> None:
        """Write down the round's outages."""
        for each in self._all:
            self._outages_s[each.client].append(each.longest_s)

    def end(self, fault: str) -> list[str]:
        """Let each receive all; return their rows. Raises AssertionError where a law is broken."""
        rows = []
        for each in self._all:
            found = each.end(RECOVERY_S)
            rows.append(self._row(fault, each.client, found))
            assert found.received == found.accepted, rows[-1]
            assert found.confirmed_again == 0, rows[-1]
        return rows

    def _row(self, fault: str, client: str, found: Progress) -> str:
        outages_s = self._outages_s[client]
        return (
            f"| {fault}, {client} | {len(outages_s)} | {found.accepted:,} |"
            f" {found.accepted - found.received} | {found.confirmed_again} | | | {spread(outages_s)} | |"
        )

    def stop(self) -> None:
        """Kill those that are still there."""
        for each in self._all:
            each.stop()


Fault = Callable[[Cell, MemberProcess, random.Random], Callable[[], None]]


def nothing() -> None:
    """Nothing has to be undone."""


def kill_owner(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """kill -9 of the owner."""
    owner.kill()
    return owner.start


def stop_owner(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """SIGSTOP of the owner for 10 s, then on."""
    owner.signal(signal.SIGSTOP)
    began = time.monotonic()

    def go_on() -> None:
        time.sleep(max(0.0, began + 10 - time.monotonic()))
        owner.signal(signal.SIGCONT)

    return go_on


def cut_off_owner(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """The owner can't be heard by the log, nor hear it."""
    owner.freeze(True)

    def thaw() -> None:
        owner.freeze(False)

    return thaw


def kill_leader(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """kill -9 of the server that leads the log."""
    server = made.log.servers[made.leader()]
    server.kill()
    return server.start


def kill_both(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """The machine with the owner and the log's leader."""
    server = made.log.servers[made.leader()]
    server.kill()
    owner.kill()

    def again() -> None:
        server.start()
        owner.start()

    return again


def lose_majority(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """Two servers of the log are gone, and come back after 5 s."""
    gone = dice.sample(made.log.servers, 2)
    for server in gone:
        server.kill()
    time.sleep(5)
    for server in gone:
        server.start()
    return nothing


def lose_all(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """Everything is killed at once: all servers of the log and all members."""
    for server in made.log.servers:
        server.kill()
    for member in made.members:
        member.kill()
    for server in made.log.servers:
        server.start()
    for member in made.members:
        member.start()
    return nothing


def move_owner(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """A rolling restart's step: the owner is told to stop, and started again."""
    owner.stop()
    return owner.start


def empty_member(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """The owner is killed, and comes back with an empty disk."""
    owner.kill()
    shutil.rmtree(owner.data)
    return owner.start


def flip_bits(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """A server of the log is killed, a bit of its files flips, and it comes back."""
    server = dice.choice(made.log.servers)
    server.kill()
    blocks = [path for path in server.folder.rglob("*.blk") if path.stat().st_size > 100]
    if blocks:
        block = max(blocks, key=lambda path: path.stat().st_mtime)
        data = bytearray(block.read_bytes())
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        block.write_bytes(data)
    server.start()
    return nothing


def cut_file(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """A server of the log is killed, one of its files is cut short, and it comes back."""
    server = dice.choice(made.log.servers)
    server.kill()
    blocks = [path for path in server.folder.rglob("*.blk") if path.stat().st_size > 100]
    if blocks:
        block = max(blocks, key=lambda path: path.stat().st_mtime)
        with block.open("r+b") as opened:
            opened.truncate(dice.randrange(block.stat().st_size))
    server.start()
    return nothing


def full_disk(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """A machine's disk is full, for its member and its server of the log: the leader's, the owner's, any."""
    at = dice.choice([made.leader(), made.members.index(owner), dice.randrange(len(made.disks))])
    made.disks[at].fill()

    def again() -> None:
        made.disks[at].free()
        made.log.servers[at].kill()
        made.log.servers[at].start()

    return again


def power_cut(made: Cell, owner: MemberProcess, dice: random.Random) -> Callable[[], None]:
    """All machines lose their power, and with it all that was not synced."""
    everyone: list[NatsServer | MemberProcess] = [*made.log.servers, *made.members]
    for each in everyone:
        each.signal(signal.SIGSTOP)
    cut = PowerCut(made.disks)
    for each in everyone:
        each.kill()
    cut.restore()
    for each in everyone:
        each.start()
    return nothing


FAULTS: dict[str, Fault] = {
    "kill-owner": kill_owner,
    "stop-owner": stop_owner,
    "cut-off-owner": cut_off_owner,
    "kill-leader": kill_leader,
    "kill-both": kill_both,
    "lose-majority": lose_majority,
    "lose-all": lose_all,
    "rolling-restart": move_owner,
    "empty-member": empty_member,
    "flip-bits": flip_bits,
    "cut-file": cut_file,
    "full-disk": full_disk,
    "power-cut": power_cut,
}
# The log is trimmed within a few rounds.
LOG_SIZE = "  log_size: 32MB\n"
# These need disks of their own for each machine, of so many bytes. Each owner counts anew what has come since
# it took over, and trims nothing before: where all lose their power again and again, that adds up.
OF_DISKS = {"full-disk": 256 << 20, "power-cut": 1 << 30}
# How long a fault goes on once messages are accepted again: an owner has room in files it made before.
STAYS_S = {"full-disk": 5.0}
# A library goes on after a fault once so many messages were accepted.
GOES_ON = 40
# So long they may take before the fault is undone; some notice a silent broker only once it speaks again.
LEFT_S = 4.0


class Clients:
    """Producers and consumers that find the owner again whenever they lose it."""

    def __init__(self, made: Cell, books: TimedBooks, transfers: Transfers) -> None:
        self._transfers = transfers
        self.lone = Producer(books, LONE, 3)
        self.lone.window = 1
        self.producers = [
            *(Producer(books, QUEUES[n % 2], n, filler=(0, 100, 1000)[n % 3]) for n in range(3)),
            self.lone,
        ]
        self.consumers = [
            Consumer(books, queue, second, f"{queue}-{second}")
            for queue in (*QUEUES, LONE)
            for second in (True, False)
        ]
        self._made = made
        self._next = 0
        self._tried: dict[int, float] = {}
        self._silent_since = 0.0

    def run(self, seconds: float, *, only_consumers: bool = False) -> None:
        """Work for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.turn(only_consumers=only_consumers)

    def run_until(self, reached: Callable[[], bool], seconds: float) -> None:
        """Work until something is reached, and no longer than so many seconds."""
        until = time.monotonic() + seconds
        while not reached() and time.monotonic() < until:
            self.turn()

    def turn(self, *, only_consumers: bool = False) -> None:
        """Connect those that are lost, to one member after the other, and work a little."""
        peers: list[Peer] = [*self.consumers, *(() if only_consumers else self.producers)]
        now = time.monotonic()
        owner = self._made.owner
        silent = {each.amqp for each in self._made.members if each.is_stopped}
        if not silent:
            self._silent_since = now
        for peer in peers:
            if peer.sock is not None and peer.port in silent and now - self._silent_since > HEARTBEAT_S:
                peer.drop()
            closed = peer.sock is not None and bool(peer.refused)
            late = now - self._tried.get(id(peer), 0) > 1.0
            if (peer.sock is None and now - self._tried.get(id(peer), 0) > 0.05) or (closed and late):
                self._next += 1
                member = (
                    owner
                    if owner is not None and not owner.is_stopped
                    else self._made.members[self._next % len(self._made.members)]
                )
                peer.refused = ""
                peer.connect(member.amqp)
                self._tried[id(peer)] = now
        turn_all(peers, 0.02)
        self._transfers.look()

    def drop(self) -> None:
        """Lose every connection."""
        for peer in (*self.producers, *self.consumers):
            peer.drop()


def rounds(made: Cell, fault: str, count: int, seed: int, transfers: Transfers) -> Iterator[Result]:
    """Lead a cell through some rounds; the result after each. Raises AssertionError where a law is broken."""
    dice = random.Random(seed)
    result = Result(fault)
    books = result.books
    clients = Clients(made, books, transfers)
    epochs = set()
    for _ in range(count):
        owner = made.wait_for_owner()
        epochs.add(owner.epoch_owned)
        clients.run(dice.uniform(0.5, 1.5))
        clients.run_until(lambda: bool(books.accepted), RECOVERY_S)
        assert books.accepted, f"no first message: {logs(made)}"
        books.accepted_at, books.longest_s = time.monotonic(), 0.0
        transfers.begin_round()
        undo = FAULTS[fault](made, owner, dice)
        deadline = time.monotonic() + RECOVERY_S
        # Answers that were under way already tell nothing of the outage.
        clients.run(UNDER_WAY_S)
        before, sent = len(books.accepted), clients.lone.next
        transfers.note_fault()
        while (
            len(books.accepted) < before + 300
            or clients.lone.next < sent + 3
            or time.monotonic() - books.accepted_at > 0.5
        ):
            clients.turn()
            assert time.monotonic() < deadline, f"nothing is accepted any more: {books}\n{state_of(made)}"
        clients.run(STAYS_S.get(fault, 0.0))
        result.outages_s.append(books.longest_s)
        clients.run_until(lambda: transfers.are_going_on, LEFT_S)
        undo()
        clients.run(0.5)
        clients.run_until(lambda: transfers.are_going_on, RECOVERY_S)
        assert transfers.are_going_on, f"{transfers.waiting} stand still\n{logs(made)}"
        transfers.end_round()
        result.deepest = max(result.deepest, deepest(made, transfers.addresses))
        drain(made, clients, books)
        result.rounds += 1
        epochs.add(made.wait_for_owner().epoch_owned)
        result.owners = len(epochs)
        check(result, made)
        wait_for_members(made)
        if fault == "full-disk":
            # One machine at a time: a server that has just come back has yet to fetch what it lacks.
            make_whole(made)
        yield result


def wait_for_members(made: Cell) -> None:
    """Wait until each member owns the cell or follows it."""
    try:
        wait_until(lambda: all(each.epoch_owned or each.is_standby for each in made.members), "all members")
    except AssertionError as fault:
        gone = [each.name for each in made.members if not each.is_running]
        raise AssertionError(f"{fault}; ended: {gone}\n{logs(made)}") from None


def make_whole(made: Cell) -> None:
    """Wait until every server has the whole log; set one up anew that doesn't (docs/cluster.md)."""
    try:
        wait_until(made.has_whole_log, "all of the log on all servers", WHOLE_S)
    except AssertionError:
        for at in made.lagging() or ():
            server = made.log.servers[at]
            print(f"{server.name} doesn't catch up: it is set up anew", file=sys.stderr, flush=True)
            server.kill()
            shutil.rmtree(server.folder / "data")
            server.start()
        wait_until(made.has_whole_log, "all of the log on all servers")


def deepest(made: Cell, more: list[str]) -> int:
    """Return the depth of the deepest queue at the owner, of the peers' and some more."""
    deadline = time.monotonic() + RECOVERY_S
    while True:
        try:
            found = [made.wait_for_owner().api(f"/api/v1/queues/{queue}") for queue in (*QUEUES, *more)]
            return max(int(each["depth_msgs"]) + int(each["promised_msgs"]) for each in found)
        except OSError:
            assert time.monotonic() < deadline, logs(made)


def drain(made: Cell, clients: Clients, books: TimedBooks) -> None:
    """Work until all that was accepted has come."""
    for each in clients.producers:
        each.paused = True
    deadline = time.monotonic() + RECOVERY_S
    quiet = 0
    while quiet < 3:
        before = books.deliveries
        clients.run(0.1)
        quiet = quiet + 1 if books.deliveries == before and not books.lost else 0
        assert time.monotonic() < deadline, f"{len(books.lost)} messages don't come: {books}\n{logs(made)}"
    for each in clients.producers:
        each.paused = False


def check(result: Result, made: Cell) -> None:
    """The laws."""
    books = result.books
    assert not books.lost, f"{books}\n{logs(made)}"
    assert not books.confirmed_again, f"{books}\n{logs(made)}"
    assert not books.unflagged_again, f"{books} {books.unflagged_again[:50]}\n{logs(made)}"
    assert result.deepest <= STOP, result


def state_of(made: Cell) -> str:
    """What the owner's API says of the queues and the cell, and the logs."""
    said = []
    for member in made.members:
        for path in ("/api/v1/cluster", *(f"/api/v1/why/{queue}" for queue in (*QUEUES, LONE))):
            try:
                said.append(f"{member.name} {path}: {member.api(path)}")
            except OSError as fault:
                said.append(f"{member.name} {path}: {fault}")
    return "\n".join([*said, logs(made)])


def logs(made: Cell) -> str:
    """The end of what each member, and each server of the log, has written."""
    members = [f"--- {each.name}\n{each.log[-6000:]}" for each in made.members]
    texts = [(each.name, (each.folder / "log").read_text(errors="replace")) for each in made.log.servers]
    return "\n".join([*members, *(f"--- {name}\n{text[-8000:]}" for name, text in texts)])


def main() -> int:
    """Print a row of the table for each fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.rounds", description=__doc__)
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one (may be repeated)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of each (5)")
    parser.add_argument(
        "--client",
        action="append",
        choices=CLIENTS,
        default=[],
        help="have a program of this library transfer messages meanwhile (may be repeated)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    args = parser.parse_args()
    for client in args.client:
        if client in programs.BY_NAME:
            programs.build(programs.BY_NAME[client])
    os.environ.setdefault("SLUICE_PAUSE_MS", "100")
    chosen = args.fault or list(FAULTS)
    if OF_DISKS.keys() & set(chosen):
        if missing():
            parser.error(missing())
        enter("tests.cluster.rounds")
    print(
        "| fault | rounds | accepted | lost | confirmed, and again | again, not flagged | overshoot"
        " | outage p50 / p99 | owners |\n|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for fault in chosen:
        with (
            tempfile.TemporaryDirectory() as folder,
            cell(
                Path(folder),
                extra=LOG_SIZE,
                policies=POLICIES,
                own_disks=fault in OF_DISKS,
                disk_bytes=OF_DISKS.get(fault, 0),
            ) as made,
        ):
            made.start()
            transfers = Transfers(made, args.client)
            try:
                for result in rounds(made, fault, args.rounds, args.seed, transfers):
                    print(
                        f"{fault} {result.rounds}: {result.outages_s[-1]:.2f} s", file=sys.stderr, flush=True
                    )
                print("\n".join([str(result), *transfers.end(fault)]), flush=True)
            finally:
                transfers.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
