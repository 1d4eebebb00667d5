"""Print the files that the number of a producer's credits passes: ``python -m tests.docs.credits``.

The flow rooms run as plain Python here (``SLUICE_PURE=1``): no profiler sees calls of compiled modules. Each
situation has another reason for the number. A file counts where a function returns that number or has it
in a variable, from what changed it until the producer holds it; so each says which number that is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from types import FrameType

import tests.conftest  # noqa: F401 - takes the sources of compiled modules
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.producer_credit import IDLE_NS, PROBE_NS, UNKNOWN_BYTES
from tests.unit.flow.ports import MS, Link, allocator, gate_of

OF_FLOW = re.compile(r".*\bbroker/(flow/.+)\.py$")
# A prime that no constant of the rooms is.
CREDIT = 37
WINDOW = 1009
# Twice the CREDIT that one used since it was looked at.
REST = 2 * CREDIT


class Told(Link):
    """A link at which the following of a number ends: its producer holds so many now."""

    def grant(self, msgs: int) -> None:
        sys.setprofile(None)
        super().grant(msgs)

    def revoke(self, msgs: int) -> None:
        sys.setprofile(None)
        super().revoke(msgs)


class Notes:
    """The files passed by a number while it is entered, until a link is told."""

    def __init__(self, number: int) -> None:
        self.files: set[str] = set()
        self._number = number

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        found = OF_FLOW.match(frame.f_code.co_filename)
        if found and event in ("call", "return") and self._is_in(result, *frame.f_locals.values()):
            self.files.add(found[1])

    def _is_in(self, *values: object) -> bool:
        return any(
            self._is_in(*each)
            if isinstance(each, (list, tuple))
            else type(each) is int and each == self._number
            for each in values
        )

    def __enter__(self) -> None:
        sys.setprofile(self)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def begun() -> Notes:
    """It has just attached: its window begins with a part of the threshold."""
    address, notes = allocator(WINDOW), Notes(CREDIT)
    with notes:
        account = address.open(Told(), WINDOW, CREDIT, MS)
        address.settle_turn(MS)
    assert account.outstanding == CREDIT
    return notes


def earned() -> Notes:
    """It has used half of what it had: its window has doubled."""
    address, notes = allocator(WINDOW), Notes(2 * CREDIT)
    account = address.open(Told(), WINDOW, CREDIT, MS)
    address.settle_turn(MS)
    account.use(UNKNOWN_BYTES, MS)
    while account.outstanding > account.low:
        account.use(UNKNOWN_BYTES, MS)
    with notes:
        address.renew(account, MS)
    assert account.outstanding == 2 * CREDIT
    return notes


def roomed() -> Notes:
    """The room of a gate is less than its window."""
    address, notes = allocator(WINDOW), Notes(CREDIT)
    account = address.open(Told(), WINDOW, WINDOW, MS)
    address.gate.measure(WINDOW - CREDIT, 0, MS)
    with notes:
        address.settle_turn(MS)
    assert account.outstanding == CREDIT
    return notes


def shared() -> Notes:
    """Others are in line beside it."""
    address, notes = allocator(10 * CREDIT), Notes(CREDIT)
    accounts = [address.open(Told(), WINDOW, WINDOW, MS) for _ in range(10)]
    for account in accounts:
        account.set_window(WINDOW)
    with notes:
        address.settle_turn(MS)
    assert {account.outstanding for account in accounts} == {CREDIT}
    return notes


def in_memory() -> Notes:
    """The broker's memory has least room."""
    address, notes = allocator(WINDOW), Notes(CREDIT)
    memory = gate_of("memory_limit", 0, 1)
    address.budget(memory)
    account = address.open(Told(), WINDOW, WINDOW, MS)
    memory.configure(0, 0, CREDIT * address.reservations.held(account.reserve_bytes), 0, 0, 0)
    with notes:
        address.settle_turn(MS)
    assert account.outstanding == CREDIT
    return notes


def of_connection() -> Notes:
    """Its connection's budget has least room."""
    address, notes = allocator(WINDOW), Notes(CREDIT)
    held = address.reservations.held(UNKNOWN_BYTES)
    account = address.open(Told(), WINDOW, WINDOW, MS, ConnectionBudget(CREDIT * held))
    with notes:
        address.settle_turn(MS)
    assert account.outstanding == CREDIT
    return notes


def idle() -> Notes:
    """It did nothing with some of what it had, and somebody waits: it keeps twice what it used lately."""
    address, notes = allocator(WINDOW), Notes(REST)
    account = address.open(Told(), WINDOW, WINDOW, 0)
    address.settle_turn(0)
    for _ in range(CREDIT):
        account.use(UNKNOWN_BYTES, MS)
    address.open(Link(), WINDOW, WINDOW, MS).set_window(WINDOW)
    with notes:
        address.settle_turn(MS + PROBE_NS + IDLE_NS)
        address.settle_turn(MS + PROBE_NS + 3 * IDLE_NS)
    assert account.outstanding == REST
    return notes


# By the words of the page on the architecture.
SITUATIONS: dict[str, Callable[[], Notes]] = {
    "what it began with": begun,
    "what it has earned": earned,
    "the room of a gate": roomed,
    "its share": shared,
    "the room of memory": in_memory,
    "the room of its connection": of_connection,
    "the rest of what lay idle": idle,
}


def main() -> None:
    """Print them as JSON: the files of each situation, by its words."""
    print(json.dumps({words: sorted(situation().files) for words, situation in SITUATIONS.items()}))


if __name__ == "__main__":
    main()
