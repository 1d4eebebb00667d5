"""Which cell a node belongs to: a pure function of its name and of the table that all cells share.

Of a name that stands in no table it is found by rendezvous hashing (Thaler and Ravishankar, 1998): each cell
has a weight for a name, and the largest wins. One more cell takes its share from all others, and nothing
moves between those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

from broker.config.patterns import Pattern, parse_pattern
from broker.errors import ConflictError, ElsewhereError, OperatorError
from broker.manage.access import TEMPORARY
from broker.server.cells.table import PlacementTable

# `$cell/2/orders` is the node `orders` of cell 2, wherever its name belongs.
EXPLICIT = "$cell/"
READER_MARK = "::"
MOST_REMEMBERED = 10_000


class CellDirectory:
    """The directory of ``cells`` cells, numbered from 0, as the cell ``own`` asks it.

    ``proposed`` is a table that may take the place of ``table``: until it is decided no node is made here
    that would belong elsewhere by either.
    """

    def __init__(self, own: int, cells: int, table: PlacementTable | None = None) -> None:
        self.own = own
        self.cells = cells
        self.proposed: PlacementTable | None = None
        self.take(table or PlacementTable(cells))

    def take(self, table: PlacementTable) -> None:
        """Find names by another table from now on."""
        self.table = table
        self.proposed = None
        patterns = [(parse_pattern(text), cell) for text, cell in table.patterns]
        self._of_key = lru_cache(MOST_REMEMBERED)(lambda key: place_of(table, patterns, key))

    def cell_of(self, name: str) -> int:
        """Return the cell of a node's name; what is the broker's own is wherever it is asked for.

        A temporary node's name says where it was made.
        """
        if name.startswith(f"{TEMPORARY}/"):
            return _number(name.removeprefix(f"{TEMPORARY}/").partition(".")[0], self.cells, self.own)
        if name.startswith("$"):
            return self.own
        return self._of_key(key_of(name))

    def elsewhere(self, name: str) -> OperatorError | None:
        """Return the error where no node of that name may be made here: it belongs to another cell."""
        cell = self.cell_of(name)
        if cell != self.own:
            return ElsewhereError(f"'{name}' belongs to cell {cell}, and this is cell {self.own}", cell)
        if self.proposed is not None and not name.startswith("$"):
            other = CellDirectory(self.own, self.cells, self.proposed).cell_of(name)
            if other != self.own:
                return ConflictError(f"'{name}' is about to belong to cell {other}: try again")
        return None

    def leaving(self, names: Iterable[str], proposed: PlacementTable) -> set[str]:
        """Return the keys of those names that are here by the table there is, and wouldn't be by another."""
        after = CellDirectory(self.own, self.cells, proposed)
        own = (each for each in names if not each.startswith("$") and self.cell_of(each) == self.own)
        return {key_of(each) for each in own if after.cell_of(each) != self.own}

    def split(self, address: str) -> tuple[int | None, str]:
        """Split an address that names its cell into that and the rest; (None, the address) for any other.

        ValueError where there is no such cell.
        """
        if not address.startswith(EXPLICIT):
            return None, address
        number, mark, rest = address.removeprefix(EXPLICIT).partition("/")
        cell = _number(number, self.cells, -1)
        if cell < 0 or not mark or not rest:
            raise ValueError(f"'{address}': expected {EXPLICIT}N/NAME with N from 0 to {self.cells - 1}")
        return cell, rest


def key_of(name: str) -> str:
    """Return the part of a name that is hashed: partitions and readers are where their stream is."""
    base = name.partition(READER_MARK)[0] or name
    stream, slash, number = base.rpartition("/")
    return stream if slash and stream and number.isascii() and number.isdecimal() else base


def place_of(table: PlacementTable, patterns: Sequence[tuple[Pattern, int]], key: str) -> int:
    """Return the cell of a key by a table, whose ``patterns`` are parsed."""
    named = table.names.get(key)
    if named is not None:
        return named.cell
    for pattern, cell in patterns:
        if pattern.matches(key):
            return heaviest(key, table.cells) if cell < 0 else cell
    return heaviest(key, table.cells)


def heaviest(key: str, cells: int) -> int:
    """Return the cell with the largest weight for a key; the same on every machine and in every version."""
    data = key.encode("utf-8", "surrogatepass")
    return max(range(cells), key=lambda cell: (_weight(data, cell), cell))


def _weight(data: bytes, cell: int) -> bytes:
    return blake2b(data, digest_size=8, key=cell.to_bytes(4, "big")).digest()


def _number(text: str, cells: int, otherwise: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6) or int(text) >= cells:
        return otherwise
    return int(text)
