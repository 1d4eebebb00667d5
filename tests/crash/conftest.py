"""A broker that is killed and started again on the same data directory."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.conftest import START_SECONDS, STOP_SECONDS, start_process
from tests.wire.forked import ForkedProcess

POLICIES = """
policies:
  - match: ">"
    durable: true
    max_count: 20000
    consumer_flow_limit: 500
"""


class Broker:
    """`sluice serve` on one data directory, as often as it takes."""

    def __init__(self, folder: Path, policies: str = POLICIES, config: str = "") -> None:
        self.folder = folder
        self.data = folder / "data"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "policies.yaml").write_text(policies)
        (folder / "broker.yaml").write_text(config)
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.port = 0
        self.http_port = 0
        self.said = ""

    def start(self, *args: str, env: dict[str, str] | None = None, wait: bool = True) -> None:
        """Start it and wait until it is ready."""
        words = [
            *("serve", "--config", str(self.folder / "broker.yaml")),
            *("--policies", str(self.folder / "policies.yaml"), "--data", str(self.data)),
            *("--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "warning", *args),
        ]
        with (self.folder / "log").open("w") as log:
            self.process = start_process(words, env or {}, log.fileno())
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while "ready" not in self.read_log():
            assert self.process is not None
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.005)
        self.port = int(self._find(r"listening amqp://127\.0\.0\.1:(\d+)"))
        self.http_port = int(self._find(r"listening http://127\.0\.0\.1:(\d+)"))

    def read_log(self) -> str:
        """What it has said so far."""
        self.said = (self.folder / "log").read_text()
        return self.said

    def configure(self, config: str) -> None:
        """Other settings, from the next start on."""
        (self.folder / "broker.yaml").write_text(config)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"amqp://127.0.0.1:{self.port}"

    def wait_exit(self, seconds: float = START_SECONDS) -> int:
        """Until it has left by itself."""
        assert self.process is not None
        status = self.process.wait(seconds)
        self.read_log()
        return status

    def _find(self, pattern: str) -> str:
        match = re.search(pattern, self.said)
        assert match is not None, self.said
        return match[1]


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Broker]:
    """A broker not started yet."""
    broker = Broker(tmp_path / "broker")
    yield broker
    if broker.process is not None and broker.process.poll() is None:
        broker.kill()
