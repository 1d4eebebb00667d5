"""The views of routes and channels, filled in by the package that runs them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RouteView:
    """A route as it stands; ``url`` without user and password, ``state`` since ``since_ns``.

    ``backlog`` is what waits here to go out, ``credit`` what the receiving end would take now;
    ``returned`` were released or modified by the other end and will be tried again.
    """

    name: str
    url: str
    direction: str
    local: str
    remote: str
    state: str
    since_ns: int
    last_error: str
    forwarded: int
    backlog: int
    unsettled: int
    credit: int
    rejected: int
    returned: int
    connects: int


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel as it stands; ``waiting`` are the messages whose producers wait for their settlement."""

    name: str
    topic: str
    to: str
    max_rate: int
    flow_control: bool
    state: str
    last_error: str
    sent: int
    sent_bytes: int
    backlog: int
    backlog_bytes: int
    waiting: int
    too_large: int
    dropped: int
