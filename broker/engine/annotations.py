"""Annotations that a consumer's outcome adds to a message."""

from __future__ import annotations

from broker.codec import message
from broker.queues.queue import Entry, Extra

# More bytes of annotations on one message are not kept.
MOST_ANNOTATIONS = 1 << 16


def add_annotations(entry: Entry, added: bytes) -> None:
    """Merge an encoded map, that of a `modified` outcome, into the message's annotations (AMQP 1.0 §3.4.5).

    A time or a delay among them is for its next delivery.
    """
    if entry.extra is None:
        entry.extra = Extra()
    present = entry.extra.annotations or message.annotations_of(entry.data)
    if len(present) + len(added) <= MOST_ANNOTATIONS:
        entry.extra.annotations = message.merged_outcome(present, added)
