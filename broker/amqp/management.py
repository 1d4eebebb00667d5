"""The `$management` node: requests in AMQP Management 1.0 (working draft 11), answered from the model.

A request is a message with ``operation``, ``type`` and ``name`` as application properties and a
reply-to; the answer goes there with ``statusCode``, ``statusDescription`` and the request's
correlation-id (§3.2 of the draft). Nothing a peer sends can raise out of ``handle``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from proton import Message, ProtonException, int32, uint

from broker.amqp.loop.later import AskLoop
from broker.amqp.operations import NODE, OPERATIONS
from broker.codec.bounds import is_bounded
from broker.codec.owned import decode_message
from broker.errors import ConflictError, ElsewhereError, ForbiddenError, NotFoundError, OperatorError
from broker.loggers import SOMEBODY, about
from broker.manage.access import INTERNAL
from broker.manage.attributes import PREFIX, ROWS, names
from broker.manage.authorized import AuthorizedModel
from broker.manage.bindings import Binding
from broker.manage.browsing import Browsing
from broker.manage.calls import Steps, ended
from broker.manage.cells import WAIT_MS
from broker.manage.model import Model
from broker.manage.tracing import FRAMES, SECONDS, TraceRequest
from broker.security.identity import Identity

ADDRESS = "$management"
LARGEST_REQUEST = 1 << 20
# A page is encoded on the reactor's thread: so many rows, and so many values, at most.
MOST_ROWS = 1000
MOST_CELLS = 10_000
# Answers that wait for the disk at a time, each with what was read for it so far.
MOST_AWAITED = 16

OK, CREATED, NO_CONTENT = 200, 201, 204
BAD_REQUEST, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, CONFLICT = 400, 403, 404, 405, 409
# Asked in a cell that isn't the node's (RFC 9110 §15.5.20).
MISDIRECTED = 421
FAILED, NOT_IMPLEMENTED, UNAVAILABLE = 500, 501, 503

BROKER = PREFIX + "broker"
# What can be made, changed and removed; everything else can only be looked at.
WRITABLE = {PREFIX + "queue": "queue", PREFIX + "topic": "topic"}
BINDING, BRIDGE = PREFIX + "binding", PREFIX + "bridge"
CREATABLE = (*WRITABLE, BINDING, BRIDGE)
# Of clients, whom an operator may send away.
CONNECTION, LINK = PREFIX + "connection", PREFIX + "link"
REMOVABLE = (*WRITABLE, PREFIX + "subscription", BINDING, BRIDGE, CONNECTION, LINK)

# What Proton's decoder raises, beside its own exception, on bytes that are no message of ours.
MALFORMED = (ProtonException, ValueError, TypeError, KeyError, OverflowError, RecursionError, MemoryError)

Found = TypeVar("Found")
Correlation = str | bytes | UUID | int | None
Body = Mapping[str, object] | list[object]
NOTHING: Mapping[str, object] = MappingProxyType({})

log = logging.getLogger("sluice.management")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, in plain values, and the model's verbs as whoever asks may use them."""

    operation: str
    type: str | None
    name: str | None
    properties: Mapping[str, object]
    body: object
    model: AuthorizedModel

    def argument(self, key: str) -> object:
        """An argument of an operation, from the body's map or the application properties."""
        if isinstance(self.body, dict) and key in self.body:
            return self.body[key]
        return self.properties.get(key)

    def text(self, key: str) -> str:
        """An argument that is a text and must be there."""
        value = (self.name if key == "name" else None) or self.argument(key)
        if not isinstance(value, str) or not value:
            raise OperatorError(f"{self.operation} needs '{key}'")
        return value

    def number(self, key: str, default: int) -> int:
        """An argument that is a whole number, 0 or more."""
        value = self.argument(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise OperatorError(f"{self.operation}: '{key}' must be a whole number, 0 or more")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """An argument that is true or false; nothing else, so that no slip makes a trial the real thing."""
        value = self.argument(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise OperatorError(f"{self.operation}: '{key}' must be true or false, a boolean")
        return value

    def attributes(self) -> dict[str, object]:
        """The body of CREATE and UPDATE."""
        if self.body is None:
            return {}
        if not isinstance(self.body, dict):
            raise OperatorError(f"{self.operation} needs a map as its body")
        given = {str(key): value for key, value in self.body.items()}
        # An entity's own attributes too: they may be repeated, and can't be changed.
        name = self.properties.get("identity") or self.name or given.get("name")
        for key, known in (("type", self.type), ("name", name), ("identity", name)):
            if given.pop(key, known) != known:
                raise OperatorError(f"{self.operation}: the body's '{key}' is not the request's")
        return given


class StatusError(OperatorError):
    """A refusal with a status of its own."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class AwaitedError(Exception):
    """The answer has to be waited for: ``browsing`` is the look at a queue that it needs."""

    def __init__(self, browsing: Browsing) -> None:
        super().__init__()
        self.browsing = browsing


@dataclass(frozen=True, slots=True)
class Awaited:
    """A request whose answer needs the disk: ``ManagementNode.resume`` when ``browsing.told`` is called."""

    request: Request
    reply_to: str
    correlation: Correlation
    browsing: Browsing


# A status, a body, and application properties beside the status, where there are any.
Answer = tuple[int, Body] | tuple[int, Body, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that takes long: ``read`` is for any thread, the ``steps`` from there for the loop's."""

    read: Callable[[], Any]
    steps: Callable[[Any], Steps[list[str]]]
    dry_run: bool = False

    def changed(self, ask: AskLoop) -> Answer:
        """The answer, with the names that the last step gives."""
        found = self.read()
        return OK, {"changed": ask(lambda: self.steps(found))}


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that is still to be worked out; ``answer`` encodes it, on any thread but the loop's."""

    reply_to: str
    answer: Callable[[AskLoop], bytes]
    refused: Callable[[str], bytes]
    dry_run: bool = False


def at_once(question: Callable[[], Steps[Found]]) -> Found:
    """The answer to a question, all its steps taken here and now."""
    return ended(question())


class ManagementNode:
    """Answers requests one by one; the caller ends the engine's turn afterwards."""

    def __init__(
        self, model: Model, largest: int = LARGEST_REQUEST, depth: int = 32, elements: int = 10_000
    ) -> None:
        self._model = model
        self._largest = largest
        self._bounds = depth, elements
        self._awaited = 0
        # Which of how many cells this is.
        self.cell, self.cells = 0, 1
        self._operations: dict[str, Callable[[Request], Answer | Later]] = {
            "CREATE": self._create,
            "READ": self._read,
            "UPDATE": self._update,
            "DELETE": self._delete,
            "QUERY": self._query,
            "GET-TYPES": self._get_types,
            "GET-ANNOTATIONS": self._get_types,
            "GET-ATTRIBUTES": self._get_attributes,
            "GET-OPERATIONS": self._get_operations,
            "GET-MGMT-NODES": self._get_nodes,
            "stop-producers": self._stop_producers,
            "start-producers": self._start_producers,
            "explain": self._explain,
            "effect": self._effect,
            "why": self._why,
            "purge": self._purge,
            "apply": self._apply,
            "move": self._move,
            "browse": self._browse,
            "delayed": self._delayed,
            "cancel": self._cancel,
            "groups": self._groups,
            "reset-group": self._reset_group,
            "readers": self._readers,
            "forget-reader": self._forget_reader,
            "discard": self._discard,
            "backup": self._backup,
            "backup-done": self._backup_done,
            "events": self._events,
            "audit": self._audit,
            "log-levels": self._log_levels,
            "trace": self._trace,
            "move-cell": self._move_cell,
            "move-node": self._move_node,
            "node-moved": self._node_moved,
        }

    @property
    def operations(self) -> Collection[str]:
        """The operations it knows, its own and those on entities."""
        return self._operations.keys()

    def handle(
        self,
        data: bytes,
        identity: Identity = INTERNAL,
        on_wait: Callable[[Awaited], None] = lambda awaited: None,
    ) -> tuple[str, bytes] | None:
        """As ``begin``, and whatever takes long is worked out here and now."""
        answer = self.begin(data, identity, on_wait)
        return (answer.reply_to, answer.answer(at_once)) if isinstance(answer, Pending) else answer

    def begin(
        self,
        data: bytes,
        identity: Identity = INTERNAL,
        on_wait: Callable[[Awaited], None] = lambda awaited: None,
    ) -> tuple[str, bytes] | Pending | None:
        """The reply-to and the encoded answer, or what makes it; None where there is nobody to answer, or no
        request at all, or where the answer needs the disk, which ``on_wait`` is told.

        ``identity`` is who asks.
        """
        if not 0 < len(data) <= self._largest or not is_bounded(data, *self._bounds):
            return None
        try:
            message = decode_message(data)
            reply_to = message.reply_to
            correlation = _correlation(message)
            request = _request(message, AuthorizedModel(self._model, identity))
        except MALFORMED:
            return None
        if not reply_to:
            return None
        later: list[Later] = []

        def perform() -> Answer:
            found = self._perform(request)
            if isinstance(found, Later):
                later.append(found)
                return OK, NOTHING
            return found

        try:
            answer = self._encoded(request, reply_to, correlation, perform)
        except AwaitedError as awaited:
            self._awaited += 1
            on_wait(Awaited(request, reply_to, correlation, awaited.browsing))
            return None
        if not later:
            return reply_to, answer
        return Pending(
            reply_to,
            lambda ask: self._encoded(request, reply_to, correlation, lambda: later[0].changed(ask)),
            lambda why: _reply(correlation, reply_to, CONFLICT, why, NOTHING),
            later[0].dry_run,
        )

    def resume(self, awaited: Awaited) -> tuple[str, bytes] | None:
        """The answer that was waited for, as of ``handle``; None while there is more to wait for."""
        request, reply_to = awaited.request, awaited.reply_to
        try:
            reply = self._encoded(
                request, reply_to, awaited.correlation, lambda: self._browsed(awaited.browsing)
            )
        except AwaitedError:
            return None
        self._awaited -= 1
        return reply_to, reply

    def _encoded(
        self, request: Request, reply_to: str, correlation: Correlation, perform: Callable[[], Answer]
    ) -> bytes:
        status, reason, body, more = self._answer(request, perform)
        if self.cells > 1:
            # Of a node that is elsewhere it is said where.
            more = {"cell": uint(self.cell), "cells": uint(self.cells), **more}
        answer = status, reason, body, more
        try:
            return _reply(correlation, reply_to, *answer)
        except Exception:  # noqa: BLE001 - as below
            return _reply(correlation, reply_to, *_failed(request))

    def _answer(
        self, request: Request, perform: Callable[[], Answer]
    ) -> tuple[int, str, Body, Mapping[str, object]]:
        """The status, its description, the body and further properties; a refusal has an empty body."""
        try:
            status, body, *more = perform()
        except AwaitedError:
            raise
        except StatusError as refusal:
            return refusal.status, str(refusal), NOTHING, NOTHING
        except ForbiddenError as refusal:
            return FORBIDDEN, str(refusal), NOTHING, NOTHING
        except ElsewhereError as refusal:
            return MISDIRECTED, str(refusal), NOTHING, {"cell": uint(refusal.cell)}
        except NotFoundError as refusal:
            return NOT_FOUND, str(refusal), NOTHING, NOTHING
        except ConflictError as refusal:
            return CONFLICT, str(refusal), NOTHING, NOTHING
        except OperatorError as refusal:
            return BAD_REQUEST, str(refusal), NOTHING, NOTHING
        except Exception:  # noqa: BLE001 - a bug of ours is one request's end
            return _failed(request)
        return status, "OK", body, more[0] if more else NOTHING

    def _perform(self, request: Request) -> Answer | Later:
        operation = self._operations.get(request.operation)
        if not request.operation:
            raise OperatorError("the request names no 'operation'")
        if operation is None:
            raise StatusError(NOT_IMPLEMENTED, f"no operation '{request.operation}'")
        return operation(request)

    # --- entities

    def _create(self, request: Request) -> Answer:
        type_ = _entity_type(request, CREATABLE)
        if type_ == BINDING:
            source, target = request.text("source"), request.text("target")
            if request.argument("key") is not None:
                raise OperatorError("a binding has no key: the queue takes all that is sent to the topic")
            request.model.nodes.bind(source, target)
            return CREATED, request.model.queries.read(BINDING, Binding(source, target).name)
        name = request.text("name")
        if type_ == BRIDGE:
            name = request.model.bridges.create(name, request.attributes())
            return CREATED, request.model.queries.read(type_, name)
        request.model.nodes.create(WRITABLE[type_], name, request.attributes())
        return CREATED, request.model.queries.read(type_, name)

    def _read(self, request: Request) -> Answer:
        type_ = _entity_type(request, ROWS)
        if type_ == BROKER:
            return OK, request.model.queries.read(type_, request.name or "")
        return OK, request.model.queries.read(type_, _identity(request))

    def _update(self, request: Request) -> Answer:
        type_ = _entity_type(request, WRITABLE)
        name = self._existing(type_, request)
        request.model.nodes.update(name, request.attributes())
        return OK, request.model.queries.read(type_, name)

    def _delete(self, request: Request) -> Answer:
        type_ = _entity_type(request, REMOVABLE)
        if type_ == BINDING:
            request.model.nodes.unbind(*_ends(request))
            return NO_CONTENT, NOTHING
        if type_ == BRIDGE:
            request.model.bridges.delete(_identity(request))
            return NO_CONTENT, NOTHING
        if type_ in (CONNECTION, LINK):
            # By identity alone: containers and links of one name are many.
            end = (
                request.model.operators.close_connection
                if type_ == CONNECTION
                else request.model.operators.detach_link
            )
            end(_identity(request))
            return NO_CONTENT, NOTHING
        request.model.nodes.delete(self._existing(type_, request))
        return NO_CONTENT, NOTHING

    def _existing(self, type_: str, request: Request) -> str:
        """The name, once it is sure that an entity of that very type bears it."""
        name = _identity(request)
        request.model.nodes.typed(type_.removeprefix(PREFIX), name)
        return name

    def _query(self, request: Request) -> Answer:
        wanted = request.argument("attributeNames") or []
        if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
            raise OperatorError("QUERY: 'attributeNames' must be a list of names")
        type_ = request.properties.get("entityType") or request.type
        if type_ == NODE:
            type_ = None
        if type_ is not None:
            type_ = _known(str(type_), ROWS)
        count = min(request.number("count", MOST_ROWS), _rows_at_once(type_, wanted))
        # Two of our own, for lists too long to be fetched whole.
        order = str(request.argument("sort") or ""), str(request.argument("filter") or "")
        page = request.model.queries.query(type_, wanted, request.number("offset", 0), count, *order)
        results = [list(row) for row in page.results]
        # The draft's body has these two and no more; how many there are in all is told beside it.
        body = {"attributeNames": list(page.attribute_names), "results": results}
        return OK, body, {"count": uint(len(results)), "total": uint(page.total)}

    # --- the node itself

    def _get_types(self, request: Request) -> Answer:
        return OK, {type_: [] for type_ in _selected(request)}

    def _get_attributes(self, request: Request) -> Answer:
        return OK, {type_: names(type_) for type_ in _selected(request)}

    def _get_operations(self, request: Request) -> Answer:
        return OK, {type_: dict(OPERATIONS[type_]) for type_ in _selected(request, (*ROWS, NODE))}

    def _get_nodes(self, request: Request) -> Answer:
        return OK, []

    # --- the broker's own operations

    def _stop_producers(self, request: Request) -> Answer:
        return self._hold(request, True)

    def _start_producers(self, request: Request) -> Answer:
        return self._hold(request, False)

    def _hold(self, request: Request, held: bool) -> Answer:
        return OK, {"nodes": request.model.operators.hold(request.text("target"), held)}

    def _explain(self, request: Request) -> Answer:
        explanation = asdict(request.model.explanations.explain(request.text("address")))
        return OK, explanation | {"settings": list(explanation["settings"])}

    def _effect(self, request: Request) -> Answer:
        arguments = request.argument("arguments")
        if arguments is not None and not isinstance(arguments, dict):
            raise OperatorError("effect: 'arguments' must be a map")
        found = asdict(request.model.explanations.effect(request.text("name"), arguments or {}))
        return OK, found | {"changed": list(found["changed"])}

    def _why(self, request: Request) -> Answer:
        address = request.text("address") if request.argument("address") is not None else ""
        return OK, {"answers": [asdict(why) for why in request.model.diagnostics.why(address)[:MOST_ROWS]]}

    def _purge(self, request: Request) -> Answer:
        dry_run = request.flag("dry_run")
        return OK, {"purged": request.model.messages.purge(request.text("name"), dry_run)}

    def _groups(self, request: Request) -> Answer:
        given = request.number("offset", 0), min(request.number("count", 100), MOST_ROWS)
        wanted = request.text("filter") if request.argument("filter") else ""
        found = request.model.messages.groups(request.text("name"), *given, wanted)
        return OK, {"groups": [asdict(each) for each in found]}

    def _reset_group(self, request: Request) -> Answer:
        free = request.model.messages.reset_group(request.text("name"), request.text("group"))
        return OK, {"free": free}

    def _readers(self, request: Request) -> Answer:
        given = request.number("offset", 0), min(request.number("count", 100), MOST_ROWS)
        found = request.model.readers.listed(request.text("name"), *given)
        return OK, {"readers": [asdict(each) for each in found]}

    def _forget_reader(self, request: Request) -> Answer:
        request.model.readers.forget(request.text("name"), request.text("reader"))
        return OK, {}

    def _move(self, request: Request) -> Answer:
        dry_run = request.flag("dry_run")
        given = (request.text("source"), request.text("target"), request.number("count", 0), dry_run)
        return OK, {"moved": request.model.messages.move(*given)}

    def _browse(self, request: Request) -> Answer:
        browsing = request.model.messages.browse(
            request.text("name"), request.number("offset", 0), min(request.number("count", 20), MOST_ROWS)
        )
        return self._browsed(browsing)

    def _browsed(self, browsing: Browsing) -> Answer:
        found = browsing.go_on()
        if found is None:
            if self._awaited >= MOST_AWAITED and not browsing.resumed:
                raise StatusError(UNAVAILABLE, "too many answers wait for the disk: ask again")
            browsing.resumed = True
            raise AwaitedError(browsing)
        return OK, {"messages": [asdict(each) for each in found.messages], "paged": found.paged}

    def _delayed(self, request: Request) -> Answer:
        found = request.model.messages.delayed(
            request.text("name"), request.number("offset", 0), min(request.number("count", 20), MOST_ROWS)
        )
        return OK, {"messages": [asdict(each) for each in found.messages], "total": found.total}

    def _cancel(self, request: Request) -> Answer:
        request.model.messages.cancel(request.text("name"), request.number("number", 0))
        return OK, {}

    def _discard(self, request: Request) -> Answer:
        return OK, {"messages": request.model.nodes.discard(request.text("name"))}

    def _backup(self, request: Request) -> Answer:
        return OK, {"path": str(request.model.backups.begin(request.text("target")))}

    def _backup_done(self, request: Request) -> Answer:
        return OK, {"done": request.model.backups.is_done()}

    def _events(self, request: Request) -> Answer:
        count = min(request.number("count", 20), MOST_ROWS)
        found = request.model.diagnostics.events(count, request.flag("samples", default=True))
        return OK, {"events": [line.decode().rstrip() for line in found]}

    def _move_cell(self, request: Request) -> Answer:
        member = "" if request.argument("member") in (None, "") else request.text("member")
        return OK, {"member": request.model.cluster.move(member)}

    def _move_node(self, request: Request) -> Answer:
        given = request.text("name"), request.number("cell", -1), request.number("wait", WAIT_MS)
        return OK, asdict(request.model.cells.move(*given))

    def _node_moved(self, request: Request) -> Answer:
        return OK, asdict(request.model.cells.moved(request.text("name")))

    def _audit(self, request: Request) -> Answer:
        found = request.model.diagnostics.audit()
        return OK, asdict(found) | {"breaches": list(found.breaches)}

    def _log_levels(self, request: Request) -> Answer:
        if request.argument("logger") is None:
            return OK, {"levels": request.model.log_levels.effective()}
        level = request.argument("level")
        return OK, {
            "levels": request.model.log_levels.change(
                request.text("logger"), "" if level is None else str(level)
            )
        }

    def _trace(self, request: Request) -> Answer:
        given = (
            request.text("connection"),
            request.number("frames", FRAMES),
            request.number("seconds", SECONDS),
        )
        return OK, asdict(request.model.tracing.order(TraceRequest(*given)))

    def _apply(self, request: Request) -> Later:
        model = request.model
        dry_run, text = request.flag("dry_run"), request.argument("text")
        if text is None and dry_run:
            raise OperatorError("apply: 'dry_run' needs a 'text'; the broker's own files can't be tried")
        model.see_broker() if dry_run else model.change_broker()
        if text is None:
            return Later(model.policy_reader.read_again, model.policies.reload_in_parts)
        # A file with nothing in it is a text too.
        given = "" if text == "" else request.text("text")
        file = str(request.argument("file") or "request")
        steps = model.policies.try_in_parts if dry_run else model.policies.apply_in_parts
        return Later(lambda: model.policy_reader.read_text(given, file, dry_run), steps, dry_run)


def _request(message: Message, model: AuthorizedModel) -> Request:
    properties = _plain(message.properties or {})
    if not isinstance(properties, dict):
        raise TypeError("application properties are a map")
    return Request(
        operation=_text(properties.get("operation")) or "",
        type=_text(properties.get("type")),
        name=_text(properties.get("name")),
        properties=properties,
        body=_plain(message.body),
        model=model,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _plain(value: object) -> object:
    """AMQP's sized numbers, symbols and arrays as Python's own."""
    if value is None or isinstance(value, bool):
        return value
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    # What is no text stays none, so that whatever wants a text refuses it.
    return value


def _entity_type(request: Request, allowed: Mapping[str, object] | tuple[str, ...]) -> str:
    """The request's type, if its operation is there for it."""
    if request.type is None:
        raise OperatorError(f"{request.operation} needs a 'type'")
    type_ = _known(request.type, ROWS)
    if type_ not in allowed:
        raise StatusError(NOT_ALLOWED, f"{request.operation} is not allowed on {type_}")
    return type_


def _known(type_: str, known: Collection[str]) -> str:
    if type_ not in known:
        raise NotFoundError(f"no entity type '{type_}'; there are {', '.join(known)}")
    return type_


def _identity(request: Request) -> str:
    """The entity that is meant; by its name or its identity, not by both (§3.3 of the draft)."""
    identity = request.properties.get("identity")
    if not isinstance(identity, str) or not identity:
        return request.text("name")
    if request.name not in (None, identity):
        raise OperatorError(f"{request.operation} takes a 'name' or an 'identity', not both")
    return identity


def _ends(request: Request) -> tuple[str, str]:
    """A binding's: as they are given, else those of the one that is named."""
    if request.argument("source") is not None or request.argument("target") is not None:
        return request.text("source"), request.text("target")
    found = request.model.queries.read(BINDING, _identity(request))
    return str(found["source"]), str(found["target"])


def _selected(request: Request, known: Collection[str] = tuple(ROWS)) -> list[str]:
    """The types a GET- operation is about: one of them, or all."""
    type_ = request.properties.get("entityType")
    return list(known) if type_ is None else [_known(str(type_), known)]


def _rows_at_once(type_: str | None, wanted: list[object]) -> int:
    columns = len(wanted) or sum(len(names(each)) for each in ([type_] if type_ else ROWS))
    return max(min(MOST_ROWS, MOST_CELLS // columns), 1)


def _correlation(request: Message) -> Correlation:
    """What the answer is correlated by (§3.2 of the draft); what MALFORMED names, where it is no id."""
    correlation: Correlation = request.id if request.correlation_id is None else request.correlation_id
    # Proton reads a binary id as a view and writes a view as null.
    return bytes(correlation) if isinstance(correlation, memoryview) else correlation


def _failed(request: Request) -> tuple[int, str, Body, Mapping[str, object]]:
    """A bug of ours: loud in the log, but it doesn't take the broker down."""
    log.exception("the management request %r failed", request.operation, extra=about(SOMEBODY))
    return FAILED, "internal error; the broker's log has the details", NOTHING, NOTHING


def _reply(
    correlation: Correlation,
    reply_to: str,
    status: int,
    reason: str,
    body: Body,
    more: Mapping[str, object] = NOTHING,
) -> bytes:
    reply = Message(
        address=reply_to,
        properties={"statusCode": int32(status), "statusDescription": reason, **more},
        body=dict(body) if isinstance(body, Mapping) else body,
    )
    reply.correlation_id = correlation
    return bytes(reply.encode())
