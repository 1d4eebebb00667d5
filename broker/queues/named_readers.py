"""Readers of a stream that have a name: how far each has come is kept, and the slowest may hold producers."""

from __future__ import annotations

# Of one stream: each has a note in the store, and is looked at when the slowest of them goes on.
MOST_READERS = 1000


class NamedReader:
    """One reader. Before ``committed`` it has dealt with every message; ``stored`` says the same as the disk
    has it, -1 while it was never told. ``link`` reads for it, None while nobody does.
    """

    def __init__(self, name: str, offset: int) -> None:
        self.name = name
        self.committed = offset
        self.stored = offset
        self.link: object = None


class NamedReaders:
    """The named readers of one stream. ``slowest`` is the least of what is stored, -1 without any reader."""

    def __init__(self) -> None:
        self.by_name: dict[str, NamedReader] = {}
        self.slowest = -1

    def add(self, name: str, offset: int) -> NamedReader:
        """Add a reader that begins at an offset."""
        found = self.by_name[name] = NamedReader(name, offset)
        self._measure()
        return found

    def remove(self, name: str) -> NamedReader:
        """Forget a reader. Raises KeyError."""
        found = self.by_name.pop(name)
        self._measure()
        return found

    def commit(self, reader: NamedReader, offset: int) -> bool:
        """A reader has dealt with all before an offset; false where it had before: no place goes back."""
        if offset <= reader.committed:
            return False
        reader.committed = offset
        return True

    def store(self, reader: NamedReader, offset: int) -> bool:
        """A committed offset is on disk, or will never be; true if the slowest reader's place changed."""
        if offset <= reader.stored or self.by_name.get(reader.name) is not reader:
            return False
        was_slowest = reader.stored == self.slowest
        reader.stored = offset
        if not was_slowest:
            return False
        before = self.slowest
        self._measure()
        return self.slowest != before

    def _measure(self) -> None:
        least = -1
        for each in self.by_name.values():
            if least < 0 or each.stored < least:
                least = each.stored
        self.slowest = least
