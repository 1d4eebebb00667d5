"""Sockets that cost more than they bring: they are left unread until the control quota has time for them."""

from __future__ import annotations

import select

from broker.amqp.loop.control_quota import ControlQuota
from broker.amqp.loop.sockets import ClientSocket, ClientSockets


class Deferral:
    """Decides which sockets wait for the control quota."""

    def __init__(self, lane: ControlQuota, sockets: ClientSockets, epoll: select.epoll) -> None:
        self._lane = lane
        self._sockets = sockets
        self._epoll = epoll

    def may_now(self, now_ns: int) -> bool:
        """Whether there is time for a client that comes, and nobody waits for it."""
        lane = self._lane
        return not lane.waiting and (lane.may_serve(now_ns) or lane.is_quiet(now_ns))

    def defers(self, client: ClientSocket, mask: int, now_ns: int) -> bool:
        """Whether a socket that has something for us waits."""
        if mask & (select.EPOLLHUP | select.EPOLLERR):
            return False
        if client.deferred:
            return not mask & select.EPOLLOUT
        if client not in self._sockets.handshaking or mask & select.EPOLLOUT or self.may_now(now_ns):
            return False
        self.defer(client)
        return True

    def defer(self, client: ClientSocket) -> None:
        """Leave a client unread until its slice comes; one that waits already goes on waiting."""
        if not client.deferred:
            client.deferred = client.aside = True
            self._epoll.modify(client.fd, select.EPOLLOUT if client.armed else 0)
        self._lane.put(client.fd)

    def defer_listening(self, fd: int) -> None:
        """Leave the clients of a listening socket waiting until its slice comes."""
        self._epoll.modify(fd, 0)
        self._lane.put(fd)

    def take_up(self, client: ClientSocket) -> None:
        """Have a client read like everybody else again."""
        client.deferred = False
        client.aside = not client.has_moved()
        self._sockets.watch(client)
