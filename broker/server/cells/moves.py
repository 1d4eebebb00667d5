"""Queues that go from one cell to another, with all their messages, while both cells serve.

How a move goes, so that whoever is killed meanwhile one cell has the queue and all of it:

1. The cell that has the queue freezes it: producers lose their credit, nothing is handed out. It waits for
   consumers to settle what they hold, and disconnects those that don't in time.
2. The other cell makes a frozen queue of that name, with a note in its store that it is arriving, takes all
   messages in, and answers once they are on its disk.
3. The first cell notes that the queue is leaving, and, once that is on disk, asks the supervisor to decide:
   that writes the directory. Before it the queue is the first cell's, afterwards the other's.
4. The other cell has its queue go on; the first one disconnects the queue's clients, who come back and are
   passed on, and deletes its own.

Either cell may give a move up until it is decided, by asking the supervisor: it can't be done any more then.
A cell that starts asks so of each note it finds (``resolve``), and keeps or deletes the queue by the answer.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.relay import RelayLink
from broker.config.patterns import is_pattern
from broker.engine.handoff import Capture, Reception, admit_parked, freeze, thaw, unrest, why_not
from broker.engine.node import Node
from broker.errors import ConflictError, ElsewhereError, NotFoundError, OperatorError, SluiceError
from broker.manage.cells import LONGEST_WAIT_MS, NodeMove
from broker.manage.definitions import Definition
from broker.manage.names import is_reserved
from broker.manage.policies import NO_PARENTS, made_as
from broker.server.cells import messages, parcels
from broker.server.cells.control import CellControl, SilentError
from broker.server.cells.directory import CellDirectory, key_of
from broker.server.cells.parcels import ParcelError
from broker.server.cells.place import CellPlace
from broker.server.cells.sockets import connected
from broker.server.cells.table import NamedPlace
from broker.server.server import Server

log = logging.getLogger("sluice.cells")

# Notes in a cell's store, each with the name of the node behind it. Its value is the id of the move and,
# where the node gets another name, a space and that name.
LEAVING, ARRIVING = "leaving/", "arriving/"
# Said where a node of that name is there already.
OF_ITS_OWN = "of its own"
FORCED = "amqp:connection:forced"
# Between two looks at what isn't settled; and how long nothing may come on credit that was taken back.
LOOK_S = 0.02
QUIET_S = 0.1
# After the time to settle, how long what comes on such credit may keep a move waiting.
LONGEST_QUIET_S = 5.0
# How long the other cell may take for one answer, and this one's loop for one step.
ANSWER_S = 60.0
MOST_REMEMBERED = 1000

Answer = TypeVar("Answer")


class MoveError(Exception):
    """A move can't go on; the text says why."""


@dataclass(slots=True)
class _Leaving:
    """A move of a node of this cell's."""

    node: Node
    to: int
    wait_s: float
    # The name that it has there.
    called: str
    move: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: str = "waiting"
    messages: int = 0
    reason: str = ""

    def shown(self) -> NodeMove:
        return NodeMove(self.node.name, self.to, self.state, self.messages, self.reason)


@dataclass(slots=True)
class _Arriving:
    """A move of another cell's node to this one."""

    node: Node
    move: str
    reception: Reception


class CellMoves:
    """The moves from and to this cell; implements ``manage.cells.NodeMover``.

    ``begin``, ``status`` and ``on_directory`` are called on the loop's thread; each move has a thread that
    asks the loop for a step at a time.
    """

    def __init__(
        self, server: Server, place: CellPlace, directory: CellDirectory, control: CellControl
    ) -> None:
        self._server = server
        self._engine = server.engine
        self._nodes = server.model.nodes
        self._place = place
        self._directory = directory
        self._control = control
        self._leaving: dict[str, _Leaving] = {}
        self._arriving: dict[str, _Arriving] = {}
        self._over: dict[str, NodeMove] = {}

    # --- after a start

    def resolve(self) -> None:
        """Finish or undo the moves that were under way when this cell ended; before it serves.

        OperatorError where the supervisor is gone.
        """
        for key, value in list(self._server.store.recovered.notes.items()):
            for begin in (LEAVING, ARRIVING):
                if value and key.startswith(begin):
                    self._resolve(begin, key.removeprefix(begin), value.decode())

    def _resolve(self, begin: str, name: str, note: str) -> None:
        move, _, called = note.partition(" ")
        done = bool(self._control.ask_now({"do": "give-up", "move": move})["done"])
        if begin == LEAVING and not done and not called:
            # Done as well where its next cell has given it on meanwhile: the table has the last move alone.
            done = self._directory.cell_of(name) != self._place.number
        is_here = done == (begin == ARRIVING)
        if not is_here:
            if self._engine.topology.has(name):
                self._nodes.delete(name, anyway=True)
            elif self._nodes.aside.has(name):
                self._nodes.aside.discard(name)
        self._engine.durability.note(begin + name, b"")
        self._engine.seal()
        state = "is here" if is_here else "isn't here"
        log.warning("'%s', which was being moved when this cell ended, %s", name, state)

    # --- asked for by operators

    def begin(self, name: str, cell: int, wait_ms: int) -> NodeMove:
        """Begin a move; OperatorError where it can't be done, NotFoundError where there is no such node."""
        node = self._nodes.find(name)
        if not 0 <= cell < self._place.cells:
            raise OperatorError(
                f"there is no cell {cell}: they are numbered from 0 to {self._place.cells - 1}"
            )
        if not 0 <= wait_ms <= LONGEST_WAIT_MS:
            raise OperatorError(f"the time to wait is from 0 to {LONGEST_WAIT_MS} ms")
        if is_reserved(name):
            raise OperatorError(f"'{name}' is the broker's own, or a link's: it stays in its cell")
        if name in self._nodes.moving:
            raise ConflictError(f"'{name}' is being moved")
        owner = self._directory.cell_of(name)
        if owner != self._place.number:
            raise ElsewhereError(
                f"'{name}' belongs to cell {owner}; this one's has dead letters or copies that came to be"
                " here: move its messages, not the queue",
                owner,
            )
        if cell == self._place.number:
            raise OperatorError(f"'{name}' is in cell {cell}")
        return self._begin(node, cell, wait_ms, name)

    def begin_stray(self, name: str, cell: int, called: str, wait_ms: int) -> NodeMove:
        """Begin to move what came to be here under another cell's name, and have it by a name of its own
        there. OperatorError where it can't be done.
        """
        return self._begin(self._nodes.find(name), cell, wait_ms, called)

    @property
    def is_busy(self) -> bool:
        """Whether a node is on its way from here."""
        return bool(self._leaving)

    def _begin(self, node: Node, cell: int, wait_ms: int, called: str) -> NodeMove:
        name = node.name
        reason = why_not(node) or self._why_configured(name)
        if reason:
            raise OperatorError(f"'{name}' can't be moved: {reason}")
        move = self._leaving[name] = _Leaving(node, cell, wait_ms / 1000, called)
        self._nodes.moving.add(name)
        freeze(self._engine, node)
        log.info("'%s' goes to cell %d: its producers are stopped", name, cell)
        threading.Thread(target=self._run, args=(move,), name=f"move-{name}"[:15], daemon=True).start()
        return move.shown()

    def status(self, name: str) -> NodeMove:
        """Return the last move of a node from this cell; NotFoundError if there was none."""
        if name in self._leaving:
            return self._leaving[name].shown()
        if name in self._over:
            return self._over[name]
        raise NotFoundError(f"'{name}' wasn't moved from this cell")

    def sentence_of(self, name: str) -> str:
        """Say how far a move has come, for `why`."""
        found = self._leaving.get(name)
        if found is None:
            return " It is on its way to this cell from another one."
        return (
            f" It is being moved to cell {found.to}, and stands still until it is there: {found.state},"
            f" {found.messages:,} messages copied."
        )

    def met_another(self, name: str) -> bool:
        """Return whether the last move of a node was refused since the other cell has one of that name."""
        last = self._over.get(name)
        return last is not None and last.state == "refused" and OF_ITS_OWN in last.reason

    def _why_configured(self, name: str) -> str:
        settings = self._server.settings
        if any(each.local == name or is_pattern(each.local) for each in settings.routes):
            return "a route of the settings takes from it or brings to it"
        if any(each.topic == name for each in settings.channels):
            return "a channel of the settings begins there"
        return ""

    # --- the cell that has the node, on a thread for each move

    def _run(self, move: _Leaving) -> None:
        try:
            self._wait_for_quiet(move)
            self._hand_off(move)
        except (MoveError, SilentError, SluiceError, ParcelError, OSError, TimeoutError) as fault:
            self._give_up(move, str(fault))
        except Exception as fault:
            log.exception("a move has failed")
            self._give_up(move, f"internal error: {fault}")

    def _wait_for_quiet(self, move: _Leaving) -> None:
        """Wait until nothing of the node is under way; disconnect whoever doesn't settle in time."""
        node = move.node
        quiet_since = time.monotonic()
        until = quiet_since + move.wait_s
        latest = until + LONGEST_QUIET_S
        has_closed = False
        while True:
            admitted, unsettled = self._ask(lambda: (admit_parked(node), unrest(self._engine, node)))
            now = time.monotonic()
            if admitted or unsettled:
                quiet_since = now
            if not unsettled and (now - quiet_since >= QUIET_S or now >= latest):
                return
            if unsettled and now >= until:
                if has_closed:
                    raise MoveError(unsettled)
                has_closed = True
                until = now + QUIET_S + LOOK_S * 50
                self._ask(lambda: self._disconnect(node, only_holders=True))
            time.sleep(LOOK_S)

    def _hand_off(self, move: _Leaving) -> None:
        node = move.node
        move.state = "copying"
        is_new = move.called != node.name
        definition = self._ask(lambda: self._definition(node, is_new=is_new))
        with connected(self._place.socket_of(move.to), ANSWER_S) as sock:
            fields = {"name": move.called, "move": move.move, "definition": definition.decode()}
            sock.sendall(messages.written(messages.MOVE, fields))
            with sock.makefile("rb") as answers:
                _check(answers.readline())
                self._copy(move, sock)
                sock.sendall(parcels.frame(parcels.END, str(move.messages).encode()))
                _check(answers.readline())
            move.state = "deciding"
            self._ask(lambda: self._note(move))
            order = {"do": "commit", "key": key_of(move.called), "to": move.to, "move": move.move}
            answer = self._control.ask({**order, "new": is_new})
            if not answer["done"]:
                raise MoveError(str(answer["reason"]))
            self._ask(lambda: self._finish(move))

    def _note(self, move: _Leaving) -> None:
        """Note that the node is leaving. MoveError where it isn't any more what was copied."""
        node = move.node
        if why_not(node) or unrest(self._engine, node) or node.gate.depth_msgs != move.messages:
            raise MoveError("it has changed meanwhile")
        note = move.move if move.called == node.name else f"{move.move} {move.called}"
        self._engine.durability.note(LEAVING + node.name, note.encode())

    def _copy(self, move: _Leaving, sock: socket.socket) -> None:
        read = threading.Event()
        capture = self._ask(lambda: Capture(self._engine, move.node, read.set))
        while ids := self._ask(capture.ids):
            sock.sendall(parcels.frame(parcels.IDS, parcels.written_ids(ids)))
        while True:
            read.clear()
            found = self._ask(capture.take)
            if found is None:
                if not read.wait(ANSWER_S):
                    raise MoveError("its messages can't be read from disk in time")
                continue
            if not found:
                return
            move.messages += len(found)
            sock.sendall(parcels.frame(parcels.MESSAGES, parcels.written_messages(found)))

    def _finish(self, move: _Leaving) -> None:
        """The node is the other cell's: nothing of it stays here. A second call does nothing."""
        if move.state == "moved":
            return
        node = move.node
        self._disconnect(node, only_holders=False)
        self._nodes.moving.discard(node.name)
        self._engine.delivery.thaw(node)
        self._nodes.delete(node.name, anyway=True)
        self._engine.durability.note(LEAVING + node.name, b"")
        move.state = "moved"
        told = {"cell": move.to, "messages": move.messages}
        self._engine.changes.emit("queue_moved", node, told)
        log.info("'%s' is in cell %d with its %d messages", node.name, move.to, move.messages)
        self._end(move)

    def _give_up(self, move: _Leaving, reason: str) -> None:
        """Have the node go on here, unless the supervisor has decided otherwise already."""
        if self._is_done(move.move, move.node.name):
            self._server.reactor.post(lambda: self._finish(move))
        else:
            self._server.reactor.post(lambda: self._go_on(move, reason))

    def _is_done(self, move: str, name: str) -> bool:
        """Return whether a move is done; one that isn't can't be done any more.

        It is asked until there is an answer: before it the node can neither go on nor be deleted, and this
        process ends with its supervisor.
        """
        while True:
            try:
                return bool(self._control.ask({"do": "give-up", "move": move})["done"])
            except SilentError:
                log.error("the supervisor doesn't say which cell '%s' belongs to: asking again", name)

    def _go_on(self, move: _Leaving, reason: str) -> None:
        node = move.node
        move.state, move.reason = "refused", reason
        log.error("'%s' stays in cell %d: %s", node.name, self._place.number, reason)
        self._engine.durability.note(LEAVING + node.name, b"")
        self._nodes.moving.discard(node.name)
        if node.deleted:
            self._engine.delivery.thaw(node)
        else:
            thaw(self._engine, node)
            self._server.model.operators.hold_node(node)
        self._end(move)

    def _end(self, move: _Leaving) -> None:
        self._leaving.pop(move.node.name, None)
        self._over.pop(move.node.name, None)
        self._over[move.node.name] = move.shown()
        while len(self._over) > MOST_REMEMBERED:
            del self._over[next(iter(self._over))]

    def _definition(self, node: Node, *, is_new: bool) -> bytes:
        arguments = dict(node.arguments)
        if node.shelf is not None and (is_new or not node.settings.durable):
            # It is kept though policies say otherwise by now, or of the other name.
            arguments["durable"] = True
        capability = node.kind if node.origins.get("kind") == "capability" else ""
        maker = self._nodes.ownership.user(node)
        return Definition(node.kind, arguments, capability, maker).encode()

    def _disconnect(self, node: Node, *, only_holders: bool) -> None:
        """Close the connections of a node's links, or of those alone that hold messages of it."""
        for peer in list(self._server.container.peers):
            for link in list(peer.wire.links):
                if isinstance(link, ConsumerLink):
                    concerned = link.node is node and (not only_holders or link.window.unsettled > 0)
                elif isinstance(link, RelayLink):
                    # It goes on to the other cell with its next message; what is parked has no outcome yet.
                    parked = [account for each, account in link.open_accounts() if each is node]
                    concerned = not only_holders and any(account.parked for account in parked)
                else:
                    concerned = not only_holders and link.node is node
                if concerned:
                    peer.send_back(FORCED, f"'{node.name}' goes to another cell: connect again")
                    break

    # --- the other cell, on a thread for each move

    def receive(self, sock: socket.socket, fields: Mapping[str, Any]) -> None:
        """Take a node of another cell in; on a thread of its own, which this ends with."""
        name, move, definition = (str(fields[each]) for each in ("name", "move", "definition"))
        try:
            sock.settimeout(ANSWER_S)
            arriving = self._ask(lambda: self._make(name, move, definition.encode()))
            sock.sendall(_answer(""))
            self._receive_all(sock, arriving)
            # Asked with something stored: what came before it is on disk then, too.
            self._ask(lambda: self._engine.durability.note(ARRIVING + name, move.encode()))
            sock.sendall(_answer(""))
            sock.settimeout(None)
            # Until the other cell has heard the decision, or is gone.
            sock.recv(1)
        except (MoveError, SluiceError, ParcelError, OSError, TimeoutError) as fault:
            log.warning("a queue that another cell sends isn't taken in: %s", fault)
            _tell(sock, str(fault))
        except Exception as fault:
            log.exception("a queue that another cell sends isn't taken in")
            _tell(sock, f"internal error: {fault}")
        finally:
            sock.close()
        done = self._is_done(move, name)
        self._server.reactor.post(lambda: self._conclude(move, done))

    def _receive_all(self, sock: socket.socket, arriving: _Arriving) -> None:
        reception = arriving.reception
        while True:
            kind, length = parcels.head_of(_read(sock, parcels.HEAD.size))
            data = _read(sock, length)
            if kind == parcels.END:
                if int(data) != reception.count:
                    raise MoveError(f"{reception.count} messages came, and {int(data)} were sent")
                return
            if kind == parcels.IDS:
                ids = parcels.read_ids(data)
                self._ask(partial(reception.remember, ids))
            else:
                found = parcels.read_messages(data)
                self._ask(partial(reception.put, found))

    def _make(self, name: str, move: str, definition: bytes) -> _Arriving:
        """Make the node, frozen, with a note in the same group that it isn't this cell's yet."""
        nodes, policies = self._nodes, self._server.model.policies
        if nodes.is_taken(name):
            raise ConflictError(
                f"cell {self._place.number} has a node '{name}' {OF_ITS_OWN}, with dead letters or copies"
                " that came to be there: move its messages and delete it first"
            )
        known = Definition.decode(name, definition)
        durable = self._engine.durability.is_on()
        if durable:
            self._engine.durability.note(ARRIVING + name, move.encode())
        made = made_as(False, False)
        arguments = dict(known.arguments)
        effective = policies.restored(name, known.kind, arguments, known.capability, NO_PARENTS, made)
        node = nodes.add(name, arguments, effective, None, known.maker)
        nodes.moving.add(name)
        freeze(self._engine, node)
        arriving = self._arriving[move] = _Arriving(node, move, Reception(self._engine, node))
        return arriving

    def _conclude(self, move: str, done: bool) -> None:
        """Keep the node of a move or delete it, if there is one about which that isn't decided yet."""
        if move in self._arriving:
            self._decide(self._arriving[move], done)

    def on_directory(self) -> None:
        """Have nodes go on that have become this cell's."""
        for arriving in list(self._arriving.values()):
            place = self._directory.table.names.get(key_of(arriving.node.name))
            if place == NamedPlace(self._place.number, arriving.move):
                self._decide(arriving, True)

    def _decide(self, arriving: _Arriving, done: bool) -> None:
        node = arriving.node
        del self._arriving[arriving.move]
        self._nodes.moving.discard(node.name)
        self._engine.durability.note(ARRIVING + node.name, b"")
        self._engine.delivery.thaw(node)
        if done:
            thaw(self._engine, node)
            self._server.model.operators.hold_node(node)
            log.info("'%s' is in this cell with %d messages", node.name, arriving.reception.count)
        else:
            self._nodes.delete(node.name, anyway=True)

    # --- the loop

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Run a function on the loop's thread and return its answer, once what it stored is on disk."""
        done = threading.Event()
        answers: list[Answer] = []
        faults: list[BaseException] = []
        storing = self._engine.durability.commit
        assert storing is not None, "a cell has a store"

        def answer() -> None:
            mark = storing.mark()
            try:
                answers.append(question())
            except Exception as fault:  # noqa: BLE001 - it is raised again where it was asked
                faults.append(fault)
                done.set()
            else:
                storing.after(mark, done.set)

        self._server.reactor.post(answer)
        if not done.wait(ANSWER_S):
            raise TimeoutError("the loop or the disk doesn't answer in time")
        if faults:
            raise faults[0]
        return answers[0]


def _answer(refusal: str) -> bytes:
    return json.dumps({"refusal": refusal}).encode() + b"\n"


def _tell(sock: socket.socket, refusal: str) -> None:
    try:
        sock.sendall(_answer(refusal))
    except OSError:
        log.debug("the other cell is gone")


def _check(line: bytes) -> None:
    """Raise MoveError where the other cell refuses, or is gone."""
    if not line:
        raise MoveError("the other cell has ended meanwhile")
    refusal = str(json.loads(line)["refusal"])
    if refusal:
        raise MoveError(refusal)


def _read(sock: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        data = sock.recv(min(size, 1 << 20))
        if not data:
            raise MoveError("the other cell has ended meanwhile")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
