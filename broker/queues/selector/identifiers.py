"""The names by which a selector asks for a message's header and properties, and what each comes to.

Three families, as peers know them: JMS's own (JMS 2.0 §3.8.1.1), qpidd's ``amqp.`` names, which are the
specification's fields with ``_`` for ``-``, and Artemis's ``AMQ`` names. Any other name is an application
property's, those that JMS reserves for providers (``JMSX…``, ``JMS_…``) included.

Message-ids and correlation-ids may be strings, ulongs, uuids or binary (AMQP 1.0 §3.2.4), but a selector
knows only strings. Under ``amqp.`` an id is its text: decimal, uuid in lower case, binary in upper-case
hexadecimal. JMS clients show ids behind ``ID:``, and Qpid JMS tells those that are no strings by a second
prefix such as ``AMQP_UUID:``, where Artemis compares without it. So for the JMS names both the
message's id and the literal it is compared with are brought to one form: ``ID:`` and the text.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.codec.message import WantedFields, binary_at, value_at

if TYPE_CHECKING:
    from broker.queues.selector.condition import Value

    Read = Callable[[bytes, int], Value]

AMQP_PREFIX = "amqp."
ID_PREFIX = "ID:"
# What Qpid JMS puts behind ``ID:``, and how the text behind that reads.
_ENCODINGS: dict[str, Callable[[str], str]] = {
    "AMQP_STRING:": str,
    "AMQP_NO_PREFIX:": str,
    "AMQP_ULONG:": str,
    "AMQP_UUID:": str.lower,
    "AMQP_BINARY:": str.upper,
}
_HEADER = 0x70
_PROPERTIES = 0x73
# JMS counts the first delivery as well (§3.5.11), AMQP only those that failed (§3.2.1).
_FIRST_DELIVERY = 1
DEFAULT_PRIORITY = 4


@dataclass(frozen=True, slots=True)
class FieldName:
    """A field under one of its names: how to read it, and how to spell a literal as it spells its value."""

    section: int
    index: int
    read: Read
    form: Callable[[str], str] = str

    def slot(self, wanted: WantedFields) -> int:
        return wanted.field(self.section, self.index)


def _plain(data: bytes, at: int) -> Value:
    return value_at(data, at) if at >= 0 else None


def _text(data: bytes, at: int) -> Value:
    found = _plain(data, at)
    return found if isinstance(found, str) else None


def _number(data: bytes, at: int) -> Value:
    found = _plain(data, at)
    return found if type(found) is int else None


def _number_or(default: int) -> Read:
    def read(data: bytes, at: int) -> Value:
        found = _number(data, at)
        return default if found is None else found

    return read


def _flag(data: bytes, at: int) -> Value:
    return _plain(data, at) is True


def _worded(if_true: str, if_false: str) -> Read:
    def read(data: bytes, at: int) -> Value:
        return if_true if _flag(data, at) else if_false

    return read


_count = _number_or(0)


def _delivery(data: bytes, at: int) -> Value:
    return int(_count(data, at) or 0) + _FIRST_DELIVERY


def _redelivered(data: bytes, at: int) -> Value:
    return _count(data, at) != 0


def _user(data: bytes, at: int) -> Value:
    """The user-id, which is binary (§3.2.4), as the text it nearly always is."""
    raw = binary_at(data, at) if at >= 0 else None
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def _id(data: bytes, at: int) -> Value:
    """An id's text."""
    if at < 0:
        return None
    if data[at] == 0x98:
        return str(uuid.UUID(bytes=data[at + 1 : at + 17]))
    raw = binary_at(data, at)
    if raw is not None:
        return raw.hex().upper()
    found = value_at(data, at)
    return str(found) if isinstance(found, str) or type(found) is int else None


def _is_text(data: bytes, at: int) -> bool:
    return data[at] in (0xA1, 0xB1, 0xA3, 0xB3)


def message_id_form(text: str) -> str:
    """The one form of a JMSMessageID: ``ID:`` and the id's text, whatever prefixes it came with."""
    bare = text.removeprefix(ID_PREFIX)
    if bare.startswith("AMQP_"):
        prefix, colon, rest = bare.partition(":")
        spelled = _ENCODINGS.get(prefix + colon)
        bare = bare if spelled is None else spelled(rest)
    return ID_PREFIX + bare


def correlation_id_form(text: str) -> str:
    """As for a message-id if it is one; an application's own correlation string is left as it is."""
    return message_id_form(text) if text.startswith(ID_PREFIX) else text


def _message_id(data: bytes, at: int) -> Value:
    found = _id(data, at)
    return message_id_form(found) if isinstance(found, str) else None


def _correlation_id(data: bytes, at: int) -> Value:
    found = _id(data, at)
    if not isinstance(found, str):
        return None
    return correlation_id_form(found) if _is_text(data, at) else ID_PREFIX + found


def _in_header(index: int, read: Read) -> FieldName:
    return FieldName(_HEADER, index, read)


def _in_properties(index: int, read: Read, form: Callable[[str], str] = str) -> FieldName:
    return FieldName(_PROPERTIES, index, read, form)


# An expiry that isn't there is 0, as a JMS client reads it and as qpidd and Artemis have it.
FIELDS: dict[str, FieldName] = {
    "JMSDeliveryMode": _in_header(0, _worded("PERSISTENT", "NON_PERSISTENT")),
    "JMSPriority": _in_header(1, _number_or(DEFAULT_PRIORITY)),
    "JMSXDeliveryCount": _in_header(4, _delivery),
    "JMSRedelivered": _in_header(4, _redelivered),
    "JMSMessageID": _in_properties(0, _message_id, message_id_form),
    "JMSXUserID": _in_properties(1, _user),
    "JMSDestination": _in_properties(2, _text),
    "JMSType": _in_properties(3, _text),
    "JMSReplyTo": _in_properties(4, _text),
    "JMSCorrelationID": _in_properties(5, _correlation_id, correlation_id_form),
    "JMSExpiration": _in_properties(8, _number_or(0)),
    "JMSTimestamp": _in_properties(9, _number),
    "JMSXGroupID": _in_properties(10, _text),
    "JMSXGroupSeq": _in_properties(11, _number),
    "amqp.durable": _in_header(0, _flag),
    "amqp.delivery_mode": _in_header(0, _worded("PERSISTENT", "NON_PERSISTENT")),
    "amqp.priority": _in_header(1, _number_or(DEFAULT_PRIORITY)),
    "amqp.ttl": _in_header(2, _number),
    "amqp.first_acquirer": _in_header(3, _flag),
    "amqp.delivery_count": _in_header(4, _count),
    "amqp.redelivered": _in_header(4, _redelivered),
    "amqp.message_id": _in_properties(0, _id),
    "amqp.user_id": _in_properties(1, _user),
    "amqp.to": _in_properties(2, _text),
    "amqp.subject": _in_properties(3, _text),
    "amqp.reply_to": _in_properties(4, _text),
    "amqp.correlation_id": _in_properties(5, _id),
    "amqp.content_type": _in_properties(6, _text),
    "amqp.content_encoding": _in_properties(7, _text),
    "amqp.absolute_expiry_time": _in_properties(8, _number_or(0)),
    "amqp.creation_time": _in_properties(9, _number),
    "amqp.group_id": _in_properties(10, _text),
    "amqp.group_sequence": _in_properties(11, _number),
    "amqp.reply_to_group_id": _in_properties(12, _text),
    "AMQDurable": _in_header(0, _worded("DURABLE", "NON_DURABLE")),
    "AMQPriority": _in_header(1, _number_or(DEFAULT_PRIORITY)),
    "AMQUserID": _in_properties(0, _message_id, message_id_form),
    "AMQAddress": _in_properties(2, _text),
    "AMQExpiration": _in_properties(8, _number_or(0)),
    "AMQTimestamp": _in_properties(9, _number),
    "AMQGroupID": _in_properties(10, _text),
}
# Artemis's name for the encoded message's size, which is no field.
SIZE = "AMQSize"
