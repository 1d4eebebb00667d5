"""Pages that a standby answers itself over HTTP: whether it lives, is ready, what it knows of the cell."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from broker.manage.cluster import ClusterStatus

PLAIN = "text/plain; charset=utf-8"


class StandbyPages:
    """Answers by path; None for what the owner answers. Ready is a member that can relay."""

    def __init__(self, status: Callable[[], ClusterStatus]) -> None:
        self._status = status

    def page(self, path: str) -> tuple[int, str, bytes] | None:
        """Find the page of a path: status, content type and body."""
        if path == "/healthz":
            return 200, PLAIN, b"ok\n"
        if path == "/readyz":
            return self._readiness()
        if path == "/api/v1/cluster":
            return 200, "application/json", json.dumps(asdict(self._status())).encode() + b"\n"
        return None

    def _readiness(self) -> tuple[int, str, bytes]:
        status = self._status()
        if not status.owner:
            return 503, PLAIN, b"not ready: the cell has no owner\n"
        if not status.owner_reachable:
            return 503, PLAIN, f"not ready: the owner, {status.owner}, can't be reached\n".encode()
        return 200, PLAIN, b"ready\n"
