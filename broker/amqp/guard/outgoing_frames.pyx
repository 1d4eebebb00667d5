"""Follows the frames of one direction of a connection, the outgoing one, beside Proton.

Proton neither answers a peer that asked for an echo nor offers `available`; to
answer, one needs numbers it keeps to itself (transfer counts, channels, handles). They all stand in
the frames, so this file reads them there: a transfer costs a comparison and an increment, the few
begin, attach, detach and flow frames are kept whole in ``rare`` for Python to read.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from broker.amqp.guard.performative cimport ATTACH, BEGIN, DETACH, FLOW, TRANSFER, frame_size

cdef enum:
    # A rare frame larger than this is not kept; its link gets no answers.
    MOST_KEPT = 4096


cdef class OutgoingFrames:
    """One direction. ``lost`` once a frame couldn't be followed: the counts are no longer to be used."""

    def __cinit__(self):
        self.held = 0
        self.wanted = 0
        self.skip = 8  # the protocol header
        self.rare = []

    def __dealloc__(self):
        free(self.transfers)

    def transfer_count(self, int channel):
        """Transfer frames seen on a channel since its session began."""
        return self.transfers[channel] if 0 <= channel < self.reach else 0

    cdef object restart(self, int channel):
        """A session begins on a channel."""
        cdef uint32_t *grown
        cdef long reach
        if channel >= self.reach:
            reach = max(2 * self.reach, channel + 1, 4)
            grown = <uint32_t *>realloc(self.transfers, reach * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.reach, 0, (reach - self.reach) * sizeof(uint32_t))
            self.transfers = grown
            self.reach = reach
        self.transfers[channel] = 0

    def position(self):
        """How many bytes of the frame under way are still to come, or what there is of its first bytes."""
        return self.skip + self.wanted, (<const uint8_t *>self.prefix)[:self.held]

    cdef object follow(self, const uint8_t *at, long size):
        """Follow the next ``size`` bytes."""
        cdef long taken
        while size > 0 and not self.lost:
            if self.skip > 0:
                taken = min(self.skip, size)
                self.skip -= taken
            elif self.wanted > 0:
                taken = min(self.wanted, size)
                self.gathered.extend(at[:taken])
                self.wanted -= taken
                if self.wanted == 0:
                    self.rare.append(bytes(self.gathered))
            elif self.held == 0 and size >= PREFIX:
                taken = self.begin_frame(at, size)
            else:
                # Only where a read or write ends within a frame's first bytes.
                self.prefix[self.held] = at[0]
                self.held += 1
                taken = 1
                if self.held == PREFIX or (self.held >= 8 and self.held >= frame_size(self.prefix)):
                    self.held = 0
                    self.replay()
            at += taken
            size -= taken

    cdef object replay(self):
        """The prefix is complete: begin the frame with it, then go on behind it."""
        cdef long have = min(<long>PREFIX, frame_size(self.prefix)) if frame_size(self.prefix) >= 8 else PREFIX
        cdef long used = self.begin_frame(self.prefix, have)
        cdef long taken
        if self.wanted > 0 and used < have:
            taken = min(self.wanted, have - used)
            self.gathered.extend((<const uint8_t *>self.prefix)[used:used + taken])
            self.wanted -= taken
            if self.wanted == 0:
                self.rare.append(bytes(self.gathered))
        elif self.skip > 0:
            self.skip -= min(self.skip, have - used)

    cdef long begin_frame(self, const uint8_t *at, long size) except -1:
        """A frame starts at ``at``; how many of its bytes were used up by looking."""
        cdef long whole = frame_size(at)
        cdef long offset = at[4] * 4
        cdef int channel = (at[6] << 8) | at[7]
        cdef int code = 0
        if whole < 8 or offset < 8 or offset > whole:
            self.lost = True
            return size
        if at[5] == 0 and whole > offset:
            code = code_of(at, offset)
        if code < 0:
            self.lost = True
            return size
        if code == TRANSFER:
            if channel < self.reach:
                self.transfers[channel] += 1
        elif code == BEGIN or code == ATTACH or code == DETACH or code == FLOW:
            if code == BEGIN:
                self.restart(channel)
            if whole <= MOST_KEPT:
                self.gathered = bytearray()
                self.wanted = whole
                return 0
        self.skip = whole
        return 0


cdef inline int code_of(const uint8_t *at, long offset) noexcept:
    """Return the performative's code; -1 where it stands beyond the prefix or in a form not followed."""
    if offset + 10 > PREFIX or at[offset] != 0:
        return -1
    if at[offset + 1] == 0x53:
        return at[offset + 2]
    if at[offset + 1] == 0x80:
        return at[offset + 9]
    return -1
