"""What a standby says of itself over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace

from broker.manage.cluster import ClusterStatus, EngineStatus
from broker.server.cluster.pages import StandbyPages

ENGINE = EngineStatus(True, ("nats://127.0.0.1:4222",), "n1", 7)
STATUS = ClusterStatus("main", "b", "standby", "a", True, 3, "", 2, ENGINE, ())


def test_ready_is_who_can_relay() -> None:
    def readiness(status: ClusterStatus) -> tuple[int, bytes]:
        found = StandbyPages(lambda: status).page("/readyz")
        assert found is not None
        return found[0], found[2]

    assert readiness(STATUS) == (200, b"ready\n")
    assert readiness(replace(STATUS, owner="")) == (503, b"not ready: the cell has no owner\n")
    assert readiness(replace(STATUS, owner_reachable=False))[0] == 503


def test_pages_of_its_own() -> None:
    pages = StandbyPages(lambda: STATUS)
    assert pages.page("/healthz") is not None
    found = pages.page("/api/v1/cluster")
    assert found is not None
    assert json.loads(found[2])["engine"]["position"] == 7
    assert pages.page("/api/v1/queues") is None
