"""Annotations that consumers add to a message when they give it back."""

from __future__ import annotations

from typing import Any

from cproton_ffi import ffi, lib

from broker.codec.message import after_descriptor, list_fields
from broker.engine.annotations import add_annotations
from broker.queues.queue import Entry

_NULL = b"\x40"


def annotate(delivery: int, entry: Entry) -> None:
    """Merge the annotations of a `modified` outcome into the message's (AMQP 1.0 §3.4.5)."""
    added = _encoded(lib.pn_disposition_annotations(_remote(delivery)))
    if added:
        add_annotations(entry, added)


def provisional_annotations(delivery: int) -> bytes:
    """Return the encoded annotations of the `modified` outcome within a transactional-state (§4.5.8)."""
    # Proton keeps the state's fields: the transaction-id and the outcome.
    state = list_fields(_encoded(lib.pn_disposition_data(_remote(delivery))), 0)
    if len(state) < 2 or state[1][:1] != b"\x00":
        return b""
    outcome = list_fields(state[1], after_descriptor(state[1], 0))
    return outcome[2] if len(outcome) > 2 and outcome[2] != _NULL else b""


def _remote(delivery: int) -> Any:
    return lib.pn_delivery_remote(ffi.cast("pn_delivery_t *", delivery))


def _encoded(data: Any) -> bytes:
    """Return the encoded value of a pn_data_t, empty for none."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    buffer = ffi.new("char[]", size)
    return bytes(ffi.buffer(buffer, lib.pn_data_encode(data, buffer, size)))
