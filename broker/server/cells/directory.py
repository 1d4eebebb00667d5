"""Which cell a node belongs to: a pure function of its name and of how many cells there are.

Rendezvous hashing (Thaler and Ravishankar, 1998): each cell has a weight for a name, and the largest wins.
One more cell takes its share from all others, and nothing moves between those.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from broker.manage.access import TEMPORARY

# `$cell/2/orders` is the node `orders` of cell 2, wherever its name belongs.
EXPLICIT = "$cell/"
READER_MARK = "::"
MOST_REMEMBERED = 10_000


class CellDirectory:
    """The directory of ``cells`` cells, numbered from 0, as the cell ``own`` asks it."""

    def __init__(self, own: int, cells: int) -> None:
        self.own = own
        self.cells = cells
        self._of_key = lru_cache(MOST_REMEMBERED)(lambda key: heaviest(key, cells))

    def cell_of(self, name: str) -> int:
        """Return the cell of a node's name; what is the broker's own is wherever it is asked for.

        A temporary node's name says where it was made.
        """
        if name.startswith(f"{TEMPORARY}/"):
            return _number(name.removeprefix(f"{TEMPORARY}/").partition(".")[0], self.cells, self.own)
        if name.startswith("$"):
            return self.own
        return self._of_key(key_of(name))

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
