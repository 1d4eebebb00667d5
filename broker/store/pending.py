"""The changes of a store that only its journal has, until a checkpoint writes them into the directory."""

from __future__ import annotations

from broker.store.checkpoint import GonePage, Taken, take
from broker.store.directory import PageRow
from broker.store.logs import DiskQueueLog, Shelves
from broker.store.replay import Replayed
from broker.store.streamlogs import StreamLogs


class PendingChanges:
    """Changes since the last checkpoint, for the owner's thread.

    ``notes`` are those that changed, ``removed`` the queue logs that were removed, ``removed_ids`` numbers of
    streams that were, and of all that was removed before the start. Logs in ``shelves`` and streams know by
    themselves that they changed; ``store.touched`` has those of which pages did.
    """

    def __init__(
        self, store: Shelves, shelves: dict[int, DiskQueueLog], streams: StreamLogs, found: Replayed
    ) -> None:
        self.notes = dict(found.changed_notes)
        self.removed: list[DiskQueueLog] = []
        self.removed_ids = list(found.gone_shelves)
        self._gone_pages = [GonePage(page.shelf, page.first, page.place) for page in found.gone_pages]
        self._store = store
        self._shelves = shelves
        self._streams = streams

    def has_any(self) -> bool:
        """Return whether a checkpoint would write anything, or let a page go; rows of streams don't count."""
        return bool(self._store.touched or self.removed or self.removed_ids or self.notes or self._gone_pages)

    def take(self, taken: Taken) -> None:
        """Move all of it into the picture of a checkpoint."""
        for shelf in self.removed:
            taken.gone_pages += [
                GonePage(shelf.id, extent.first, extent.place)
                for extent in shelf.extents
                if extent.place is not None
            ]
        take(self._shelves.values(), taken)
        self._streams.take(taken.shelves)
        taken.gone_pages += self._gone_pages
        taken.gone_shelves = self.removed_ids + [shelf.id for shelf in self.removed]
        taken.notes, self.notes = self.notes, {}
        self.removed, self.removed_ids, self._gone_pages = [], [], []
        self._store.touched = set()

    def put_back(self, taken: Taken) -> None:
        """Take back what a checkpoint could not write: all it was to say is still to be said."""
        self.notes = taken.notes | self.notes
        self.removed_ids += taken.gone_shelves
        self._streams.put_back(taken.shelves)
        for row in taken.shelves:
            if row.id in self._shelves:
                self._shelves[row.id].changed = True
        known = {shelf.id: shelf for shelf in (*self._shelves.values(), *self.removed)}
        pages: list[PageRow | GonePage] = [*taken.pages, *taken.gone_pages]
        for page in pages:
            holder = known[page.shelf].extent_from(page.first) if page.shelf in known else None
            if holder is not None:
                # The log has it still: it says so the next time, or all of its pages go with it.
                holder.changed = True
                self._store.touched.add(known[page.shelf])
            elif isinstance(page, GonePage):
                self._gone_pages.append(page)
