"""Group commit: sealed groups go to preallocated files, and each write is synced before anybody hears of it.

A thread of its own runs ``run`` without the interpreter's lock. It takes every group that was sealed
while the last write was synced, writes them as one and syncs once; so the disk sets the pace and no
timer adds to it. Files come from whoever prepares them (``provide``); without one the writer waits.

The head says what was synced when it was written: so whoever reads the files later can tell a last
write that was cut short from damage to what had been confirmed. A write begins on a block of 4096 bytes, so that a torn one can't reach what an earlier one synced.
Within it every group has a head of 64 bytes; the last one is marked.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EDQUOT, EINTR, EIO, ENOSPC, errno
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from broker.records cimport next_record, padded, sluice_crc32c

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void *data, size_t size, long offset)
    int fdatasync(int fd)
    ssize_t c_write "write"(int fd, const void *data, size_t size)

BLOCK_BYTES = 4096
GROUP_HEAD_BYTES = 64
cdef enum:
    BLOCK = 4096
    HEAD = 64
    LAST_OF_WRITE = 1
    MARK = 2
    MOST_FILES = 64
    # One write takes no more than this, however much has piled up, so that the first of it is told soon.
    WRITE_BYTES = 16 << 20
    RETRY_NS = 200000000
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

    ``synced`` is the last group on disk, ``fault`` the errno that ended it (0 while it works),
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

    def __init__(self, long run, long synced, long next_file):
        self.run = run
        self.synced = synced
        self.file = next_file - 1
        self.file_base = next_file
        self.scratch_bytes = 1 << 16
        self.scratch = <char *>malloc(self.scratch_bytes)
        if self.scratch == NULL:
            raise MemoryError()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __dealloc__(self):
        cdef Group *group
        while self.first != NULL:
            group = self.first
            self.first = group.next
            free(group.data)
            free(group)
        free(self.scratch)
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

    def place(self):
        """The file that is written and how far it is on disk."""
        pthread_mutex_lock(&self.mutex)
        place = (self.file, self.offset)
        pthread_mutex_unlock(&self.mutex)
        return place

    cdef object push(self, char *data, long size, long number, long records, long file):
        """A sealed group; its memory is ours from now on."""
        cdef Group *group = <Group *>malloc(sizeof(Group))
        if group == NULL:
            raise MemoryError()
        group.data = data
        group.size = size
        group.number = number
        group.records = records
        group.file = file
        group.next = NULL
        pthread_mutex_lock(&self.mutex)
        if self.last == NULL:
            self.first = group
        else:
            self.last.next = group
        self.last = group
        self.pending_bytes += size
        if self.waiting:
            pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    def run_until_stopped(self):
        """The writer's thread."""
        with nogil:
            self.loop()

    def stop(self):
        """Leave once everything pushed is written, or at once where nothing can be."""
        pthread_mutex_lock(&self.mutex)
        self.stopping = True
        pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    cdef void loop(self) noexcept nogil:
        cdef Group *first
        cdef long begun
        cdef int fault
        while True:
            first = self.take()
            if first == NULL:
                if self.stopping:
                    return
                fault = self.mark()
            else:
                begun = now_ns()
                fault = self.write(first)
                while fault == ENOSPC or fault == EDQUOT:
                    if self.full == 0:
                        self.full = fault
                        self.ring()
                    if self.stopping:
                        return
                    pthread_mutex_lock(&self.mutex)
                    self.wait(RETRY_NS)
                    pthread_mutex_unlock(&self.mutex)
                    begun = now_ns()
                    fault = self.write(first)
                if fault == 0:
                    self.finished(first, now_ns() - begun)
            if fault != 0:
                # What is on disk now nobody knows: a sync that failed once may seem to work the next time.
                self.fault = fault
                self.ring()
                return

    cdef void finished(self, Group *first, long took) noexcept nogil:
        cdef Group *group
        cdef long number = 0, size = 0, count = 0
        while first != NULL:
            group = first
            first = group.next
            number = group.number
            size += group.size
            count += 1
            free(group.data)
            free(group)
        pthread_mutex_lock(&self.mutex)
        self.pending_bytes -= size
        self.synced = number
        self.full = 0
        self.unmarked = True
        self.writes += 1
        self.groups += count
        self.written_bytes += size
        self.sync_ns += took
        self.last_ns = took
        self.slowest_ns = max(self.slowest_ns, took)
        pthread_mutex_unlock(&self.mutex)
        self.ring()

    cdef Group *take(self) noexcept nogil:
        """All groups that wait for the same file, up to WRITE_BYTES; NULL to leave, or to mark what is written."""
        cdef Group *first
        cdef Group *end
        cdef long size
        pthread_mutex_lock(&self.mutex)
        while self.first == NULL or self.first.file >= self.file_base + self.file_count:
            if self.stopping or (not self.wait(MARK_NS) and self.unmarked and self.first == NULL):
                pthread_mutex_unlock(&self.mutex)
                return NULL
        first = end = self.first
        size = end.size
        while end.next != NULL and end.next.file == first.file and size + end.next.size <= WRITE_BYTES:
            end = end.next
            size += end.size
        self.first = end.next
        if self.first == NULL:
            self.last = NULL
        end.next = NULL
        pthread_mutex_unlock(&self.mutex)
        return first

    cdef int write(self, Group *first) noexcept nogil:
        """Write and sync; 0 or an errno. Repeating it after ENOSPC writes the same bytes to the same place."""
        cdef long size
        if first.file != self.file:
            self.file = first.file
            self.offset = BLOCK
        size = self.pack(first)
        if size < 0:
            return ENOSPC
        return self.put(self.files[first.file % MOST_FILES], size)

    cdef int mark(self) noexcept nogil:
        """Nothing has come for a while: say that the last group was synced, so that damage to it is seen."""
        cdef GroupHead head
        self.unmarked = False
        set_head(&head, self.run, self.synced, self.synced, self.file, MARK | LAST_OF_WRITE)
        head.checksum = sluice_crc32c(0, &head, HEAD)
        memset(self.scratch, 0, BLOCK)
        memcpy(self.scratch, &head, HEAD)
        return self.put(self.files[self.file % MOST_FILES], BLOCK)

    cdef int put(self, int fd, long size) noexcept nogil:
        cdef long done = 0
        cdef ssize_t n
        while done < size:
            n = pwrite(fd, self.scratch + done, size - done, self.offset + done)
            if n < 0:
                if errno == EINTR:
                    continue
                return errno
            done += n
        if fdatasync(fd) != 0:
            # Not a lack of room that may pass: what the kernel could not write it may have dropped.
            self.fault_at_sync = 1
            return errno if errno != ENOSPC and errno != EDQUOT else EIO
        self.offset += size
        return 0

    cdef long pack(self, Group *first) noexcept nogil:
        """All groups with their heads in one piece of memory, padded to a block; -1 without memory."""
        cdef Group *group = first
        cdef GroupHead *head
        cdef long size = 0, at = 0
        cdef char *grown
        while group != NULL:
            size += HEAD + group.size
            group = group.next
        size = blocks(size)
        if size > self.scratch_bytes:
            grown = <char *>realloc(self.scratch, size)
            if grown == NULL:
                return -1
            self.scratch = grown
            self.scratch_bytes = size
        group = first
        while group != NULL:
            head = <GroupHead *>(self.scratch + at)
            set_head(head, self.run, group.number, self.synced, group.file,
                     LAST_OF_WRITE if group.next == NULL else 0)
            head.length = group.size
            head.records = group.records
            head.checksum = sluice_crc32c(0, head, HEAD)
            memcpy(self.scratch + at + HEAD, group.data, group.size)
            at += HEAD + group.size
            group = group.next
        memset(self.scratch + at, 0, size - at)
        return size

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
        self.waiting = True
        answer = pthread_cond_timedwait(&self.changed, &self.mutex, &until)
        self.waiting = False
        return answer == 0


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
    cdef long size = PyBytes_GET_SIZE(data), position, end, records = 0
    cdef GroupHead head
    cdef uint32_t checksum
    if at + HEAD > size or memcmp(start + at, MAGIC, 8) != 0:
        return None
    memcpy(&head, start + at, HEAD)
    checksum = head.checksum
    head.checksum = 0
    if sluice_crc32c(0, &head, HEAD) != checksum or head.file != file:
        return None
    position = at + HEAD
    end = position + <long>head.length
    if end <= size:
        while 0 <= position < end:
            position = next_record(start, position, end)
            records += 1
    if end > size or position < 0 or records != head.records:
        end = -1
    return GroupFound(head.group, head.synced, at + HEAD, end, bool(head.flags & LAST_OF_WRITE),
                      bool(head.flags & MARK))
