"""A YAML file as typed nodes that know their place; every fault is noted, none ends the reading.

Nothing behind this file sees YAML, a dict or a mark. Ambiguities of YAML 1.1 (`on` and `off`,
octal and sexagesimal numbers, repeated keys) are refused rather than guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml
import yaml.reader

from broker.config.fields import unknown_key
from broker.errors import Problem

# Bounds that no honest file meets: aliases can make a small file describe an enormous one.
LARGEST_BYTES = 1 << 20
MOST_NODES = 100_000
DEEPEST = 20

_TAG = "tag:yaml.org,2002:"
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[-+]?[0-9]{1,18}\.[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The place of something in a file; line and column count from 1, 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def problem(self, text: str) -> Problem:
        return Problem(self.file, self.line, self.column, text)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, truth value, or None for an empty value."""

    value: str | int | float | bool | None
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """One key of a mapping; ``place`` is the key's."""

    key: str
    value: Node
    place: SourcePlace


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping. ``broken`` if an entry was left out because of a fault already noted."""

    entries: tuple[YamlEntry, ...]
    place: SourcePlace
    broken: bool = False


Node = Scalar | Items | Block


def read_file(path: Path, problems: list[Problem]) -> Node | None:
    """Read a file; None if it is empty or unreadable. Faults are added to ``problems``."""
    place = SourcePlace(str(path))
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        problems.append(place.problem(f"cannot be read: {error.strerror}"))
        return None
    return read_bytes(raw, str(path), problems)


def read_bytes(raw: bytes, name: str, problems: list[Problem]) -> Node | None:
    """Read bytes, which faults call ``name``; otherwise as ``read_file``."""
    if len(raw) > LARGEST_BYTES:
        problems.append(SourcePlace(name).problem(f"larger than {LARGEST_BYTES} bytes"))
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        problems.append(_place_in(name, before, len(before)).problem("not UTF-8"))
        return None
    return _read_text(text, name, problems)


def plain(node: Node) -> object:
    """Take the bare value, for a parser of single values."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    return {entry.key: plain(entry.value) for entry in node.entries}


def _read_text(text: str, name: str, problems: list[Problem]) -> Node | None:
    reading = _Reading(name, problems)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if root is None else reading.node(root, 0)
    except yaml.reader.ReaderError as error:
        problems.append(_place_in(name, text, error.position).problem("a character that YAML does not allow"))
    except yaml.MarkedYAMLError as error:
        place = reading.place(error.problem_mark or error.context_mark)
        problems.append(place.problem(f"not valid YAML: {error.problem or error.context}"))
    except RecursionError:
        problems.append(SourcePlace(name).problem("nested too deep"))
    except _TooMuchError as error:
        problems.append(error.problem)
    return None


class _TooMuchError(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class _Reading:
    """Turns composed YAML nodes into ours; None for a node that has a fault."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self._name = name
        self._problems = problems
        self._nodes = 0

    def place(self, mark: yaml.Mark | None) -> SourcePlace:
        if mark is None:
            return SourcePlace(self._name)
        return SourcePlace(self._name, mark.line + 1, mark.column + 1)

    def node(self, raw: yaml.Node, depth: int) -> Node | None:
        place = self.place(raw.start_mark)
        self._count(place, depth)
        if isinstance(raw, yaml.MappingNode) and raw.tag == _TAG + "map":
            return self._block(raw, place, depth)
        if isinstance(raw, yaml.SequenceNode) and raw.tag == _TAG + "seq":
            items = [self.node(item, depth + 1) for item in raw.value]
            return Items(tuple(item for item in items if item is not None), place)
        if isinstance(raw, yaml.ScalarNode):
            return self._scalar(raw, place)
        self._fault(place, f"the tag {_shown(raw.tag)} has no meaning here")
        return None

    def _count(self, place: SourcePlace, depth: int) -> None:
        self._nodes += 1
        if depth > DEEPEST:
            raise _TooMuchError(place.problem(f"nested more than {DEEPEST} deep"))
        if self._nodes > MOST_NODES:
            raise _TooMuchError(place.problem(f"more than {MOST_NODES} values, aliases counted each time"))

    def _block(self, raw: yaml.MappingNode, place: SourcePlace, depth: int) -> Block:
        entries: dict[str, YamlEntry] = {}
        broken = False
        for raw_key, raw_value in raw.value:
            key = self._key(raw_key)
            value = self.node(raw_value, depth + 1)
            if key is None or value is None:
                broken = True
            elif key in entries:
                first = entries[key].place.line
                broken = True
                self._fault(self.place(raw_key.start_mark), f"duplicate key {key!r} (first in line {first})")
            else:
                entries[key] = YamlEntry(key, value, self.place(raw_key.start_mark))
        return Block(tuple(entries.values()), place, broken)

    def _key(self, raw: yaml.Node) -> str | None:
        place = self.place(raw.start_mark)
        if not isinstance(raw, yaml.ScalarNode) or raw.tag not in _TEXT_TAGS:
            self._fault(place, "a key must be a word")
            return None
        return str(raw.value)

    def _scalar(self, raw: yaml.ScalarNode, place: SourcePlace) -> Scalar | None:
        text = str(raw.value)
        if raw.tag in _TEXT_TAGS:
            return Scalar(text, place)
        if raw.tag == _TAG + "null":
            return Scalar(None, place)
        if raw.tag == _TAG + "bool":
            return self._truth(text, place)
        if raw.tag in (_TAG + "int", _TAG + "float"):
            return self._number(text, place)
        self._fault(place, f"the tag {_shown(raw.tag)} has no meaning here")
        return None

    def _truth(self, text: str, place: SourcePlace) -> Scalar | None:
        if text.lower() in ("true", "false"):
            return Scalar(text.lower() == "true", place)
        advice = "write true or false, or put the word in quotes"
        self._fault(place, f"YAML reads a bare {text!r} as a truth value: {advice}")
        return None

    def _number(self, text: str, place: SourcePlace) -> Scalar | None:
        if _WHOLE.fullmatch(text):
            return Scalar(int(text), place)
        if _DECIMAL.fullmatch(text):
            return Scalar(float(text), place)
        self._fault(
            place, f"YAML reads {text[:40]!r} as a number in its own way: write it in plain decimal digits"
        )
        return None

    def _fault(self, place: SourcePlace, text: str) -> None:
        self._problems.append(place.problem(text))


# A bare word may resolve to these and still be a word: a date and `<<` mean nothing else here.
_TEXT_TAGS = frozenset(_TAG + name for name in ("str", "timestamp", "merge", "value"))


def _shown(tag: str) -> str:
    return tag.replace(_TAG, "!!")


def _place_in(name: str, text: str, index: int) -> SourcePlace:
    before = text[:index]
    return SourcePlace(name, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def items_of(root: Node | None, key: str, problems: list[Problem]) -> tuple[Node, ...]:
    """List the items of a file whose one key has a list; faults go to ``problems``."""
    if root is None or (isinstance(root, Scalar) and root.value is None):
        return ()
    if not isinstance(root, Block):
        problems.append(root.place.problem(f"expected a mapping with the key {key!r}"))
        return ()
    listed: tuple[Node, ...] = ()
    for entry in root.entries:
        if entry.key != key:
            problems.append(entry.place.problem(unknown_key(entry.key, [key])))
        elif isinstance(entry.value, Items):
            listed = entry.value.items
        elif plain(entry.value) is not None:
            problems.append(entry.value.place.problem(f"expected a list of {key}, each begun with '-'"))
    return listed
