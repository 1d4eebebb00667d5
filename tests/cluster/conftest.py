"""Servers of the log for the tests here, which are skipped by name without ``nats-server`` and Go."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tools.nats import NatsCluster, server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    if server() is None:
        if os.environ.get("CI"):
            pytest.fail("neither nats-server nor go is installed")
        pytest.skip("neither nats-server nor go is installed")
    servers = NatsCluster(tmp_path_factory.mktemp("log"))
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
