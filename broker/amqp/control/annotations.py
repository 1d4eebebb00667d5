"""Annotations that consumers add to a message when they give it back."""

from __future__ import annotations

from typing import Any

from cproton_ffi import ffi, lib

from broker.codec import message
from broker.queues.queue import Entry, Extra

# More bytes of annotations on one message are not kept.
MOST_ANNOTATIONS = 1 << 16


def annotate(delivery: int, entry: Entry) -> None:
    """Merge the annotations of a `modified` outcome into the message's (AMQP 1.0 §3.4.5).

    A time or a delay among them is for its next delivery.
    """
    remote = lib.pn_delivery_remote(ffi.cast("pn_delivery_t *", delivery))
    added = _encoded(lib.pn_disposition_annotations(remote))
    if not added:
        return
    if entry.extra is None:
        entry.extra = Extra()
    present = entry.extra.annotations or message.annotations_of(entry.data)
    if len(present) + len(added) <= MOST_ANNOTATIONS:
        entry.extra.annotations = message.merged_outcome(present, added)


def _encoded(data: Any) -> bytes:
    """Return the encoded value of a pn_data_t, empty for none."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    buffer = ffi.new("char[]", size)
    return bytes(ffi.buffer(buffer, lib.pn_data_encode(data, buffer, size)))
