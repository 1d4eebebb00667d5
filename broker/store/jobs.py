"""The jobs of a store's threads beside the journal's: files, the reserve, checkpoints, streams and copies."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from broker.store.checkpoint import Taken, write
from broker.store.directory import Directory
from broker.store.faults import SyncFault, described, is_lack_of_room
from broker.store.files import JournalFiles
from broker.store.journal import Journal
from broker.store.maintenance import MaintenanceThread
from broker.store.pagefile import PageFile
from broker.store.reserve import Reserve
from broker.store.streamlogs import StreamLogs

log = logging.getLogger("sluice.store")


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a job: a file was ``prepared``, a checkpoint ``taken``, messages appended to ``streams``, or
    (none of these) the reserve restocked. ``fault`` is why it could not be.
    """

    prepared: int = 0
    taken: Taken | None = None
    streams: bool = False
    fault: Exception | None = None


class StoreJobs:
    """Jobs that a store's owner asks for. When the bell rings it takes what came of them (``next_done``).

    The keeper's thread does one after the other, so that none changes the page file or takes journal files
    away while another reads them; ``append_to_streams`` alone is done on the streams' thread. Once something
    has failed for another reason than a lack of room, the store is ``halted``: nothing on disk is touched.
    A file is prepared, the reserve restocked and messages appended once at a time: until the owner has seen
    what came of it, it isn't asked for again.
    """

    def __init__(
        self,
        journal: Journal,
        files: JournalFiles,
        pages: PageFile,
        directory: Directory,
        streams: StreamLogs,
        reserve: Reserve,
        first_file: int,
    ) -> None:
        self.halted = False
        self._journal = journal
        self._files = files
        self._pages = pages
        self._directory = directory
        self._streams = streams
        self._reserve = reserve
        self._done: deque[Done] = deque()
        self._preparing = self._restocking = self._appending = False
        self._unreservable = False
        # Of a lazy journal, the first file that may have writes without a sync.
        self._unsynced_from = first_file
        self._keeper = MaintenanceThread("sluice-keeper", "the store", journal.bell)

    # --- for the owner's thread

    def ask(self, job: Callable[[], None]) -> None:
        """Have a job done on the keeper's thread. It tells of its own faults."""
        self._keeper.ask(job)

    def prepare_file(self, number: int, urgent: bool) -> None:
        """Have a journal file made and given to the journal."""
        if not self._preparing:
            self._preparing = True
            self._keeper.ask(lambda: self._prepare_file(number, urgent))

    def restock(self) -> None:
        """Have room reserved for when there is none."""
        if not self._restocking:
            self._restocking = True
            self._keeper.ask(self._restock)

    def make_checkpoint(self, taken: Taken) -> None:
        """Have a checkpoint written whose groups are all in the journal."""
        self._keeper.ask(lambda: self._make_checkpoint(taken))

    def sync_closed(self) -> None:
        """Have a lazy journal's closed files synced."""
        self._keeper.ask(self._sync_closed)

    def append_to_streams(self) -> None:
        """Have appended to streams what was handed over to them."""
        if not self._appending:
            self._appending = True
            self._streams.ask(self._append_to_streams, self._journal.bell)

    def next_done(self) -> Done | None:
        """Return what came of the next job that has ended, None where there is none."""
        if not self._done:
            return None
        done = self._done.popleft()
        if done.prepared:
            self._preparing = False
        elif done.streams:
            self._appending = False
        elif done.taken is None:
            self._restocking = False
        return done

    def stop(self) -> None:
        """Finish what the keeper was asked for."""
        self._keeper.stop()

    # --- on the keeper's thread, or once that has stopped

    def sync_journal(self) -> None:
        """Have all that a lazy journal wrote on disk. SyncFault."""
        upto = self._journal.written
        if not self._journal.lazy or upto == self._journal.synced:
            return
        # Writes that end from now on are in this file or in later ones.
        current, _ = self._journal.place()
        for number in range(self._unsynced_from, current + 1):
            try:
                self._files.sync(number)
            except OSError as fault:
                raise SyncFault(f"sync of {self._files.path(number)}: {fault.strerror}") from fault
        self._unsynced_from = max(self._unsynced_from, current)
        self._journal.declare_synced(upto)

    def _prepare_file(self, number: int, urgent: bool) -> None:
        if self.halted:
            return
        try:
            fd = self._reserve.prepare_file(number, urgent)
        except Exception as fault:  # noqa: BLE001 - whatever it is, the owner judges it
            self._end(Done(prepared=number, fault=fault))
        else:
            self._journal.provide(number, fd)
            self._end(Done(prepared=number))

    def _restock(self) -> None:
        if self.halted:
            return
        lacking: Exception | None = None
        if self._journal.full:
            # A write that waits for room has whatever there is.
            self._reserve.give_up()
        try:
            if not self._journal.full:
                self._reserve.restock()
        except OSError as fault:
            if is_lack_of_room(fault):
                lacking = fault
            elif not self._unreservable:
                self._unreservable = True
                what = described(fault)
                log.warning("%s: no room can be reserved for a full disk: %s", self._files.directory, what)
        self._end(Done(fault=lacking))

    def _make_checkpoint(self, taken: Taken) -> None:
        if self.halted or self._journal.fault:
            return
        try:
            # The directory will say what the journal said until then.
            self.sync_journal()
            write(taken, self._files, self._pages, self._directory, self._streams)
        except Exception as fault:  # noqa: BLE001 - whatever it is, the owner judges it
            self._end(Done(taken=taken, fault=fault))
            return
        for number in taken.files:
            self._journal.retire(number)
            self._files.retire(number)
        self._end(Done(taken=taken))
        self._streams.discard(taken.gone_shelves)
        self._restock()

    def _sync_closed(self) -> None:
        if self.halted or self._journal.fault:
            return
        try:
            self.sync_journal()
        except SyncFault as fault:
            self._end(Done(fault=fault))

    # --- on the streams' thread

    def _append_to_streams(self) -> None:
        if self.halted:
            return
        try:
            self._streams.append()
        except Exception as fault:  # noqa: BLE001 - whatever it is, the owner judges it
            self._end(Done(streams=True, fault=fault))
        else:
            self._end(Done(streams=True))

    # --- on either

    def _end(self, done: Done) -> None:
        if done.fault is not None and not is_lack_of_room(done.fault):
            self.halted = True
        self._done.append(done)
