"""The filters of a link's source (AMQP 1.0 §3.5.8): a JMS selector, and where a reader of a stream begins."""

from __future__ import annotations

import cproton  # noqa: F401  it prepares the library
from cproton_ffi import ffi, lib

from .engine import Handle

SELECTOR = b"apache.org:selector-filter:string"
# RabbitMQ's, for streams: `first`, `last`, `next`, an offset (ulong), or a time (timestamp).
OFFSET_SPEC = b"rabbitmq:stream-offset-spec"
# Many messages of a stream in one delivery: their bytes, and the offset before which the last one ends.
CHUNK_SPEC = b"sluice:stream-chunk-spec"


def put_filters(
    data: Handle,
    *,
    selector: str | None = None,
    offset: int | None = None,
    time_ms: int | None = None,
    chunk: tuple[int, int] | None = None,
) -> None:
    """Ask for these; a stream is read from an offset, or from a time (ms since the epoch).

    ``chunk``: in chunks of so many bytes, up to and without an offset.
    """
    if selector is None and offset is None and time_ms is None:
        return
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    if selector is not None:
        _begin(data, b"jms-selector", SELECTOR)
        put(data, lib.pn_data_put_string, selector.encode())
        lib.pn_data_exit(data)
    if offset is not None or time_ms is not None:
        _begin(data, OFFSET_SPEC, OFFSET_SPEC)
        if offset is not None:
            lib.pn_data_put_ulong(data, offset)
        else:
            lib.pn_data_put_timestamp(data, time_ms)
        lib.pn_data_exit(data)
    if chunk is not None:
        _begin(data, CHUNK_SPEC, CHUNK_SPEC)
        lib.pn_data_put_list(data)
        lib.pn_data_enter(data)
        for number in chunk:
            lib.pn_data_put_ulong(data, number)
        lib.pn_data_exit(data)
        lib.pn_data_exit(data)
    lib.pn_data_exit(data)


def count_applied(link: Handle) -> int:
    """How many filters the broker says that it applies; it leaves the others out of its answer."""
    data = lib.pn_terminus_filter(lib.pn_link_remote_source(link))
    lib.pn_data_rewind(data)
    return int(lib.pn_data_get_map(data)) // 2 if lib.pn_data_next(data) else 0


def put(data: Handle, kind: Handle, value: bytes) -> None:
    """Append a string or symbol by Proton's function for that kind."""
    held = ffi.from_buffer(value)
    kind(data, (len(value), held))


def _begin(data: Handle, key: bytes, descriptor: bytes) -> None:
    """Append a key and a described value, whose value is to follow."""
    put(data, lib.pn_data_put_symbol, key)
    lib.pn_data_put_described(data)
    lib.pn_data_enter(data)
    put(data, lib.pn_data_put_symbol, descriptor)
