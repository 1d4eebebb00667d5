"""Servers of the log for the tests here, which are skipped by name without ``nats-server`` and Go."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tools.nats import NatsCluster, server


def skip_without_servers() -> None:
    """Skip what asks for servers of the log where there are none; where they must be, it fails."""
    if server() is None:
        if os.environ.get("CI"):
            pytest.fail("neither nats-server nor go is installed")
        pytest.skip("neither nats-server nor go is installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers."""
    skip_without_servers()
    servers = NatsCluster(tmp_path_factory.mktemp("log"))
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """One server, for cells with one replica."""
    skip_without_servers()
    servers = NatsCluster(tmp_path_factory.mktemp("log"), 1)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
