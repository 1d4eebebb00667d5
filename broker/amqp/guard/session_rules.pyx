"""The rules of sessions that each incoming frame is checked by.

Proton answers a breach of every such rule by closing the connection, and lets some through: a handle in use, a
channel in use, a transfer against a link's direction. AMQP 1.0 §2.8.17 asks for the end of the session
alone. In place of a frame that breaks a rule Proton is told what a peer would say who meant to give up what is to
end (an `end`, a `detach`); the control plane then says with which error. Frames that the peer still sends to a session
that was ended are dropped.
"""

from libc.stdint cimport uint8_t, uint32_t

from broker.amqp.guard.performative cimport *
from broker.amqp.guard.session cimport ERRANT, NEAR, RECEIVES, SENDS, STOLEN, UNATTACHED, GuardedSession

cdef enum:
    # Least of a frame below which a piece of a message costs something: whole messages are paid for by credit.
    SMALL_PIECE = 512
    # Deliveries that one disposition speaks of at a time.
    AT_ONCE = 1024
    # What the control plane does for each, in microseconds; an attach takes more with what it carries.
    OPEN_COST = 200
    BEGIN_COST = 100
    ATTACH_COST = 250
    DETACH_COST = 80

# Proton is told this where a session is to end.
cdef bytes AN_END = b"\x00\x53\x17\x45"
# Credit within a transaction (§4.4.3).
cdef str NO_ACQUISITION = "a flow with a txn-id: messages aren't acquired in transactions; give credit without one, " \
    "and name the transaction in the outcomes"
cdef bytes AN_OPEN = b"\x00\x53\x10\xc0\x03\x01\xa1\x00"


cdef class SessionRules:
    """The rules of one connection's sessions, and what its frames have come to by them.

    ``ended`` says with which error a channel's session is to end, ``stolen`` which links are detached
    because another took their name, as (channel, name, whether the peer sends), ``odd`` which came
    with a source or target of an unknown type, ``sourceless`` which the peer sends on without a source; ``fault`` is
    the error to close with. ``echo``: a flow asked for a link's state; ``session_echoes``: the channels whose flow
    asked for the session's. ``rare`` keeps begin frames for whoever counts along.
    """

    def __cinit__(self):
        self.channels = []
        self.rare = []
        self.session_echoes = []
        self.ended = {}
        self.stolen = set()
        self.odd = set()
        self.sourceless = set()
        self.over = set()
        self.most_channels = 1 << 16
        self.most_refused = 1 << 32
        self.limit = ""

    # --- for those who tell the peer, and ask what it said

    def transfer_count(self, int channel):
        """Transfer frames seen on a channel since its session began."""
        cdef GuardedSession session = self.channel_at(channel)
        return 0 if session is None else session.seen

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
        """Note that we detach a link with an error, or ``refused`` it.

        A transfer on its handle behind the peer's own detach is errant.
        """
        cdef GuardedSession session = self.channel_at(channel)
        key = (name.encode(), not peer_sends)
        if session is not None:
            session.wrong(key, refused)

    def has_wronged(self):
        """Whether we have detached a link with an error, or refused one, and the peer has yet to confirm."""
        cdef GuardedSession session
        for session in self.channels:
            if session is not None and session.wronged:
                return True
        return False

    def offered(self, int channel, str name):
        """How many messages the peer last said it has for a link it sends on; 0 if it never did."""
        cdef GuardedSession session = self.channel_at(channel)
        if session is None:
            return 0
        return session.offered.get(session.names.get((name.encode(), False)), 0)

    cdef GuardedSession channel_at(self, int channel):
        if 0 <= channel < len(self.channels):
            return self.channels[channel]
        return None

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
        """Check a transfer that isn't a whole message of its own, or the first of its session."""
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
        fault = (name, "amqp:invalid-field", f"a delivery-tag of {tag_bytes} bytes; the most is {LONGEST_TAG}", True)
        self.instead = [fault, shortened(frame, before, extra, whole)]
        self.skip = before + extra + 2
        self.behind = whole - self.skip
        return False

    cdef bint ignore(self, int channel, uint32_t handle, uint32_t id) except -1:
        """Make Proton ignore a resumed delivery, as of links that are gone none is left (§2.7.5)."""
        numbers = b"\x70" + handle.to_bytes(4, "big") + b"\x70" + id.to_bytes(4, "big")
        self.instead = [framed(channel, b"\x00\x53\x14\xc0\x14\x0a" + numbers + b"\xa0\x00\x43\x40\x42\x40\x40\x40\x41")]
        return False

    cdef bint on_flow(self, GuardedSession session, int channel, const uint8_t *frame, long offset, long left) except -1:
        cdef Fields fields
        cdef uint32_t handle = 0, available = 0
        cdef int state, has_handle
        cdef bint acquires
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
        acquires = state == RECEIVES and not fields.bad and fields.count > 0 and \
            has_entry(fields.at, fields.end, b"txn-id", 6)
        if state == SENDS or (state == RECEIVES and not acquires):
            return True
        if state == STOLEN or acquires:
            if size > 100:
                return self.end(channel, "amqp:invalid-field", "a flow whose windows are no numbers")
            # What it says of the session still counts.
            self.instead = [framed(channel, b"\x00\x53\x13\xc0" + bytes((size + 1, 4)) + first[:size])]
            if acquires:
                self.instead.append((session.links[handle][0].decode(), "amqp:not-implemented", NO_ACQUISITION, False))
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
            # Settling is paid for by messages; this is for deliveries that are spoken of again and again.
            self.cost += 1 + ((1 + <long><uint32_t>(last - first)) * each >> 3)
            return True
        self.instead = []
        return self.split(session, channel, frame[offset:start - frame], frame[start - frame:start - frame + count],
                          frame[fields.at - frame:whole], listed, receives == 1, first, last, each)

    cdef bint split(self, GuardedSession session, int channel, bytes before, bytes role, bytes rest, long listed,
                    bint receives, uint32_t first, uint32_t last, long each) except -1:
        """Give Proton a range of deliveries a part at a time, and none that can't be there."""
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
            old = session.steal(key)
            self.stolen.add((channel, text, receives != 1))
            self.instead = [framed(channel, b"\x00\x53\x16\xc0\x07\x02\x70" + old.to_bytes(4, "big") + b"\x41")]
        session.attach(handle, key, receives == 1, second)
        if self.instead is None:
            return True
        # Proton gets the detach first, and the frame behind it as it is.
        self.behind = self.skip
        self.skip = 0
        return False

    cdef object note_termini(self, Fields *fields, tuple link):
        """Note a source or target of an unknown type, and a missing source.

        Proton takes one of any type for one it knows, and a source without an address for none.
        """
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
        """End the session with an error; false, for the frame is not Proton's."""
        cdef GuardedSession session = self.channels[channel]
        session.ended = True
        self.ended[channel] = (condition, text)
        self.instead = [framed(channel, AN_END)]
        return False

    cdef bint fail(self, str condition, str text) except -1:
        """Close the connection with an error; false, for the frame is not Proton's."""
        self.fault = (condition, text)
        if not self.opened:
            # Proton says no close before it has heard an open.
            self.opened = True
            self.instead = [framed(0, AN_OPEN)]
        return False


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
