"""What survived the last stop becomes nodes, messages and holds again, before anybody is let in.

Part of the composition root: it knows the store and the model, and neither knows the other.
"""

from __future__ import annotations

import logging
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.bodyscan import body_start
from broker.engine import SEEN, SENT, SENT_ANY, Engine
from broker.errors import OperatorError
from broker.large import noted
from broker.manage.bindings import BINDINGS, bound_in
from broker.manage.bridges import BRIDGE_NOTE
from broker.manage.definitions import Definition
from broker.manage.model import HOLDS, Model
from broker.manage.subscriptions import is_subscription
from broker.node import Node
from broker.queues.spool import Message, Run
from broker.storage import LARGE, LARGE_NOTE, UNSURE
from broker.store.disk import DiskStore, Recovered, RecoveredShelf
from broker.store.pager import Elsewhere
from broker.store.pages import StoredPage, messages_of
from broker.store.shelves import DiskShelf

log = logging.getLogger("sluice.store")


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
    contradict is there all the same (``Model.restore``); OperatorError where a definition can't be read.
    """
    recovered = store.recovered
    with _reading(HOLDS):
        model.restore_holds(recovered.notes.get(HOLDS, b""))
    messages = 0
    larges = _larges(recovered)
    with _reading(BINDINGS):
        bound = bound_in(recovered.notes.get(BINDINGS, b""))
    for each in _ordered(recovered.shelves):
        node = model.restore(each.name, each.definition, each.shelf, bound.get(each.name, ()))
        node.suspect_seq = _suspect(recovered, each)
        node.queue.next_seq = max(each.last_seq, node.suspect_seq) + 1
        _restore_duplicates(node, recovered)
        _restore_larges(engine, node, each, larges.get(each.name, {}))
        for part in each.parts:
            if isinstance(part, StoredPage):
                engine.paging.restore(node, _run(engine, node, store, each.shelf, part))
            else:
                _report_lost_bodies(node, part)
                engine.restore(node, part)
        messages += node.gate.depth_msgs
    model.restore_bindings(bound)
    for key, note in recovered.notes.items():
        if key.startswith(BRIDGE_NOTE):
            with _reading(key):
                model.bridges.restore(note)
    for key in (key for keys in larges.values() for key in keys):
        engine.note(key, b"")
    if messages:
        log.info("restored %d messages", messages)


def _ordered(shelves: list[RecoveredShelf]) -> list[RecoveredShelf]:
    """Topics, queues, subscriptions; last the queues that were given the name of a subscription there was:
    the other way round the name is taken.
    """
    subscriptions = {each.name for each in shelves if is_subscription(each.definition)}

    def rank(shelf: RecoveredShelf) -> int:
        if is_subscription(shelf.definition):
            return 2
        if Definition.decode(shelf.name, shelf.definition).kind == "topic":
            return 0
        return 3 if shelf.name in subscriptions else 1

    return sorted(shelves, key=rank)


def _larges(recovered: Recovered) -> dict[str, dict[str, bytes]]:
    """By name of a node, the notes of messages whose bodies are in files."""
    found: dict[str, dict[str, bytes]] = {}
    for key, value in recovered.notes.items():
        if key.startswith(LARGE_NOTE):
            with _reading(key):
                found.setdefault(noted(key, value)[2], {})[key] = value
    return found


def _restore_larges(engine: Engine, node: Node, shelf: RecoveredShelf, notes: dict[str, bytes]) -> None:
    """Take the notes of this shelf's messages; the others may be those of a node of the same name."""
    for key, value in list(notes.items()):
        number, seq, _, _, _ = noted(key, value)
        if shelf.shelf.holder(seq) is not None and seq not in node.bodies:
            del notes[key]
            engine.restore_large(node, seq, engine.large.recovered(number, value))


def _report_lost_bodies(node: Node, messages: list[Message]) -> None:
    """Name the large messages whose bodies no note knows; the engine keeps them from being delivered."""
    for seq, flags, _, _, data in messages:
        if not flags & (LARGE | UNSURE) or seq in node.bodies:
            continue
        if flags & LARGE:
            log.error("'%s': the body of large message %d is lost: it is not delivered", node.name, seq)
        elif body_start(data) < 0:
            log.error("'%s': message %d has no body, and may be what is left of a large one", node.name, seq)


def _run(engine: Engine, node: Node, store: DiskStore, shelf: DiskShelf, page: StoredPage) -> Run:
    """A page as a run of the queue's spool: read when it is needed, decoded with what the shelf knows."""
    run = Run(page.first, page.last, page.count, page.nbytes)
    run.kept = True
    run.place = Elsewhere(lambda: store.load(shelf, page))

    def decode(blob: bytes) -> list[Message]:
        messages = messages_of(shelf, blob)
        _report_lost_bodies(node, messages)
        return [
            (seq, flags, count, expires_ms * 1_000_000 - engine.epoch_ns if expires_ms else 0, data)
            for seq, flags, count, expires_ms, data in messages
        ]

    run.decode = decode
    return run


def _suspect(recovered: Recovered, shelf: RecoveredShelf) -> int:
    """Up to which message a consumer may have been sent it without our having noted that it came back."""
    mark = recovered.notes.get(SENT + shelf.name, b"")
    if mark == SENT_ANY:
        return shelf.last_seq
    with _reading(SENT + shelf.name):
        return int(mark) if mark else 0


def _restore_duplicates(node: Node, recovered: Recovered) -> None:
    if node.duplicates is not None:
        prefix = f"{SEEN}{node.name}/"
        # What follows is a place in the window; the nodes 'a' and 'a/b' begin alike.
        noted = (
            value
            for key, value in recovered.notes.items()
            if key.startswith(prefix) and key[len(prefix) :].isdigit()
        )
        with _reading(prefix):
            node.duplicates.restore(noted)


@contextmanager
def _reading(note: str) -> Iterator[None]:
    """OperatorError, with its name, where a note does not say what it should."""
    try:
        yield
    except (ValueError, LookupError, TypeError, struct.error) as fault:
        raise OperatorError(f"the store's note '{note}' can't be read: {fault}") from fault
