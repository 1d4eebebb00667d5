"""The two servers that the client's tests talk to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.contenders import BARE, Running

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bare() -> Iterator[Running]:
    """The bare loop: queues and nothing else."""
    # Before its time to start begins: a C compiler takes what it takes.
    built = "from bench.barebroker import compiled; compiled()"
    subprocess.run([sys.executable, "-c", built], check=True, cwd=ROOT)
    with BARE.started() as running:
        yield running


@pytest.fixture(scope="module")
def peer() -> Iterator[str]:
    """The URL of a peer that answers by address; see client_peer.py."""
    script = Path(__file__).with_name("client_peer.py")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"amqp://127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()
