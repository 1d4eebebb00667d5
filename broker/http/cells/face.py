"""The cell that a client reached, as it speaks for all cells: it asks itself and the others at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from starlette.types import ASGIApp

from broker.http.cells.call import CellAnswer, CellCall, CellSilentError, answered
from broker.http.cells.merging import encoded
from broker.http.cells.neighbour import CellClient, serve
from broker.http.cells.routing import CellNames
from broker.http.server.relayed import RelayedSockets
from broker.http.server.selector import ThrottledSelector

# A header of answers that lack something: the cells that didn't answer.
ABSENT = "Sluice-Absent"


class OtherCells(Protocol):
    """The other cells of this machine, as the server knows them."""

    @property
    def number(self) -> int:
        """The number of this cell."""
        ...

    @property
    def cells(self) -> int:
        """How many there are."""
        ...

    def cell_of(self, name: str) -> int:
        """Return the cell of a node's name."""
        ...

    def split(self, address: str) -> tuple[int | None, str]:
        """Split an address that names its cell into that and the rest; ValueError where there is none."""
        ...

    def dial(self, cell: int) -> socket.socket:
        """Connect to a cell for one request over HTTP, without waiting; OSError where it can't be reached."""
        ...


@dataclass(frozen=True, slots=True)
class CellAnswers:
    """What the cells said, and why those that are missing said nothing."""

    said: dict[int, CellAnswer]
    absent: dict[int, str]

    def headers(self) -> dict[str, str]:
        """Return the header that says which are missing."""
        return {ABSENT: ", ".join(map(str, sorted(self.absent)))} if self.absent else {}

    def without_bad(self) -> CellAnswers:
        """Count those that answered with a fault of their own among the missing."""
        good = {cell: each for cell, each in self.said.items() if each.is_good}
        bad = {cell: each.error for cell, each in self.said.items() if not each.is_good}
        return CellAnswers(good, self.absent | bad)


class CellsFace:
    """Asks cells; ``local`` is the application that answers for this one. On the HTTP loop's thread."""

    def __init__(self, others: OtherCells, arriving: RelayedSockets) -> None:
        self.own = others.number
        self.cells = others.cells
        self.directory = CellNames(self.own, self.cells, others.cell_of, others.split)
        self.arriving = arriving
        self.local: ASGIApp | None = None
        # Answers a call about a login of this cell.
        self.on_session: Callable[[CellCall], CellAnswer] = lambda _call: CellAnswer(404)
        self._turnstile: ThrottledSelector | None = None
        self._client = CellClient(others.dial)
        self._serving: set[asyncio.Task[None]] = set()

    def begin(self, turnstile: ThrottledSelector, wake: Callable[[], object]) -> None:
        """Begin with a loop that waits by ``turnstile``; ``wake`` has it call ``take_arriving``."""
        self._turnstile = self._client.turnstile = turnstile
        self.arriving.begin(wake)

    def take_arriving(self) -> None:
        """Begin to answer requests of other cells that have come."""
        for sock in self.arriving.take():
            task = asyncio.get_running_loop().create_task(serve(sock, self._here, self._turnstile))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def ask(self, cell: int, call: CellCall) -> CellAnswer:
        """Return a cell's answer; CellSilentError where there is none."""
        if cell == self.own:
            return await self._here(call)
        return await self._client.ask(cell, call)

    async def one(self, cell: int, call: CellCall) -> CellAnswer:
        """Return a cell's answer, or 503 with the reason where there is none."""
        try:
            return await self.ask(cell, call)
        except CellSilentError as fault:
            return refused(503, f"cell {cell}: {fault}")

    async def each(self, call: CellCall, cells: Iterable[int] | None = None) -> CellAnswers:
        """Ask all cells, or these, the same."""
        wanted = range(self.cells) if cells is None else cells
        return await self.calls(dict.fromkeys(wanted, call))

    async def calls(self, calls: dict[int, CellCall]) -> CellAnswers:
        """Ask each of these cells something of its own."""
        found = await asyncio.gather(
            *(self.ask(cell, call) for cell, call in calls.items()), return_exceptions=True
        )
        answers = CellAnswers({}, {})
        for cell, each in zip(calls, found, strict=True):
            if isinstance(each, CellAnswer):
                answers.said[cell] = each
            elif isinstance(each, CellSilentError):
                answers.absent[cell] = str(each)
            else:
                raise each
        return answers

    async def _here(self, call: CellCall) -> CellAnswer:
        if call.session:
            return self.on_session(call)
        assert self.local is not None
        return await answered(self.local, call)


def refused(status: int, reason: str) -> CellAnswer:
    """Return a refusal as the API writes it."""
    return CellAnswer(status, encoded({"error": reason}), {"content-type": "application/json"})
