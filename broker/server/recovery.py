"""What survived the last stop becomes nodes, messages and holds again, before anybody is let in.

Part of the composition root: it knows the store and the model, and neither knows the other. A start never
ends because of one node: one that can't be restored is set aside (``manage.aside``) with all it has.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from broker.codec.bodyscan import body_start
from broker.codec.message import priority
from broker.engine.durability import SEEN, SENT, SENT_ANY
from broker.engine.engine import Engine
from broker.engine.large import Body, note_key, note_value, noted
from broker.engine.node import Node
from broker.engine.reader_commits import READER, reader_of
from broker.engine.schedules import LOG_NAME, log_definition, owner_of
from broker.engine.spool import Message, Run
from broker.errors import OperatorError, SluiceError
from broker.manage.aside import AsideView
from broker.manage.bindings import BINDINGS, bound_in
from broker.manage.bridges import BRIDGE_NOTE
from broker.manage.definitions import Definition
from broker.manage.model import Model
from broker.manage.operators import HOLDS
from broker.manage.subscriptions import SubscriptionKey, is_subscription
from broker.store.disk import DiskStore
from broker.store.logs import DiskQueueLog
from broker.store.pager import Elsewhere
from broker.store.pages import StoredPage, messages_of
from broker.store.port import LARGE, LARGE_NOTE, UNSURE
from broker.store.recovered import RecoveredQueueLog, RecoveredStream

log = logging.getLogger("sluice.store")

# Before the key of a note that couldn't be read: its own key is for what is noted since.
UNREAD = "unread/"


def open_store(directory: Path, file_bytes: int | None) -> DiskStore:
    """The data directory, opened; says how far it is on a terminal, and how long it took in the log."""
    begun = time.monotonic()
    shown = sys.stderr.isatty()

    def progress(done: int, total: int) -> None:
        if shown:
            filled = 30 * done // total
            sys.stderr.write(f"\rreading the journal [{'#' * filled}{'.' * (30 - filled)}] {done}/{total}")
            sys.stderr.write("\n" if done == total else "")
            sys.stderr.flush()

    store = DiskStore.open(directory, file_bytes=file_bytes, progress=progress)
    found = store.recovered
    if found.shelves or not found.clean:
        log.info(
            "%s: read %d durable nodes in %.2f s%s",
            directory,
            len(found.shelves),
            time.monotonic() - begun,
            "" if found.clean else "; the last broker was not stopped in order",
        )
    return store


def restore(engine: Engine, model: Model, store: DiskStore) -> None:
    """Every durable node with its messages, and the operators' holds.

    Topics come first, then the queues that take settings from them, then subscriptions. A gate is stopped
    from the first instant where the backlog is above its threshold. A node that today's policies
    contradict is there all the same (``Restoration.node``).
    """
    Recovery(engine, model, store).run()


class RecoveredDefinition:
    """A shelf and what its definition says, ``known`` of a queue or topic, ``wanted`` of a subscription;
    ``fault`` is why it can't be restored. ``larges`` are the notes of its large messages.
    """

    def __init__(self, found: RecoveredQueueLog | RecoveredStream) -> None:
        self.found = found
        self.name = found.name
        self.kind = "unknown"
        self.known: Definition | None = None
        self.wanted: SubscriptionKey | None = None
        self.fault: Exception | None = None
        self.larges: list[tuple[str, bytes]] = []
        # Of a log of delayed messages, the node that they belong to.
        self.owner = ""
        try:
            self._read()
        except Exception as fault:  # noqa: BLE001 - it may hold anything
            self.fault = fault

    @property
    def rank(self) -> int:
        """When it is restored: topics, queues, subscriptions, messages that wait for their time."""
        return {"topic": 0, "subscription": 2, "delayed": 3}.get(self.kind, 1)

    def has(self, seq: int) -> bool:
        """Whether this message is on the shelf."""
        return isinstance(self.found, RecoveredQueueLog) and self.found.shelf.holder(seq) is not None

    def _read(self) -> None:
        if self.name.startswith(LOG_NAME):
            self.kind = "delayed"
            self.owner = owner_of(self.found.definition)
        elif is_subscription(self.found.definition):
            self.kind = "subscription"
            self.wanted, self.name = SubscriptionKey.decode(self.found.definition, self.name)
        else:
            self.known = Definition.decode(self.name, self.found.definition)
            self.kind = self.known.kind


class Recovery:
    """The restoring of one data directory."""

    def __init__(self, engine: Engine, model: Model, store: DiskStore) -> None:
        self._engine = engine
        self._model = model
        self._store = store
        self._notes = store.recovered.notes
        # Of several of one name the first that was made is served.
        self._said = sorted(
            [
                *map(RecoveredDefinition, store.recovered.shelves),
                *map(RecoveredDefinition, store.recovered.streams),
            ],
            key=lambda each: (each.rank, each.found.shelf.id),
        )
        # More than one bears a name where an earlier version let a queue have a subscription's.
        self._bearers: dict[str, list[RecoveredDefinition]] = defaultdict(list)
        for each in self._said:
            self._bearers[each.name].append(each)
        self._delayed = {each.owner: each for each in self._said if each.owner}
        self._served: dict[str, Node] = {}
        self._seen = _seen_in(self._notes)
        self._stale: list[str] = []
        self._reread = False
        self._messages = 0

    def run(self) -> None:
        """Restore everything, or set it aside."""
        self._assign_larges()
        bound: dict[str, list[str]] = {}
        self._take_note(HOLDS, self._model.operators.restore_holds)
        self._take_note(BINDINGS, lambda value: bound.update(bound_in(value)))
        for each in self._said:
            if each.kind not in ("subscription", "delayed"):
                self._restore(each, bound.get(each.name, ()))
        subscriptions = [each for each in self._said if each.kind == "subscription"]
        for each in subscriptions:
            self._prepare(each)
        for each in subscriptions:
            self._restore(each, ())
        for each in self._said:
            if each.kind == "delayed":
                self._restore_delayed(each)
        self._model.restoration.bindings(bound)
        if self._reread:
            self._model.restoration.keep_notes()
        for key in [key for key in self._notes if key.startswith(BRIDGE_NOTE)]:
            self._take_bridge(key)
        for key in [key for key in self._notes if key.startswith(READER)]:
            self._take_reader(key)
        for key in self._stale:
            self._engine.durability.note(key, b"")
        if self._messages:
            log.info("restored %d messages", self._messages)

    # --- nodes

    def _restore(self, said: RecoveredDefinition, topics: Sequence[str]) -> None:
        if said.fault is None:
            try:
                self._serve(said, topics)
            except Exception as fault:  # noqa: BLE001 - whatever is wrong with it, the others are served
                said.fault = fault
        if said.fault is not None:
            self._set_aside(said, said.fault)

    def _prepare(self, said: RecoveredDefinition) -> None:
        """Make the topic of a subscription that survived alone, before any subscription takes its name."""
        if said.fault is None and said.wanted is not None:
            try:
                self._model.restoration.topic(said.wanted.address)
            except Exception as fault:  # noqa: BLE001 - as above
                said.fault = fault

    def _serve(self, said: RecoveredDefinition, topics: Sequence[str]) -> None:
        found = said.found
        if isinstance(found, RecoveredStream):
            self._served[said.name] = self._make(said, topics)
            return
        maybe_delivered_upto = _suspect(self._notes.get(SENT + said.name, b""), found.last_seq)
        node = self._make(said, topics)
        node.maybe_delivered_upto = maybe_delivered_upto
        node.queue.next_seq = max(found.last_seq, maybe_delivered_upto) + 1
        seen = self._seen.get(said.name, [])
        gone = [place for place, _ in seen]
        if node.duplicates is not None:
            gone = node.duplicates.restore(seen)
        for key, value in said.larges:
            number, seq, _, _, _ = noted(key, value)
            self._engine.bodies.restore(node, seq, self._engine.large.recovered(number, value))
        for part in found.parts:
            if isinstance(part, StoredPage):
                self._restore_page(node, found.shelf, part)
            else:
                _report_lost_bodies(node, part)
                self._engine.lifecycle.restore(node, part)
        self._messages += node.gate.depth_msgs
        self._served[said.name] = node
        self._stale += [f"{SEEN}{said.name}/{place}" for place in gone]
        if node.name != said.name:
            self._rename(said, node)

    def _restore_delayed(self, said: RecoveredDefinition) -> None:
        """Restore the messages of a node that wait for their time, after the node itself."""
        if said.fault is None:
            try:
                self._serve_delayed(said)
            except Exception as fault:  # noqa: BLE001 - whatever is wrong with it, the others are served
                said.fault = fault
        if said.fault is not None:
            self._set_aside(said, said.fault)

    def _serve_delayed(self, said: RecoveredDefinition) -> None:
        found = said.found
        assert isinstance(found, RecoveredQueueLog), "a stream delays nothing"
        node = self._served.get(said.owner)
        if node is None:
            raise OperatorError(f"they are of '{said.owner}', which is not served")
        # All of it is read before any of it is taken in: a page may be damaged.
        messages: list[Message] = []
        for part in found.parts:
            if isinstance(part, StoredPage):
                part = messages_of(found.shelf, self._store.load(found.shelf, part))
            messages += part
        for key, value in said.larges:
            number, seq, _, _, _ = noted(key, value)
            self._engine.bodies.restore(node, seq, self._engine.large.recovered(number, value))
        _report_lost_bodies(node, [each for each in messages if each[1] & LARGE])
        self._engine.schedules.restore(node, found.shelf, messages)
        node.queue.next_seq = max(node.queue.next_seq, found.last_seq + 1)
        self._messages += len(messages)
        if node.name != said.owner:
            self._store.redefine(found.shelf, log_definition(node.name))

    def _restore_page(self, node: Node, shelf: DiskQueueLog, page: StoredPage) -> None:
        """Restore a page as one run, or as one for each level where messages leave by their priority.

        The messages of a last-value queue are all in memory.
        """
        if node.last_values is not None:
            self._engine.lifecycle.restore(node, messages_of(shelf, self._store.load(shelf, page)))
            return
        if not node.ordered:
            self._engine.paging.restore(node, _run(self._engine, node, self._store, shelf, page))
            return
        levels: dict[int, list[Message]] = defaultdict(list)
        for each in messages_of(shelf, self._store.load(shelf, page)):
            levels[priority(each[4])].append(each)
        for level, messages in levels.items():
            nbytes = sum(len(each[4]) for each in messages)
            part = StoredPage(messages[0][0], messages[-1][0], len(messages), nbytes, page.place)
            run = _run(self._engine, node, self._store, shelf, page, part, level)
            self._engine.paging.restore(node, run, level)

    def _make(self, said: RecoveredDefinition, topics: Sequence[str]) -> Node:
        if said.wanted is not None:
            return self._model.restoration.subscription(said.wanted, said.name, said.found.shelf)
        assert said.known is not None, "a definition that can't be read is a fault"
        return self._model.restoration.node(said.name, said.known, said.found.shelf, topics)

    def _rename(self, said: RecoveredDefinition, node: Node) -> None:
        """A subscription goes by another name from now on; all of it is in one group, or none."""
        assert said.wanted is not None, "only subscriptions give way"
        self._store.redefine(said.found.shelf, said.wanted.encode(node.name))
        mark = self._notes.get(SENT + said.name, b"")
        if mark:
            self._engine.durability.note(SENT + node.name, mark)
        for key, _ in said.larges:
            self._engine.durability.note(key, b"")
        for seq, (body, _) in node.bodies.items():
            self._engine.durability.note(note_key(body, node.name, seq), note_value(body))
        log.warning(
            "subscription '%s' is called '%s' from now on: something else has its name", said.name, node.name
        )

    def _set_aside(self, said: RecoveredDefinition, fault: Exception) -> None:
        found, name = said.found, said.owner or said.name
        view = AsideView(said.kind, name, *_size_of(found), _reason(fault))
        # They are held before the node lets go of them.
        bodies = [self._body(key, value) for key, value in said.larges]
        self._model.aside.add(view, found.shelf, self._notes_of(said), bodies)
        self._model.restoration.withdraw(found.shelf)
        if said.wanted is not None:
            self._model.subscriptions.set_aside(said.wanted, name, view.reason)
        log.error(
            "the %s '%s' can't be restored and is set aside with its %d messages: %s; it is kept, and not"
            " served, until a start can restore it or 'sluice store discard %s' removes it",
            *("node" if said.kind == "unknown" else said.kind, name, view.depth_msgs, view.reason, name),
        )
        log.debug("why '%s' was set aside", name, exc_info=fault)

    def _notes_of(self, said: RecoveredDefinition) -> list[str]:
        """The keys of the notes that are about this node alone."""
        keys = [key for key, _ in said.larges]
        if len(self._bearers[said.name]) == 1:
            keys += [key for key in self._notes if key == SENT + said.name]
            keys += [key for key in self._notes if _seen_key(key)[0] == said.name]
            keys += [key for key in self._notes if key.startswith(READER) and reader_of(key)[0] == said.name]
        return keys

    # --- large messages

    def _assign_larges(self) -> None:
        """Each note of a large message to the shelf that has the message."""
        for key, value in self._notes.items():
            if key.startswith(LARGE_NOTE):
                try:
                    _, seq, name, _, _ = noted(key, value)
                except Exception as fault:  # noqa: BLE001 - it may hold anything
                    self._unread(key, key, "note", fault)
                else:
                    bearers = [*self._bearers[name], *filter(None, [self._delayed.get(name)])]
                    self._assign_large(key, value, [each for each in bearers if each.has(seq)])

    def _assign_large(self, key: str, value: bytes, holders: list[RecoveredDefinition]) -> None:
        if not holders:
            # Of a message that is no more.
            self._stale.append(key)
        elif len(holders) == 1:
            holders[0].larges.append((key, value))
        else:
            self._model.aside.hold([self._body(key, value)])
            for each in holders:
                text = "another node has its name, and it can't be told whose large messages are whose"
                each.fault = each.fault or OperatorError(text)

    def _body(self, key: str, value: bytes) -> Body:
        return self._engine.large.recovered(noted(key, value)[0], value)

    # --- notes

    def _take_note(self, key: str, restore: Callable[[bytes], object]) -> None:
        """Restore what is noted under a key; where that can't be read it is noted apart, for the key will be
        written anew. What was noted apart by an earlier start comes first.
        """
        for kept in (UNREAD + key, key):
            value = self._notes.get(kept, b"")
            if not value:
                continue
            try:
                restore(value)
            except Exception as fault:  # noqa: BLE001 - it may hold anything
                self._engine.durability.note(kept, b"")
                self._engine.durability.note(UNREAD + key, value)
                self._unread(UNREAD + key, key, key, fault)
            else:
                if kept != key:
                    self._engine.durability.note(kept, b"")
                    self._reread = True

    def _take_bridge(self, key: str) -> None:
        try:
            self._model.bridges.restore(self._notes[key])
        except Exception as fault:  # noqa: BLE001 - it may hold anything
            self._unread(key, key.removeprefix(BRIDGE_NOTE), "bridge", fault)

    def _take_reader(self, key: str) -> None:
        """Restore the place of a stream's named reader; that of a stream which is set aside stays noted."""
        stream, name = reader_of(key)
        node = self._served.get(stream)
        if node is not None and node.stream is not None:
            try:
                offset = int(self._notes[key])
            except ValueError as fault:
                self._unread(key, f"{stream}::{name}", "reader", fault)
            else:
                self._engine.streams.commits.restore(node, name, offset)
        elif not self._bearers[stream]:
            self._stale.append(key)

    def _unread(self, key: str, name: str, kind: str, fault: Exception) -> None:
        self._model.aside.add(AsideView(kind, name, 0, 0, _reason(fault)), None, [key])
        log.error(
            "what is noted of '%s' can't be read and is set aside: %s; 'sluice store discard %s' removes it",
            *(name, _reason(fault), name),
        )


def _size_of(found: RecoveredQueueLog | RecoveredStream) -> tuple[int, int]:
    """How many messages it has, and what these have, in bytes."""
    if isinstance(found, RecoveredStream):
        log_ = found.shelf
        return log_.next_offset - log_.first_offset, log_.nbytes
    msgs = sum(part.count if isinstance(part, StoredPage) else len(part) for part in found.parts)
    return msgs, sum(
        part.nbytes if isinstance(part, StoredPage) else sum(len(message[-1]) for message in part)
        for part in found.parts
    )


def _reason(fault: Exception) -> str:
    return str(fault) if isinstance(fault, SluiceError) else f"{type(fault).__name__}: {fault}"


def _report_lost_bodies(node: Node, messages: list[Message]) -> None:
    """Name the large messages whose bodies no note knows; the engine keeps them from being delivered."""
    for seq, flags, _, _, data in messages:
        if not flags & (LARGE | UNSURE) or seq in node.bodies:
            continue
        if flags & LARGE:
            log.error("'%s': the body of large message %d is lost: it is not delivered", node.name, seq)
        elif body_start(data) < 0:
            log.error("'%s': message %d has no body, and may be what is left of a large one", node.name, seq)


def _run(
    engine: Engine,
    node: Node,
    store: DiskStore,
    shelf: DiskQueueLog,
    page: StoredPage,
    part: StoredPage | None = None,
    level: int = -1,
) -> Run:
    """A page as a run of the queue's spool: read when it is needed, decoded with what the shelf knows.

    With ``part``, only its messages of this priority, which are what ``part`` says.
    """
    part = part or page
    run = Run(part.first, part.last, part.count, part.nbytes)
    run.kept = True
    run.place = Elsewhere(lambda: store.load(shelf, page))

    def decode(blob: bytes) -> list[Message]:
        messages = messages_of(shelf, blob)
        if level >= 0:
            messages = [each for each in messages if priority(each[4]) == level]
        _report_lost_bodies(node, messages)
        return [
            (seq, flags, count, expires_ms * 1_000_000 - engine.turn.epoch_ns if expires_ms else 0, data)
            for seq, flags, count, expires_ms, data in messages
        ]

    run.decode = decode
    return run


def _suspect(mark: bytes, last_seq: int) -> int:
    """Up to which message a consumer may have been sent it without our having noted that it came back."""
    if mark == SENT_ANY:
        return last_seq
    return int(mark) if mark else 0


def _seen_key(key: str) -> tuple[str, str]:
    """The node and the place in its window that such a note is about; both empty where it is another note.

    A place is a number: the nodes 'a' and 'a/b' begin alike.
    """
    if not key.startswith(SEEN):
        return "", ""
    node, _, place = key.removeprefix(SEEN).rpartition("/")
    return node, place


def _seen_in(notes: Mapping[str, bytes]) -> dict[str, list[tuple[int, bytes]]]:
    """By node, what its window of duplicates noted, each with its place."""
    found: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for key, value in notes.items():
        node, place = _seen_key(key)
        if place.isdigit():
            found[node].append((int(place), value))
    return found
