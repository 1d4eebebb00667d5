"""An owner and who follows it: a log that acknowledges late, what a directory holds, and a model of it."""

from __future__ import annotations

import copy
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from broker.store.cell import APPLIED, position_in
from broker.store.disk import DiskStore
from broker.store.logs import DiskQueueLog
from broker.store.pages import StoredPage, messages_of
from broker.store.port import DURABLE, FAILED, REDELIVERED, SPARED, Store
from broker.store.replicated import ReplicatedStore
from broker.store.streamlog import DiskStreamLog
from tests.store.streams import everything

FILE_BYTES = 1 << 20

Held = tuple[int, int, int, int, bytes]
Contents = tuple[dict[int, tuple[str, bytes, int, list[Held]]], dict[str, bytes]]


class LateLog:
    """A replicated log in memory: what is submitted is acknowledged when a test says so."""

    def __init__(self, before: int = 0) -> None:
        self.acked_group = before
        self.last = before
        self.groups: dict[int, bytes] = {}

    @property
    def pending_bytes(self) -> int:
        """What isn't acknowledged."""
        return sum(len(self.groups[each]) for each in range(self.acked_group + 1, self.last + 1))

    def submit(self, log_group: int, data: bytes) -> None:
        """Take the next group."""
        assert log_group == self.last + 1, "a group is missing, or came twice"
        self.groups[log_group] = data
        self.last = log_group

    def acknowledge(self, store: ReplicatedStore, upto: int | None = None) -> None:
        """Acknowledge up to this group, or all of them."""
        self.acked_group = self.last if upto is None else upto
        store.ring()


def until(store: Store, condition: Callable[[], bool]) -> None:
    """Attend to the store until the condition holds."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, store.reason
        assert store.state != FAILED, store.reason
        select.select([store.bell], [], [], 0.1)
        store.attend()


def held_by(store: DiskStore) -> Contents:
    """What a store that was just opened has: queue logs by number, in order, and notes but the log's."""
    shelves = {}
    for each in store.recovered.shelves:
        messages: list[Held] = []
        for part in each.parts:
            messages += (
                messages_of(each.shelf, store.load(each.shelf, part))
                if isinstance(part, StoredPage)
                else part
            )
        shelves[each.shelf.id] = (each.name, each.definition, each.last_seq, messages)
    for stream in store.recovered.streams:
        found = everything(stream.shelf.segments, 1 << 16)
        messages = [(offset + 1, 0, 0, time_ms, data) for offset, time_ms, data in found]
        shelves[stream.shelf.id] = (stream.name, stream.definition, stream.shelf.last_seq, messages)
    notes = {key: value for key, value in store.recovered.notes.items() if not key.startswith("cluster/")}
    return shelves, notes


def read_directory(path: Path) -> tuple[int, Contents]:
    """What a data directory holds, and up to which group of the log it says so. DamagedStore."""
    store = DiskStore.open(path, file_bytes=FILE_BYTES)
    try:
        return position_in(store.recovered.notes.get(APPLIED, b""))[1], held_by(store)
    finally:
        store.abandon()


@dataclass
class ModelLog:
    """One queue log, or stream, as it should be."""

    name: str
    definition: bytes
    last_seq: int = 0
    messages: dict[int, Held] = field(default_factory=dict)


@dataclass
class Model:
    """What a store should hold; the names of its streams begin with an s."""

    shelves: dict[int, ModelLog] = field(default_factory=dict)
    notes: dict[str, bytes] = field(default_factory=dict)

    def contents(self) -> Contents:
        """In the form of ``held_by``."""
        return (
            {
                number: (each.name, each.definition, each.last_seq, list(each.messages.values()))
                for number, each in self.shelves.items()
            },
            dict(self.notes),
        )


class Owner:
    """Random operations on an owner's store, and what it should hold behind each group of the log."""

    def __init__(self, chance: Random, largest: int = 4000) -> None:
        self.chance = chance
        self.largest = largest
        self.model = Model()
        self.states = {0: self.model.contents()}
        self.logs: dict[int, DiskQueueLog | DiskStreamLog] = {}
        self.made = 0
        self.data = b""

    def take(self, store: DiskStore) -> None:
        """Go on with a store that was just opened."""
        self.logs = {each.shelf.id: each.shelf for each in store.recovered.shelves}
        self.logs |= {each.shelf.id: each.shelf for each in store.recovered.streams}

    def group(self, store: ReplicatedStore, operations: int) -> None:
        """Some operations in one group."""
        for _ in range(operations):
            self.operate(store)
        if store.open_records:
            number = store.log_group(store.group)
            store.seal()
            self.states[number] = copy.deepcopy(self.model.contents())

    def operate(self, store: ReplicatedStore) -> None:
        """One operation, of any kind."""
        chance, verbs = self.chance, ["append"] * 8 + ["forget"] * 6 + ["update"] * 3 + ["note"] * 2
        verb = chance.choice([*verbs, *["publish"] * 3, "redefine", "make", "remove"])
        if verb == "note":
            key = f"note/{chance.randrange(12)}"
            value = chance.choice((b"", b"%d" % chance.randrange(1000)))
            store.note(key, value)
            self.model.notes.pop(key, None)
            if value:
                self.model.notes[key] = value
        elif verb == "publish":
            self.publish()
        elif verb == "make" or not self.logs:
            if len(self.logs) < 4:
                self.make(store)
        else:
            number = chance.choice(list(self.logs))
            self.on_log(store, verb, self.logs[number], self.model.shelves[number])

    def publish(self) -> None:
        """Some messages to several queues, mostly to each its next number."""
        logs = [
            log for log in self.logs.values() if isinstance(log, DiskQueueLog) and self.chance.random() < 0.9
        ]
        for _ in range(self.chance.randrange(1, 5)):
            self.data = self.chance.randbytes(self.chance.randrange(self.largest))
            for log in logs:
                model = self.model.shelves[log.id]
                seq = model.last_seq + (1 if self.chance.random() < 0.95 else 3)
                held = (seq, DURABLE, 0, 0 if self.chance.random() < 0.95 else 77, self.data)
                log.append(*held)
                model.messages[seq] = held
                model.last_seq = seq
            if logs and self.chance.random() < 0.5:
                # One of them is through with its first ones, or with all.
                log = self.chance.choice(logs)
                messages = self.model.shelves[log.id].messages
                for seq in list(messages)[: self.chance.randrange(20)]:
                    log.forget(seq, len(messages.pop(seq)[4]))

    def make(self, store: ReplicatedStore) -> None:
        """A queue or a stream more."""
        self.made += 1
        is_stream = self.made % 3 == 0
        name, definition = f"{'s' if is_stream else 'q'}{self.made}", b"{%d}" % self.made
        log = store.open_stream(name, definition) if is_stream else store.open_log(name, definition)
        assert isinstance(log, DiskQueueLog | DiskStreamLog)
        self.logs[log.id] = log
        self.model.shelves[log.id] = ModelLog(name, definition)

    def on_log(
        self, store: ReplicatedStore, verb: str, log: DiskQueueLog | DiskStreamLog, model: ModelLog
    ) -> None:
        """An operation on one queue or stream."""
        chance = self.chance
        if verb == "append" and isinstance(log, DiskStreamLog):
            for _ in range(chance.randrange(1, 12)):
                held = (
                    model.last_seq + 1,
                    0,
                    0,
                    chance.randrange(3),
                    chance.randbytes(chance.randrange(900)),
                )
                log.append(*held)
                model.messages[held[0]] = held
                model.last_seq += 1
        elif verb == "append":
            for _ in range(chance.randrange(1, 12)):
                seq = model.last_seq + chance.choice((1, 1, 1, 5))
                # Often what another queue has, too, as a topic's subscriptions do.
                if chance.random() < 0.6:
                    self.data = chance.randbytes(chance.randrange(self.largest))
                data = self.data
                held = (seq, DURABLE, chance.randrange(2), chance.randrange(2) * 77, data)
                log.append(*held)
                model.messages[seq] = held
                model.last_seq = seq
        elif verb == "redefine":
            model.definition = b"{%d}" % chance.randrange(5)
            store.redefine(log, model.definition)
        elif verb == "remove" and chance.random() < 0.3:
            store.remove(log)
            del self.logs[log.id], self.model.shelves[log.id]
        elif model.messages and isinstance(log, DiskQueueLog):
            for _ in range(chance.randrange(1, 14)):
                if not model.messages:
                    break
                seq, flags, count, expires_ms, data = chance.choice(list(model.messages.values()))
                if verb == "forget":
                    log.forget(seq, len(data))
                    del model.messages[seq]
                elif verb == "update":
                    # As in the engine, a message that was spared once stays so.
                    spared = bool(flags & SPARED) or chance.random() < 0.2
                    log.update(seq, count + 1, spared)
                    flags = DURABLE | REDELIVERED | (SPARED if spared else 0)
                    model.messages[seq] = (seq, flags, count + 1, expires_ms, data)

    def go_back_to(self, group: int) -> None:
        """Forget what came behind this group of the log."""
        shelves, notes = self.states[group]
        self.model = Model(
            {
                number: ModelLog(name, definition, last_seq, {each[0]: each for each in messages})
                for number, (name, definition, last_seq, messages) in shelves.items()
            },
            dict(notes),
        )
