"""Machines with full disks, and machines that lose their power; each has an ext4 file system of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import skip_without_servers
from tests.cluster.disks import missing

# A minute or two each.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.mark.parametrize("fault", ["power-cut", "full-disk"])
def test_nothing_is_lost_by(fault: str) -> None:
    """The rounds have their own namespace for mounts, so they are a process of their own."""
    skip_without_servers()
    if missing():
        pytest.skip(missing())
    words = [sys.executable, "-m", "tests.cluster.rounds", "--fault", fault, "--rounds", "4"]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=500)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert f"| {fault} | 4 |" in ran.stdout
