"""What may follow on a command line of sluice: read from the verbs' own parsers, and names from the broker.

A candidate is a word, and after a tab what it is.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from broker.cli.main import VERBS, verb_of
from broker.cli.terminal import arguments, ask
from broker.cli.terminal.printable import printable
from broker.errors import SluiceError

FILES = ":files"
# A shell that waits for names is worse than one that has none.
TIMEOUT_S = 0.7
TIMEOUT = "SLUICE_COMPLETION_TIMEOUT"
MOST_NAMES = 500

# What an argument is called in the help -> the kinds of entity whose names it takes.
NAMED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ADDRESS", "FILTER", "ADDRESS|PATTERN"), ("queue", "topic")),
    **dict.fromkeys(("SOURCE", "QUEUE"), ("queue",)),
    "TOPIC": ("topic",),
    "CONNECTION": ("connection",),
    "CONNECTION|LINK": ("connection", "link"),
}
FILE_NAMES = ("FILE", "DIR", "PATH", "HISTORY")
# bash breaks words there, and replaces only what stands behind.
BREAKS = ":="


def of_line(line: str) -> list[str]:
    """For bash: the candidates for the end of a line, after what stands before the last break in its word."""
    words = split(line)
    part = words[-1] if words else ""
    found = of_words(words[1:] or [""])
    if found == [FILES]:
        return found
    at = max(part.rfind(mark) for mark in BREAKS) + 1
    return [part[:at], *found]


def split(line: str) -> list[str]:
    """A line as the shell would split it; a quote may still be open. The last word is the one at the end."""
    if len(line) - len(line.rstrip("\\")) & 1:  # what it would escape isn't there yet
        line = line[:-1]
    for attempt in (line, line + '"', line + "'"):
        try:
            words = shlex.split(attempt)
        except ValueError:
            continue
        ends_blank = line[-1:].isspace() and attempt == line and not line.endswith("\\ ")
        return [*words, ""] if ends_blank or not words else words
    return [""]


def of_words(words: Sequence[str]) -> list[str]:
    """The candidates for the last of the words after `sluice`."""
    *before, part = words
    if not before:
        return _starting(part, [*((verb, text) for verb, (_, text) in VERBS.items()), ("help", "of a verb")])
    if before == ["help"]:
        return _starting(part, ((verb, text) for verb, (_, text) in VERBS.items()))
    if before[0] not in VERBS:
        return []
    reading = LineReading(verb_of(before[0])[1])
    for word in before[1:]:
        reading.take(word)
    return _of_reading(reading, part)


@dataclass(slots=True)
class LineReading:
    """How far a line has been read: the parser of the sub-command, what of it is still open."""

    parser: argparse.ArgumentParser
    open: list[argparse.Action] = field(default_factory=list)
    awaited: argparse.Action | None = None
    broker: str = ""
    values: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._enter(self.parser)

    def _enter(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.open = [action for action in _actions(parser) if not action.option_strings]
        self.values = []

    def take(self, word: str) -> None:
        """One word that is complete."""
        if self.awaited is not None:
            if self.awaited.dest == "broker":
                self.broker = word
            self.awaited = None
        elif word.startswith("-") and word != "-":
            self._take_flag(word)
        elif self.open:
            self._take_value(word)

    def _take_flag(self, word: str) -> None:
        name, equals, value = word.partition("=")
        action = flag_of(self.parser, name)
        if action is None or action.nargs == 0:
            return
        if not equals:
            self.awaited = action
        elif action.dest == "broker":
            self.broker = value

    def _take_value(self, word: str) -> None:
        action = self.open[0]
        if isinstance(action, argparse._SubParsersAction):
            inner = action.choices.get(word)
            if inner is not None:
                self._enter(inner)
            return
        self.values.append(word)
        if action.nargs not in ("*", "+"):
            self.open.pop(0)


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.help != argparse.SUPPRESS]


def flag_of(parser: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """The flag a word is, or the only one it may be short for."""
    exact = [action for action in parser._actions if word in action.option_strings]
    close = [
        action
        for action in parser._actions
        if word.startswith("--") and any(each.startswith(word) for each in action.option_strings)
    ]
    found = exact or close
    return found[0] if len(found) == 1 else None


def _of_reading(reading: LineReading, part: str) -> list[str]:
    if reading.awaited is not None:
        return _of_action(reading, reading.awaited, part)
    if part.startswith("--") and "=" in part:
        name, _, value = part.partition("=")
        action = flag_of(reading.parser, name)
        found = [] if action is None else _of_action(reading, action, value)
        return found if found == [FILES] else [f"{name}={each}" for each in found]
    if part.startswith("-"):
        flags = (
            (flag, action.help or "")
            for action in _actions(reading.parser)
            for flag in action.option_strings
            if flag.startswith("--")
        )
        return _starting(part, flags)
    return _of_action(reading, reading.open[0], part) if reading.open else []


def _of_action(reading: LineReading, action: argparse.Action, part: str) -> list[str]:
    if isinstance(action, argparse._SubParsersAction):
        return _starting(part, ((each.dest, each.help or "") for each in action._choices_actions))
    if action.choices is not None:
        return _starting(part, ((str(choice), "") for choice in action.choices))
    called = str(action.metavar or "")
    if called in FILE_NAMES:
        return [FILES]
    return _starting(part, ((name, "") for name in _names(reading, action, called)))


def _names(reading: LineReading, action: argparse.Action, called: str) -> Iterable[str]:
    kinds = NAMED.get(called, ())
    if action.dest == "node":
        kinds = ("queue", "topic")
    elif called == "NAME" and action.dest == "name" and not reading.parser.prog.endswith(" add"):
        kinds = tuple(value for value in reading.values if value in ("queue", "topic"))
    if not kinds:
        return ()
    url = reading.broker or os.environ.get("SLUICE_BROKER", arguments.DEFAULT_BROKER)
    return [name for name in ask_names(url, kinds) if printable(name) == name]


def ask_names(url: str, kinds: Iterable[str]) -> list[str]:
    """Names of these kinds of entity, as many as come at once; none where the broker doesn't answer."""
    from broker.client.request import Management

    try:
        patience_s = arguments.duration(os.environ[TIMEOUT]) if TIMEOUT in os.environ else TIMEOUT_S
        with Management(arguments.with_login(url), timeout_s=patience_s) as management:
            return [name for kind in kinds for name in _listed(management.call, kind)]
    except (SluiceError, OSError, argparse.ArgumentTypeError):
        return []


def _listed(call: object, kind: str) -> Iterator[str]:
    assert callable(call)
    body = {"attributeNames": ["identity"]}
    answer = ask.fields(call("QUERY", type=ask.PREFIX + kind, body=body, count=MOST_NAMES).body)
    results = answer["results"]
    assert isinstance(results, list)
    yield from (str(name) for (name,) in results if not str(name).startswith("$"))


def _starting(part: str, words: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{word}\t{_short(text)}" if text else word for word, text in words if word.startswith(part)]


def _short(text: str) -> str:
    """A help text on one line, without argparse's marks."""
    return re.sub(r"%\((\w+)\)s", r"\1", text).replace("%%", "%").replace("\n", " ")
