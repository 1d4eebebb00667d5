"""Lives of a broker on one data directory: how each goes is drawn from one seed."""

from __future__ import annotations

import errno
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.crash.chaos.books import BAD, LETTERS, Books, Breach, Id
from tests.crash.chaos.clients import Browser, Consumer, Intruder, Producer
from tests.crash.chaos.directory import contents
from tests.crash.conftest import Broker
from tests.crash.peers import turn_all
from tests.crash.shim import Shim
from tests.wire.apiclient import Api
from tests.wire.forked import ForkedProcess

CONFIG = """
store: {journal_file_size: 1MB}
memory_limit: 64MB
limits: {max_frame_size: 16KB, large_message_size: 32KB, shutdown_timeout: 2s}
"""
POLICIES = """
policies:
  - {match: '#', max_delivery_count: 0}
  - {match: plain, durable: true, max_count: 20000}
  - {match: paged, durable: true, overflow: page, memory_limit: 128KB}
  - {match: bad, durable: true, dead_letter_address: letters, max_delivery_count: 3}
  - {match: letters, durable: true, max_count: 20000}
  - {match: once, durable: true, duplicate_window: 2000, max_count: 20000}
  - {match: news, kind: topic, durable: true, max_count: 20000}
  - {match: '*.first', durable: true, max_count: 20000}
"""
SUBSCRIPTIONS = ("first", "second")
TOPIC_PLACES = tuple(f"news/chaos.{name}" for name in SUBSCRIPTIONS)
SMALL = (0, 100, 1000, 4000)
MIXED = (100, 1000, 150_000)
START_SECONDS = 60
STOP_SECONDS = 60
EMPTY_SECONDS = 120
BROWSE_SECONDS = 60
# What is browsed whole, and for its newest message by a selector.
BROWSED = ("plain", "paged")
ENDS = ("kill", "stop", "pause and kill", "kill at start")
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR)
# Which calls are made to fail, on which files; of a rename, the new name.
FAULTS = (
    ("pwrite", "directory.mdb"),
    ("sync", "directory.mdb"),
    ("pwrite", "data/pages"),
    ("sync", "data/pages"),
    ("pread", "data/pages"),
    ("ftruncate", "data/pages"),
    ("pwrite", "journal-"),
    ("sync", "journal-"),
    ("rename", "journal-"),
    ("pwrite", "spare-"),
    ("fallocate", "spare-"),
    ("rename", "spare-"),
    ("unlink", "spare-"),
    ("write", "large/"),
    ("sync", "data/large"),
    ("pread", "large/"),
    ("unlink", "large/"),
    ("pwrite", "temp/"),
    ("pread", "temp/"),
)
# A disk that is full keeps nobody from starting: these would take room for the journal.
ROOM_TAKEN = tuple(
    (call, part)
    for call, part in FAULTS
    if part in ("journal-", "spare-") and call in ("pwrite", "fallocate", "rename")
)
NO_ROOM = (str(errno.ENOSPC), str(errno.EDQUOT))
# An aim of its own: lives that begin on a disk on which no file of the journal can be made or renamed, one
# after the other, so that the file which an earlier life had in stock is used up as well.
FULL_DISK = "full disk"
# Consumers' ways: of a life in which most is settled, in which most comes back, and in which all is held.
WAYS: dict[str, dict[str, float]] = {
    "accept": {"accept": 1.0},
    "settle": {"accept": 0.9, "release": 0.04, "fail": 0.03, "hold": 0.03},
    "give back": {"release": 0.3, "fail": 0.2, "hold": 0.5},
    "hold": {"hold": 1.0},
    "mix": {"accept": 0.55, "release": 0.15, "fail": 0.1, "hold": 0.2},
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One life. ``faults`` is what the shim is told, empty for a sound one; ``at_once``: before it starts."""

    end: str
    ways: str
    sends: int
    large: int
    consumes: bool
    seconds: float
    faults: dict[str, str]
    at_once: bool

    def __str__(self) -> str:
        sent = f"{self.sends} small and {self.large} large for each"
        told = f"{sent}, {self.ways if self.consumes else 'nobody takes'}, {self.end}"
        when = "from the start" if self.at_once else "once it is up"
        return f"{told}, faults {self.faults} {when}" if self.faults else told

    def may_refuse(self) -> bool:
        """Whether a start may fail: for any fault but a disk that has no room for the journal's files."""
        return any(
            how.split()[0] not in NO_ROOM or (name.removeprefix("fail-"), how.split()[1]) not in ROOM_TAKEN
            for name, how in self.faults.items()
        )


def drawn(dice: Random, faulty: bool, aim: str = "") -> Plan:
    """A life at random. Many only restart, or give back: what was given back is settled lives later.

    One with faults has work to do, so that they are met. ``aim`` is of which calls and files they are.
    """
    ways = dice.choices(list(WAYS), (1, 3, 3, 1, 2))[0]
    idle = dice.random() < 0.2 and not faulty
    return Plan(
        dice.choices(ENDS, (4, 5, 1, 1))[0],
        ways,
        0 if idle else dice.choice((60, 200, 400) if faulty else (0, 20, 60, 200)),
        0 if idle else dice.choice((0, 0, 2, 5)),
        not idle and dice.random() < 0.85,
        dice.uniform(0.2, 0.8),
        (_full(dice) if aim == FULL_DISK else dict(_fault(dice, aim) for _ in range(dice.choice((1, 1, 2)))))
        if faulty
        else {},
        dice.random() < (1 if aim == FULL_DISK else 0.3),
    )


def _patiently(ask: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Ask again where a busy machine has hung up."""
    for _ in range(5):
        try:
            return ask()
        except OSError:
            time.sleep(0.1)
    return ask()


def _fault(dice: Random, aim: str) -> tuple[str, str]:
    """A call that fails, and how: once after so many that don't, or always."""
    call, part = dice.choice([each for each in FAULTS if aim in ":".join(each)])
    error = dice.choice(ERRORS if "write" in call else ERRORS[:3])
    # Whoever is interrupted tries again, for ever if need be.
    once = error == errno.EINTR or dice.random() < 0.7
    when = f" once {dice.choice((0, 0, 1, 2, 3, 5, 8, 13))}" if once else ""
    return f"fail-{call}", f"{error} {part}{when}"


def _full(dice: Random) -> dict[str, str]:
    """No room for a file of the journal, whether it is new or one that was used before."""
    error = dice.choice((errno.ENOSPC, errno.EDQUOT))
    return {f"fail-{call}": f"{error} spare-" for call in ("pwrite", "fallocate", "rename")}


class World:
    """A broker's data directory, its clients and its books."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None], busy: int = 1) -> None:
        self.busy = busy
        self.broker = Broker(folder, POLICIES, CONFIG)
        self.seed = seed
        self.dice = Random(seed)
        self.say = say
        self.shim = Shim(self._made(folder), self.broker.data)
        self.books = Books()
        self.refused = 0
        self.faults_hit = 0
        self.states: dict[str, int] = {}
        books, dice = self.books, self.dice
        self.producers = [
            Producer(books, "plain", ("plain",), 1, dice),
            Producer(books, "paged", ("paged",), 2, dice),
            Producer(books, "bad", (BAD,), 3, dice),
            Producer(books, "once", ("once",), 4, dice),
            Producer(books, "news", TOPIC_PLACES, 5, dice),
        ]
        self.producers[3].resends = True
        self.intruder = Intruder(TOPIC_PLACES[0])
        self.consumers = [
            *(Consumer(books, place, place, dice) for place in ("plain", "paged", BAD, LETTERS, "once")),
            *(
                Consumer(books, place, "news", dice, name)
                for place, name in zip(TOPIC_PLACES, SUBSCRIPTIONS, strict=True)
            ),
        ]

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def found(self) -> None:
        """The first life: subscriptions are made."""
        self.books.begin()
        self.broker.start()
        self._connect([], self.consumers)
        deadline = time.monotonic() + START_SECONDS
        while not all(each.sock and each.link.remote_source.address for each in self.consumers):
            turn_all([*self.consumers], 0.02)
            assert time.monotonic() < deadline, self.broker.read_log()
        self._disconnect()
        assert self.broker.stop() == 0
        self.books.compare(contents(self.broker.data))

    def live(self, faulty: bool, aim: str = "") -> None:
        """One life, and the comparison after it. Breach where something isn't as the books say."""
        plan = drawn(self.dice, faulty, aim)
        plan = replace(plan, sends=plan.sends * self.busy, seconds=plan.seconds * self.busy)
        self.books.begin()
        begun = time.monotonic()
        self.shim.clear()
        up = self._start(plan)
        if up:
            if not plan.faults:
                self._count()
                self._browse()
            self._work(plan)
        state = self._end(plan) if up else "refused"
        self._disconnect()
        hits = self.shim.control / "hits"
        hit = len(hits.read_text().splitlines()) if hits.exists() else 0
        self.faults_hit += hit > 0
        self.states[state] = self.states.get(state, 0) + 1
        self.books.compare(contents(self.broker.data))
        took = time.monotonic() - begun
        self.say(f"life {self.books.life}: {plan}; {state}, {hit} calls failed, {took:.1f} s; {self.books}")

    def empty(self) -> None:
        """The last life: everything is taken, and nothing is left."""
        self.books.begin()
        self.shim.clear()
        self.broker.start()
        for consumer in self.consumers:
            consumer.ways = WAYS["accept"]
        self._connect([], self.consumers)
        deadline = time.monotonic() + EMPTY_SECONDS
        while any(held - self.books.lives[place].confirmed for place, held in self.books.held.items()):
            turn_all([*self.consumers], 0.05)
            if time.monotonic() > deadline:
                raise Breach(f"what is held doesn't come: {self.broker.read_log()}")
        assert self.broker.process is not None
        self._stop(self.broker.process)
        self._disconnect()
        self.books.compare(contents(self.broker.data))

    def _start(self, plan: Plan) -> bool:
        """Start it; false where a fault or the plan kept it from being ready."""
        if plan.at_once:
            self._switch_on(plan)
        self.broker.start(env=self.shim.env if plan.faults else None, wait=False)
        process = self.broker.process
        assert process is not None
        if plan.end == "kill at start":
            time.sleep(plan.seconds)
            self.broker.kill()
            return False
        deadline = time.monotonic() + START_SECONDS
        while "ready" not in self.broker.read_log():
            if process.poll() is not None:
                self.refused += 1
                if not plan.may_refuse() or "Traceback" in self.broker.read_log():
                    raise Breach(f"it doesn't start: {self.broker.read_log()}")
                return False
            if time.monotonic() > deadline:
                raise Breach(f"it isn't ready: {self.broker.read_log()}")
            time.sleep(0.005)
        self.broker.wait_ready()
        if not plan.at_once:
            self._switch_on(plan)
        return True

    def _switch_on(self, plan: Plan) -> None:
        for name, how in plan.faults.items():
            self.shim.on(name, how)

    def _count(self) -> None:
        """What management says of the depths is what the directory holds."""
        api = Api(self.broker)  # type: ignore[arg-type]
        for place, held in sorted(self.books.held.items()):
            if place in (BAD, LETTERS, "news"):
                continue
            kind = "subscriptions" if "/" in place else "queues"
            told = _patiently(lambda: api.get(f"/{kind}/{place.replace('/', '%2F')}"))["depth_msgs"]  # noqa: B023
            if told != len(held):
                raise Breach(f"{place}: its depth is {told}, and {len(held)} messages are there")

    def _browse(self) -> None:
        """A browser sees all there is, and one with a selector the newest, wherever they are."""
        wanted: list[tuple[Browser, set[Id]]] = []
        for place in BROWSED:
            held = self.books.held[place]
            if held:
                wanted.append((Browser(self.books, place), held))
                newest = max(held, key=lambda id_: id_[1])
                wanted.append((Browser(self.books, place, newest), {newest}))
        browsers = [browser for browser, _ in wanted]
        for browser in browsers:
            browser.connect(self.broker.port)
        deadline = time.monotonic() + BROWSE_SECONDS
        while any(browser.seen != held for browser, held in wanted) and time.monotonic() < deadline:
            turn_all([*browsers], 0.02)
        for browser, held in wanted:
            browser.drop()
            if browser.seen != held:
                way = f"with a selector for {browser.one} " if browser.one else ""
                raise Breach(f"{browser.address}: a browser {way}sees {len(browser.seen)} of {len(held)}")

    def _connect(self, producers: list[Producer], consumers: list[Consumer]) -> None:
        for peer in (*producers, *consumers):
            peer.connect(self.broker.port)

    def _disconnect(self) -> None:
        for peer in (*self.producers, *self.consumers, self.intruder):
            peer.drop()

    def _work(self, plan: Plan) -> None:
        """Clients come and do as planned; some of the consumers vanish and come again."""
        for producer in self.producers:
            producer.sizes = SMALL
            producer.limit = plan.sends
            if plan.large and producer.number in (1, 2, 3, 5):
                producer.sizes = MIXED
                producer.limit = plan.large + plan.sends // 10
        for consumer in self.consumers:
            consumer.ways = WAYS[plan.ways]
            if consumer.place == BAD and plan.ways in ("settle", "mix"):
                consumer.ways = {**consumer.ways, "reject": 0.1}
        self._connect(self.producers, self.consumers if plan.consumes else [])
        self.intruder.connect(self.broker.port)
        peers = [*self.producers, *self.consumers, self.intruder]
        until = time.monotonic() + plan.seconds
        while (left := until - time.monotonic()) > 0:
            turn_all([*peers], min(left, plan.seconds / 3))
            if plan.consumes:
                again = self.dice.choice(self.consumers)
                again.drop()
                again.connect(self.broker.port)
        if plan.end == "stop":
            # What is on its way is told before it stops, so that orderly stops are looked at too.
            deadline = time.monotonic() + 2
            while (
                not all(each.idle for each in self.producers)
                and time.monotonic() < deadline
                and not plan.faults
            ):
                turn_all([*peers], 0.02)

    def _stop(self, process: subprocess.Popen[bytes] | ForkedProcess) -> int:
        """SIGTERM, while its clients listen to what it says last; its exit status."""
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while (status := process.poll()) is None:
            if time.monotonic() > deadline:
                self.broker.kill()
                raise Breach(f"it doesn't stop: {self.broker.read_log()}")
            turn_all([*self.producers, *self.consumers], 0.02)
        return status

    def _end(self, plan: Plan) -> str:
        process = self.broker.process
        assert process is not None
        if process.poll() is not None:
            raise Breach(f"it left by itself, with status {process.returncode}: {self.broker.read_log()}")
        if plan.end == "pause and kill":
            process.send_signal(signal.SIGSTOP)
            turn_all([*self.producers, *self.consumers], 0.1)
            process.send_signal(signal.SIGCONT)
            turn_all([*self.producers, *self.consumers], 0.1)
        said = self.broker.read_log()
        state = "failed" if "the store has failed" in said else "full" if "no room" in said else "well"
        if plan.end != "stop":
            self.broker.kill()
        else:
            status = self._stop(process)
            if status != 0 and not plan.faults:
                raise Breach(f"it stopped with status {status}: {self.broker.read_log()}")
        said = self.broker.read_log()
        if "Traceback" in said:
            raise Breach(f"an exception nobody took: {said}")
        if not plan.faults and state != "well":
            raise Breach(f"its store is {state} on a sound disk: {said}")
        return f"{state}, {plan.end}"


def run(
    folder: Path,
    seed: int,
    lives: int,
    faults: int,
    aim: str = "",
    say: Callable[[str], None] = print,
    busy: int = 1,
) -> World:
    """So many lives, and as many with faults among them as asked for. ``busy``: how many times as long they
    are, with as many times the messages.
    """
    world = World(folder, seed, say, busy)
    order = [False] * lives + [True] * faults
    world.dice.shuffle(order)
    try:
        world.found()
        for faulty in order:
            world.live(faulty, aim)
        world.empty()
    except Breach as breach:
        say(f"BREACH in life {world.books.life}, seed {seed}, in {world.broker.data}:\n{breach}")
        raise
    finally:
        world._disconnect()
        process = world.broker.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)
            world.broker.kill()
    say(
        f"seed {seed}: {lives} lives and {faults} with faults ({world.faults_hit} met one),"
        f" {world.refused} starts refused under faults, ends {world.states}: {world.books}"
    )
    return world
