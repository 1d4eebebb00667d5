"""Sources of the broker's settings: its file, the environment, and flags of the command line.

Values are parsed by the table of settings that a reader is made for, and each keeps its place. Faults are
collected, so that all of them are told at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from broker.config.fields import Field, from_text, unknown_key
from broker.config.yaml import Block, Items, Node, Scalar, SourcePlace, YamlEntry, plain, read_file
from broker.errors import Problem

PREFIX = "SLUICE_"

# Variables of ours that are no settings.
OTHER_VARIABLES = frozenset(
    {
        *("SLUICE_CONFIG", "SLUICE_PURE", "SLUICE_BROKER", "SLUICE_CELL_PLACE"),
        *("SLUICE_USER", "SLUICE_PASSWORD", "SLUICE_PASSWORD_FILE"),
        *("SLUICE_CA", "SLUICE_CERT", "SLUICE_KEY"),
    }
)

# The keys that tell items of a list of mappings apart, where they have no name.
_KEYS = ("from", "to", "user", "group", "listener", "virtual_host")


@dataclass(frozen=True, slots=True)
class SetValue:
    """A parsed value and where it was set."""

    value: object
    place: SourcePlace


class SourceReader:
    """Reader of the settings of one table; the source that is read last wins.

    ``aliases`` are further names of settings in variables and flags. ``found`` has the values by name,
    ``problems`` all that was wrong.
    """

    def __init__(self, table: Mapping[str, Field], aliases: Mapping[str, str]) -> None:
        self.found: dict[str, SetValue] = {}
        self.problems: list[Problem] = []
        self._table = table
        self._aliases = aliases
        self._sections = sections(table)

    def read_file(self, path: Path) -> None:
        """Read a YAML file, whose levels are the dots of names."""
        root = read_file(path, self.problems)
        if root is None or plain(root) is None:
            return
        if not isinstance(root, Block):
            self.problems.append(root.place.problem("expected a mapping of settings"))
            return
        for name, entry in self._flat(root):
            value = self._parsed_entry(name, entry)
            if value is not None:
                self.found[name] = SetValue(value, entry.place)

    def read_environment(self, environment: Mapping[str, str]) -> None:
        """Read variables: ``SLUICE_`` and the name, with underscores for dots."""
        names = {name.replace(".", "_").upper(): name for name in self._table}
        names |= {alias.upper(): name for alias, name in self._aliases.items()}
        for variable, text in sorted(environment.items()):
            if not text or not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
                continue
            name = names.get(variable.removeprefix(PREFIX))
            if name is None:
                self.problems += _misspelt(variable, names)
            else:
                self._take(name, text, SourcePlace(variable))

    def read_flags(self, flags: Mapping[str, object]) -> None:
        """Read flags by name; one that is None or an empty list was not given."""
        for flag, given in flags.items():
            place = SourcePlace("--" + flag.replace("_", "-"))
            name = self._aliases.get(flag, flag)
            if given is None or given in ([], ()):
                continue
            if name in self._table:
                self._take(name, given, place)
            else:
                self.problems.append(place.problem(unknown_key(flag, [*self._aliases, *self._table])))

    def _flat(self, root: Block) -> Iterator[tuple[str, YamlEntry]]:
        """Yield every known entry with its dotted name."""
        for entry in root.entries:
            if entry.key in self._sections:
                yield from self._inside(entry)
            elif entry.key in self._table and "." not in entry.key:
                yield entry.key, entry
            else:
                top = (*(name for name in self._table if "." not in name), *self._sections)
                self.problems.append(entry.place.problem(unknown_key(entry.key, top)))

    def _inside(self, section: YamlEntry) -> Iterator[tuple[str, YamlEntry]]:
        if isinstance(section.value, Scalar) and section.value.value is None:
            return
        if not isinstance(section.value, Block):
            text = f"expected the settings of {section.key!r}"
            self.problems.append(section.value.place.problem(text))
            return
        for entry in section.value.entries:
            name = f"{section.key}.{entry.key}"
            if name in self._table:
                yield name, entry
            else:
                known = [leaf(name) for name in self._table if name.startswith(f"{section.key}.")]
                self.problems.append(entry.place.problem(unknown_key(entry.key, known)))

    def _parsed_entry(self, name: str, entry: YamlEntry) -> object | None:
        """Parse a value; faults in a list of mappings are told of each of them, at its own place."""
        if isinstance(entry.value, Items) and any(isinstance(item, Block) for item in entry.value.items):
            before = len(self.problems)
            for item in entry.value.items:
                self._parsed(name, [plain(item)], item.place)
            if len(self.problems) > before:
                return None
            self.problems += _twice(name, entry.value)
        return self._parsed(name, plain(entry.value), _item_place(entry.value))

    def _take(self, name: str, given: object, place: SourcePlace) -> None:
        typed = from_text(self._table[name].type, given) if isinstance(given, str) else given
        value = self._parsed(name, typed, place)
        if value is not None:
            self.found[name] = SetValue(value, place)

    def _parsed(self, name: str, value: object, place: SourcePlace) -> object | None:
        try:
            return self._table[name].type.parse(value)
        except ValueError as error:
            self.problems.append(place.problem(f"{leaf(name)}: {error}"))
            return None


def sections(table: Mapping[str, Field]) -> tuple[str, ...]:
    """List the sections of a file: the settings in them have dots in their names."""
    return tuple(dict.fromkeys(name.partition(".")[0] for name in table if "." in name))


def leaf(name: str) -> str:
    """Take a setting's name within its section."""
    return name.rpartition(".")[2]


def _twice(name: str, items: Items) -> Iterator[Problem]:
    """Find items of a list that have the name of one above."""
    seen: set[object] = set()
    for item in items.items:
        given = plain(item)
        assert isinstance(given, dict)
        key = given.get("name") or str(given.get("names") or "") or tuple(map(given.get, _KEYS))
        if key in seen:
            text = "another one has this name" if "name" in given else "the same one stands above"
            yield item.place.problem(f"{name}: {text}")
        seen.add(key)


def _item_place(node: Node) -> SourcePlace:
    """Choose the place of a fault: of a list of one item, that item's."""
    return node.items[0].place if isinstance(node, Items) and len(node.items) == 1 else node.place


def _misspelt(variable: str, names: Mapping[str, str]) -> list[Problem]:
    """Refuse a near miss only: orchestrators add variables such as SLUICE_SERVICE_PORT of their own."""
    close = get_close_matches(variable.removeprefix(PREFIX), names, n=1, cutoff=0.8)
    return [
        SourcePlace(variable).problem(f"unknown variable (did you mean '{PREFIX}{name}'?)") for name in close
    ]
