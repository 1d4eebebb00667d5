"""Group commit: sealed groups go to preallocated files, and each write is synced before anybody hears of it.

Threads of its own run without the interpreter's lock. One takes every group that was sealed while the
last write was synced, writes them as one and syncs once; so the disk sets the pace and no timer adds to
it. Where a sync takes long, another write begins beside it. Files come from whoever prepares them
(``provide``); without one the writers wait. ``synced`` rises in order, whichever write ends first.

The head says what was synced when it was written: so whoever reads the files later can tell a last
write that was cut short from damage to what had been confirmed. A write begins on a block of 4096 bytes, so that a torn one can't reach what an earlier one synced.
Within it every group has a head of 64 bytes; the last one is marked.

A lazy journal writes in the same way and leaves the syncs to its owner: ``written`` rises as writes end,
``synced`` only as the owner says (``declare_synced``), and no head claims more than that. Without a sync
the disk may keep a later write and lose an earlier one; numbers that don't follow end what is read.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EDQUOT, EINTR, EIO, ENOMEM, ENOSPC, errno
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from broker.store.records cimport chained, checksum_at, next_record, padded, sluice_crc32c

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void *data, size_t size, long offset)
    int fdatasync(int fd)
    ssize_t c_write "write"(int fd, const void *data, size_t size)

BLOCK_BYTES = 4096
WRITERS = LANES
GROUP_HEAD_BYTES = 64
cdef enum:
    BLOCK = 4096
    HEAD = 64
    LAST_OF_WRITE = 1
    MARK = 2
    MOST_FILES = 1024
    # One write takes no more than this, however much has piled up, so that the first of it is told soon.
    WRITE_BYTES = 16 << 20
    RETRY_NS = 200000000
    # How long a write may take before another begins beside it.
    STAGGER_NS = 500000
    MARK_NS = 1000000000

cdef const char *MAGIC = b"SLUICEGR"


cdef long blocks(long size) noexcept nogil:
    return (size + BLOCK - 1) & ~<long>(BLOCK - 1)


cdef long now_ns() noexcept nogil:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return at.tv_sec * 1000000000 + at.tv_nsec


def group_bytes(long size):
    """What a group of so many bytes of records takes of a file at most."""
    return blocks(HEAD + padded(size))


cdef class Journal:
    """The writer. ``push`` and ``provide`` are for the thread that owns the store.

    ``written`` is the last group that was handed to the kernel with all before it, ``synced`` the last group
    on disk, the same unless it is ``lazy``; ``fault`` the errno that ended it (0 while it works),
    ``full`` the errno of a write it keeps trying because there is no room. ``bell`` is written to
    whenever one of them changed.
    """

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        # A clock that is set must not keep the writer waiting.
        cdef pthread_condattr_t attributes
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(&self.changed, &attributes)
        self.bell = -1

    def __init__(self, long run, long synced, long next_file, bint lazy=False):
        self.run = run
        self.lazy = lazy
        self.synced = synced
        self.written = synced
        self.file = next_file - 1
        self.file_base = next_file
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __dealloc__(self):
        cdef Group *group
        cdef int i
        while self.first != NULL:
            group = self.first
            self.first = group.next
            free(group.data)
            free(group)
        for i in range(LANES):
            free(self.lanes[i].scratch)
        if self.bell >= 0:
            os.close(self.bell)
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.mutex)

    def provide(self, long number, int fd):
        """The file of that number, the next in turn, is there to be written; its first block is its own."""
        pthread_mutex_lock(&self.mutex)
        if number == self.file_base + self.file_count and self.file_count < MOST_FILES:
            self.files[number % MOST_FILES] = fd
            self.file_count += 1
        pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    def retire(self, long number):
        """The file of that number is nobody's any more."""
        pthread_mutex_lock(&self.mutex)
        while self.file_base <= number and self.file_count > 0:
            self.file_base += 1
            self.file_count -= 1
        pthread_mutex_unlock(&self.mutex)

    def declare_synced(self, long group):
        """Every group up to this one is on disk; for whoever syncs the files of a lazy journal, any thread."""
        pthread_mutex_lock(&self.mutex)
        self.synced = max(self.synced, min(group, self.written))
        pthread_mutex_unlock(&self.mutex)

    def place(self):
        """The file that is written and how far all of it is on disk."""
        cdef Ticket *oldest
        pthread_mutex_lock(&self.mutex)
        place = (self.file, self.offset)
        if self.done_ticket < self.next_ticket:
            oldest = &self.tickets[self.done_ticket % TICKETS]
            place = (oldest.file, oldest.offset)
        pthread_mutex_unlock(&self.mutex)
        return place

    cdef object push(self, char *data, long size, long number, long records, long file, uint64_t chain):
        """A sealed group; its memory is ours from now on."""
        cdef Group *group = <Group *>malloc(sizeof(Group))
        if group == NULL:
            raise MemoryError()
        group.data = data
        group.size = size
        group.number = number
        group.records = records
        group.file = file
        group.chain = chain
        group.next = NULL
        pthread_mutex_lock(&self.mutex)
        if self.fault != 0:
            # Nobody will write it, and what is consumed in the meantime must not fill the memory.
            pthread_mutex_unlock(&self.mutex)
            free(data)
            free(group)
            return
        if self.last == NULL:
            self.first = group
        else:
            self.last.next = group
        self.last = group
        self.pending_bytes += size
        if self.idle > 0 and (self.writing == 0 or not self.staggering):
            pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    def run_until_stopped(self, int number):
        """One of the writer's threads, ``LANES`` in all."""
        cdef Lane *lane = &self.lanes[number]
        with nogil:
            self.loop(lane)

    def stop(self):
        """Leave once everything pushed is written, or at once where nothing can be."""
        pthread_mutex_lock(&self.mutex)
        self.stopping = True
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    def halt(self):
        """Begin no further write: something else of the store has failed."""
        pthread_mutex_lock(&self.mutex)
        if self.fault == 0:
            self.fault = EIO
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    cdef void loop(self, Lane *lane) noexcept nogil:
        cdef int fault
        while self.take(lane):
            fault = self.put(lane)
            while fault == ENOSPC or fault == EDQUOT:
                if not self.wait_for_room(fault):
                    return
                fault = self.put(lane)
            pthread_mutex_lock(&self.mutex)
            if fault != 0:
                # What is on disk now nobody knows: a sync that failed once may seem to work the next time.
                self.fault = fault
                pthread_cond_broadcast(&self.changed)
            else:
                self.finished(lane)
            pthread_mutex_unlock(&self.mutex)
            self.ring()
        # A fault that ``take`` met is to be seen, too.
        self.ring()

    cdef bint wait_for_room(self, int fault) noexcept nogil:
        """The disk is full: try again a little later; false to leave."""
        pthread_mutex_lock(&self.mutex)
        self.lacking += 1
        if self.full == 0:
            self.full = fault
            self.ring()
        self.wait(RETRY_NS)
        self.lacking -= 1
        pthread_mutex_unlock(&self.mutex)
        return not self.stopping and self.fault == 0

    cdef bint take(self, Lane *lane) noexcept nogil:
        """What this lane writes next, packed; false to leave.

        1. Where nothing is being written, all that waits is written at once.
        2. Where a write is under way for longer than ``STAGGER_NS``, the disk is slow: another begins
           beside it, so that nobody waits for two syncs.
        3. Where nothing comes for ``MARK_NS``, a mark says that the last group was synced.
        """
        cdef long waited
        pthread_mutex_lock(&self.mutex)
        while True:
            if self.fault != 0:
                break
            if self.first != NULL and self.first.file < self.file_base + self.file_count:
                waited = now_ns() - self.begun_ns
                if self.next_ticket - self.done_ticket >= TICKETS:
                    self.wait(STAGGER_NS)
                    continue
                if self.writing == 0 or waited >= STAGGER_NS:
                    if self.pack(lane):
                        pthread_mutex_unlock(&self.mutex)
                        return True
                    break
                if not self.staggering:
                    self.staggering = True
                    self.wait(STAGGER_NS - waited)
                    self.staggering = False
                    continue
            elif self.stopping:
                break
            if not self.wait(MARK_NS) and self.unmarked and self.writing == 0 and self.first == NULL:
                self.mark(lane)
                pthread_mutex_unlock(&self.mutex)
                return True
        pthread_mutex_unlock(&self.mutex)
        return False

    cdef Ticket *begin(self, Lane *lane, long size) noexcept nogil:
        """The lane has its place; the next one writes behind it."""
        cdef Ticket *ticket = &self.tickets[self.next_ticket % TICKETS]
        lane.size = size
        lane.file = ticket.file = self.file
        lane.offset = ticket.offset = self.offset
        lane.fd = self.files[self.file % MOST_FILES]
        lane.ticket = self.next_ticket
        lane.begun_ns = self.begun_ns = now_ns()
        ticket.done = False
        self.next_ticket += 1
        self.offset += size
        self.writing += 1
        return ticket

    cdef void finished(self, Lane *lane) noexcept nogil:
        """The lane's write is on disk; ``synced`` rises as far as no earlier one is still under way."""
        cdef long took = now_ns() - lane.begun_ns
        cdef Ticket *ticket = &self.tickets[lane.ticket % TICKETS]
        ticket.done = True
        self.writing -= 1
        self.writes += 1
        self.sync_ns += took
        self.last_ns = took
        self.slowest_ns = max(self.slowest_ns, took)
        # A mark says that the last group was synced.
        self.unmarked = ticket.last_group > 0 and not self.lazy
        if self.lacking == 0:
            self.full = 0
        while self.done_ticket < self.next_ticket:
            ticket = &self.tickets[self.done_ticket % TICKETS]
            if not ticket.done:
                return
            self.done_ticket += 1
            if ticket.last_group > 0:
                self.written = ticket.last_group
                if not self.lazy:
                    self.synced = ticket.last_group
                self.pending_bytes -= ticket.nbytes
                self.written_bytes += ticket.nbytes
                self.groups += ticket.groups

    cdef bint pack(self, Lane *lane) noexcept nogil:
        """Take all groups that wait for the same file, up to WRITE_BYTES, with their heads in one piece of
        memory padded to a block; false without memory.
        """
        cdef Group *group = self.first
        cdef GroupHead *head
        cdef Ticket *ticket
        cdef long size = 0, at = 0, nbytes = 0, count = 0
        while group != NULL and group.file == self.first.file and (count == 0 or nbytes + group.size <= WRITE_BYTES):
            size += HEAD + group.size
            nbytes += group.size
            count += 1
            group = group.next
        size = blocks(size)
        if not room(lane, size):
            self.fault = ENOMEM
            return False
        if self.first.file != self.file:
            self.file = self.first.file
            self.offset = BLOCK
        ticket = self.begin(lane, size)
        ticket.nbytes = nbytes
        ticket.groups = count
        while count > 0:
            group = self.first
            self.first = group.next
            count -= 1
            head = <GroupHead *>(lane.scratch + at)
            set_head(head, self.run, group.number, self.synced, group.file, LAST_OF_WRITE if count == 0 else 0)
            head.length = group.size
            head.records = group.records
            head.chain = group.chain
            head.checksum = sluice_crc32c(0, head, HEAD)
            memcpy(lane.scratch + at + HEAD, group.data, group.size)
            at += HEAD + group.size
            ticket.last_group = group.number
            free(group.data)
            free(group)
        if self.first == NULL:
            self.last = NULL
        memset(lane.scratch + at, 0, size - at)
        return True

    cdef void mark(self, Lane *lane) noexcept nogil:
        """Nothing has come for a while: say that the last group was synced, so that damage to it is seen."""
        cdef GroupHead head
        cdef Ticket *ticket
        self.unmarked = False
        if not room(lane, BLOCK):
            return
        set_head(&head, self.run, self.synced, self.synced, self.file, MARK | LAST_OF_WRITE)
        head.checksum = sluice_crc32c(0, &head, HEAD)
        memset(lane.scratch, 0, BLOCK)
        memcpy(lane.scratch, &head, HEAD)
        ticket = self.begin(lane, BLOCK)
        ticket.last_group = ticket.nbytes = ticket.groups = 0

    cdef int put(self, Lane *lane) noexcept nogil:
        """Write and, unless the journal is lazy, sync; 0 or an errno. Repeating it after ENOSPC writes the same bytes to the same place."""
        cdef long done = 0
        cdef ssize_t n
        while done < lane.size:
            n = pwrite(lane.fd, lane.scratch + done, lane.size - done, lane.offset + done)
            if n < 0:
                if errno == EINTR:
                    continue
                return errno
            if n == 0:
                return EIO
            done += n
        while not self.lazy and fdatasync(lane.fd) != 0:
            if errno == EINTR:
                # A signal came before it had an answer (NFS, FUSE): nothing is known to have failed.
                continue
            # Not a lack of room that may pass: what the kernel could not write it may have dropped.
            self.fault_at_sync = 1
            return errno if errno != ENOSPC and errno != EDQUOT else EIO
        return 0

    cdef void ring(self) noexcept nogil:
        cdef uint64_t one = 1
        c_write(self.bell, &one, 8)

    cdef bint wait(self, long ns) noexcept nogil:
        """Wait for ``changed``, with the mutex held; false if nothing came for so long."""
        cdef timespec until
        cdef int answer
        clock_gettime(CLOCK_MONOTONIC, &until)
        until.tv_nsec += ns
        until.tv_sec += until.tv_nsec // 1000000000
        until.tv_nsec %= 1000000000
        self.idle += 1
        answer = pthread_cond_timedwait(&self.changed, &self.mutex, &until)
        self.idle -= 1
        return answer == 0


cdef bint room(Lane *lane, long size) noexcept nogil:
    cdef char *grown
    if size > lane.scratch_bytes:
        grown = <char *>realloc(lane.scratch, size)
        if grown == NULL:
            return False
        lane.scratch = grown
        lane.scratch_bytes = size
    return True


cdef void set_head(GroupHead *head, long run, long group, long synced, long file, int flags) noexcept nogil:
    memset(head, 0, HEAD)
    memcpy(head.magic, MAGIC, 8)
    head.run = run
    head.group = group
    head.synced = synced
    head.file = file
    head.flags = flags


class GroupFound:
    """A group's head on disk. ``end`` is where its records end, -1 where they aren't what was written.

    ``synced`` is the last group that had been synced when this one was written; a ``mark`` has no
    records and bears the number of that group.
    """

    __slots__ = ("end", "is_last", "mark", "number", "start", "synced")

    def __init__(self, number, synced, start, end, is_last, mark):
        self.number = number
        self.synced = synced
        self.start = start
        self.end = end
        self.is_last = is_last
        self.mark = mark


def group_at(bytes data, long at, long file):
    """The group of this file whose head stands there; None if none does."""
    cdef const char *start = PyBytes_AS_STRING(data)
    cdef long size = PyBytes_GET_SIZE(data), position, following, end, records = 0
    cdef GroupHead head
    cdef uint32_t checksum
    cdef uint64_t chain = 0
    if at + HEAD > size or memcmp(start + at, MAGIC, 8) != 0:
        return None
    memcpy(&head, start + at, HEAD)
    checksum = head.checksum
    head.checksum = 0
    if sluice_crc32c(0, &head, HEAD) != checksum or head.file != file:
        return None
    position = at + HEAD
    # A length beyond all files would make a place before the group of it, and whoever reads on stand still.
    end = position + <long>head.length if head.length <= <uint64_t>size else size + 1
    if end <= size:
        while 0 <= position < end:
            following = next_record(start, position, end)
            if following >= 0:
                chain = chained(chain, checksum_at(start, position))
            position = following
            records += 1
    # Files are written more than once: what stands behind a torn write are sound records of an older one.
    if end > size or position < 0 or records != head.records or chain != head.chain:
        end = -1
    return GroupFound(head.group, head.synced, at + HEAD, end, bool(head.flags & LAST_OF_WRITE),
                      bool(head.flags & MARK))
