"""Stands between the socket and Proton: a frame that breaks the rules of a session never reaches it.

A transfer costs a few comparisons: its session's window, its handle, and its delivery-id. A frame is
let through once its first bytes are there, one that controls once all of it is; until then they are kept here.

Every frame but a plain transfer has a cost. When those of one read come to more than a turn should do for one
peer, the rest of what was read is kept here as well, and ``more`` is set: nobody has to wait for it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Size
from libc.string cimport memcpy
from libc.stdint cimport uint8_t, uint32_t

from broker.amqp.guard.performative cimport FLOW, LONGEST_TAG, TRANSFER, frame_size, performative_code
from broker.amqp.guard.session cimport SENDS, GuardedSession
from broker.codec.bounds cimport walk

cdef enum:
    # This much must be there of a transfer, flow or disposition: the fields that are looked at fit.
    HEAD = 120
    # The least of a frame that is looked at by the shortcut: its fields are within.
    PLAIN = 28
    # A transfer's field that may be true without a difference here.
    BATCHABLE = 10


cdef class FrameGuard(SessionRules):
    """One connection's incoming frames.

    Proton may have them as they came, or gets ``pieces`` instead; among these, a tuple (name, condition, text, whether the peer
    sends) stands where a link is to be detached with an error. ``lost``: Proton says what is wrong with them.
    """

    def __cinit__(self):
        self.skip = 8  # the protocol header
        self.pieces = []
        self.most_cost = 1 << 60
        self.first_frame = self.most_frame = 1 << 32
        self.most_elements = 1 << 32
        self.most_depth = 32

    def bound(self, long first_frame, long most_frame, int most_channels, int most_depth, long most_elements,
              long most_refused):
        """Set the limits: a frame's size before an open and after, its channel, its depth and values if it controls.

        ``most_refused``: how many links that were refused the peer may still hold.
        """
        self.first_frame = first_frame
        self.most_frame = most_frame
        self.most_channels = most_channels
        self.most_depth = most_depth
        self.most_elements = most_elements
        self.most_refused = most_refused

    def position(self):
        """How many bytes of the frame under way are still to come, or what there is of its first bytes."""
        return self.skip + self.behind, b"" if self.kept is None else self.kept

    # --- bytes that wait for the rest of their frame's beginning

    cdef long restore(self, uint8_t *into, long room):
        """Put what was kept in front of what is read next; -1 if there is no room for it."""
        cdef long size
        if self.kept is None:
            return 0
        size = PyBytes_GET_SIZE(self.kept)
        if size >= room:
            return -1
        memcpy(into, PyBytes_AS_STRING(self.kept), size)
        return size

    cdef object take_kept(self):
        """What was kept; it is read again now."""
        kept = self.kept
        self.kept = None
        return b"" if kept is None else kept

    # --- frames

    cdef long filter(self, const uint8_t *start, long size) except -2:
        """Return how many of the bytes Proton may take as they are; -1: it gets ``pieces`` instead."""
        cdef const uint8_t *at = start
        cdef const uint8_t *end = start + size
        # From here on Proton gets what came, as it came.
        cdef const uint8_t *run = start
        cdef long taken, whole, offset, wanted, left
        cdef int code, channel
        cdef bint cut = False
        while at < end and not self.lost:
            left = end - at
            if self.fault is not None:
                self.pieces.append(run[:at - run])
                return -1
            if self.skip > 0:
                taken = min(self.skip, left)
                self.skip -= taken
                if self.dropping:
                    self.pieces.append(run[:at - run])
                    cut = True
                    run = at + taken
                    if self.skip == 0:
                        self.dropping = False
                        self.skip = self.behind
                        self.behind = 0
                at += taken
                continue
            whole = self.plain_transfer(at, left)
            if whole > 0:
                self.skip = whole
                continue
            whole = frame_size(at) if left >= 8 else 8
            offset = at[4] * 4 if left >= 8 else 8
            if whole < 8 or offset < 8 or offset > whole:
                self.lost = True  # Proton says what is wrong with it
                break
            if left >= 8 and at[5] != 0:
                # Proton would take one of SASL's for its own layer's, which is not there.
                self.fail("amqp:connection:framing-error", f"a frame of type {at[5]}")
                self.cut_here(run, at)
                return -1
            if self.cost >= self.most_cost:
                self.kept = at[:left]
                self.more = True
                end = at
                break
            if left >= 8 and whole == offset:
                self.cost += 1
                self.skip = whole
                continue
            if whole > self.first_frame and left >= 8 and not self.opened:
                self.limit = "max_first_frame_size"
                self.fail("amqp:connection:framing-error",
                          f"a frame of {whole} bytes before the connection is open; the most is {self.first_frame}")
                self.cut_here(run, at)
                return -1
            wanted = min(whole, offset + HEAD)
            code = -1
            if left >= min(whole, offset + 10):
                code = performative_code(at, offset, whole)
                # A flow is looked at all of it: in part, whoever pads it could hide whose it is.
                if code != TRANSFER and whole <= self.most_frame and (code != FLOW or whole > wanted):
                    wanted = whole
            if left < 8 or left < wanted:
                self.kept = at[:left]
                end = at
                break
            if code < 0:
                self.skip = whole
                continue
            channel = (at[6] << 8) | at[7]
            self.skip = whole
            if code != TRANSFER and wanted == whole and not self.is_bounded(at + offset, at + whole):
                self.limit = "max_depth"
                self.fail("amqp:decode-error", f"a frame whose values are malformed, more than {self.most_elements}, "
                          f"or nested more than {self.most_depth} deep")
                self.cut_here(run, at)
                return -1
            if not self.check(code, channel, at, offset, whole, min(left, whole)):
                self.cost += 1
                self.cut_here(run, at)
                cut = True
                if self.ahead is not None:
                    # What is left of the frame is looked at next, before those behind it.
                    self.kept = self.ahead + at[whole:left]
                    self.ahead = None
                    self.more = True
                    self.skip = 0
                    return -1
                run = at
                # What of the frame Proton doesn't get is in `skip`, what it gets nevertheless in `behind`.
                self.dropping = self.skip > 0
                if not self.dropping:
                    self.skip = self.behind
                    self.behind = 0
        if not cut:
            return end - start
        if end > run:
            self.pieces.append(run[:end - run])
        return -1

    cdef object cut_here(self, const uint8_t *run, const uint8_t *at):
        """Give Proton the bytes up to here, then those that it gets instead of the frame."""
        self.pieces.append(run[:at - run])
        if self.instead is not None:
            self.pieces.extend(self.instead)
            self.instead = None

    cdef bint is_bounded(self, const uint8_t *at, const uint8_t *end) noexcept:
        cdef long elements = self.most_elements
        return walk(at, end, self.most_depth, &elements) != NULL

    cdef long plain_transfer(self, const uint8_t *at, long left) noexcept:
        """The size of a transfer as clients write most of them, where nothing is wrong with it; else 0.

        A whole message, of the session that the last transfer belonged to, in the encodings that take least
        room. Whatever is otherwise is left to ``check``: a shortcut of a fifth of what a frame costs (bench: plain).
        """
        cdef GuardedSession session = self.busy
        cdef const uint8_t *field
        cdef const uint8_t *end
        cdef long count
        cdef uint32_t handle, id
        if session is None or left < PLAIN or at[4] != 2 or at[5] != 0 or ((at[6] << 8) | at[7]) != self.busy_channel:
            return 0
        if at[8] != 0 or at[9] != 0x53 or at[10] != TRANSFER or at[11] != 0xC0:
            return 0
        end = at + 13 + at[12]
        if at[12] < 12 or end > at + left or 13 + at[12] > frame_size(at):
            return 0
        count = at[13] - 4
        field = at + 14
        if field[0] == 0x43:
            handle = 0
            field += 1
        elif field[0] == 0x52:
            handle = field[1]
            field += 2
        else:
            return 0
        if field[0] == 0x70:
            id = <uint32_t>frame_size(field + 1)
            field += 5
        elif field[0] == 0x52:
            id = field[1]
            field += 2
        else:
            return 0
        if field[0] != 0xA0 or field[1] > LONGEST_TAG:
            return 0
        field += 2 + field[1]
        if count < 0 or field >= end or (field[0] != 0x43 and field[0] != 0x40):
            return 0
        field += 1
        # Settled or not; and nothing behind it that isn't left out or false.
        while count > 0:
            if field >= end or (field[0] & 0xFC) != 0x40 or field[0] == 0x43:
                return 0
            if field[0] == 0x41 and count != at[13] - 4 and at[13] - count != BATCHABLE:
                return 0
            field += 1
            count -= 1
        if (field != end or handle >= session.reach or session.handles[handle] != SENDS or id != session.next_id
                or not session.numbered or session.ended or PyDict_Size(session.under_way) > 0
                or <int>(session.allowed - session.seen) <= 0):
            return 0
        session.next_id += 1
        session.seen += 1
        return frame_size(at)
