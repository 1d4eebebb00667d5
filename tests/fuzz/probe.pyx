"""The frame followers by themselves, which only the compiled message path can call otherwise."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from broker.amqp.guard.outgoing_frames cimport OutgoingFrames
from broker.amqp.guard.frame_guard cimport FrameGuard


def watch_incoming(FrameGuard sentry, bytes data):
    """What Proton would get of these bytes: themselves, or the pieces it gets instead.

    They stand in memory of just their size, so that a read beyond them is seen by who looks for it.
    """
    cdef bytes whole = sentry.take_kept() + data
    cdef long size = PyBytes_GET_SIZE(whole)
    cdef uint8_t *copy = <uint8_t *>malloc(size)
    cdef long taken
    memcpy(copy, PyBytes_AS_STRING(whole), size)
    try:
        taken = sentry.filter(copy, size)
    finally:
        free(copy)
    if taken >= 0:
        return [whole[:taken]]
    pieces = sentry.pieces
    sentry.pieces = []
    return pieces


def watch_outgoing(OutgoingFrames direction, bytes data):
    """Follow bytes of ours."""
    cdef long size = PyBytes_GET_SIZE(data)
    cdef uint8_t *copy = <uint8_t *>malloc(size)
    memcpy(copy, PyBytes_AS_STRING(data), size)
    try:
        direction.follow(copy, size)
    finally:
        free(copy)
