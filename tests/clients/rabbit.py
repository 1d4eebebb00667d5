"""RabbitMQ with its AMQP 1.0 plugin, in folders and on ports of its own; ended by its process ids."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from bench.contenders import free_port

BIN = Path("/usr/lib/rabbitmq/bin")
START_S = 90


def missing() -> list[str]:
    """What isn't installed."""
    found = [] if (BIN / "rabbitmq-server").exists() else ["rabbitmq-server"]
    return found + ([] if shutil.which("epmd") else ["epmd"])


class Rabbit:
    """A RabbitMQ that can be killed and started again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._epmd_port, dist_port = free_port(), free_port(), free_port()
        plugins = folder / "enabled_plugins"
        plugins.write_text("[rabbitmq_amqp1_0].\n")
        config = folder / "rabbitmq.conf"
        config.write_text(f"listeners.tcp.local = 127.0.0.1:{self.port}\n")
        self.env = os.environ | {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"sluice{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none.conf"),
        }
        epmd = ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"]
        self._epmd = subprocess.Popen(epmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """With the credentials it has when new."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = (self.folder / "out.log").open("ab")
        with log:
            self._server = subprocess.Popen(
                [str(BIN / "rabbitmq-server")], env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"RabbitMQ did not start:\n{(self.folder / 'out.log').read_text()[-3000:]}"
                )
            time.sleep(0.1)

    def kill(self) -> None:
        """End it at once, with all it started."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None

    def close(self) -> None:
        """Leave nothing running."""
        self.kill()
        self._epmd.kill()
        self._epmd.wait()

    def _answers(self) -> bool:
        from broker.client.errors import ClientError
        from broker.client.link import Connection

        try:
            Connection(self.url, timeout_s=5).close()
        except (ClientError, OSError):
            return False
        return True
