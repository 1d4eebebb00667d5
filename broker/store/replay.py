"""From the files on disk to what a broker had when it stopped, or to the place where they are damaged.

How the journal is read, from the oldest file that is needed:

1. In a file, groups are read one behind the other; after the last one of a write the next begins on
   the next block. Their numbers rise by one, over all files.
2. Where no sound group follows, the file ends: either nothing more was written, or the last write
   was cut short. Neither had been confirmed.
3. It is damage instead, and refused, if anything behind that place says that the missing group had
   been synced: a later group or mark, a later file, or the note of an orderly stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from broker.store.directory import Directory, Meta, PageRow, QueueLogRow
from broker.store.faults import DamagedStore
from broker.store.files import BLOCK_BYTES, JournalFiles
from broker.store.journal import GroupFound, group_at
from broker.store.records import (
    DEFINE,
    FORGET,
    MESSAGE,
    NOTE,
    REMOVE,
    STREAM,
    UPDATE,
    DamagedRecord,
    Record,
    read,
)

# The first bytes of a group's head.
MAGIC = b"SLUICEGR"

Progress = Callable[[int, int], None]
Message = tuple[int, int, int, int, bytes]


@dataclass(slots=True)
class Found:
    """One shelf as replay found it.

    ``messages``: by number, (file, flags, delivery count, expiry, data); ``gone``: by number, the size
    of what left a page. Of a stream, ``messages`` have the times at which they came for expiries.
    """

    row: QueueLogRow
    pages: list[PageRow]
    gone: dict[int, int] = field(default_factory=dict)
    updates: dict[int, tuple[int, int]] = field(default_factory=dict)
    messages: dict[int, tuple[int, int, int, int, bytes]] = field(default_factory=dict)
    last_seq: int = 0
    definition: bytes = b""
    changed: bool = False


@dataclass(slots=True)
class Replayed:
    """All of it. ``first_groups``: the number of the first group in each journal file."""

    meta: Meta
    shelves: dict[int, Found]
    gone_shelves: list[int]
    gone_pages: list[PageRow]
    notes: dict[str, bytes]
    changed_notes: dict[str, bytes]
    last_group: int
    first_groups: dict[int, int]
    records: int = 0
    next_shelf: int = 1

    @property
    def clean(self) -> bool:
        """Whether the broker had stopped in order."""
        return self.meta.clean_group == self.last_group


def replay(directory: Directory, files: JournalFiles, progress: Progress | None = None) -> Replayed:
    """Read it all. DamagedStore where something is missing that had been confirmed."""
    meta = directory.meta()
    directory.check()
    shelves = {
        row.id: Found(row, [], last_seq=row.last_seq, definition=row.definition)
        for row in directory.shelves()
    }
    for page in directory.pages():
        found = shelves.get(page.shelf)
        if found is None:
            raise DamagedStore(directory.path, 0, f"a page belongs to shelf {page.shelf}, which is not there")
        found.pages.append(page)
        found.updates |= {seq: (flags, count) for seq, flags, count in page.updates}
    state = Replayed(meta, shelves, [], [], directory.notes(), {}, meta.first_group - 1, {})
    state.next_shelf = meta.next_shelf
    numbers = [number for number in files.numbers() if number >= meta.oldest]
    if not numbers and meta.runs:
        raise DamagedStore(files.path(meta.oldest), 0, "this journal file is missing")
    for done, number in enumerate(numbers):
        if number != meta.oldest + done:
            raise DamagedStore(files.path(meta.oldest + done), 0, "this journal file is missing")
        _file(state, files, number)
        if progress is not None:
            progress(done + 1, len(numbers))
    if meta.clean_group > state.last_group:
        end = files.path(numbers[-1]) if numbers else files.path(meta.oldest)
        what = f"group {meta.clean_group}, the last one when the broker stopped in order, is missing"
        raise DamagedStore(end, 0, what)
    return state


def _file(state: Replayed, files: JournalFiles, number: int) -> None:
    data = files.read(number)
    state.first_groups[number] = state.last_group + 1
    at = BLOCK_BYTES
    while (group := group_at(data, at, number)) is not None and group.end >= 0:
        if group.mark:
            if group.number != state.last_group:
                raise _missing(state, files.path(number), at, group.number)
            at = _next_block(at + 1)
            continue
        if group.number != state.last_group + 1:
            if group.synced > state.last_group:
                raise _missing(state, files.path(number), at, group.synced)
            # Written beside one that was cut short, and as unconfirmed as that.
            break
        try:
            _apply(state, number, read(data, group.start, group.end))
        except (ValueError, DamagedRecord) as fault:
            # Its checksums are right, so this is what was written, by something else than a broker.
            what = f"group {group.number} can't be read ({fault})"
            raise DamagedStore(files.path(number), at, what) from fault
        state.last_group = group.number
        at = _next_block(group.end) if group.is_last else group.end
    _end_of_file(state, files.path(number), data, number, at)


def is_unwritten(files: JournalFiles, number: int) -> bool:
    """Whether nothing in a file bears its number but its head: it may be written as if it had just been
    made. The rest of a write that was cut short could be taken for what is written now.
    """
    data = files.read(number)
    at = data.find(MAGIC, BLOCK_BYTES)
    while at >= 0:
        if group_at(data, at, number) is not None:
            return False
        at = data.find(MAGIC, at + 1)
    return True


def _end_of_file(state: Replayed, path: Path, data: bytes, number: int, at: int) -> None:
    """Nothing sound stands at ``at``: whatever stands behind it must not say that it had been there."""
    place = _next_block(at)
    while place < len(data):
        later = group_at(data, place, number)
        if later is not None and later.synced > state.last_group:
            raise _missing(state, path, at, later.synced)
        place += BLOCK_BYTES


def _missing(state: Replayed, path: Path, at: int, confirmed: int) -> DamagedStore:
    lost = state.last_group + 1
    what = f"group {lost} is missing or damaged, and groups up to {confirmed} had been confirmed"
    return DamagedStore(path, at, what)


def _apply(state: Replayed, file: int, records: list[Record]) -> None:
    for record in records:
        kind, shelf = record[0], record[1]
        state.records += 1
        if kind == NOTE:
            key, value = named(record[6])
            state.notes[key] = state.changed_notes[key] = value
        elif kind == DEFINE:
            _define(state, shelf, record[6])
        elif kind == REMOVE:
            _remove(state, shelf)
        elif shelf in state.shelves:
            _message(state.shelves[shelf], file, record)


def _message(found: Found, file: int, record: Record) -> None:
    kind, _, seq, flags, count, expires_ms, payload = record
    if kind in (MESSAGE, STREAM):
        found.messages[seq] = (file, flags, count, expires_ms, payload)
        found.last_seq = max(found.last_seq, seq)
        found.changed = True
    elif kind == FORGET:
        found.updates.pop(seq, None)
        if found.messages.pop(seq, None) is None:
            found.gone[seq] = expires_ms
    elif kind == UPDATE:
        found.updates[seq] = (flags, count)


def _define(state: Replayed, shelf: int, payload: bytes) -> None:
    name, definition = named(payload)
    found = state.shelves.get(shelf)
    if found is None:
        found = state.shelves[shelf] = Found(QueueLogRow(shelf, name, definition, 0), [])
    found.definition = definition
    found.changed = True
    state.next_shelf = max(state.next_shelf, shelf + 1)


def _remove(state: Replayed, shelf: int) -> None:
    found = state.shelves.pop(shelf, None)
    if found is not None:
        state.gone_shelves.append(shelf)
        state.gone_pages += found.pages


def name_and(key: str, value: bytes) -> bytes:
    """The payload of a record that names something."""
    raw = key.encode()
    return len(raw).to_bytes(2, "little") + raw + value


def named(payload: bytes) -> tuple[str, bytes]:
    """The name in such a payload, and what is said of it."""
    end = 2 + int.from_bytes(payload[:2], "little")
    return payload[2:end].decode(), payload[end:]


def _next_block(at: int) -> int:
    return -(-at // BLOCK_BYTES) * BLOCK_BYTES


__all__ = ["Found", "GroupFound", "Replayed", "is_unwritten", "name_and", "named", "replay"]
