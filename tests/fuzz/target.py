"""What every target of the fuzzers is: bytes in, and either nothing happens or a fault is shown."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from tests.fuzz import corpus

Mutation = Callable[[bytes, Random], bytes]


@dataclass(frozen=True, slots=True)
class Target:
    """``check`` raises where the code under test does what it may not.

    ``files`` are those whose lines are counted, under broker/. ``words`` are what its input is made of, and
    ``mutate`` changes an input in a way that keeps its outer form, where it has one that chance seldom finds.
    """

    name: str
    check: Callable[[bytes], None]
    files: tuple[str, ...]
    words: tuple[bytes, ...] = ()
    mutate: Mutation | None = None
    largest: int = 4096
    # Inputs of the short run in `make test`: about a second's.
    short: int = 5000

    def seeds(self) -> list[bytes]:
        """The committed inputs, those that once were faults among them."""
        return list(corpus.read(self.name).values())


NAMES = (
    "message",
    "bodyscan",
    "frames",
    "sentry",
    "connection",
    "selector",
    "policies",
    "settings",
    "management",
    "shown",
    "sasl",
    "users",
    "websocket",
    "journal",
    "addresses",
)


def load(name: str) -> Target:
    """The target of that name, made ready."""
    module = importlib.import_module(f"tests.fuzz.targets.{name}")
    made: Target = module.TARGET
    return made


def expect(holds: bool, *shown: object) -> None:
    """A law that must hold, asserted however Python runs."""
    if not holds:
        raise AssertionError(" ".join(str(each) for each in shown))


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The data in pieces of these sizes, over and over; as one piece if there are none."""
    pieces = []
    at = turn = 0
    while at < len(data):
        size = max(sizes[turn % len(sizes)], 1) if sizes else len(data)
        pieces.append(data[at : at + size])
        at += size
        turn += 1
    return pieces


def with_prefix(inner: Mutation, outer: Callable[[bytes, Random, Sequence[bytes]], bytes]) -> Mutation:
    """For inputs that begin with a count and so many sizes: those change seldom, the rest as ``inner`` has
    it."""

    def mutate(data: bytes, random: Random) -> bytes:
        end = 1 + (data[0] % 8 if data else 0)
        if random.randrange(8) == 0:
            return outer(data[:end], random, ())[:8] + data[end:]
        return data[:end] + inner(data[end:], random)

    return mutate


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []
        # Whoever else is here already is about something else.
        self._others = {each.ident for each in threading.enumerate()} - {threading.get_ident()}

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread not in self._others:
            self.said.append(self.format(record))


@contextmanager
def without_errors() -> Iterator[None]:
    """What is done meanwhile logs no error: that would be a fault of ours, whoever was spoken to."""
    logger = logging.getLogger("sluice")
    errors, propagate = _Errors(), logger.propagate
    logger.addHandler(errors)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(errors)
        logger.propagate = propagate
    expect(not errors.said, "the broker's log has an error:", *errors.said)
