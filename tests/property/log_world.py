"""A cell of a few members over a log in memory, with a scheduler of faults and a referee who knows the truth.

The members are made of the real pipeline, lease and fold, and of a model of a broker with one node: messages
are promised, arrive, are stored in groups, are confirmed, delivered and settled. The referee judges records
by what their writers registered about them, not by their bytes. ``Violation`` is a law that was broken.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.cluster.fold import LogFold
from broker.cluster.lease import OwnerLease, StandbyClock
from broker.cluster.log import Acked, AppendRefused, EngineFault, LogEntry, Outcome, Unknown
from broker.cluster.pipeline import AppendPipeline
from broker.cluster.records import GROUPS, MARK, TAKEOVER, BrokenRecord, encode, joined

MS = 1_000_000
SECOND = 1000 * MS
TTL, MARGIN, MARK_EVERY = 3 * SECOND, 500 * MS, 500 * MS
CELL = 7
WINDOW = 6
# Within so long a cell without faults must confirm a new message.
LIVELY = 40 * SECOND
_NUMBER = struct.Struct("<i")


class Violation(AssertionError):  # noqa: N818 - a law that is broken
    """A law of the cell doesn't hold."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the writer of a record says about it; ``ops`` are those of the group that is whole with it."""

    epoch: int
    number: int
    after: int
    is_takeover: bool = False
    ops: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Flight:
    """An append on its way to the engine."""

    member: Member
    life: int
    token: int
    data: bytes
    after: int


@dataclass(frozen=True, slots=True)
class State:
    """Messages that are there, and those that have been settled."""

    present: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()

    def with_ops(self, ops: tuple[int, ...]) -> State:
        """Return the state after additions (positive numbers) and settlements (negative ones)."""
        present, settled = set(self.present), set(self.settled)
        for op in ops:
            if op > 0:
                present.add(op)
            else:
                present.discard(-op)
                settled.add(-op)
        return State(frozenset(present), frozenset(settled))


class Referee:
    """The truth: an epoch's records count in their order, as long as no later epoch stands before them."""

    def __init__(self) -> None:
        self.epoch = 0
        self.state = State()
        # After each position; and whether the record there counts.
        self.history = [State()]
        self.counted = [False]
        self.added: set[int] = set()
        self._next = 0
        self._last_counted = 0

    def take(self, position: int, written: Written) -> None:
        """Judge a record that the log has taken."""
        if written.is_takeover:
            counts = written.epoch > self.epoch and self._last_counted <= written.after
        else:
            counts = written.epoch == self.epoch and written.number == self._next
        if counts:
            self._last_counted = position
            self.epoch = written.epoch
            self._next = written.number + 1
            if written.ops:
                self.state = self.state.with_ops(written.ops)
                self.added.update(op for op in written.ops if op > 0)
        self.history.append(self.state)
        self.counted.append(counts)


class Owning:
    """What a member has while it owns the cell: its pipeline and lease, and the node it serves."""

    def __init__(self, kinds: Kinds, fold: LogFold, state: State, sent_ns: int) -> None:
        self.epoch = fold.epoch
        self.pipeline = kinds.pipeline(fold.epoch, fold.position, fold.group, WINDOW)
        self.lease = kinds.lease(TTL, MARGIN, MARK_EVERY, sent_ns, sent_ns)
        self.digest = fold.digest
        self.group = fold.group
        self.number = 1
        # Messages that count in depth; those that consumers may be sent; those they hold.
        self.depth = set(state.present)
        self.ready = sorted(state.present)
        self.delivered: list[int] = []
        self.promised = 0
        self.ops: list[int] = []
        self.unconfirmed: list[tuple[int, tuple[int, ...]]] = []
        self.waiting: dict[int, int] = {}
        self.sent_ns: dict[int, int] = {}
        self.look_last = -1


@dataclass(frozen=True)
class Kinds:
    """The classes that members are made of; a planted bug replaces one."""

    pipeline: type[AppendPipeline] = AppendPipeline
    lease: type[OwnerLease] = OwnerLease
    fold: type[LogFold] = LogFold
    conditional_takeover: bool = True


class Member:
    """A process: a standby, then perhaps an owner, then a standby again."""

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.offset = world.random.randrange(-1000, 1000) * SECOND
        self.paused = False
        self.life = 0
        self.owning: Owning | None = None
        self.start(0)

    @property
    def now(self) -> int:
        """The time on this member's clock."""
        return self.world.now + self.offset

    def start(self, position: int) -> None:
        """Begin anew with a cache that has the log up to a position whose record counts, or nothing at 0."""
        world = self.world
        self.life += 1
        self.owning = None
        if position:
            self.fold = world.kinds.fold.behind(CELL, position, world.log[position - 1])
        else:
            self.fold = world.kinds.fold(CELL)
        self.state = world.referee.history[position]
        self.clock = StandbyClock(TTL, self.rank, self.now)
        self.claim = b""
        self.claim_ns = 0
        self.claim_token = -1
        # The last position as the leader told it, and when it was asked.
        self.last = -1
        self.asked_ns = 0

    def turn(self) -> None:
        """Do one thing."""
        if self.owning is None:
            self.follow()
        else:
            self.own(self.owning)

    # --- standby

    def follow(self) -> None:
        """Read on, or ask the engine's leader, or take over."""
        world = self.world
        entries = world.read(self.fold.position + 1)
        for entry in entries:
            if self.apply(entry):
                return
        if entries:
            return
        if not world.has_leader:
            self.clock.engine_answered(self.now, False)
            return
        self.clock.engine_answered(self.now, True, owner_is_gone=world.random.random() < 0.5)
        if self.clock.takeover_due(self.now) and self.fold.position == self.last:
            self.take_over()
        self.asked_ns = self.now
        self.last = len(world.log)

    def apply(self, entry: LogEntry) -> bool:
        """Apply the next record; return whether it makes this member the owner."""
        world = self.world
        step = self.fold.feed(entry.position, entry.data)
        if step.counts:
            self.clock.record_seen(self.now)
            for group in step.groups:
                self.state = self.state.with_ops(read_ops(group))
        truth = world.referee.history[entry.position]
        if self.state != truth:
            raise Violation(f"position {entry.position}: applied {self.state}, the truth is {truth}")
        if step.counts and step.record.kind == TAKEOVER and entry.data == self.claim:
            self.become_owner()
            return True
        return False

    def take_over(self) -> None:
        """Claim the cell on condition of the last position applied."""
        world, fold = self.world, self.fold
        # A copy of an earlier claim that lands does so after the question: the lease begins there.
        self.claim_ns = self.asked_ns
        self.clock.record_seen(self.now)
        about = bytes([self.rank, self.life & 255, self.life >> 8])
        self.claim, _ = encode(TAKEOVER, CELL, fold.epoch + 1, fold.group, fold.digest, about)
        after = fold.position if world.kinds.conditional_takeover else len(world.log)
        world.register(self.claim, Written(fold.epoch + 1, 0, fold.position, is_takeover=True))
        self.claim_token = world.send(self, self.claim, after)

    def claimed(self, outcome: Outcome) -> None:
        """Take note of what came of the claim."""
        fold = self.fold
        if not isinstance(outcome, Acked):
            return
        if not self.world.kinds.conditional_takeover:
            fold.position = outcome.position - 1
        elif outcome.position != fold.position + 1 or outcome.after != fold.position:
            # It was read from the log meanwhile.
            return
        self.apply(LogEntry(outcome.position, self.claim))

    def become_owner(self) -> None:
        """Serve from what was applied."""
        self.owning = Owning(self.world.kinds, self.fold, self.state, self.claim_ns)

    # --- owner

    def own(self, owning: Owning) -> None:
        """Find out, work, send and confirm."""
        pipeline = owning.pipeline
        if pipeline.fenced:
            self.start(self.world.some_cache(self))
            return
        if pipeline.look_from:
            self.look(owning)
        else:
            self.work(owning)
            self.send(owning)
        self.confirm(owning)

    def look(self, owning: Owning) -> None:
        """Look at the log; the leader's last position and the records are read at different times."""
        world, pipeline = self.world, owning.pipeline
        if owning.look_last < 0:
            if world.has_leader:
                owning.look_last = len(world.log)
                owning.sent_ns.clear()
            return
        entries = world.read(pipeline.look_from)
        if not entries and pipeline.look_from <= owning.look_last:
            return
        pipeline.looked(entries, is_tail=not entries)
        if not pipeline.look_from:
            owning.look_last = -1

    def work(self, owning: Owning) -> None:
        """Promise, take in, deliver, settle, seal."""
        draw = self.world.random.random()
        acts = owning.lease.may_act(self.now)
        room = self.world.stop - len(owning.depth) - owning.promised
        if draw < 0.3 and acts and room > 0:
            owning.promised += 1 + int(draw * 1000) % room
        elif draw < 0.5 and acts and owning.ready:
            owning.delivered.append(owning.ready.pop())
        elif draw < 0.65 and owning.delivered:
            number = owning.delivered.pop()
            owning.depth.discard(number)
            owning.ops.append(-number)
        if draw > 0.4 and owning.promised:
            owning.promised -= 1
            number = self.world.new_number()
            owning.depth.add(number)
            owning.ops.append(number)
        if owning.ops and draw > 0.3 and len(owning.unconfirmed) < 12:
            self.seal(owning, 1 if draw < 0.8 else 3)
        if self.now >= owning.lease.mark_due_ns and owning.pipeline.has_room:
            self.record(owning, MARK, b"")

    def seal(self, owning: Owning, parts: int) -> None:
        """Hand over a group, in so many parts."""
        ops = tuple(owning.ops)
        owning.ops.clear()
        payload = joined([b"".join(map(_NUMBER.pack, ops))])
        for part in range(parts):
            piece = payload[len(payload) * part // parts : len(payload) * (part + 1) // parts]
            is_last = part == parts - 1
            owning.group += is_last
            self.record(owning, GROUPS, piece, part, parts, ops if is_last else ())
        owning.unconfirmed.append((owning.group, ops))

    def record(
        self,
        owning: Owning,
        kind: int,
        payload: bytes,
        part: int = 0,
        parts: int = 1,
        ops: tuple[int, ...] = (),
    ) -> None:
        """Submit a record."""
        data, owning.digest = encode(
            kind, CELL, owning.epoch, owning.group, owning.digest, payload, part, parts
        )
        self.world.register(data, Written(owning.epoch, owning.number, 0, ops=ops))
        owning.number += 1
        owning.pipeline.submit(data, owning.group)

    def send(self, owning: Owning) -> None:
        """Send what may be sent."""
        for data, after in owning.pipeline.to_send():
            owning.lease.sent(self.now)
            owning.sent_ns[after] = self.now
            owning.waiting[self.world.send(self, data, after)] = after

    def told(self, token: int, outcome: Outcome) -> None:
        """Take note of an outcome, each once."""
        owning = self.owning
        if owning is None:
            if token == self.claim_token:
                self.claim_token = -1
                self.claimed(outcome)
        elif owning.waiting.pop(token, None) is not None:
            sent_ns = owning.sent_ns.pop(outcome.after, 0)
            if owning.pipeline.outcome(outcome):
                owning.lease.acked(sent_ns)

    def confirm(self, owning: Owning) -> None:
        """Tell clients what is durable, while the lease lasts."""
        if not owning.unconfirmed or not owning.lease.may_act(self.now):
            return
        while owning.unconfirmed and owning.unconfirmed[0][0] <= owning.pipeline.acked_group:
            _, ops = owning.unconfirmed.pop(0)
            owning.ready += [op for op in ops if op > 0]
            self.world.confirmed(owning, ops)


@dataclass
class Faults:
    """How often a schedule's faults come, each for a random step of the scheduler."""

    lost: float = 0.0
    doubled: float = 0.0
    unanswered: float = 0.0
    timeout: float = 0.0
    stale: float = 0.0
    pause: float = 0.0
    kill: float = 0.0
    leaderless: float = 0.0
    unconditional: float = 0.0
    long_time: float = 0.0

    @classmethod
    def drawn(cls, source: random.Random) -> Faults:
        """Return some faults, few of them frequent."""

        def rate(most: float) -> float:
            return most * source.random() ** 2 if source.random() < 0.7 else 0.0

        return cls(
            *(rate(0.3), rate(0.3), rate(0.4), rate(0.3), rate(0.7)),
            *(rate(0.3), rate(0.12), rate(0.06), rate(0.9), 0.05 + 0.4 * source.random() ** 2),
        )


@dataclass
class World:
    """The engine, the members and the scheduler of one schedule."""

    seed: int
    kinds: Kinds = field(default_factory=Kinds)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.faults = Faults.drawn(self.random)
        self.stop = self.random.randrange(3, 9)
        self.now = 10_000 * SECOND
        self.log: list[bytes] = []
        self.has_leader = True
        self.referee = Referee()
        self.written: dict[bytes, Written] = {}
        self.flights: list[Flight] = []
        self.answers: list[tuple[Member, int, int, Outcome]] = []
        self.numbers = self.tokens = 0
        self.confirmed_added: set[int] = set()
        self.confirmed_settled: set[int] = set()
        self.epochs: set[int] = set()
        self.unconditional = 0
        self.members = [Member(self, rank) for rank in range(self.random.choice((2, 3, 3, 4)))]
        # The cell is new: some member owns it soon.
        self.now += TTL

    # --- for members

    def new_number(self) -> int:
        """Return the number of a new message."""
        self.numbers += 1
        return self.numbers

    def register(self, data: bytes, written: Written) -> None:
        """Take note of a record before it is sent."""
        self.written.setdefault(data, written)

    def send(self, member: Member, data: bytes, after: int) -> int:
        """Let an append fly; return the token of its outcome."""
        self.tokens += 1
        self.flights.append(Flight(member, member.life, self.tokens, data, after))
        return self.tokens

    def read(self, position: int) -> list[LogEntry]:
        """Return a few records, as some replica has them."""
        end = len(self.log)
        if position > end:
            return []
        if self.faults.stale and self.random.random() < self.faults.stale:
            end = self.random.randrange(position - 1, end + 1)
        end = min(end, position + 7)
        return [LogEntry(at, self.log[at - 1]) for at in range(position, end + 1)]

    def confirmed(self, owning: Owning, ops: tuple[int, ...]) -> None:
        """Take note of a confirmation to clients."""
        if owning.epoch != self.referee.epoch:
            raise Violation(f"epoch {owning.epoch} confirms where {self.referee.epoch} owns the cell")
        self.epochs.add(owning.epoch)
        for op in ops:
            (self.confirmed_added if op > 0 else self.confirmed_settled).add(abs(op))

    def some_cache(self, member: Member) -> int:
        """Return a position up to which a killed member's cache has the log; 0, or its record counts."""
        position = self.random.randrange(member.fold.position + 1) if self.random.random() < 0.7 else 0
        while position and not (self.referee.counted[position] and self._is_whole(position)):
            position -= 1
        return position

    def _is_whole(self, position: int) -> bool:
        written = self.written[self.log[position - 1]]
        return written.is_takeover or bool(written.ops)

    # --- the scheduler

    def run(self, steps: int) -> None:
        """Run a schedule with faults, then without, and check the laws after every step."""
        for _ in range(steps):
            self.step()
            self.check()
        self.settle()

    def step(self) -> None:
        """Do one random thing."""
        source = self.random
        draw = source.random()
        if draw < 0.43:
            member = source.choice(self.members)
            if not member.paused:
                self.guarded(member, member.turn)
        elif draw < 0.65 and self.flights:
            self.land(source.randrange(len(self.flights)) if draw < 0.52 else 0)
        elif draw < 0.9 and self.answers:
            self.answer(source.randrange(len(self.answers)) if draw < 0.7 else 0)
        elif draw < 0.96:
            is_long = source.random() < self.faults.long_time
            self.now += source.randrange(SECOND, 5 * SECOND) if is_long else source.randrange(60 * MS)
        else:
            self.fault()

    def guarded(self, member: Member, act: Callable[..., object], *args: object) -> None:
        """Let a member act; one that meets a fault of the engine's begins anew."""
        try:
            act(*args)
        except EngineFault as fault:
            if not self.unconditional:
                raise Violation(str(fault)) from fault
            member.start(self.some_cache(member))
        except BrokenRecord as fault:
            raise Violation(str(fault)) from fault

    def land(self, at: int) -> None:
        """Let an append arrive at the engine: taken, refused, lost, or arriving once more later."""
        faults, source = self.faults, self.random
        if not self.has_leader:
            if source.random() < 0.2:
                del self.flights[at]
            return
        flight = self.flights[at]
        if source.random() >= faults.doubled:
            del self.flights[at]
        if source.random() < faults.lost:
            return
        written = self.written[flight.data]
        last = len(self.log)
        is_taken = flight.after == last
        if not is_taken and written.epoch < self.referee.epoch and source.random() < faults.unconditional:
            is_taken = True
            self.unconditional += 1
        if is_taken:
            self.log.append(flight.data)
            self.referee.take(last + 1, written)
        if source.random() >= faults.unanswered:
            outcome = Acked(flight.after, last + 1) if is_taken else AppendRefused(flight.after)
            self.answers.append((flight.member, flight.life, flight.token, outcome))

    def answer(self, at: int) -> None:
        """Let an answer of the engine's arrive at its member."""
        member, life, token, outcome = self.answers[at]
        if life != member.life:
            del self.answers[at]
        elif not member.paused:
            del self.answers[at]
            self.guarded(member, member.told, token, outcome)

    def fault(self) -> None:
        """Let something go wrong, or right again."""
        source, faults = self.random, self.faults
        member = source.choice([*self.members, *(each for each in self.members if each.owning is not None)])
        if member.paused:
            member.paused = source.random() < 0.7
        elif source.random() < 0.1 + faults.pause * 2:
            member.paused = True
        elif source.random() < faults.kill * 4:
            member.start(self.some_cache(member))
        elif source.random() < faults.timeout * 3:
            self.time_out(member)
        if not self.has_leader:
            self.has_leader = source.random() < 0.3
        elif source.random() < faults.leaderless * 4:
            self.has_leader = False

    def time_out(self, member: Member, every: bool = False) -> None:
        """Tell a member that an outcome is unknown: the oldest one, or all."""
        owning = member.owning
        if owning is None:
            if member.claim_token >= 0:
                self.guarded(member, member.told, member.claim_token, Unknown(member.fold.position))
            return
        for token, after in list(owning.waiting.items())[: None if every else 1]:
            self.guarded(member, member.told, token, Unknown(after))

    # --- the laws

    def check(self) -> None:
        """Raise Violation unless every law holds."""
        truth = self.referee
        if not self.confirmed_added <= truth.added:
            raise Violation(f"confirmed and lost: {self.confirmed_added - truth.added}")
        if not self.confirmed_settled <= truth.state.settled:
            raise Violation(f"settled and undone: {self.confirmed_settled - truth.state.settled}")
        if len(truth.state.present) > self.stop:
            raise Violation(f"the log has {len(truth.state.present)} messages, the threshold is {self.stop}")
        for member in self.members:
            owning = member.owning
            if owning is not None and len(owning.depth) + owning.promised > self.stop:
                raise Violation(
                    f"{len(owning.depth)} + {owning.promised} promised, the threshold is {self.stop}"
                )

    def settle(self) -> None:
        """End all faults; a new message must be confirmed in bounded time."""
        self.faults = Faults()
        self.has_leader = True
        for member in self.members:
            member.paused = False
        known = self.numbers
        ends = self.now + LIVELY
        while not any(number > known for number in self.confirmed_added):
            if self.now > ends:
                raise Violation("no member confirms a new message, though nothing is wrong any more")
            self.now += 150 * MS
            while self.flights:
                self.land(0)
            while self.answers:
                self.answer(0)
            for member in self.members:
                self.time_out(member, every=True)
                self.guarded(member, member.turn)
                if member.owning is not None and member.owning.epoch == self.referee.epoch:
                    self.serve(member)
            self.check()
        self.refold()

    def serve(self, member: Member) -> None:
        """Let the owner have more turns than the time that passes."""
        for _ in range(6):
            if member.owning is None:
                return
            if not member.owning.ready and len(member.owning.delivered) > 2:
                # Its consumers settle.
                number = member.owning.delivered.pop()
                member.owning.depth.discard(number)
                member.owning.ops.append(-number)
            self.guarded(member, member.turn)
            while self.flights:
                self.land(0)
            while self.answers:
                self.answer(0)

    def refold(self) -> None:
        """Check that whoever joins now folds the whole log to the truth."""
        cold = Member(self, 9)
        for position, data in enumerate(self.log, 1):
            self.guarded(cold, cold.apply, LogEntry(position, data))


def read_ops(group: bytes) -> tuple[int, ...]:
    """Return a group's additions and settlements."""
    return tuple(number for (number,) in _NUMBER.iter_unpack(group))
