"""Addresses of Proton's C objects, by which the message path knows them."""

from __future__ import annotations

from cproton_ffi import ffi
from proton import Link


def address_of(impl: object) -> int:
    """Return the address of a C object that Proton's binding holds."""
    return int(ffi.cast("uintptr_t", impl))


def handle_of(link: Link) -> int:
    """Return the handle of a link: the address of its C object."""
    return address_of(link._impl)


def link_at(handle: int) -> Link:
    """Return Proton's object for the link of a handle."""
    found: Link = Link.wrap(ffi.cast("pn_link_t *", handle))  # type: ignore[no-untyped-call]
    return found
