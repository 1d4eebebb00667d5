"""Stands between the socket and Proton: a frame that breaks the rules of a session never reaches it.

Proton answers every such frame by closing the connection, and lets some through: a handle in use, a
channel in use, a transfer against a link's direction. AMQP 1.0 §2.8.17 asks for the end of the session
alone. So each frame is looked at before Proton sees it. In place of one that breaks a rule Proton is
told what a peer would say who meant to give up what is to end (an `end`, a `detach`); the control plane
then says with which error. What the peer still sends to a session that was ended is dropped.

A transfer costs a few comparisons: its session's window, its handle, and its delivery-id. A frame is
let through once its first bytes are there, one that controls once all of it is; until then they are kept here.

Every frame but a plain transfer has a cost. When those of one read come to more than a turn should do for one
peer, the rest of what was read is kept here as well, and ``more`` is set: nobody has to wait for it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Size
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from libc.stdint cimport uint8_t, uint32_t

from broker.codec.bounds cimport walk

cdef enum:
    OPEN = 0x10
    BEGIN = 0x11
    ATTACH = 0x12
    FLOW = 0x13
    TRANSFER = 0x14
    DISPOSITION = 0x15
    DETACH = 0x16
    END = 0x17
    CLOSE = 0x18
    # What must be there of a transfer, flow or disposition: the fields that are looked at fit.
    HEAD = 120
    # The least of a frame that is looked at by the shortcut: its fields are within.
    PLAIN = 28
    # A transfer's field that may be true without a difference here.
    BATCHABLE = 10
    # And of the frames that control; a longer one is judged by its first bytes.
    MOST_KEPT = 4096
    # Handles up to here stand in an array, others in a dict.
    NEAR = 1024
    LONGEST_TAG = 32
    # Least of a frame below which a piece of a message costs something: whole messages are paid for by credit.
    SMALL_PIECE = 512
    # Deliveries that one disposition speaks of at a time.
    AT_ONCE = 1024
    # What the control plane does for each, in microseconds; an attach takes more with what it carries.
    OPEN_COST = 200
    BEGIN_COST = 100
    ATTACH_COST = 250
    DETACH_COST = 80

cdef enum:
    UNATTACHED = 0
    SENDS = 1  # the peer sends
    RECEIVES = 2
    STOLEN = 3  # Proton knows the handle no more, the peer has yet to confirm
    ERRANT = 4  # detached by us with an error, and confirmed

# What Proton is told where a session is to end.
cdef bytes AN_END = b"\x00\x53\x17\x45"
cdef bytes AN_OPEN = b"\x00\x53\x10\xc0\x03\x01\xa1\x00"


cdef class GuardedSession:
    """One session, by the channel its peer sends on."""

    def __cinit__(self):
        self.far = {}
        self.links = {}
        self.names = {}
        self.under_way = {}
        self.offered = {}
        self.wronged = set()
        self.refused = set()
        self.gone = set()
        self.second = set()

    def __dealloc__(self):
        free(self.handles)

    cdef int state_of(self, uint32_t handle):
        if handle < self.reach:
            return self.handles[handle]
        if handle < NEAR:
            return UNATTACHED
        return self.far.get(handle, UNATTACHED)

    cdef object set_state(self, uint32_t handle, int state):
        cdef uint8_t *grown
        cdef long reach
        if handle >= NEAR:
            if state == UNATTACHED or state == ERRANT:
                self.far.pop(handle, None)
            else:
                self.far[handle] = state
            return
        if handle >= self.reach:
            reach = 16 if handle < 16 else NEAR
            grown = <uint8_t *>calloc(reach, 1)
            if grown == NULL:
                raise MemoryError()
            if self.reach > 0:
                memcpy(grown, self.handles, self.reach)
            free(self.handles)
            self.handles = grown
            self.reach = reach
        self.handles[handle] = state

    cdef object free_handle(self, uint32_t handle):
        """The peer has detached: the handle may name another link."""
        if len(self.gone) < NEAR:
            self.gone.add(handle)
        self.offered.pop(handle, None)
        key = self.links.pop(handle, None)
        self.under_way.pop(handle, None)
        if key is not None and self.names.get(key) == handle:
            del self.names[key]
        if key in self.wronged:
            self.wronged.discard(key)
            self.refused.discard(key)
            self.set_state(handle, ERRANT)
        else:
            self.set_state(handle, UNATTACHED)


cdef class FrameGuard:
    """One connection's incoming frames.

    ``ended`` says with which error a channel's session is to end, ``stolen`` which links are detached
    because another took their name, as (channel, name, whether the peer sends), ``odd`` which came
    with a source or target of an unknown type, ``sourceless`` which the peer sends on without a source; ``fault`` is the error to close with. Among the ``pieces``, a
    tuple (name, condition, text) stands where a sender's link is to be detached with an error.
    ``echo``: a flow asked for a link's state; ``session_echoes``: the channels whose flow asked for the
    session's. ``rare`` keeps begin frames for whoever counts along.
    """

    def __cinit__(self):
        self.skip = 8  # the protocol header
        self.channels = []
        self.rare = []
        self.pieces = []
        self.session_echoes = []
        self.ended = {}
        self.stolen = set()
        self.odd = set()
        self.sourceless = set()
        self.over = set()
        self.most_cost = 1 << 60
        self.first_frame = self.most_frame = 1 << 32
        self.most_elements = 1 << 32
        self.most_depth = 32
        self.most_channels = 1 << 16
        self.most_refused = 1 << 32
        self.limit = ""

    def bound(self, long first_frame, long most_frame, int most_channels, int most_depth, long most_elements,
              long most_refused):
        """What a frame may be: its size before an open and after, its channel, and what is in one that controls.
        And how many links that were refused the peer may still hold.
        """
        self.first_frame = first_frame
        self.most_frame = most_frame
        self.most_channels = most_channels
        self.most_depth = most_depth
        self.most_elements = most_elements
        self.most_refused = most_refused

    def transfer_count(self, int channel):
        """Transfer frames seen on a channel since its session began."""
        cdef GuardedSession session = self.channel_at(channel)
        return 0 if session is None else session.seen

    def position(self):
        """How many bytes of the frame under way are still to come, or what there is of its first bytes."""
        return self.skip + self.behind, b"" if self.kept is None else self.kept

    def allow(self, int channel, unsigned long transfers):
        """The peer has been told that it may send so many transfers in all (§2.5.6)."""
        cdef GuardedSession session = self.channel_at(channel)
        if session is not None:
            session.allowed = <uint32_t>transfers

    def window_left(self, int channel):
        """How many transfers the peer may still send on a channel before it is told of more."""
        cdef GuardedSession session = self.channel_at(channel)
        return 0 if session is None else <int>(session.allowed - session.seen)

    def wrong(self, int channel, str name, bint peer_sends, bint refused):
        """We detach a link with an error, or ``refused`` it: what comes on it behind the peer's own detach
        is errant.
        """
        cdef GuardedSession session = self.channel_at(channel)
        key = (name.encode(), not peer_sends)
        if session is not None and key in session.names:
            session.wronged.add(key)
            if refused:
                session.refused.add(key)

    def has_wronged(self):
        """Whether we have detached a link with an error, or refused one, and the peer has yet to confirm."""
        cdef GuardedSession session
        for session in self.channels:
            if session is not None and session.wronged:
                return True
        return False

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

    cdef long filter(self, const uint8_t *start, long size) except -2:
        """How many of the bytes Proton may take as they are; -1: it gets ``pieces`` instead."""
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
                code = performative(at, offset, whole)
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
        """Proton gets what came up to here, then what there is instead of the frame."""
        self.pieces.append(run[:at - run])
        if self.instead is not None:
            self.pieces.extend(self.instead)
            self.instead = None

    cdef bint is_bounded(self, const uint8_t *at, const uint8_t *end) noexcept:
        cdef long elements = self.most_elements
        return walk(at, end, self.most_depth, &elements) != NULL

    cdef GuardedSession channel_at(self, int channel):
        if 0 <= channel < len(self.channels):
            return self.channels[channel]
        return None

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

    # --- one frame each; `left` of its bytes are there

    cdef bint check(self, int code, int channel, const uint8_t *frame, long offset, long whole, long left) except -1:
        """Whether Proton may have the frame as it is; if not, ``instead`` is what it gets."""
        cdef GuardedSession session
        if code == TRANSFER:
            session = self.channel_at(channel)
            if session is None:
                return True
            self.busy = session
            self.busy_channel = channel
            return self.on_transfer(session, channel, frame, offset, whole, left)
        if not self.opened:
            if code != OPEN and code != CLOSE:
                return self.fail("amqp:not-allowed", "a connection begins with an open frame")
            return code != OPEN or self.on_open(channel, frame, offset, left)
        if code == OPEN:
            return self.fail("amqp:not-allowed", "the connection is open already")
        if code == CLOSE:
            return True
        if code == BEGIN and channel >= self.most_channels:
            self.limit = "max_sessions"
            return self.fail("amqp:connection:framing-error",
                             f"channel {channel}; there are {self.most_channels} at most")
        if code == BEGIN or code == END:
            self.busy = None
            self.cost += BEGIN_COST
        if code == BEGIN:
            self.over.discard(channel)
            return self.on_begin(channel, frame, offset, left)
        session = self.channel_at(channel)
        if session is None:
            # Some clients still say something of a session that they have ended (rhea: a flow).
            return channel not in self.over or (code != FLOW and code != DISPOSITION and code != DETACH)
        if code == END:
            self.over.add(channel)
            self.channels[channel] = None
            return not session.ended
        if session.ended:
            return False
        if code == FLOW:
            self.cost += 1
            return self.on_flow(session, channel, frame, offset, left)
        if code == DISPOSITION:
            return self.on_disposition(session, channel, frame, offset, whole, left)
        if code == ATTACH:
            # A selector of 8,000 characters takes some milliseconds.
            self.cost += ATTACH_COST + (whole >> 1)
            return self.on_attach(session, channel, frame, offset, whole, left)
        if code == DETACH:
            self.cost += DETACH_COST
            return self.on_detach(session, channel, frame, offset, left)
        return True

    cdef bint on_transfer(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long whole,
                            long left) except -1:
        cdef Fields fields
        cdef uint32_t handle = 0, id = 0, format = 0
        cdef int state, has_id, settled, more
        cdef bint resumed = False, aborted = False, second = False
        cdef bint has_handle, has_tag, has_format
        cdef const uint8_t *tag
        cdef long tag_bytes
        if session.ended:
            return False
        begin_fields(&fields, frame, offset, left)
        has_handle = next_uint(&fields, &handle)
        has_id = next_uint(&fields, &id)
        tag = fields.at
        tag_bytes = tag_size(tag, &fields)
        has_tag = fields.count > 0 and tag < fields.end and (tag[0] == 0xA0 or tag[0] == 0xB0)
        skip_field(&fields)
        has_format = next_uint(&fields, &format)
        settled = next_bool(&fields)
        more = next_bool(&fields)
        if fields.count > 0:
            second = settles_second(&fields)
            if fields.count > 1:
                skip_field(&fields)
                resumed = next_bool(&fields) == 1
                aborted = next_bool(&fields) == 1
        if not has_handle:
            return self.end(channel, "amqp:invalid-field", "a transfer needs a handle")
        if <int>(session.allowed - session.seen) <= 0:
            return self.end(channel, "amqp:session:window-violation",
                            f"more than the {session.allowed} transfers the session's window allowed so far")
        state = session.state_of(handle)
        if state != SENDS:
            if state == UNATTACHED:
                return self.end(channel, "amqp:session:unattached-handle", f"a transfer on handle {handle}")
            if state == RECEIVES:
                return self.end(channel, "amqp:not-allowed",
                                f"a transfer on handle {handle}, whose link its sender receives on")
            return self.end(channel, "amqp:session:errant-link",
                            f"a transfer on handle {handle}, whose link was detached with an error")
        if second and handle not in session.second:
            return self.end(channel, "amqp:invalid-field",
                            f"rcv-settle-mode second on handle {handle}, whose link settles first")
        if (has_id and id == session.next_id and session.numbered and more <= 0 and not session.under_way
                and not resumed and has_tag and tag_bytes <= LONGEST_TAG):
            session.next_id += 1
            session.seen += 1
            return True
        return self.on_piece(session, channel, frame, tag - frame, tag_bytes, whole, handle, has_id, id, has_tag,
                             format if has_format else None, settled == 1, settled == 0, more == 1 and not aborted,
                             resumed and not aborted)

    cdef bint on_piece(self, GuardedSession session, int channel, const uint8_t *frame, long before, long tag_bytes,
                       long whole, uint32_t handle, bint has_id, uint32_t id, bint has_tag, object format,
                       bint settled, bint unsettled, bint more, bint resumed) except -1:
        """A transfer that isn't a whole message of its own, or the first of its session."""
        cdef long extra, listed
        if more and whole < SMALL_PIECE:
            # Two take about a microsecond.
            self.cost += session.seen & 1
        begun = session.under_way.get(handle)
        if begun is not None:
            if has_id and id != <uint32_t>begun[0]:
                return self.end(channel, "amqp:invalid-field",
                                f"delivery-id {id} while delivery {begun[0]} of the link is incomplete")
            if unsettled and begun[1]:
                return self.end(channel, "amqp:invalid-field", f"delivery {begun[0]} was settled already")
            if format is not None and begun[3] is not None and format != begun[3]:
                return self.end(channel, "amqp:invalid-field",
                                f"message-format {format} in delivery {begun[0]}, which began with {begun[3]}")
            session.seen += 1
            if more:
                if settled and not begun[1]:
                    session.under_way[handle] = (begun[0], True, begun[2], begun[3])
                return True
            del session.under_way[handle]
            return self.ignore(channel, handle, begun[0]) if begun[2] else True
        if not has_id:
            return self.end(channel, "amqp:invalid-field", "a delivery's first transfer needs a delivery-id")
        if not has_tag:
            return self.end(channel, "amqp:invalid-field", "a delivery's first transfer needs a delivery-tag")
        if session.numbered and id != session.next_id:
            return self.end(channel, "amqp:invalid-field",
                            f"delivery-id {id} where {session.next_id} is the next")
        session.numbered = True
        session.next_id = id + 1
        session.seen += 1
        if more:
            session.under_way[handle] = (id, settled, resumed, format)
        elif resumed:
            return self.ignore(channel, handle, id)
        if tag_bytes <= LONGEST_TAG:
            return True
        extra = tag_bytes + (2 if frame[before] == 0xA0 else 5) - 2
        listed = frame[4] * 4 + (3 if frame[frame[4] * 4 + 1] == 0x53 else 10)
        listed = frame[listed + 1] if frame[listed] == 0xC0 else frame_size(frame + listed + 1)
        if before + extra + 2 > whole or extra >= listed:
            return True  # its sizes contradict each other: Proton says what is wrong
        # The link is detached; but Proton must count the delivery, so it gets it with an empty tag.
        name = session.links[handle][0].decode()
        fault = (name, "amqp:invalid-field", f"a delivery-tag of {tag_bytes} bytes; the most is {LONGEST_TAG}")
        self.instead = [fault, shortened(frame, before, extra, whole)]
        self.skip = before + extra + 2
        self.behind = whole - self.skip
        return False

    cdef bint ignore(self, int channel, uint32_t handle, uint32_t id) except -1:
        """A resumed delivery: none is left of a link that is gone, and such are to be ignored (§2.7.5)."""
        numbers = b"\x70" + handle.to_bytes(4, "big") + b"\x70" + id.to_bytes(4, "big")
        self.instead = [framed(channel, b"\x00\x53\x14\xc0\x14\x0a" + numbers + b"\xa0\x00\x43\x40\x42\x40\x40\x40\x41")]
        return False

    def offered(self, int channel, str name):
        """How many messages the peer last said it has for a link it sends on; 0 if it never did."""
        cdef GuardedSession session = self.channel_at(channel)
        if session is None:
            return 0
        return session.offered.get(session.names.get((name.encode(), False)), 0)

    cdef bint on_flow(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long left) except -1:
        cdef Fields fields
        cdef uint32_t handle = 0, available = 0
        cdef int state, has_handle
        cdef const uint8_t *first
        cdef long size
        begin_fields(&fields, frame, offset, left)
        first = fields.at
        skip_field(&fields)
        if not are_uints(&fields, 3):
            return self.end(channel, "amqp:invalid-field",
                            "a flow needs incoming-window, next-outgoing-id and outgoing-window")
        size = fields.at - first
        has_handle = next_uint(&fields, &handle)
        skip_field(&fields)
        skip_field(&fields)
        if next_uint(&fields, &available) and has_handle and session.state_of(handle) == SENDS:
            session.offered[handle] = available
        skip_field(&fields)
        if next_bool(&fields) == 1:
            if has_handle:
                self.echo = True
            else:
                self.session_echoes.append(channel)
        if not has_handle:
            return True
        state = session.state_of(handle)
        if state == SENDS or state == RECEIVES:
            return True
        if state == STOLEN:
            if size > 100:
                return self.end(channel, "amqp:invalid-field", "a flow whose windows are no numbers")
            # What it says of the session still counts.
            self.instead = [framed(channel, b"\x00\x53\x13\xc0" + bytes((size + 1, 4)) + first[:size])]
            return False
        if handle in session.gone:
            # go-amqp asks for a link's state, or gives it credit, after its own detach.
            return False
        return self.end(channel, "amqp:session:unattached-handle", f"a flow for handle {handle}")

    cdef bint on_disposition(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long whole,
                             long left) except -1:
        cdef Fields fields
        cdef uint32_t first = 0, last = 0
        cdef const uint8_t *start
        cdef long count, listed
        # An outcome that carries much is looked at for each delivery.
        cdef long each = 1 + (whole >> 6)
        cdef int receives
        begin_fields(&fields, frame, offset, left)
        start = fields.at
        listed = fields.count
        receives = next_bool(&fields)
        count = fields.at - start
        if not next_uint(&fields, &first):
            return self.end(channel, "amqp:invalid-field", "a disposition without its first delivery-id")
        if not next_uint(&fields, &last):
            self.cost += each
            return True
        if <int>(last - first) < 0:
            return self.end(channel, "amqp:invalid-field", f"a disposition from {first} back to {last}")
        if <long><uint32_t>(last - first) * each < AT_ONCE or left < whole or listed < 3:
            # What is settled is paid for by its messages; this is for what is spoken of again and again.
            self.cost += 1 + ((1 + <long><uint32_t>(last - first)) * each >> 3)
            return True
        self.instead = []
        return self.split(session, channel, frame[offset:start - frame], frame[start - frame:start - frame + count],
                          frame[fields.at - frame:whole], listed, receives == 1, first, last, each)

    cdef bint split(self, GuardedSession session, int channel, bytes before, bytes role, bytes rest, long listed,
                    bint receives, uint32_t first, uint32_t last, long each) except -1:
        """Of a range of deliveries Proton gets a part at a time, and nothing of what can't be there."""
        cdef uint32_t behind = session.next_id, oldest
        cdef uint32_t until
        cdef long sent
        cdef bint numbered = session.numbered
        if receives:
            # Proton numbers from 0, and no delivery takes less than a frame.
            sent = self.sent_on(channel) if self.sent_on is not None else -1
            if sent >= 0:
                numbered = sent > 0
                behind = <uint32_t>sent
                oldest = behind - <uint32_t>min(sent, 0x7FFFFFFF)
                if <int>(first - oldest) < 0:
                    first = oldest
            else:
                numbered = True
                behind = last + 1
        if <int>(last - behind) >= 0:
            last = behind - 1
        if not numbered or <int>(last - first) < 0:
            return False
        until = first + <uint32_t>max(AT_ONCE // each, 1) - 1
        if <int>(until - last) >= 0:
            until = last
        else:
            self.ahead = disposed(channel, before, role, rest, listed, until + 1, last)
        self.cost += 1 + ((1 + <long><uint32_t>(until - first)) * each >> 3)
        self.instead = [disposed(channel, before, role, rest, listed, first, until)]
        return False

    cdef bint on_open(self, int channel, const uint8_t *frame, long offset, long left) except -1:
        cdef Fields fields
        if channel != 0:
            return self.fail("amqp:connection:framing-error", f"an open on channel {channel}; it belongs on channel 0")
        begin_fields(&fields, frame, offset, left)
        if next_text(&fields) is None:
            return self.fail("amqp:decode-error", "an open needs a container-id")
        self.opened = True
        self.cost += OPEN_COST
        return True

    cdef bint on_begin(self, int channel, const uint8_t *frame, long offset, long left) except -1:
        cdef Fields fields
        begin_fields(&fields, frame, offset, left)
        if fields.count > 0 and fields.at < fields.end and fields.at[0] != 0x40:
            return self.fail("amqp:not-allowed", "an answer to a begin that was never sent")
        skip_field(&fields)
        if not are_uints(&fields, 3):
            return self.fail("amqp:decode-error",
                             "a begin needs next-outgoing-id, incoming-window and outgoing-window")
        if self.channel_at(channel) is not None:
            return self.fail("amqp:not-allowed", f"channel {channel} has a session already")
        while len(self.channels) <= channel:
            self.channels.append(None)
        self.channels[channel] = GuardedSession()
        self.rare.append(frame[:left])
        return True

    cdef bint holds_too_many(self):
        """Whether the peer attaches on and on, and lets go of nothing that it was refused."""
        cdef GuardedSession session
        cdef long count = 0
        for session in self.channels:
            if session is not None:
                count += len(session.refused)
        return count > self.most_refused

    cdef bint on_attach(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long whole,
                        long left) except -1:
        cdef Fields fields
        cdef uint32_t handle = 0, old
        cdef int receives
        cdef bint second
        if session.refused and self.holds_too_many():
            self.limit = "max_links"
            return self.fail("amqp:resource-limit-exceeded", f"{self.most_refused} links were refused and not detached")
        begin_fields(&fields, frame, offset, left)
        name = next_text(&fields)
        if name is None or not next_uint(&fields, &handle):
            if fields.bad and left == whole:
                return self.fail("amqp:decode-error", "an attach that can't be decoded")
            return self.end(channel, "amqp:invalid-field", "an attach needs a handle, and a name of 4000 bytes at most")
        try:
            text = name.decode()
        except UnicodeDecodeError:
            return self.end(channel, "amqp:decode-error", "a link's name that is not UTF-8")
        receives = next_bool(&fields)
        skip_field(&fields)
        second = settles_second(&fields)
        if session.state_of(handle) in (SENDS, RECEIVES, STOLEN):
            return self.end(channel, "amqp:session:handle-in-use", f"handle {handle} has a link already")
        self.note_termini(&fields, (channel, text, receives != 1))
        key = (name, receives == 1)
        # A link that was refused stays until the peer confirms; some attach again before they do.
        if key in session.names:
            old = session.names[key]
            session.set_state(old, STOLEN)
            session.under_way.pop(old, None)
            session.wronged.discard(key)
            session.refused.discard(key)
            self.stolen.add((channel, text, receives != 1))
            self.instead = [framed(channel, b"\x00\x53\x16\xc0\x07\x02\x70" + old.to_bytes(4, "big") + b"\x41")]
            session.links.pop(old, None)
        session.names[key] = handle
        session.links[handle] = key
        if second:
            session.second.add(handle)
        else:
            session.second.discard(handle)
        session.set_state(handle, RECEIVES if receives == 1 else SENDS)
        if self.instead is None:
            return True
        # Proton gets the detach first, and the frame behind it as it is.
        self.behind = self.skip
        self.skip = 0
        return False

    cdef object note_termini(self, Fields *fields, tuple link):
        """Proton takes a source or target of any type for one it knows, and a source without an address for none."""
        cdef const uint8_t *at = fields.at
        cdef int source, target
        skip_field(fields)
        source = -1 if fields.at == at else terminus_code(at, fields.end)
        at = fields.at
        skip_field(fields)
        target = -1 if fields.at == at else terminus_code(at, fields.end)
        if source not in (-1, 0x28) or target not in (-1, 0x29, 0x30):
            self.odd.add(link)
        if source == -1 and link[2]:
            self.sourceless.add(link)

    cdef bint on_detach(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long left) except -1:
        cdef Fields fields
        cdef uint32_t handle = 0
        cdef int state
        begin_fields(&fields, frame, offset, left)
        next_uint(&fields, &handle)
        state = session.state_of(handle)
        if state == STOLEN:
            session.set_state(handle, UNATTACHED)
            return False
        if state == SENDS or state == RECEIVES:
            session.free_handle(handle)
            return True
        if handle in session.gone:
            # fe2o3-amqp answers a refused attach twice: for its own reading of it and for our detach.
            return False
        return self.end(channel, "amqp:session:unattached-handle", f"a detach of handle {handle}")

    # --- what follows from a breach

    cdef bint end(self, int channel, str condition, str text) except -1:
        """The session ends with an error; false, for the frame is not Proton's."""
        cdef GuardedSession session = self.channels[channel]
        session.ended = True
        self.ended[channel] = (condition, text)
        self.instead = [framed(channel, AN_END)]
        return False

    cdef bint fail(self, str condition, str text) except -1:
        """The connection closes with an error; false, for the frame is not Proton's."""
        self.fault = (condition, text)
        if not self.opened:
            # Proton says no close before it has heard an open.
            self.opened = True
            self.instead = [framed(0, AN_OPEN)]
        return False


# --- fields of a performative


cdef inline void begin_fields(Fields *fields, const uint8_t *frame, long offset, long left) noexcept:
    cdef const uint8_t *at = frame + offset
    at += 3 if at[1] == 0x53 else 10
    fields.end = frame + left
    fields.bad = False
    fields.count = 0
    fields.at = at
    # What stands behind the list's own size is none of its fields, however many it says it has: Proton
    # takes nothing from there.
    if at + 3 <= fields.end and at[0] == 0xC0:
        fields.count = at[2]
        if at[1] + 2 < fields.end - at:
            fields.end = at + 2 + at[1]
        fields.at = at + 3
    elif at + 9 <= fields.end and at[0] == 0xD0:
        fields.count = frame_size(at + 5)
        if frame_size(at + 1) + 5 < fields.end - at:
            fields.end = at + 5 + frame_size(at + 1)
        fields.at = at + 9


cdef inline long value_size(const uint8_t *at, const uint8_t *end) noexcept:
    """How many bytes the value at ``at`` takes, its constructor included; -1 where that can't be seen."""
    cdef int kind = at[0] >> 4
    if kind == 4:
        return 1
    if kind >= 5 and kind <= 9:
        return 1 + (1 << (kind - 5))
    if kind == 0xA or kind == 0xC or kind == 0xE:
        return 2 + at[1] if at + 2 <= end else -1
    if kind == 0xB or kind == 0xD or kind == 0xF:
        return 5 + frame_size(at + 1) if at + 5 <= end else -1
    return described_size(at, end)


cdef long described_size(const uint8_t *at, const uint8_t *end) noexcept:
    cdef long descriptor, value
    if at[0] != 0 or at + 1 >= end or at[1] == 0:
        return -1
    descriptor = value_size(at + 1, end)
    if descriptor < 0 or at + 1 + descriptor >= end or at[1 + descriptor] == 0:
        return -1
    value = value_size(at + 1 + descriptor, end)
    return -1 if value < 0 else 1 + descriptor + value


cdef inline void skip_field(Fields *fields) noexcept:
    cdef long size
    if fields.count <= 0 or fields.bad or fields.at >= fields.end:
        fields.bad = fields.bad or fields.count > 0
        fields.count = 0
        return
    fields.count -= 1
    size = value_size(fields.at, fields.end)
    if size < 0 or size > fields.end - fields.at:
        # It reaches beyond what is there: what follows can't be seen.
        fields.bad = True
        return
    fields.at += size


cdef inline bint next_uint(Fields *fields, uint32_t *value) noexcept:
    """Whether the next field is there, and its number."""
    cdef const uint8_t *at = fields.at
    skip_field(fields)
    if fields.at == at or fields.bad:
        return False
    if at[0] == 0x43:
        value[0] = 0
    elif at[0] == 0x52:
        value[0] = at[1]
    elif at[0] == 0x70:
        value[0] = <uint32_t>frame_size(at + 1)
    else:
        return False
    return True


cdef bint are_uints(Fields *fields, int count) noexcept:
    """Whether the next fields are all there, and numbers."""
    cdef uint32_t value
    while count > 0:
        if not next_uint(fields, &value):
            return False
        count -= 1
    return True


cdef inline bint settles_second(Fields *fields) noexcept:
    """Whether the next field is there, a rcv-settle-mode, and `second`."""
    cdef const uint8_t *at = fields.at
    skip_field(fields)
    return fields.at != at and not fields.bad and at[0] == 0x50 and at[1] == 1


cdef inline int next_bool(Fields *fields) noexcept:
    """1, 0, or -1 for a field that is not there."""
    cdef const uint8_t *at = fields.at
    skip_field(fields)
    if fields.at == at or fields.bad:
        return -1
    if at[0] == 0x41 or (at[0] == 0x56 and at[1] == 1):
        return 1
    if at[0] == 0x42 or at[0] == 0x56:
        return 0
    return -1


cdef object next_text(Fields *fields):
    """The bytes of a string; None if there is none, or not all of it."""
    cdef const uint8_t *at = fields.at
    skip_field(fields)
    if fields.at == at or fields.bad:
        return None
    if at[0] == 0xA1:
        return at[2:fields.at - at]
    if at[0] == 0xB1:
        return at[5:fields.at - at]
    return None


cdef inline long tag_size(const uint8_t *tag, Fields *fields) noexcept:
    """The bytes of a delivery-tag, also of one that reaches beyond what is there; 0 for none."""
    if fields.count <= 0 or tag + 2 > fields.end:
        return 0
    if tag[0] == 0xA0:
        return tag[1]
    if tag[0] == 0xB0 and tag + 5 <= fields.end:
        return frame_size(tag + 1)
    return 0


cdef inline int terminus_code(const uint8_t *at, const uint8_t *end) noexcept:
    """A source's or target's descriptor; -1 for a null, or one that isn't a number."""
    if at + 3 > end or at[0] != 0:
        return -1
    if at[1] == 0x53:
        return at[2]
    if at[1] == 0x80 and at + 10 <= end:
        return at[9] if frame_size(at + 2) == 0 and (at[6] | at[7] | at[8]) == 0 else 0
    return -1


cdef bytes shortened(const uint8_t *frame, long before, long extra, long whole):
    """A frame's beginning up to its delivery-tag, the tag emptied, its sizes less ``extra``."""
    cdef bytearray head = bytearray(frame[:before])
    cdef long offset = frame[4] * 4
    cdef long at = offset + (3 if frame[offset + 1] == 0x53 else 10)
    head[0:4] = (whole - extra).to_bytes(4, "big")
    if head[at] == 0xC0:
        head[at + 1] = head[at + 1] - extra
    else:
        head[at + 1:at + 5] = (frame_size(frame + at + 1) - extra).to_bytes(4, "big")
    return bytes(head) + b"\xa0\x00"


cdef bytes disposed(int channel, bytes before, bytes role, bytes rest, long listed, uint32_t first, uint32_t last):
    """A disposition of other deliveries; ``before`` ends with its list's constructor, size and count."""
    cdef bytes fields = role + b"\x70" + first.to_bytes(4, "big") + b"\x70" + last.to_bytes(4, "big") + rest
    cdef bytes head = before[:3 if before[1] == 0x53 else 10]
    return framed(channel, head + b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + listed.to_bytes(4, "big") + fields)


cdef bytes framed(int channel, bytes performative):
    return (len(performative) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + performative


cdef inline long frame_size(const uint8_t *at) noexcept:
    return (<long>at[0] << 24) | (at[1] << 16) | (at[2] << 8) | at[3]


cdef inline int performative(const uint8_t *at, long offset, long whole) noexcept:
    """The performative's code; -1 for one that Proton is to judge."""
    if whole < offset + 4 or at[offset] != 0:
        return -1
    if at[offset + 1] == 0x53:
        return at[offset + 2]
    if at[offset + 1] == 0x80 and whole > offset + 10 and frame_size(at + offset + 2) == 0 and \
            at[offset + 6] == 0 and at[offset + 7] == 0 and at[offset + 8] == 0:
        return at[offset + 9]
    return -1
