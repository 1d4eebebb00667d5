"""Asking a broker's ``$management`` node: one request, one response.

AMQP Management 1.0, working draft: the request carries ``operation``, ``type`` and ``name`` as
application properties and a dynamic node as its reply-to; the response carries ``statusCode`` and
``statusDescription``, and its body the answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from proton import Message, ProtonException

from broker.client.errors import ClientError, ClientTimeoutError
from broker.client.link import Connection
from broker.codec.owned import decode_message
from broker.errors import (
    ConflictError,
    ElsewhereError,
    ForbiddenError,
    NotFoundError,
    OperatorError,
    SluiceError,
)

Answer = TypeVar("Answer")

ADDRESS = "$management"
# A connection whose container is named so doesn't stand in the broker's events and log, as long as it
# asks for nothing but management and events (`TOOL` of broker/amqp/control/connection.py).
TOOL = "sluice-cli-"
# Asked in a cell that isn't the node's.
MISDIRECTED = 421
FAULTS = {403: ForbiddenError, 404: NotFoundError, 409: ConflictError}
# A cell that couldn't be asked isn't asked again for so long.
SILENT_S = 30.0


@dataclass(frozen=True, slots=True)
class Response:
    """A 2xx answer; any other status is raised instead. ``total``: of a QUERY, how many there are in all.

    The body owns its bytes: it may be kept as long as one likes.
    """

    status: int
    description: str
    body: object
    total: int = 0
    # Of a QUERY: which of how many cells has answered.
    cell: int = 0
    cells: int = 1


class Management:
    """A connection to one broker's management node; a context manager, for one thread.

    ``cell``: the node of this one of several cells. Raises ClientError when the broker can't be reached or
    refuses the connection.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0, cell: int | None = None) -> None:
        self.timeout_s = timeout_s
        self._url = url
        self._cell = cell
        self._at: dict[int, Management] = {}
        # Which of how many cells has answered last, and those that couldn't be asked, with when that was.
        self._where = 0, 1
        self._silent: dict[int, float] = {}
        self._connection = Connection(url, container_id=tool_container(), timeout_s=timeout_s)
        try:
            self._requests = self._connection.sender(ADDRESS if cell is None else f"$cell/{cell}/{ADDRESS}")
            self._responses = self._connection.receiver(None, credit=100)
        except BaseException:
            self._connection.close()
            raise
        self._last = 0

    def call(
        self,
        operation: str,
        type: str | None = None,  # noqa: A002 - the draft's word
        name: str | None = None,
        attributes: Mapping[str, object] | None = None,
        body: Any = None,
        **application_properties: object,
    ) -> Response:
        """Sends one request and returns its 2xx response.

        Without a cell of its own it asks the one that a node belongs to, where another is told.

        ``attributes`` is the body of CREATE and UPDATE; any other operation gives its ``body``. A status
        of 403 raises ForbiddenError, 404 NotFoundError, 409 ConflictError, another OperatorError, with the
        broker's reason.
        """
        answer = self._exchange(operation, type, name, attributes, body, application_properties)
        told: dict[str, Any] = answer.properties or {}
        if self._cell is None and told.get("statusCode") == MISDIRECTED and "cell" in told:
            other = self.at(int(told["cell"]))
            return other.call(operation, type, name, attributes, body, **application_properties)
        response = _checked(answer)
        self._where = response.cell, response.cells
        return response

    def call_each(
        self, operation: str, entity: str, body: Any = None
    ) -> tuple[dict[int, Response], dict[int, SluiceError]]:
        """Send a request to every cell; return what each has answered, and why others have not.

        Raises what ``call`` raises where there is one cell.
        """
        answer = self._exchange(operation, entity, None, None, body, {})
        told: dict[str, Any] = answer.properties or {}
        cells = int(told.get("cells", 1))
        if cells == 1 or self._cell is not None:
            return {0: _checked(answer)}, {}
        # Of a node that is elsewhere it is said where, and not which cell says so.
        own = -1 if told.get("statusCode") == MISDIRECTED else int(told["cell"])
        self._where = max(own, 0), cells
        found: dict[int, Response] = {}
        faults: dict[int, SluiceError] = {}
        for cell in range(cells):
            try:
                if cell == own:
                    found[cell] = _checked(answer)
                else:
                    found[cell] = self.ask_at(cell, lambda at: at.call(operation, entity, body=body))
            except SluiceError as fault:
                faults[cell] = fault
        return found, faults

    def ask_at(self, cell: int, question: Callable[[Management], Answer]) -> Answer:
        """Return what a cell answers; ClientError at once where it couldn't be asked a moment ago."""
        if time.monotonic() - self._silent.get(cell, -SILENT_S) < SILENT_S:
            raise ClientError("it doesn't answer")
        try:
            return question(self.at(cell))
        except ClientError:
            self._silent[cell] = time.monotonic()
            gone = self._at.pop(cell, None)
            if gone is not None:
                gone.close()
            raise

    def _exchange(
        self,
        operation: str,
        type: str | None,  # noqa: A002
        name: str | None,
        attributes: Mapping[str, object] | None,
        body: Any,
        application_properties: Mapping[str, object],
    ) -> Message:
        """Send one request and return the message that answers it."""
        named = {"operation": operation, "type": type, "name": name, **application_properties}
        properties = {key: value for key, value in named.items() if value is not None}
        self._last += 1
        request = Message(
            body=dict(attributes) if attributes is not None else body,
            properties=properties,
            reply_to=self._responses.address,
            correlation_id=str(self._last),
            id=str(self._last),
            address=ADDRESS,
        )
        self._requests.send(bytes(request.encode()), self.timeout_s)
        return self._await(str(self._last), operation)

    def at(self, cell: int) -> Management:
        """Return a connection to the management node of one cell, which is closed with this one."""
        found = self._at.get(cell)
        if found is None:
            found = self._at[cell] = Management(self._url, timeout_s=self.timeout_s, cell=cell)
        return found

    @property
    def own_cell(self) -> int:
        """The cell that has answered last."""
        return self._where[0]

    def others(self) -> list[int]:
        """Return the numbers of the other cells, none where there is one or this is to one of them.

        An answer of the broker has said how many there are.
        """
        if self._cell is not None:
            return []
        own, cells = self._where
        return [cell for cell in range(cells) if cell != own]

    def _await(self, wanted: str, operation: str) -> Message:
        """The response that answers request ``wanted``; late answers to others are dropped."""
        deadline = time.monotonic() + self.timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            for encoded in self._responses.take(1, left_s):
                response = _decoded(encoded)
                if str(response.correlation_id) == wanted:
                    return response
            self._raise_rejection()
        raise ClientTimeoutError(f"no answer to {operation} within {self.timeout_s:g} s")

    def _raise_rejection(self) -> None:
        if self._requests.rejections:
            _, condition, description = self._requests.rejections.pop()
            raise OperatorError(description or condition or "the broker rejected the request")

    def close(self) -> None:
        """Closes the connection; safe to call twice."""
        for other in self._at.values():
            other.close()
        self._connection.close()

    def __enter__(self) -> Management:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def tool_container() -> str:
    """A container id for a connection that only looks at a broker, or manages it."""
    return f"{TOOL}{os.getpid()}-{time.monotonic_ns():x}"


def _decoded(encoded: bytes) -> Message:
    try:
        return decode_message(encoded)
    except (ProtonException, UnicodeError) as error:
        raise ClientError(f"the broker's answer is no AMQP message: {error}") from error


def _checked(message: Message) -> Response:
    properties: dict[str, Any] = message.properties or {}
    status = int(properties.get("statusCode", 500))
    description = str(properties.get("statusDescription", ""))
    if 200 <= status < 300:
        where = int(properties.get("cell", 0)), int(properties.get("cells", 1))
        return Response(status, description, message.body, int(properties.get("total", 0)), *where)
    if status == MISDIRECTED:
        raise ElsewhereError(description, int(properties.get("cell", 0)))
    raise FAULTS.get(status, OperatorError)(description or f"the broker answered with status {status}")
