"""A message's body followed piece by piece: where it begins, and whether its sections are whole.

What ``message.scan`` says of a message in memory, for one that is only passing through (AMQP 1.0 §3.2).
Nothing of the body is kept but the few bytes that don't yet tell how long a section is.
"""

from __future__ import annotations

from broker.codec.message import after_descriptor, is_typed, may_follow, section_code, value_end

# As ``message`` has them.
MALFORMED = -1
SHORT = -2

BODY_FIRST = 0x75
FOOTER = 0x78
# Bytes that may come without telling a section's length: a symbol for its descriptor and, in an
# amqp-value, descriptors of descriptors.
LONGEST_HEAD = 4096


def body_start(data: bytes) -> int:
    """Where the sections before the body end; SHORT if they are not all there, MALFORMED."""
    at = 0
    last = 0
    end = len(data)
    while at < end:
        code = code_at(data, at, end)
        if code < 0:
            return code
        if code >= BODY_FIRST:
            return at
        if not may_follow(last, code):
            return MALFORMED
        start = after_descriptor(data, at)
        if start >= end:
            return SHORT
        if not is_typed(code, data[start]):
            return MALFORMED
        at = value_end(data, start, end, 0)
        if at < 0:
            return at
        if at > end:
            return SHORT
        last = code
    return SHORT


class BodyScan:
    """A body's sections, in order and of their type, as its bytes come."""

    def __init__(self) -> None:
        self.last = 0
        self.skip = 0
        self.carry = b""

    def feed(self, data: bytes) -> bool:
        """The next bytes; false once they can't be a message's."""
        at = 0
        if self.carry:
            data = self.carry + data
            self.carry = b""
        end = len(data)
        while True:
            if self.skip >= end - at:
                self.skip -= end - at
                return True
            at += self.skip
            self.skip = 0
            following = self._section(data, at, end)
            if following == SHORT and end - at <= LONGEST_HEAD:
                self.carry = data[at:]
                return True
            if following < 0:
                return False
            self.skip = following - at

    def is_whole(self) -> bool:
        """Whether the last section ended with the last byte."""
        return self.skip == 0 and not self.carry and self.last > 0

    def _section(self, data: bytes, at: int, end: int) -> int:
        """Where the section at ``at`` ends, perhaps behind what is there."""
        code = code_at(data, at, end)
        if code < 0:
            return code
        if code < BODY_FIRST or code > FOOTER or not may_follow(self.last, code):
            return MALFORMED
        start = after_descriptor(data, at)
        if start >= end:
            return SHORT
        if not is_typed(code, data[start]):
            return MALFORMED
        following = value_end(data, start, end, 0)
        if following >= 0:
            self.last = code
        return following


def code_at(data: bytes, at: int, end: int) -> int:
    """The code of the section at ``at``; SHORT, MALFORMED."""
    left = end - at
    if data[at] != 0:
        return MALFORMED
    if left < 3:
        return SHORT
    if data[at + 1] == 0x80 and left < 10:
        return SHORT
    if data[at + 1] == 0xA3 and left < 3 + data[at + 2]:
        return SHORT
    code = section_code(data, at)
    return code if 0x70 <= code <= FOOTER else MALFORMED
