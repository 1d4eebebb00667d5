"""Pages that a member answers itself over HTTP: whether it lives, is ready, what it knows of the cell.

A standby answers them on its HTTP port, which relays everything else, and every member on its member port.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from http import HTTPStatus

from broker.http.metrics.cluster import of_cluster
from broker.http.metrics.exposition import CONTENT_TYPE
from broker.manage.cluster import ClusterStatus

PLAIN = "text/plain; charset=utf-8"
READS = ("GET", "HEAD")
SILENT = b"the broker's loop does not answer\n"

# Status, content type and body of a page.
Answered = tuple[int, str, bytes]


def asked_path(line: str) -> str:
    """Return the path that a request's first line reads, without its query; empty where it reads none."""
    words = line.split()
    return words[1].partition("?")[0] if len(words) > 1 and words[0] in READS else ""


def written_answer(line: str, answered: Answered) -> bytes:
    """Return a page as HTTP/1.1 writes it, after which the connection ends; HEAD has no body."""
    status, kind, body = answered
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    ).encode()
    return head if line.startswith("HEAD") else head + body


def outlined(status: ClusterStatus) -> ClusterStatus:
    """Return a status without addresses, versions and faults, for those who haven't said who they are."""
    members = tuple(replace(each, addresses=(), version="", fault="") for each in status.members)
    engine = replace(status.engine, servers=(), connected="")
    return replace(status, members=members, engine=engine)


class MemberPages:
    """Answers by path; None for what isn't the member's own.

    ``unready`` says why the owner isn't ready, empty for a member that is or is no owner; it raises
    TimeoutError where the broker's loop doesn't answer. ``is_near``: only this machine can ask, and it is
    told everything. ``relays``: others' questions about the cell go to the owner while there is one, who asks
    for a login. ``is_one_of_several``: so do all questions and the metrics, as an owner speaks for all cells.
    """

    def __init__(
        self,
        status: Callable[[], ClusterStatus],
        unready: Callable[[], str],
        *,
        is_near: bool,
        relays: bool,
        is_one_of_several: bool = False,
    ) -> None:
        self._status = status
        self._unready = unready
        self._is_near = is_near
        self._relays = relays
        self._is_one_of_several = is_one_of_several

    def page(self, path: str) -> Answered | None:
        """Find the page of a path."""
        if path == "/healthz":
            return self._health()
        if path == "/readyz":
            return self._readiness()
        if path == "/metrics":
            if self._is_one_of_several and self._goes_on(self._status()):
                return None
            return 200, CONTENT_TYPE, of_cluster(self._status())
        if path == "/api/v1/cluster":
            return self._cluster()
        return None

    def any_page(self, path: str) -> Answered:
        """Find the page of a path; 404 where there is none."""
        nothing = b"not found; there are /metrics, /healthz, /readyz and /api/v1/cluster\n"
        return self.page(path) or (404, PLAIN, nothing)

    def _cluster(self) -> Answered | None:
        status = self._status()
        if self._goes_on(status) and (self._is_one_of_several or not self._is_near):
            return None
        if not self._is_near:
            status = outlined(status)
        return 200, "application/json", json.dumps(asdict(status)).encode() + b"\n"

    def _goes_on(self, status: ClusterStatus) -> bool:
        """Whether there is an owner who can be asked."""
        return bool(self._relays and status.owner and status.owner_reachable)

    def _health(self) -> Answered:
        try:
            self._unready()
        except TimeoutError:
            return 503, PLAIN, SILENT
        return 200, PLAIN, b"ok\n"

    def _readiness(self) -> Answered:
        status = self._status()
        try:
            reason = self._unready()
        except TimeoutError:
            return 503, PLAIN, SILENT
        if not reason and not status.owner:
            reason = "the cell has no owner"
        elif not reason and not status.owner_reachable:
            reason = f"the owner, {status.owner}, can't be reached"
        if reason:
            return 503, PLAIN, f"not ready: {reason}\n".encode()
        return 200, PLAIN, b"ready\n"
