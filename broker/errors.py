"""Whose fault it is: the peer's, the operator's, or our own.

Every error the broker raises on purpose stands in this one short tree. Backpressure is a state and
never an exception. Adapters translate at their edge: AMQP answers with the condition, the command
line with an exit status, HTTP with a status code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class SluiceError(Exception):
    """Anything the broker raises on purpose."""


class PeerError(SluiceError):
    """The peer broke the protocol or asked for what it may not have.

    ``condition`` is an AMQP error condition (AMQP 1.0 §2.8.15 and following); whoever catches it
    closes the smallest scope that holds the offence.
    """

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


class ForeignAddressError(PeerError):
    """A message names a node of another ``cell``."""

    def __init__(self, address: str, cell: int) -> None:
        super().__init__("amqp:not-found", f"'{address}' belongs to cell {cell}")
        self.cell = cell


class SelectorError(PeerError):
    """A selector is no selector; ``column`` counts from 1 and is where it went wrong.

    ``over``: it may be one, but is longer, deeper or of more parts than is taken.
    """

    def __init__(self, column: int, text: str, *, over: bool = False) -> None:
        super().__init__("amqp:invalid-field", f"selector, column {column}: {text}")
        self.column = column
        self.over = over


class OperatorError(SluiceError):
    """A command or a setting was refused; the text is the reason, fit to be shown."""


class NotFoundError(OperatorError):
    """What the command named does not exist."""


class ConflictError(OperatorError):
    """What the command would create exists already."""


class ElsewhereError(NotFoundError):
    """What the command named isn't here, and belongs to another ``cell``."""

    def __init__(self, reason: str, cell: int) -> None:
        super().__init__(reason)
        self.cell = cell


class StaleError(OperatorError):
    """What the command would change isn't any more as whoever gave it has seen it."""


class LimitError(OperatorError):
    """What the command would make is one too many for whoever gave it."""


class ForbiddenError(OperatorError):
    """Who gave the command may not; the text doesn't say whether what it named exists."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One located fault in a file of settings; ``line`` and ``column`` count from 1.

    A ``line`` of 0 means the whole file, or what has no lines: a variable, a flag.
    """

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{where}: {self.text}"


class ConfigError(OperatorError):
    """A file of settings was refused; ``problems`` holds all that is wrong with it, in file order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def listed(words: Iterable[str]) -> str:
    """Return the words as ``'a', 'b' or 'c'``."""
    quoted = [repr(word) for word in words]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` if one of the known words is close, else nothing."""
    from difflib import get_close_matches  # few errors need it, and every verb loads this module

    close = get_close_matches(str(word).lower().replace("-", "_"), known, n=1, cutoff=0.7)
    return f" (did you mean {close[0]!r}?)" if close else ""
