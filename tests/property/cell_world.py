"""A cell in memory: an engine whose faults are chosen, members made of the real parts, a small broker on top.

One step of a schedule does one thing to the engine, to the time or to a member. The laws are checked where
something could break them: at every record that the engine takes, every act of an owner, every confirmation.
They are judged by ``Judge``, which reads the log by rules of its own.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from broker.cluster.fold import LogFold, Step
from broker.cluster.lease import OwnerLease, StandbyClock
from broker.cluster.log import Acked, AppendRefused, EngineFault, LogEntry, LogUnavailable, Outcome, Unknown
from broker.cluster.pipeline import AppendPipeline
from broker.cluster.records import (
    GROUPS,
    HANDOVER,
    MARK,
    START,
    TAKEOVER,
    BrokenRecord,
    decode,
    encode,
    joined,
    split,
)

MS = 1_000_000
SECOND = 1_000 * MS
CELL = 7
TTL = 3 * SECOND
MARGIN = MARK_EVERY = 500 * MS
ASK_EVERY = 250 * MS
TIMEOUT = 2 * SECOND
NODES = 2
STOP = 6
# The largest payload of one record here, so that a group with padding has several parts.
PART_BYTES = 48
WINDOW = 6
# Within so much time without faults somebody owns the cell and confirms a new message.
HEALED_WITHIN = 20 * SECOND

_OP = struct.Struct("<cBI")
STORE, REMOVE, PADDING = b"S", b"D", b"P"


class Violation(AssertionError):  # noqa: N818
    """A law doesn't hold."""


def epoch_of(data: bytes) -> int:
    """Return the epoch in a record's head."""
    return int.from_bytes(data[24:32], "little")


def law(holds: bool, text: str) -> None:
    """Raise Violation unless a law holds."""
    if not holds:
        raise Violation(text)


class Contents:
    """The durable messages of each node, as groups make them."""

    def __init__(self, live: tuple[set[int], ...] | None = None) -> None:
        self.live = tuple(set(each) for each in live) if live else tuple(set() for _ in range(NODES))

    def apply(self, group: bytes) -> Iterator[tuple[bytes, int, int]]:
        """Apply a group, and yield each operation before it is done."""
        for op, node, message in _OP.iter_unpack(group):
            yield op, node, message
            if op == STORE:
                self.live[node].add(message)
            elif op == REMOVE:
                self.live[node].discard(message)


class Judge:
    """Reads the log as it grows: which records count, what is in the cell, and whether that is lawful."""

    def __init__(self, settled: set[int]) -> None:
        self.counts = [False]
        self.epochs = [0]
        self.epoch = self.group = 0
        self.digest = START
        self.contents = Contents()
        self.groups: dict[int, bytes] = {}
        self.positions: dict[int, int] = {}
        self.stored: set[int] = set()
        self._settled = settled
        self._parts: list[bytes] = []

    def take(self, position: int, data: bytes) -> None:
        """Judge the record that now stands at a position."""
        record = decode(position, data)
        self.epochs.append(record.epoch)
        begins = record.kind == TAKEOVER and record.epoch > self.epoch
        counts = record.chain == self.digest and (begins or record.epoch == self.epoch)
        self.counts.append(counts)
        if not counts:
            return
        self.digest = record.digest
        if begins:
            self.epoch, self._parts = record.epoch, []
        if record.kind != GROUPS:
            return
        law(record.part == len(self._parts), "the parts of a group stand in order")
        self._parts.append(record.payload)
        if record.part + 1 < record.parts:
            return
        groups = list(split(position, b"".join(self._parts)))
        self._parts = []
        law(record.group == self.group + len(groups), "no group is missing, none there twice")
        for group in groups:
            self.group += 1
            self.groups[self.group] = group
            self.positions[self.group] = position
            self._apply(group)

    def _apply(self, group: bytes) -> None:
        for op, node, message in self.contents.apply(group):
            if op == STORE:
                law(message not in self.stored, f"message {message} is stored once")
                self.stored.add(message)
                law(len(self.contents.live[node]) < STOP, f"node {node} keeps its threshold in the log")
            elif op == REMOVE:
                law(message in self._settled, f"message {message} leaves because it was settled")
                law(message in self.contents.live[node], f"message {message} leaves once")


@dataclass(slots=True)
class Sent:
    """A record on its way to the engine."""

    client: LogClient
    session: int
    data: bytes
    after: int
    epoch: int
    number: int


class MemoryEngine:
    """The log, with what is on its way to it, and faults on demand."""

    def __init__(self, rng: random.Random, settled: set[int]) -> None:
        self.entries: list[LogEntry] = []
        self.judge = Judge(settled)
        self.flying: list[Sent] = []
        self.has_leader = True
        self.is_faulty = True
        # Whether the condition is broken for records of a deposed owner, and how often that let one in.
        self.lets_deposed_in = False
        self.let_in = 0
        self.now_ns = 100 * SECOND
        self._rng = rng

    @property
    def last(self) -> int:
        """The last position."""
        return len(self.entries)

    def land(self, at: int, answers: bool = True) -> None:
        """Decide about a record on its way; ``answers``: its sender is told."""
        sent = self.flying.pop(at)
        after = self.last if sent.after < 0 else sent.after
        if after != self.last and not self._breaks(sent):
            outcome: Outcome = AppendRefused(sent.after)
        else:
            position = self.last + 1
            self.entries.append(LogEntry(position, sent.data))
            self.judge.take(position, sent.data)
            outcome = Acked(sent.after, position)
        if answers:
            sent.client.answer(sent.session, sent.number, outcome)

    def _breaks(self, sent: Sent) -> bool:
        if not self.lets_deposed_in or sent.epoch >= self.judge.epoch:
            return False
        self.let_in += 1
        return True


class LogClient:
    """One member's connection to the engine: the real port."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.lag = 0
        self._engine = engine
        self._session = 0
        self._number = 0
        self._sent: dict[int, tuple[int, int]] = {}
        self._answers: list[tuple[int, Outcome]] = []

    def answer(self, session: int, number: int, outcome: Outcome) -> None:
        """Keep an outcome, unless its connection is gone or it was told already."""
        if session == self._session and number in self._sent:
            self._answers.append((number, outcome))

    def lose(self) -> None:
        """Lose the connection: all that has no outcome is Unknown."""
        self._session += 1
        self._answers = [(number, Unknown(after)) for number, (after, _) in self._sent.items()]

    def append(self, data: bytes, after: int) -> None:
        """Send a record."""
        engine = self._engine
        self._number += 1
        self._sent[self._number] = after, engine.now_ns
        engine.flying.append(Sent(self, self._session, data, after, epoch_of(data), self._number))

    def outcomes(self, timeout_s: float, wake: int = -1) -> list[Outcome]:
        """Return some outcomes, in any order."""
        engine = self._engine
        if self._sent and not self._answers and engine.now_ns - next(iter(self._sent.values()))[1] > TIMEOUT:
            self.lose()
        found: list[Outcome] = []
        answers, rng = self._answers, engine._rng
        while answers and not (engine.is_faulty and rng.random() < 0.2):
            number, outcome = answers.pop(int(rng.random() * len(answers)) if engine.is_faulty else 0)
            # A copy's outcome comes after the record's own, or instead of it.
            if self._sent.pop(number, None) is not None:
                found.append(outcome)
        return found

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        """Return records from a replica that may be behind."""
        engine = self._engine
        if engine.is_faulty and not engine.has_leader and engine._rng.random() < 0.5:
            raise LogUnavailable("no replica answers")
        upto = engine.last - (self.lag if engine.is_faulty else 0)
        return engine.entries[position - 1 : min(position - 1 + most_bytes, max(upto, 0))]

    def first(self) -> int:
        """Return the first position."""
        return 1

    def last(self) -> int:
        """Return the last position, from the leader."""
        if not self._engine.has_leader:
            raise LogUnavailable("no leader")
        return self._engine.last

    def nbytes(self) -> int:
        """Return the size of the log."""
        return sum(len(entry.data) for entry in self._engine.entries)

    def trim(self, before: int) -> None:
        """Let go of nothing: a schedule's log is short."""

    def close(self) -> None:
        """Let go of the connection."""
        self._session += 1


@dataclass(frozen=True)
class Parts:
    """The parts that members are made of; a planted bug replaces one."""

    fold: type[LogFold] = LogFold
    pipeline: type[AppendPipeline] = AppendPipeline
    lease: type[OwnerLease] = OwnerLease
    claim_is_conditional: bool = True


@dataclass
class Disk:
    """A standby's directory: what it applied, and the last record that left no group half there."""

    position: int = 0
    data: bytes = b""
    contents: Contents = field(default_factory=Contents)


class Owner:
    """The owner's side of a member, driven as ``LogWriter`` drives it, and the broker it serves."""

    def __init__(self, member: Member, fold: LogFold, sent_ns: int, contents: Contents) -> None:
        self.member, self.world, self.epoch = member, member.world, fold.epoch
        parts = self.world.parts
        self.pipeline = parts.pipeline(fold.epoch, fold.position, fold.group, WINDOW)
        self.lease = parts.lease(TTL, MARGIN, MARK_EVERY, sent_ns, sent_ns)
        self.group = self.sealed = fold.group
        self.digest = fold.digest
        # The allocator: what is there or on its way to the disk, and what producers may still send.
        self.depth = tuple(set(each) for each in contents.live)
        self.promised = [0] * NODES
        self.delivered: list[tuple[int, int]] = []
        self.free = [list(each) for each in contents.live]
        self.ops: list[bytes] = []
        self.unsealed: list[tuple[bytes, int]] = []
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.groups: deque[tuple[int, bytes, list[tuple[bytes, int]]]] = deque()
        self.sent_ns: dict[int, int] = {}
        self.handed_over = False

    @property
    def has_left(self) -> bool:
        """Whether it handed over, and the log has that, or can't have it in time."""
        return self.handed_over and (self.pipeline.is_empty or not self.lease.may_act(self.member.now_ns()))

    # --- the broker

    def may_act(self) -> bool:
        """Whether the lease lets it act; a law is broken if another member owns the cell then."""
        if self.handed_over or not self.lease.may_act(self.member.now_ns()):
            return False
        law(self.world.engine.judge.epoch <= self.epoch, f"{self.member.name} acts after it was deposed")
        return True

    def serve(self, number: int) -> None:
        """Let producers and consumers do something."""
        verb, node = number % 8, (number >> 3) % NODES
        if verb >= 6:
            self.seal(is_large=number & 1024 > 0)
        elif verb in (1, 2):
            self.arrive(node)
        elif verb == 3:
            self.settle(number >> 4)
        elif self.may_act():
            if verb == 0:
                while len(self.depth[node]) + self.promised[node] < STOP:
                    self.promised[node] += 1
            elif self.free[node]:
                self.deliver(node, number >> 4)

    def arrive(self, node: int) -> None:
        """A producer sends a message on a promise that this owner made."""
        if self.promised[node] and not self.handed_over:
            self.promised[node] -= 1
            self.world.message += 1
            self.depth[node].add(self.world.message)
            self.free[node].append(self.world.message)
            self.ops.append(_OP.pack(STORE, node, self.world.message))
            self.unsealed.append((STORE, self.world.message))

    def deliver(self, node: int, number: int) -> None:
        """Give a message to a consumer."""
        message = self.free[node].pop(number % len(self.free[node]))
        law(
            message not in self.world.gone,
            f"message {message} comes again after its settlement was confirmed",
        )
        self.delivered.append((node, message))

    def settle(self, number: int) -> None:
        """A consumer settles a message that this owner gave it."""
        if self.delivered and not self.handed_over:
            node, message = self.delivered.pop(number % len(self.delivered))
            self.world.settled.add(message)
            self.depth[node].remove(message)
            self.ops.append(_OP.pack(REMOVE, node, message))
            self.unsealed.append((REMOVE, message))

    def seal(self, is_large: bool = False) -> None:
        """Seal what came into a group."""
        if self.ops:
            self.sealed += 1
            padding = _OP.pack(PADDING, 0, 0) * (20 if is_large else 0)
            data = b"".join(self.ops) + padding
            self.waiting.append((self.sealed, data))
            self.groups.append((self.sealed, data, self.unsealed))
            self.ops, self.unsealed = [], []

    def confirm(self) -> None:
        """Confirm what is durable."""
        while self.groups and self.groups[0][0] <= self.pipeline.acked_group and self.may_answer():
            number, data, outcomes = self.groups.popleft()
            judge = self.world.engine.judge
            law(
                judge.groups.get(number) == data,
                f"{self.member.name} confirms group {number}, which isn't there",
            )
            position = judge.positions[number]
            law(judge.epochs[position] == self.epoch, "a group is confirmed by the owner that appended it")
            law(
                self.world.effects.setdefault(position, self.epoch) == self.epoch,
                "one owner's effects at a position",
            )
            for op, message in outcomes:
                self.world.confirmed += 1
                if op == STORE:
                    law(message in judge.stored, f"message {message} was confirmed and is lost")
                    self.world.kept.add(message)
                else:
                    self.world.gone.add(message)

    def may_answer(self) -> bool:
        """Whether it may confirm now."""
        return self.may_act()

    # --- the log

    def turn(self, number: int) -> None:
        """Do some of what the writer's thread does in a turn, in its order."""
        if number & 1:
            self.take()
        if number & 2:
            self.send()
        if number & 4:
            if self.pipeline.look_from:
                self.look()
            else:
                self.collect()
        if number & 8:
            self.confirm()

    def take(self) -> None:
        """Make records of groups, and a mark where one is due."""
        while self.waiting and self.pipeline.has_room:
            groups = [self.waiting.popleft()]
            while (
                self.waiting
                and len(groups) < 3
                and len(groups[0][1]) < PART_BYTES
                and self.world.rng.random() < 0.5
            ):
                groups.append(self.waiting.popleft())
            payload = joined([data for _, data in groups])
            parts = -(-len(payload) // PART_BYTES) if len(groups) == 1 else 1
            for part in range(parts):
                piece = payload[len(payload) * part // parts : len(payload) * (part + 1) // parts]
                if part == parts - 1:
                    self.group = groups[-1][0]
                self.record(GROUPS, piece, part, parts)
        if self.member.now_ns() >= self.lease.mark_due_ns and self.pipeline.has_room:
            self.record(MARK, self.member.about)

    def record(self, kind: int, payload: bytes, part: int = 0, parts: int = 1) -> None:
        """Hand a record to the pipeline."""
        data, self.digest = encode(kind, CELL, self.epoch, self.group, self.digest, payload, part, parts)
        self.pipeline.submit(data, self.group)

    def send(self) -> None:
        """Send what may be sent."""
        for data, after in self.pipeline.to_send():
            now_ns = self.member.now_ns()
            self.lease.sent(now_ns)
            self.sent_ns[after] = now_ns
            self.member.log.append(data, after)

    def collect(self) -> None:
        """Take note of outcomes."""
        for outcome in self.member.log.outcomes(0):
            sent_ns = self.sent_ns.pop(outcome.after, 0)
            if self.pipeline.outcome(outcome):
                self.lease.acked(sent_ns)

    def look(self) -> None:
        """Find out what became of records whose outcome isn't known."""
        log = self.member.log
        last = log.last()
        self.sent_ns.clear()
        while position := self.pipeline.look_from:
            entries = log.read(position, 3 + self.world.rng.randrange(8))
            if not entries and position <= last:
                return
            self.pipeline.looked(entries, is_tail=not entries)

    def check(self) -> None:
        """Check the allocator's law."""
        for depth, promised in zip(self.depth, self.promised, strict=True):
            if len(depth) + promised > STOP:
                raise Violation(
                    f"a node overshoots in epoch {self.epoch}: {len(depth)} and {promised} promised"
                )


class Member:
    """A process: a standby that may become the owner, with a clock of its own."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"m{number}"
        self.about = self.name.encode()
        self.rank = number
        self.offset_ns = world.rng.randrange(1000) * SECOND
        self.is_paused = False
        self.disk = Disk()
        self.start()

    def now_ns(self) -> int:
        """Return this member's monotonic time."""
        return self.world.engine.now_ns + self.offset_ns

    def start(self) -> None:
        """Start with what is on the disk and nothing in memory."""
        self.log = LogClient(self.world.engine)
        self.owner: Owner | None = None
        disk, fold = self.disk, self.world.parts.fold
        self.fold = fold.behind(CELL, disk.position, disk.data) if disk.position else fold(CELL)
        self.contents = Contents(disk.contents.live)
        self.clock = StandbyClock(TTL, self.rank, self.now_ns())
        self.claim, self.claimed_ns, self.is_claiming = b"", 0, False
        self.known_last, self.asked_ns = 0, 0

    def kill(self, keeps_disk: bool) -> None:
        """End the process and start it again."""
        self.log.close()
        if not keeps_disk:
            self.disk = Disk()
        self.start()

    def turn(self, number: int) -> None:
        """Do something, unless it is paused."""
        if self.is_paused:
            return
        try:
            if self.owner is None:
                self.stand_by(number)
            else:
                self.owner.serve(number >> 4)
                self.owner.turn(number)
                self.owner.check()
                if self.owner.pipeline.fenced or self.owner.has_left:
                    self.kill(keeps_disk=True)
        except LogUnavailable:
            if self.owner is None:
                self.clock.engine_answered(self.now_ns(), answers=False)
        except BrokenRecord as fault:
            raise Violation(f"{self.name} takes a sound log for a damaged one: {fault}") from fault
        except EngineFault as fault:
            law(self.world.engine.let_in > 0, f"{self.name} takes a sound engine for a faulty one: {fault}")
            self.kill(keeps_disk=True)

    # --- standing by, as ``LogFollower`` does

    def stand_by(self, number: int) -> None:
        """Follow, and perhaps take over."""
        if self.is_claiming:
            outcomes = self.log.outcomes(0)
            if outcomes and self.claimed(outcomes[0]):
                self.become_owner()
            return
        if self.read_more(4 + number % 16):
            self.become_owner()
        elif (
            self.clock.takeover_due(self.now_ns())
            and self.fold.position >= self.known_last
            and (self.log.last() == self.fold.position or not self.world.parts.claim_is_conditional)
        ):
            self.take_over()

    def read_more(self, most: int) -> bool:
        """Apply what there is; return whether this member's own take-over was in it."""
        entries = self.log.read(self.fold.position + 1, most)
        judge = self.world.engine.judge
        for entry in entries:
            step = self.fold.feed(*entry)
            law(
                step.counts == judge.counts[entry.position],
                f"{self.name} misjudges position {entry.position}",
            )
            if step.counts:
                self.clock.record_seen(self.now_ns())
                self.apply(entry, step)
                if step.record.kind == TAKEOVER and entry.data == self.claim:
                    return True
                if self.fold.successor is not None:
                    self.clock.handed_over(self.now_ns(), to_me=self.fold.successor == self.about)
        now_ns = self.now_ns()
        if not entries and now_ns - self.asked_ns >= ASK_EVERY:
            self.asked_ns = now_ns
            self.known_last = self.log.last()
            self.clock.engine_answered(now_ns, answers=True, owner_is_gone=self.world.rng.random() < 0.5)
        return False

    def apply(self, entry: LogEntry, step: Step) -> None:
        """Apply the groups of a record."""
        for group in step.groups:
            for _ in self.contents.apply(group):
                pass
        if step.record.part + 1 == step.record.parts and self.world.rng.random() < 0.2:
            self.disk = Disk(entry.position, entry.data, Contents(self.contents.live))

    def take_over(self) -> None:
        """Ask the log for the cell."""
        fold, now_ns = self.fold, self.now_ns()
        claim, _ = encode(TAKEOVER, CELL, fold.epoch + 1, fold.group, fold.digest, self.about)
        self.claim, self.claimed_ns, self.is_claiming = claim, now_ns, True
        self.clock.record_seen(now_ns)
        self.log.append(claim, fold.position if self.world.parts.claim_is_conditional else -1)

    def claimed(self, outcome: Outcome) -> bool:
        """Take note of what came of the claim; return whether the cell is this member's."""
        self.is_claiming = False
        if not isinstance(outcome, Acked):
            return False
        if self.world.parts.claim_is_conditional:
            if outcome.position != self.fold.position + 1:
                raise EngineFault(
                    f"a take-over stands at {outcome.position}, not behind {self.fold.position}"
                )
        else:
            self.fold.position = outcome.position - 1
        self.fold.feed(outcome.position, self.claim)
        return True

    def become_owner(self) -> None:
        """Serve."""
        self.owner = Owner(self, self.fold, self.claimed_ns, self.contents)
        self.world.takeovers += 1
        if self.world.parts.claim_is_conditional:
            live = self.world.engine.judge
            law(self.fold.epoch <= live.epoch, "a take-over is in the log")
            if self.fold.position == live_position(self.world):
                law(self.contents.live == live.contents.live, f"{self.name} begins with what the log has")

    def hand_over(self) -> None:
        """Let the owner say that it is done."""
        owner = self.owner
        if owner is not None and not owner.handed_over and owner.pipeline.has_room:
            owner.seal()
            owner.take()
            if not owner.waiting:
                owner.confirm()
                owner.handed_over = True
                owner.record(HANDOVER, self.world.rng.choice(self.world.members).about)


def live_position(world: World) -> int:
    """Return the last position of the log."""
    return world.engine.last


class World:
    """One schedule."""

    def __init__(self, seed: int, parts: Parts = Parts()) -> None:
        self.rng = random.Random(seed)
        self.parts = parts
        # Ends of messages: settled by a consumer, confirmed to a producer, settlement confirmed.
        self.settled: set[int] = set()
        self.kept: set[int] = set()
        self.gone: set[int] = set()
        self.effects: dict[int, int] = {}
        self.message = self.confirmed = self.takeovers = 0
        self.engine = MemoryEngine(self.rng, self.settled)
        self.members = [Member(self, number) for number in range(self.rng.randrange(2, 5))]
        self.engine.lets_deposed_in = seed % 4 == 3
        self._choices = self._mood()

    def _mood(self) -> list[Callable[[], None]]:
        """Return the actions of this schedule, some more often than others."""
        rng = self.rng
        faults: list[Callable[[], None]] = [
            *(
                self.drop,
                self.duplicate,
                self.lose,
                self.elect,
                self.pause,
                self.kill,
                self.lag,
                self.silence,
            ),
            *(self.depose, self.hand_over, self.answer_nothing),
        ]
        found = [self.member_turns] * 22 + [self.land] * 8 + [self.advance] * 6
        for fault in faults:
            found += [fault] * rng.choice((0, 0, 1, 1, 2, 4))
        return found

    def run(self, steps: int) -> None:
        """Run a schedule, then let the faults stop; check that the cell lives at the end."""
        self.usurp()
        choices, rng = self._choices, self.rng
        count = len(choices)
        for _ in range(steps):
            choices[int(rng.random() * count)]()
        self.heal()
        self.finish()

    # --- what may happen

    def member_turns(self) -> None:
        """A member goes on, more often one that owns the cell."""
        rng = self.rng
        owners = [member for member in self.members if member.owner is not None]
        member = rng.choice(owners if owners and rng.random() < 0.7 else self.members)
        for _ in range(3):
            member.turn(rng.getrandbits(24))

    def land(self) -> None:
        """Some records on their way come to the engine, mostly in their order."""
        engine, rng = self.engine, self.rng
        for _ in range(rng.randrange(1, 5)):
            if engine.flying and engine.has_leader:
                is_first = rng.random() < 0.8
                engine.land(0 if is_first else rng.randrange(len(engine.flying)), rng.random() < 0.95)

    def advance(self) -> None:
        """Time goes on."""
        self.engine.now_ns += self.rng.choice((5, 20, 50, 100, 300, 600)) * MS

    def drop(self) -> None:
        """A record on its way is lost."""
        if self.engine.flying:
            self.engine.flying.pop(self.rng.randrange(len(self.engine.flying)))

    def duplicate(self) -> None:
        """A record on its way comes twice."""
        if self.engine.flying:
            sent = self.rng.choice(self.engine.flying)
            self.engine.flying.append(sent)

    def answer_nothing(self) -> None:
        """A record is taken or refused, and its sender isn't told."""
        if self.engine.flying and self.engine.has_leader:
            self.engine.land(0, answers=False)

    def lose(self) -> None:
        """A member's connection breaks; what was on its way may still come."""
        self.rng.choice(self.members).log.lose()

    def elect(self) -> None:
        """The engine loses its leader, or has one again."""
        engine = self.engine
        engine.has_leader = not engine.has_leader
        if not engine.has_leader and self.rng.random() < 0.5:
            engine.flying = [sent for sent in engine.flying if self.rng.random() < 0.5]

    def pause(self) -> None:
        """A process stops, or goes on."""
        member = self.rng.choice(self.members)
        member.is_paused = not member.is_paused

    def kill(self) -> None:
        """A process is killed and starts again, with its disk or without it."""
        self.rng.choice(self.members).kill(self.rng.random() < 0.5)

    def lag(self) -> None:
        """The replica that a member reads from is behind, or is level again."""
        self.rng.choice(self.members).log.lag = self.rng.choice((0, 0, 1, 2, 5))

    def silence(self) -> None:
        """Much time goes by."""
        self.engine.now_ns += self.rng.choice((1, 2, 3, 4)) * SECOND

    def hand_over(self) -> None:
        """An owner leaves."""
        self.rng.choice(self.members).hand_over()

    def depose(self) -> None:
        """Another member takes over while records of the owner are on their way."""
        owners = [member for member in self.members if member.owner is not None and not member.is_paused]
        if owners:
            owner = self.rng.choice(owners)
            for _ in range(3):
                owner.turn(self.rng.getrandbits(24) | 3)
            held = [sent for sent in self.engine.flying if sent.client is owner.log]
            self.engine.flying = [sent for sent in self.engine.flying if sent.client is not owner.log]
            if held and self.rng.random() < 0.7:
                # The first of them gets through, or is lost.
                first = held.pop(0)
                if self.engine.has_leader and self.rng.random() < 0.5:
                    self.engine.flying.insert(0, first)
                    self.engine.land(0, answers=False)
            self.usurp(but=owner)
            self.hurry(but=owner)
            self.engine.flying = (
                held + self.engine.flying if self.rng.random() < 0.7 else self.engine.flying + held
            )

    def hurry(self, but: Member) -> None:
        """A new owner sends several records at once."""
        for member in self.members:
            if (
                member.owner is not None
                and member is not but
                and not member.is_paused
                and self.engine.has_leader
            ):
                for _ in range(self.rng.randrange(5)):
                    if (owner := member.owner) is None:
                        break
                    owner.serve(0)
                    owner.arrive(0)
                    owner.seal(is_large=self.rng.random() < 0.3)
                    member.turn(self.rng.getrandbits(24) << 4 | 3)

    def usurp(self, but: Member | None = None) -> None:
        """A standby finds the log silent for long enough."""
        for member in self.rng.sample(self.members, len(self.members)):
            if member is but or member.is_paused or member.owner is not None:
                continue
            for _ in range(4):
                member.turn(self.rng.getrandbits(24))
                self.engine.now_ns += 300 * MS
            self.engine.now_ns += TTL
            member.turn(255)
            if self.engine.has_leader:
                for at in range(len(self.engine.flying) - 1, -1, -1):
                    if self.engine.flying[at].client is member.log:
                        self.engine.land(at)
            member.turn(255)
            return

    # --- the end

    def heal(self) -> None:
        """No fault is left; somebody owns the cell soon, and confirms a new message."""
        engine = self.engine
        engine.is_faulty = engine.lets_deposed_in = False
        engine.has_leader = True
        for member in self.members:
            member.is_paused = False
            member.log.lag = 0
        until_ns = engine.now_ns + HEALED_WITHIN
        newest = self.message
        while engine.now_ns < until_ns:
            for member in self.members:
                self.go_on(member)
                while engine.flying:
                    engine.land(0)
            if self.kept and max(self.kept) > newest:
                return
            engine.now_ns += 240 * MS
        law(False, "nobody confirms a message, though all is well")

    def go_on(self, member: Member) -> None:
        """Let a healthy member do all it can; an owner makes room, and takes a message."""
        member.turn(0b0110_1111)
        owner = member.owner
        if owner is None:
            return
        if not owner.groups and owner.may_act():
            node = 0
            if len(owner.depth[node]) + owner.promised[node] >= STOP:
                if owner.free[node]:
                    owner.deliver(node, 0)
                owner.settle(0)
            owner.serve(0)
            owner.arrive(node)
            owner.seal()
            member.turn(0b0110_1111)

    def finish(self) -> None:
        """All that was confirmed is in the log as any member reads it, now and from the beginning."""
        judge, fold, contents = self.engine.judge, self.parts.fold(CELL), Contents()
        try:
            for entry in self.engine.entries:
                for group in fold.feed(*entry).groups:
                    for _ in contents.apply(group):
                        pass
        except BrokenRecord as fault:
            raise Violation(f"the log as a whole is taken for damaged: {fault}") from fault
        law(contents.live == judge.contents.live, "a fold from the beginning has what the log has")
        live = set().union(*contents.live)
        law(self.kept <= judge.stored, "what was confirmed is there")
        law(self.kept - live <= self.settled, "what was confirmed leaves only when it is settled")
        law(not (self.gone & live), "no confirmed settlement is undone")
